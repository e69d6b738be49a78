# What the modules of the CPU backend share: sizes from which threads pay, and checks for which there is no rule.

from needle_ndarray.backend cimport Op
from needle_ndarray.buffer cimport Buffer
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport FLOAT16

# Elements from which a second thread pays, measured (benchmarks/, 2 cores): waking it costs about 5 us.
cdef enum:
    THREADS_FROM = 65536            # arithmetic, copies, reductions
    THREADS_FROM_MATH = 8192        # exp, log, softmax, random numbers
    THREADS_FROM_FLOPS = 200000     # multiplications of a matmul
    NOGIL_FROM = 8192               # elements from which other Python threads may run meanwhile

cdef enum:
    LARGEST = 0x7fffffff            # of what BLAS takes, and of strides, paddings and dilations


cdef inline NDArray host(object given, View* view):
    """The array as the kernels that compute see it: one on the host, no half"""
    cdef NDArray a = <NDArray?> given
    if a._dtype >= FLOAT16:
        raise TypeError(f"a verb of the cpu backend was given {a.dtype}, which it takes as float32 only")
    return stored(given, view)


cdef inline NDArray stored(object given, View* view):
    """The array as the kernels that move elements see it: one on the host, of any dtype"""
    cdef NDArray a = <NDArray?> given
    if a._ptr is NULL and (a._size or not isinstance(a._buffer, Buffer)):
        raise TypeError(f"the cpu backend was given an array on {a.device}")
    a.view_into(view)
    return a


cdef inline int known(Op op, int verb) except -1:
    """Refuse an op of another verb, or one made by hand: its code would mean something else here."""
    return 0 if op.verb == verb else refuse(op)


cdef inline int refuse(Op op) except -1:
    raise TypeError(f"{op.name} is not an op of this verb's table")


cdef inline int done(int status) except -1:
    if status != 0:
        raise MemoryError("no memory for the kernels' staging buffers")
    return 0
