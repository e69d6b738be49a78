cdef int layer_norm(object x, object weight, object bias, double eps, object out) except -1
cdef int layer_norm_grad(object grad, object x, object weight, double eps, object dx, object dweight, object dbias) except -1
cdef int batch_norm(object x, object weight, object bias, double eps, object out, object mean, object var) except -1
cdef int batch_norm_grad(object grad, object x, object mean, object var, object weight, double eps, object dx, object dweight,
                         object dbias) except -1
cdef int cross_entropy(object grad, object logits, object labels, object out) except -1
cdef bint attention(object q, object k, object v, object mask, bint causal, double scale, object out) except -1
cdef bint attention_grad(object grad, object q, object k, object v, object mask, bint causal, double scale, object dq,
                         object dk, object dv) except -1
