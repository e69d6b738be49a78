cdef class Memory:
    cdef char* ptr
    cdef Py_ssize_t nbytes


cdef class Buffer:
    cdef unsigned char[::1] data        # the bytes; holds their owner alive
    cdef readonly Py_ssize_t nbytes     # asked for; the block may be larger
    cdef readonly long long version     # the write clock at the last write: autograd asks whether a value is still the one it saw
    cdef int size_class                 # of the allocator; -1: memory of somebody else
    cdef void* next_free


cdef long long write_clock              # counts the writes to arrays, of all buffers on all devices

cdef long long tick() noexcept
cdef Buffer allocate(Py_ssize_t nbytes)
cdef void recycle(Buffer buffer) noexcept
