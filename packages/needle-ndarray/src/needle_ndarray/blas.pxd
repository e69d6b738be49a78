from needle_ndarray.kernels.gemm cimport Blas

cdef const Blas* blas() except NULL
cdef int make_room(int threads) except -1
cdef int make_room_for_numpy(size_t nbytes) except -1
