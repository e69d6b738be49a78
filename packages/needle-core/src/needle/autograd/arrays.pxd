"""What the engine asks of NDArrays without going through Python: the C functions of `needle_ndarray.extension`.

Each module that asks keeps a copy of the struct (`cdef Arrays arrays = load_arrays()`), so that a question is one indirect call.
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer

cdef enum:
    ARRAYS_ABI = 2              # of the struct that follows: as in needle_ndarray/extension.pyx

ctypedef struct Arrays:
    int abi
    long long* clock                                    # the write clock: one counter for all writes to all arrays
    Py_ssize_t (*nbytes)(PyObject*) noexcept            # -1: not an NDArray
    long long (*version)(PyObject*) noexcept            # the write clock at its last write; -1: ask the object
    int (*is_sole_owner)(PyObject*) noexcept            # whether nobody else sees a write to it
    int (*dtype_code)(PyObject*) noexcept               # -1: not an NDArray
    int (*alike)(PyObject*, PyObject*) noexcept         # whether both are arrays of one shape and dtype
    int (*is_compact)(PyObject*) noexcept               # whether it is an array in row-major order without gaps


cdef inline Arrays load_arrays() except *:
    from needle_ndarray import __version__, extension
    cdef int* given = <int*> PyCapsule_GetPointer(extension.C_INTERFACE, "needle_ndarray.extension")
    if given[0] != ARRAYS_ABI:          # the one field that every version has in the same place
        raise ImportError(f"needle-core was built for version {<int> ARRAYS_ABI} of needle_ndarray's C interface, needle-ndarray"
                          f" {__version__} has version {given[0]}: install releases of the two that belong together")
    return (<Arrays*> given)[0]
