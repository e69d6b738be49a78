"""Recording and computing: what calling an op does."""

from needle.autograd.modes cimport Modes
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op, TensorTuple, Value

cdef Tensor apply(Op op, tuple inputs)
cdef TensorTuple apply_tuple(Op op, tuple inputs)
cdef int record(Op op, tuple inputs, Value out, object data) except -1
cdef int note_used(tuple inputs, Modes* here, bint recorded) except -1
cdef int note_dropped(Value value, Modes* here) except -1
cdef int flag_bits(Value value) noexcept
cdef object read(Value value)
cdef object realize(Value value)
cdef long long last_write(object data) except -1


cdef inline object realized(Value value):
    return value.array if value.array is not None else realize(value)


cdef extern from *:
    """
    #define needle_type_version(o) (Py_TYPE(o)->tp_version_tag)
    """
    unsigned int type_version "needle_type_version"(object value) noexcept     # changes when its class does; 0: unknown


cdef inline int find_compute(Op op) except -1:
    """Know the `compute` of the op's class; a look into the instance first would make its __dict__"""
    if op.seen == 0 or op.seen != type_version(op):
        op.compute_function = type(op).compute
        op.seen = type_version(op)
    return 0
