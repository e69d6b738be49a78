from needle_ndarray.optable cimport DTYPE_COUNT

cdef enum Verb:
    NO_VERB, UNARY_OP, BINARY_OP, REDUCE_OP, ARG_REDUCE_OP, SCAN_OP, RANDOM_OP


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

    cpdef object allocate(self, Py_ssize_t nbytes)
    cpdef from_host(self, object values, object out)
    cpdef object to_host(self, object a)
    cpdef synchronize(self)
    cpdef fill(self, object out, object value)
    cpdef copy(self, object a, object out)
    cpdef unary(self, Op op, object a, object out)
    cpdef binary(self, Op op, object a, object b, object out)
    cpdef where(self, object condition, object a, object b, object out)
    cpdef reduce(self, Op op, object a, tuple axes, object out)
    cpdef arg_reduce(self, Op op, object a, int axis, object out)
    cpdef scan(self, Op op, object a, int axis, object out)
    cpdef matmul(self, object a, object b, object out)
    cpdef linear(self, object x, object weight, object bias, object out)
    cpdef take(self, object a, object index, object out)
    cpdef put(self, object a, object index, object values)
    cpdef scatter_add(self, object a, object index, object values)
    cpdef random(self, Op op, unsigned long long seed, unsigned long long counter, object out)
    cpdef softmax(self, object a, object out)
    cpdef log_softmax(self, object a, object out)
    cpdef logsumexp(self, object a, object out)
    cpdef layer_norm(self, object x, object weight, object bias, double eps, object out)
    cpdef layer_norm_grad(self, object grad, object x, object weight, double eps, object dx, object dweight, object dbias)
    cpdef batch_norm(self, object x, object weight, object bias, double eps, object out, object mean, object var)
    cpdef batch_norm_grad(self, object grad, object x, object mean, object var, object weight, double eps, object dx,
                          object dweight, object dbias)
    cpdef cross_entropy(self, object logits, object labels, object out)
    cpdef cross_entropy_grad(self, object grad, object logits, object labels, object out)
    cpdef attention(self, object q, object k, object v, object mask, bint causal, double scale, object out)
    cpdef attention_grad(self, object grad, object q, object k, object v, object mask, bint causal, double scale, object dq,
                         object dk, object dv)
    cpdef lstm_cell(self, object x, object y, object bias, object c, object h_out, object c_out, object gates)
    cpdef lstm_cell_grad(self, object dy, object dh, object dc, object gates, object c, object c_out, object ds, object dc_out)
    cpdef gru_cell(self, object x, object y, object bias, object h, object h_out, object gates)
    cpdef gru_cell_grad(self, object dy, object dh, object h, object gates, object dx, object ds, object dh_out)
    cpdef lstm(self, object x, object weight, object bias, object h, object c, object gates)
    cpdef lstm_grad(self, object dy, object weight, object c, object gates, object ds, object dh, object dc)
    cpdef gru(self, object x, object weight, object bias, object h, object gates)
    cpdef gru_grad(self, object dy, object weight, object h, object gates, object dx, object ds, object dh)
    cpdef rnn(self, Op op, object x, object weight, object bias, object h)
    cpdef rnn_grad(self, Op op, object dy, object weight, object h, object ds, object dh)
    cpdef conv2d(self, object x, object weight, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups, object out)
    cpdef conv2d_input_grad(self, object grad, object weight, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups,
                            object out)
    cpdef conv2d_weight_grad(self, object x, object grad, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups,
                             object out)
    cpdef max_pool2d(self, object x, tuple size, tuple stride, tuple padding, object out)
    cpdef max_pool2d_grad(self, object grad, object x, tuple size, tuple stride, tuple padding, object out)
    cpdef avg_pool2d(self, object x, tuple size, tuple stride, tuple padding, object out)
    cpdef avg_pool2d_grad(self, object grad, tuple size, tuple stride, tuple padding, object out)
    cpdef sgd_step(self, list params, list grads, list u, double lr, double momentum, double dampening, double weight_decay,
                   double l1, bint nesterov, double correction)
    cpdef adam_step(self, list params, list grads, list m, list v, double lr, double beta1, double beta2, double eps,
                    double weight_decay, bint decoupled, double correction1, double correction2)
