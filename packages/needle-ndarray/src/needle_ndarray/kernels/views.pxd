# What a kernel is told of an array, and the fused types. Everything here is C: no objects, no GIL.

from needle_ndarray.optable cimport BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8

cdef enum:
    MAX_NDIM = 32
    CHUNK = 1024            # elements staged at a time: three operands of 8 bytes fit the first-level cache
    BLOCK = 16384           # elements a thread takes at a time; fixed, so results do not depend on the threads
    NO_LOOP = -2            # what a kernel answers to an op that it has no loop for

ctypedef signed char boolean     # 0 or 1; another C type than uint8, so that the fused types tell them apart
ctypedef unsigned char uint8
ctypedef unsigned short word2    # a float16 or bfloat16, to be widened or moved
ctypedef long long int64

ctypedef fused T:           # every element type that is computed with
    boolean
    uint8
    int
    int64
    float
    double

ctypedef fused I:           # the integers
    boolean
    uint8
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
