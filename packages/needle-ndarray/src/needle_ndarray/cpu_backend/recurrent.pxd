from needle_ndarray.backend cimport Op
from needle_ndarray.kernels cimport recurrent as cells

cdef int cell(str verb, int kind, tuple arrays, tuple widths, int inputs, object state, object bias) except -1
cdef int rnn_kind(Op op) except -1


cdef class Run:
    cdef cells.Sequence job
    cdef str verb
    cdef list held
    cdef list results               # (room, the array it stands for)

    cdef char* take(self, object given, tuple shape, bint read, bint written, bint wanted=*) except? NULL
    cdef int run(self, bint backward) except -1
    cdef int forward(self, x, weight, bias, h, c, gates) except -1
    cdef int backward(self, dy, weight, h, c, gates, dx, ds, dh, dc) except -1
