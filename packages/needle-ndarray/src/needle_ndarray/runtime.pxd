from needle_ndarray.kernels cimport matmul as products

cdef int threads_for(Py_ssize_t work, Py_ssize_t threshold) noexcept
cdef const products.Blas* blas() except NULL
