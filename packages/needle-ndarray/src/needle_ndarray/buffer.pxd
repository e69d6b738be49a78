cdef class Memory:
    cdef char* ptr
    cdef Py_ssize_t nbytes


cdef class Buffer:
    cdef unsigned char[::1] data        # the bytes; holds their owner alive
    cdef readonly Py_ssize_t nbytes     # asked for; the block may be larger
    cdef readonly Py_ssize_t version    # counts writes: autograd asks whether a saved value is still the one it saved
    cdef int size_class                 # of the allocator; -1: memory of somebody else
    cdef void* next_free


cdef Buffer allocate(Py_ssize_t nbytes)
cdef void recycle(Buffer buffer) noexcept
