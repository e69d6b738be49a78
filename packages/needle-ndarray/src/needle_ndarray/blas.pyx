"""The BLAS library, which one process opens once."""

import os

from libc.errno cimport ENOMEM

from needle_ndarray.buffer import empty_cache
from needle_ndarray.kernels.gemm cimport Blas

cdef extern from "blas_buffers.h" nogil:
    int needle_memory_is_limited()
    int needle_fits(size_t nbytes)
    int needle_take_first(void* gemm)
    int needle_take_buffers(void* gemm, int count, int depth)

cdef extern from "portable.h" nogil:
    void* needle_open_library(const char* path)
    void* needle_symbol(void* library, const char* name)
    int needle_in_forked(void (*child)() noexcept nogil)

cdef enum:
    BUFFER = 33 << 20           # bytes, a little more than OpenBLAS takes
    THREAD_DATA = 4 << 20       # bytes for what a thread holds of its own: without it the C library ends the process
    SLACK = 1 << 29             # bytes that other threads may take while the second and later buffers are taken
    DEPTH = 8192                # of the products that hold the buffers: milliseconds
    TRIES = 6

cdef Blas found
cdef int tries = 0
cdef bint numpy_has_buffers = False
cdef bint blas_sought = False
cdef str blas_name = ""


cdef int find_blas() except -1:
    """Open scipy-openblas32 at the first matmul: without importing its package, and without its own threads."""
    global blas_sought, blas_name
    blas_name = "numpy.matmul (scipy-openblas32 is missing)"
    try:                                # an import, too, answers a lack of memory with an OSError
        from importlib.util import find_spec
        spec = find_spec("scipy_openblas32") if os.environ.get("NEEDLE_BLAS") != "numpy" else None
        folder = "" if spec is None or spec.origin is None else os.path.join(os.path.dirname(spec.origin), "lib")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    except OSError as error:
        if error.errno == ENOMEM:
            raise MemoryError("no memory to look for BLAS") from None
        raise
    limited = needle_memory_is_limited()
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        for name in names:
            if not name.startswith("libscipy_openblas") or not name.endswith((".so", ".dylib", ".dll")):
                continue
            path = os.path.join(folder, name)
            if limited:                 # it takes a buffer as it is opened; not yet sought: there may be more memory later
                check_memory(os.path.getsize(path) + BUFFER + (4 << 20), "the library of BLAS")
            library = needle_open_library(os.fsencode(path))
            if library is NULL:
                continue
            found.sgemm = needle_symbol(library, b"scipy_cblas_sgemm")
            found.dgemm = needle_symbol(library, b"scipy_cblas_dgemm")
            found.sgemv = needle_symbol(library, b"scipy_cblas_sgemv")
            found.dgemv = needle_symbol(library, b"scipy_cblas_dgemv")
            if found.sgemm and found.dgemm and found.sgemv and found.dgemv:
                needle_in_forked(forked)
                blas_name = f"scipy-openblas32 ({name})"
                break
            found.sgemm = found.dgemm = found.sgemv = found.dgemv = NULL
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before
    blas_sought = True
    return 0


cdef const Blas* blas() except NULL:
    """The BLAS functions, sought at the first call; NULL in them where there is none"""
    if not blas_sought:
        find_blas()
    return &found


def blas_in_use():
    """Which BLAS matrix products go to."""
    if not blas_sought:
        find_blas()
    return blas_name


cdef void forked() noexcept nogil:
    """In a child no other thread is at work, and what they held stays taken"""
    found.running = found.limit = found.buffers = 0


cdef int reserve_buffers(int threads) except -1:
    """Let so many calls of BLAS run at once, or fewer where memory is short; MemoryError where there is none for one of them."""
    if found.sgemm is NULL or found.buffers >= threads + (0 if found.limit else found.running):
        return 0
    return take_buffers(threads)


cdef int take_buffers(int threads) except -1:
    """Make OpenBLAS take its buffers now: where it finds no memory later it ends the process."""
    global tries
    cdef bint limited = needle_memory_is_limited()
    cdef int more
    if found.buffers == 0:
        if limited:
            check_memory(BUFFER + THREAD_DATA, "a buffer of BLAS")
        found.buffers = needle_take_first(found.sgemm)
    more = threads - found.buffers if limited and tries < TRIES else 0
    if more and needle_fits(<size_t> more * BUFFER + SLACK):
        tries += 1
        found.buffers = max(found.buffers, needle_take_buffers(found.sgemm, found.buffers + more, DEPTH))
    found.limit = found.buffers if limited else 0
    return 0


cdef int check_memory(size_t nbytes, str what) except -1:
    """MemoryError unless that much can be had at this moment"""
    if not needle_fits(nbytes):
        empty_cache()
        if not needle_fits(nbytes):
            raise MemoryError(f"no memory for {what}, {nbytes:,} bytes: the memory of this process is limited")
    return 0


cdef int reserve_buffers_of_numpy(size_t nbytes) except -1:
    """NumPy's BLAS takes its buffer at its first product, after memory for the result."""
    global numpy_has_buffers
    if not numpy_has_buffers and needle_memory_is_limited():
        check_memory(2 * BUFFER + nbytes, "a buffer of NumPy's BLAS")
    numpy_has_buffers = True
    return 0
