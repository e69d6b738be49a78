from needle_ndarray.backend cimport Backend
from needle_ndarray.calls cimport OPERANDS, Call


cdef struct Prepared:               # a call that needs no more checks
    Py_ssize_t next             # the call after this one and those that are a part of it
    Py_ssize_t until                # the call after the run of prepared ones that it belongs to
    Py_ssize_t work                 # of this one and those after it in the run
    char** sources[OPERANDS]        # where its arrays say that their elements are
    Call call


cdef class PreparedCalls:
    cdef Prepared** calls           # by number: NULL where the verb is asked each time
    cdef Py_ssize_t count
    cdef list backends, held

    cdef bint add(self, Py_ssize_t i, Backend backend, str verb, tuple args) except -1
    cdef void lead_to(self, Py_ssize_t i, Py_ssize_t following) noexcept
    cdef int fuse(self, Py_ssize_t i, list steps) except -1
    cdef Py_ssize_t run_from(self, Py_ssize_t first) noexcept
