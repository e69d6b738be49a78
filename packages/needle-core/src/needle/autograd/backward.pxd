"""Reverse mode: the walk over a graph from its end."""

from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op

cdef int backward(Tensor root, object out_grad, bint accumulate, bint plain) except -1
cdef object fit(Op op, Tensor grad, Tensor x)
