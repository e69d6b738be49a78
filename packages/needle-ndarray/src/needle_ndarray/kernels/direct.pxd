from needle_ndarray.kernels.conv cimport Conv, Plan
from needle_ndarray.kernels.epilogue cimport Epilogue
from needle_ndarray.kernels.views cimport F

cdef bint fits(const Conv* g, int itemsize) noexcept nogil
cdef Conv adjoint_of(const Conv* g) noexcept nogil
cdef bint is_plane(const Conv* g, int itemsize) noexcept nogil
cdef bint many_small(const Conv* g, int itemsize) noexcept nogil
cdef Py_ssize_t band_rows(const Conv* g, int itemsize) noexcept nogil
cdef Py_ssize_t band_tasks(const Conv* g, int itemsize) noexcept nogil
cdef Py_ssize_t padded_elements(const Conv* g, int itemsize) noexcept nogil
cdef Py_ssize_t packed_elements(const Conv* g, bint adjoint, int itemsize) noexcept nogil
cdef void direct(const Plan* plan, char* x, char* weight, char* y, const Epilogue* epilogue, char* scratch,
                 int threads) noexcept nogil
cdef Py_ssize_t part_elements(const Conv* g, int itemsize) noexcept nogil
cdef void weight_part(const Conv* g, const F[:, :, :, ::1] x, const F[:, :, :, ::1] y, Py_ssize_t part, Py_ssize_t parts,
                      F[:, :, :, ::1] weight, F* scratch) noexcept nogil
