"""The ops that the engine itself uses.

Tensors are added by `needle.ops`, whose ops make Tensors: two modules that need each other. This one is imported first, so it
imports the other at first use, and nobody has to hand anything over.
"""

cimport cython
from cpython.object cimport PyObject

from needle.autograd.recording cimport find_compute
from needle.autograd.values cimport ScalarOp

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object tp_new(type, object, PyObject*)


@cython.auto_pickle(False)
cdef class Operators:
    def __cinit__(self):
        from needle import ops
        self.ops = ops.PLAIN
        self.add, self.multiply, self.divide = ops.EWiseAdd(), ops.EWiseMul(), ops.EWiseDiv()
        self.negate, self.matmul, self.clone = ops.Negate(), ops.MatMul(), ops.Clone()
        self.add_scalar, self.mul_scalar, self.div_scalar = ops.AddScalar(0), ops.MulScalar(1), ops.DivScalar(1)
        self.summation, self.make_tuple = ops.Summation, ops.MakeTensorTuple
        self.entries = []

    cdef Op entry(self, Py_ssize_t i):
        """TupleGetItem(i)"""
        while len(self.entries) <= i:
            self.entries.append(self.ops.TupleGetItem(len(self.entries)))
        return <Op> self.entries[i]


cdef Operators find_operators():
    global table
    table = Operators()
    return table


cdef Op with_scalar(ScalarOp like, object scalar):
    """An op of the same class with another number"""
    cdef ScalarOp op
    cdef type cls = type(like)
    if type(scalar) is not float and type(scalar) is not int:
        return cls(scalar)
    op = <ScalarOp> (<PyTypeObject*> cls).tp_new(cls, (), NULL)     # without __init__, which would look at the number again
    find_compute(like)
    op.scalar, op.compute_function, op.seen = scalar, like.compute_function, like.seen
    return op
