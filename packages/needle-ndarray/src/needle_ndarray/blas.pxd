from needle_ndarray.kernels.gemm cimport Blas

cdef const Blas* blas() except NULL
