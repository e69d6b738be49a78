# What a kernel is told of an array, and the fused types. Everything here is C: no objects, no GIL.

from needle_ndarray.optable cimport BOOL, INT32, INT64, FLOAT32, FLOAT64

cdef enum:
    MAX_NDIM = 32
    CHUNK = 1024            # elements staged at a time: three operands of 8 bytes fit the first-level cache
    BLOCK = 16384           # elements a thread takes at a time; fixed, so results do not depend on the threads

ctypedef unsigned char boolean
ctypedef long long int64

ctypedef fused T:           # every element type
    boolean
    int
    int64
    float
    double

ctypedef fused I:           # the integers
    boolean
    int
    int64

ctypedef fused F:           # those with a fraction
    float
    double

cdef struct View:           # an array: strides count elements
    char* data
    int dtype
    int ndim
    Py_ssize_t itemsize
    Py_ssize_t size
    Py_ssize_t shape[32]
    Py_ssize_t strides[32]


cdef inline Py_ssize_t magnitude(Py_ssize_t stride) noexcept nogil:
    return stride if stride >= 0 else -stride
