from needle_ndarray.backend cimport Op

cdef int rows(Op op, object a, object out) except -1
cdef int rows_grad(Op op, object grad, object x, object y, object out) except -1
cdef int norm(Op op, object x, object weight, object bias, object out, object mean, object var, double eps) except -1
cdef int norm_grad(Op op, object grad, object x, object weight, object mean, object var, object dx, object dweight, object dbias,
                   double eps) except -1
cdef int cross_entropy(bint backward, object grad, object logits, object labels, object out) except -1
cdef bint attention(object q, object k, object v, object mask, object out, bint causal, double scale) except -1
cdef bint attention_grad(object grad, object q, object k, object v, object mask, object dq, object dk, object dv, bint causal,
                         double scale) except -1
