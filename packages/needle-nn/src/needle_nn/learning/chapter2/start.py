"""Chapter 2: build automatic differentiation.

The text is in chapter2.md; `needle learn check 2` checks this file.

Tensor and Add are complete. Replace each `raise NotImplementedError` by your code: `compute` in NumPy, `gradient` in the functions
of this file (add, multiply, ...), so that gradients can be differentiated again.
"""

import numpy as np


class Tensor:
    """A node: data (a NumPy array), the op that made it and the op's inputs. A leaf has no op."""

    def __init__(self, data, op=None, inputs=()):
        self.data, self.op, self.inputs, self.grad = np.asarray(data), op, tuple(inputs), None
        self.shape = self.data.shape

    def numpy(self):
        return self.data

    def backward(self):
        compute_gradient_of_variables(self, Tensor(np.ones_like(self.data)))


class Op:
    def __call__(self, *inputs):
        return Tensor(self.compute(*[x.data for x in inputs]), self, inputs)


class Add(Op):
    """y = a + b. The shapes of a and b are equal, here and in Multiply and Divide."""

    def compute(self, a, b):
        return a + b

    def gradient(self, out_grad, node):
        return out_grad, out_grad


class Negate(Op):
    """y = -a"""

    def compute(self, a):
        return -a

    def gradient(self, out_grad, node):
        return negate(out_grad)


class Multiply(Op):
    """y = a b"""

    def compute(self, a, b):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class Divide(Op):
    """y = a / b"""

    def compute(self, a, b):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class MulScalar(Op):
    """y = c a for a number c"""

    def __init__(self, c):
        self.c = c

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class PowerScalar(Op):
    """y = a^c for a number c"""

    def __init__(self, c):
        self.c = c

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class Exp(Op):
    """y = e^a"""

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class Log(Op):
    """y = log a"""

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class ReLU(Op):
    """y = max(a, 0); its gradient is 0 at 0. The second derivative is 0: here a Tensor of plain numbers is allowed."""

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class MatMul(Op):
    """y = a b for two matrices"""

    def compute(self, a, b):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class Transpose(Op):
    """y = a with its last two axes swapped"""

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class Reshape(Op):
    """y = a in another shape"""

    def __init__(self, shape):
        self.shape = shape

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class Summation(Op):
    """y = the sum of a over axes, a tuple of numbers; None means all"""

    def __init__(self, axes=None):
        self.axes = axes

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


class BroadcastTo(Op):
    """y = a repeated to a shape by NumPy's rules: axes of size 1 are repeated, missing ones are added on the left"""

    def __init__(self, shape):
        self.shape = shape

    def compute(self, a):
        raise NotImplementedError

    def gradient(self, out_grad, node):
        raise NotImplementedError


# ---- Functions: nothing to do here ----


def add(a, b):
    return Add()(a, b)


def negate(a):
    return Negate()(a)


def multiply(a, b):
    return Multiply()(a, b)


def divide(a, b):
    return Divide()(a, b)


def mul_scalar(a, c):
    return MulScalar(c)(a)


def power_scalar(a, c):
    return PowerScalar(c)(a)


def exp(a):
    return Exp()(a)


def log(a):
    return Log()(a)


def relu(a):
    return ReLU()(a)


def matmul(a, b):
    return MatMul()(a, b)


def transpose(a):
    return Transpose()(a)


def reshape(a, shape):
    return Reshape(shape)(a)


def summation(a, axes=None):
    return Summation(axes)(a)


def broadcast_to(a, shape):
    return BroadcastTo(shape)(a)


# ---- The engine ----


def find_topo_sort(node_list):
    """The nodes that node_list was computed from, and node_list: post-order, inputs in order, each node once.

    Without recursion: a graph may be 5000 nodes deep.
    """
    raise NotImplementedError


def compute_gradient_of_variables(output, out_grad):
    """Put the gradient of output into `.grad` of every leaf, given out_grad, the gradient of output itself."""
    raise NotImplementedError
