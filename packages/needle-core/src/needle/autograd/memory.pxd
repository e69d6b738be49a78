"""When data may go: see memory.pyx for the rule."""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE

from needle.autograd.values cimport Op, Value, entry

cdef enum:
    LARGE = 16384               # bytes from which it is worth the look at what an op has recorded
    SMALL = 1024                # bytes: dropping less costs more than it gives back

cdef int watching               # how many candidates there are

cdef void forget_candidate(PyObject* value) noexcept
cdef int drop_unneeded(Op op, tuple inputs, Value out, bint large) except -1
cdef int release(Value value, Py_ssize_t held) except -1
cdef int release_all(list made) except -1
cdef object sum_and_release(list terms)
cdef object own(object grad, list made)


cdef inline void add_uses(tuple inputs) noexcept:
    """A recorded node has these among its inputs."""
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(inputs)):
        (<Value> entry(inputs, i)).uses += 1


cdef inline void remove_uses(tuple inputs) noexcept:
    """A node that had these among its inputs has died, or is a leaf now."""
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(inputs)):
        (<Value> entry(inputs, i)).uses -= 1
