"""The nodes of the graph, and the ops that make them."""

from cpython.object cimport PyObject

cdef extern from *:
    PyObject* entry "PyTuple_GET_ITEM"(object values, Py_ssize_t i) noexcept      # borrowed

cdef class Op:
    cdef object compute_function        # of the class, as long as `seen` is its version
    cdef unsigned int seen


cdef class TensorOp(Op):
    pass


cdef class ScalarOp(TensorOp):
    cdef readonly object scalar


cdef class TensorTupleOp(Op):
    pass


cdef class Slot:
    cdef readonly Py_ssize_t index
    cdef readonly object value


cdef class Value:
    cdef readonly object op             # None for a leaf
    cdef readonly tuple inputs
    cdef object array                   # None until computed, or after it was dropped
    cdef object spec                    # (shape, dtype, device) of dropped data
    cdef readonly object origin         # in anomaly and in lazy mode, and in a trace: the line that made it
    cdef object gradient                # of a leaf, or after retain_grad()
    cdef long long looked               # `looks` when backward put the gradient there
    cdef list hooks                     # called with the gradient
    cdef bint retains_grad
    cdef bint wants_grad
    # What `memory` goes by:
    cdef bint needed                    # some gradient looks at it
    cdef bint watched                   # its address is among the candidates
    cdef bint assigned                  # somebody has put data in: it cannot be had from the inputs
    cdef long long stamp                # the write clock when it was computed
    cdef long long assigned_at          # the write clock when data was put in
    cdef Py_ssize_t uses                # how many recorded nodes have it among their inputs, repeats counted
    cdef object __weakref__


cdef class TensorTuple(Value):
    cdef Py_ssize_t count(self) except -1
    cdef Value entry(self, Py_ssize_t i)


cdef long long looks                    # how often somebody has read or set a gradient

cdef Value make_leaf(type cls, object data, bint requires_grad)
cdef int assign(Value value, object data) except -1


cdef inline bint is_unknown(Value value) noexcept:
    """Whether nobody has looked yet at a lazy value"""
    return value.array is None and value.spec is None
