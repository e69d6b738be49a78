from needle_ndarray.backend cimport Op

cdef int step(Op op, list params, list grads, list m, list v, tuple hyperparameters) except -1
