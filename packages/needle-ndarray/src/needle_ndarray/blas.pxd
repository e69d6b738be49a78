from needle_ndarray.kernels cimport matmul as products

cdef const products.Blas* blas() except NULL
