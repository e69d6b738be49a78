from needle_ndarray.kernels.conv cimport Conv
from needle_ndarray.optable cimport AVG_POOL, AVG_POOL_GRAD, MAX_POOL, MAX_POOL_GRAD

cdef void pool(int op, int dtype, const Conv* g, char* x, char* y, char* out, int threads) noexcept nogil
