cdef void fill_random(int op, int dtype, unsigned long long seed, unsigned long long counter, char* out, Py_ssize_t n,
                      int threads) noexcept nogil
