"""What ops are given besides values."""

from needle.autograd.values cimport Op

cdef tuple as_values(Op op, tuple args)
cpdef object as_constant(object x, object like, str what)
cpdef object frozen(object axes)
cpdef bint is_plain_key(object key)
