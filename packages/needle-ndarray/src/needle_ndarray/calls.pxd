# A call of a verb whose arguments have been checked: what its kernel needs, and a function that runs it without the GIL. A verb is
# preparing a call and running it; a replay prepares once and runs often. Who prepares keeps the arrays.

from cpython.object cimport PyObject

from needle_ndarray.kernels.conv cimport Plan
from needle_ndarray.kernels.views cimport View

cdef enum:
    OPERANDS = 4


cdef enum Reads:                    # what `run` reads of its operands
    POINTERS                        # data
    VIEWS                           # views
    REWRITTEN                       # views, which are not the same afterwards


cdef struct Call:
    int (*run)(Call*) noexcept nogil      # 0, or what `done` makes an error of
    int op, dtype, out_dtype
    int count                       # operands
    Reads reads
    bint p, q                       # flat operands of a binary op: whether they have more than one element
    Py_ssize_t m, n                 # rows and columns of what is flat, or axes that are kept
    Py_ssize_t work                 # elements or multiplications: whether threads and letting the GIL go pay
    const void* blas                # of a product: NULL unless it is called, which may need memory first
    char bits[8]                    # an element that is filled in
    Plan plan                       # of a convolution
    void* epilogue                  # what it does to its result: kernels/epilogue.pxd; or NULL
    PyObject* arrays[OPERANDS]
    char* data[OPERANDS]            # where the operands' first elements are
    View views[OPERANDS]            # last: what is not used need not be kept
