from needle_ndarray.kernels cimport optim

cdef int step(str verb, list params, list grads, list m, list v, const optim.Rule* rule) except -1
cdef optim.Rule rule_of(int op, double lr, double weight_decay) noexcept
