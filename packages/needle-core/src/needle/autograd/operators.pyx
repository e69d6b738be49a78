"""The ops that the engine itself uses.

Tensors are added by `needle.ops`, whose ops make Tensors: two modules that need each other. This one is imported first, so it
imports the other at first use, and nobody has to hand anything over.
"""

cimport cython


@cython.auto_pickle(False)
cdef class Operators:
    def __cinit__(self):
        from needle import ops
        self.ops = ops.PLAIN
        self.add, self.multiply, self.divide = ops.EWiseAdd(), ops.EWiseMul(), ops.EWiseDiv()
        self.negate, self.matmul, self.clone = ops.Negate(), ops.MatMul(), ops.Clone()
        self.add_scalar, self.mul_scalar, self.div_scalar = ops.AddScalar, ops.MulScalar, ops.DivScalar
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
