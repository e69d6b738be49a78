"""What a plan takes for granted of Python's state."""

cimport cython


@cython.final
cdef class Guard:
    cdef readonly object container, key, expected
    cdef readonly str what
    cdef int kind
    cdef bint is_dict
    cdef unsigned long long version     # of the dict, when the guard was last seen to hold

    cpdef bint holds(self) except -1
    cdef bint holds_now(self) except -1
    cdef bint same_entries(self) except -1
