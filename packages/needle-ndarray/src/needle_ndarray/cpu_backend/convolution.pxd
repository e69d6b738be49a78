from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.calls cimport Call

cdef int fuse(Call* call, list steps) except -1

cdef int conv2d(Backend backend, Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation,
                Py_ssize_t groups) except -1
cdef int pool2d(Backend backend, Op op, bint backward, object grad, object x, object out, tuple size, tuple stride,
                tuple padding) except -1
cdef bint prepare_conv2d(Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups,
                         Call* call) except -1
cdef bint prepare_pool2d(Op op, object x, object out, tuple size, tuple stride, tuple padding, Call* call) except -1
