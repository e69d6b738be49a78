from needle_ndarray.kernels.conv cimport Conv

cdef bint fits(const Conv* g, int itemsize) noexcept nogil
cdef Conv swapped(const Conv* g) noexcept nogil
cdef Py_ssize_t direct_elements(const Conv* g, int itemsize, int threads) noexcept nogil
cdef bint across(const Conv* g, int itemsize) noexcept nogil
cdef void direct(int dtype, const Conv* g, bint swap, Py_ssize_t spread_h, Py_ssize_t spread_w, char* x, char* weight, char* y,
                 char* scratch, int threads) noexcept nogil
cdef Py_ssize_t part_elements(const Conv* g, int itemsize) noexcept nogil
cdef void weight_part(int dtype, const Conv* g, char* x, char* y, char* weight, Py_ssize_t part, Py_ssize_t parts,
                      char* scratch) noexcept nogil
