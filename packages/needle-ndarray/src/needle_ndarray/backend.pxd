from needle_ndarray.calls cimport Call
from needle_ndarray.optable cimport DTYPE_COUNT

cdef enum Verb:
    NO_VERB, UNARY_OP, BINARY_OP, REDUCE_OP, ARG_REDUCE_OP, SCAN_OP, RANDOM_OP, SCATTER_OP, ROWS_OP, NORM_OP, CONV2D_OP, POOL2D_OP
    CELL_OP, SEQUENCE_OP, STEP_OP


cdef class Op:
    cdef readonly str name
    cdef readonly int code
    cdef int verb                       # set for the ops of the table only
    cdef readonly str result
    cdef readonly str accepts
    cdef readonly str formula
    cdef readonly list out_dtype        # per input dtype code: the output's dtype code, -1 where refused
    cdef readonly list compute_dtype    # per input dtype code: the dtype code to cast the inputs to, -1 where refused
    cdef int out_code[DTYPE_COUNT]
    cdef int compute_code[DTYPE_COUNT]


cdef class Backend:
    cdef public object device           # the Device that users see; set when the backend is loaded
    cdef public object listener         # a recorder or profiler that hears of every verb, or None; see listening.py

    cpdef object allocate(self, Py_ssize_t nbytes)
    cpdef from_host(self, object values, object out)
    cpdef object to_host(self, object a)
    cpdef synchronize(self)
    cpdef fill(self, object out, object value)
    cpdef copy(self, object a, object out)
    cpdef unary(self, Op op, object a, object out)
    cpdef binary(self, Op op, object a, object b, object out)
    cpdef where(self, object condition, object a, object b, object out)
    cpdef reduce(self, Op op, object a, object out, tuple axes)
    cpdef arg_reduce(self, Op op, object a, object out, int axis)
    cpdef scan(self, Op op, object a, object out, int axis)
    cpdef matmul(self, object a, object b, object out)
    cpdef take(self, object a, object index, object out)
    cpdef scatter(self, Op op, object a, object index, object out)
    cpdef random(self, Op op, object out, unsigned long long seed, unsigned long long counter)
    cpdef matmul_weight(self, object a, object weight, object scale, object out)
    cpdef linear(self, object x, object weight, object bias, object out)
    cpdef rows(self, Op op, object a, object out)
    cpdef rows_grad(self, Op op, object grad, object x, object y, object out)
    cpdef cross_entropy(self, object logits, object labels, object out)
    cpdef cross_entropy_grad(self, object grad, object logits, object labels, object out)
    cpdef norm(self, Op op, object x, object weight, object bias, object out, object mean, object var, double eps)
    cpdef norm_grad(self, Op op, object grad, object x, object weight, object mean, object var, object dx, object dweight,
                    object dbias, double eps)
    cpdef attention(self, object q, object k, object v, object mask, object out, bint causal, double scale)
    cpdef attention_grad(self, object grad, object q, object k, object v, object mask, object dq, object dk, object dv, bint causal,
                         double scale)
    cpdef conv2d(self, Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups)
    cpdef pool2d(self, Op op, object x, object out, tuple size, tuple stride, tuple padding)
    cpdef pool2d_grad(self, Op op, object grad, object x, object out, tuple size, tuple stride, tuple padding)
    cpdef cell(self, Op op, object x, object y, object bias, object state, object h_out, object c_out, object gates)
    cpdef cell_grad(self, Op op, object dy, object dh, object dc, object gates, object state, object c_out, object dx, object ds,
                    object dstate)
    cpdef sequence(self, Op op, object x, object weight, object bias, object h, object c, object gates)
    cpdef sequence_grad(self, Op op, object dy, object weight, object h, object c, object gates, object dx, object ds, object dh,
                        object dc)
    cpdef step(self, Op op, list params, list grads, list m, list v, tuple hyperparameters)
    cdef bint prepare(self, str verb, tuple args, Call* call) except -1
    cdef int fuse(self, Call* call, list steps) except -1
