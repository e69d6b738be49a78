"""What one process has once: its threads, and the BLAS library."""

import os

from needle_ndarray.kernels cimport matmul as products

cdef extern from "dlfcn.h":
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW
    int RTLD_LOCAL

cdef int num_threads = 1
cdef bint threads_started = False
cdef bint forked = False            # from a process that had started threads


# ---- Threads --------------------------------------------------------------------------

def set_num_threads(n):
    """Use at most n threads per operation; results are the same bits for every n."""
    global num_threads
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 1024:
        raise ValueError(f"set_num_threads: {n!r}: expected an int from 1 to 1024")
    if forked and n > 1:
        raise RuntimeError("set_num_threads: this process was forked from one that had started threads; it can use only 1")
    num_threads = n


def get_num_threads():
    """Threads an operation may use: NEEDLE_NUM_THREADS, or the cores this process may run on."""
    return num_threads


cdef int threads_for(Py_ssize_t work, Py_ssize_t threshold) noexcept:
    """1 below the threshold, else what the user allows"""
    global threads_started
    if work < threshold or num_threads == 1:
        return 1
    threads_started = True
    return num_threads


def _after_fork():
    """OpenMP's threads do not survive a fork, and waiting for them would hang: the child goes on with one."""
    global num_threads, forked
    if threads_started:
        num_threads, forked = 1, True


def _threads_from_environment():
    text = os.environ.get("NEEDLE_NUM_THREADS")
    if text is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, 1024)
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise ImportError(f"NEEDLE_NUM_THREADS={text}: expected a number from 1 to 1024")
    return int(text)


set_num_threads(_threads_from_environment())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---- BLAS --------------------------------------------------------------------------

cdef products.Blas found
cdef bint blas_sought = False
cdef str blas_name = ""


cdef int find_blas() except -1:
    """Open scipy-openblas32 at the first matmul: without importing its package, and without its own threads."""
    global blas_sought, blas_name
    from importlib.util import find_spec
    blas_sought = True
    blas_name = "numpy.matmul (scipy-openblas32 is missing)"
    spec = find_spec("scipy_openblas32") if os.environ.get("NEEDLE_BLAS") != "numpy" else None
    if spec is None or spec.origin is None:
        return 0
    folder = os.path.join(os.path.dirname(spec.origin), "lib")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        for name in names:
            if not name.startswith("libscipy_openblas") or not name.endswith((".so", ".dylib")):
                continue
            library = dlopen(os.fsencode(os.path.join(folder, name)), RTLD_NOW | RTLD_LOCAL)
            if library is NULL:
                continue
            found.sgemm, found.dgemm = dlsym(library, b"scipy_cblas_sgemm"), dlsym(library, b"scipy_cblas_dgemm")
            if found.sgemm is not NULL and found.dgemm is not NULL:
                blas_name = f"scipy-openblas32 ({name})"
                break
            found.sgemm = found.dgemm = NULL
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before
    return 0


cdef const products.Blas* blas() except NULL:
    """The BLAS functions, sought at the first call; NULL in them where there is none"""
    if not blas_sought:
        find_blas()
    return &found


def blas_in_use():
    """Which BLAS matrix products go to."""
    if not blas_sought:
        find_blas()
    return blas_name
