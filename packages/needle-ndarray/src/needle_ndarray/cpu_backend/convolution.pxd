from needle_ndarray.backend cimport Backend

cdef int convolve(Backend backend, int op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation,
                  Py_ssize_t groups) except -1
cdef int pool(Backend backend, int op, object x, object y, object out, tuple size, tuple stride, tuple padding) except -1
