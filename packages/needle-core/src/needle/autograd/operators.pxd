"""The ops that the engine itself uses: those behind Python's operators, and the rest of `needle.ops` by name."""

from needle.autograd.values cimport Op, ScalarOp

cdef class Operators:
    cdef object ops                     # the module needle.ops
    cdef Op add, multiply, divide, negate, matmul, clone    # these hold nothing: one of each does for all
    cdef ScalarOp add_scalar, mul_scalar, div_scalar        # with another number each time: `with_scalar`
    cdef object summation, make_tuple   # classes
    cdef list entries                   # TupleGetItem(i) at place i

    cdef Op entry(self, Py_ssize_t i)


cdef Operators table

cdef Operators find_operators()
cdef Op with_scalar(ScalarOp like, object scalar)


cdef inline Operators operators():
    return table if table is not None else find_operators()
