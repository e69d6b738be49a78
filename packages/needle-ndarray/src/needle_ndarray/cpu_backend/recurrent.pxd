from needle_ndarray.backend cimport Op
from needle_ndarray.kernels cimport recurrent as cells
from needle_ndarray.kernels.views cimport View

cdef int cell(Op op, object x, object y, object bias, object state, object h_out, object c_out, object gates) except -1
cdef int cell_grad(Op op, object dy, object dh, object dc, object gates, object state, object c_out, object dx, object ds,
                   object dstate) except -1


cdef class Run:
    cdef cells.Sequence job
    cdef list held
    cdef list results               # (scratch, the array it stands for)

    cdef int measure(self, const View* preactivations, const View* weight) except -1
    cdef char* take(self, object given, bint read, bint written) except? NULL
    cdef int run(self, bint backward) except -1
    cdef int forward(self, x, weight, bias, h, c, gates) except -1
    cdef int backward(self, dy, weight, h, c, gates, dx, ds, dh, dc) except -1
