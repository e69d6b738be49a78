from needle_ndarray.kernels.gemm cimport Blas

cdef const Blas* blas() except NULL
cdef int reserve_buffers(int threads) except -1
cdef int reserve_buffers_of_numpy(size_t nbytes) except -1
