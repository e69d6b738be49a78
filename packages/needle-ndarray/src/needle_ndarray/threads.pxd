ctypedef void (*Task)(const void* job, Py_ssize_t i, int thread) noexcept nogil

cdef int threads_for(Py_ssize_t work, Py_ssize_t threshold) noexcept nogil
cdef void share(Task task, const void* job, Py_ssize_t n, int threads) noexcept nogil
