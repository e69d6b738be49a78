"""The BLAS library, which one process opens once."""

import os

from needle_ndarray.kernels.gemm cimport Blas

cdef extern from "dlfcn.h":
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW
    int RTLD_LOCAL

cdef Blas found
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
            found.sgemv, found.dgemv = dlsym(library, b"scipy_cblas_sgemv"), dlsym(library, b"scipy_cblas_dgemv")
            if found.sgemm and found.dgemm and found.sgemv and found.dgemv:
                blas_name = f"scipy-openblas32 ({name})"
                break
            found.sgemm = found.dgemm = found.sgemv = found.dgemv = NULL
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before
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
