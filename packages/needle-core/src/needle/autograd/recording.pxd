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
