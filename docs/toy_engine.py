"""Automatic differentiation in one file, on NumPy arrays: needle.autograd and needle.ops without memory policy, modes or speed.

An op computes arrays and gives its gradient in ops, so a gradient has a graph of its own and can be differentiated again.
"""

import numpy as np


class Value:
    """A node of the graph: the data, the op that made it and the op's inputs. A leaf has no op."""

    def __init__(self, data, op=None, inputs=()):
        self.data, self.op, self.inputs, self.grad = data, op, inputs, None


class Tensor(Value):
    def __init__(self, data, op=None, inputs=()):
        super().__init__(np.asarray(data), op, inputs)
        self.shape = self.data.shape

    def numpy(self):
        return self.data

    def backward(self, out_grad=None):
        compute_gradient_of_variables(self, out_grad or Tensor(np.ones_like(self.data)))

    def __add__(self, other):
        return add(self, other) if isinstance(other, Tensor) else add_scalar(self, other)

    def __mul__(self, other):
        return multiply(self, other) if isinstance(other, Tensor) else mul_scalar(self, other)

    def __truediv__(self, other):
        return divide(self, other) if isinstance(other, Tensor) else mul_scalar(self, 1 / other)

    def __neg__(self):
        return negate(self)

    def __sub__(self, other):
        return self + -other

    def __pow__(self, exponent):
        return power_scalar(self, exponent)

    def __matmul__(self, other):
        return matmul(self, other)

    __radd__, __rmul__ = __add__, __mul__


class Op:
    """compute(*arrays) gives the result, gradient(out_grad, node) the gradients of the inputs, one Tensor each."""

    def __call__(self, *inputs):
        return Tensor(self.compute(*[x.data for x in inputs]), self, inputs)


# ---- The engine ----------------------------------------------------------------------------------


def find_topo_sort(node_list):
    """Every node after its inputs: depth first, without recursion, since a graph may be deeper than Python's stack."""
    order, seen, stack = [], set(), [(node, False) for node in reversed(node_list)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((x, False) for x in reversed(node.inputs))
    return order


def compute_gradient_of_variables(output, out_grad):
    """Put the gradient of output into `.grad` of every leaf: each node sends its gradient on once all of it has arrived."""
    arrived = {id(output): out_grad}
    for node in reversed(find_topo_sort([output])):
        grad = arrived.pop(id(node))
        if node.op is None:
            node.grad = grad
            continue
        grads = node.op.gradient(grad, node)
        for x, part in zip(node.inputs, grads if isinstance(grads, tuple) else (grads,), strict=True):
            part = sum_to(part, x.shape)
            arrived[id(x)] = arrived[id(x)] + part if id(x) in arrived else part


def sum_to(grad, shape):
    """Undo broadcasting: what was repeated in the forward pass is added up in the backward pass."""
    extra = len(grad.shape) - len(shape)
    axes = tuple(i for i, n in enumerate(grad.shape) if i < extra or (shape[i - extra] == 1 and n != 1))
    return grad if grad.shape == shape else reshape(summation(grad, axes), shape)


# ---- The ops -------------------------------------------------------------------------------------


def op(name, compute, gradient):
    """A function that makes nodes of a new op. `compute` takes arrays, `gradient` (out_grad, node); both then the constants."""

    def function(*inputs):
        tensors = tuple(x for x in inputs if isinstance(x, Tensor))
        constants = inputs[len(tensors) :]
        made = type(name, (Op,), {})()
        made.compute = lambda *arrays: compute(*arrays, *constants)
        made.gradient = lambda out_grad, node: gradient(out_grad, node, *constants)
        return made(*tensors)

    return function


add = op("Add", np.add, lambda g, y: (g, g))
multiply = op("Multiply", np.multiply, lambda g, y: (g * y.inputs[1], g * y.inputs[0]))
divide = op("Divide", np.divide, lambda g, y: (g / y.inputs[1], -(g * y) / y.inputs[1]))
negate = op("Negate", np.negative, lambda g, y: -g)
exp = op("Exp", np.exp, lambda g, y: g * y)
log = op("Log", np.log, lambda g, y: g / y.inputs[0])
tanh = op("Tanh", np.tanh, lambda g, y: g * (1 + -(y * y)))
relu = op("ReLU", lambda x: np.maximum(x, 0), lambda g, y: g * Tensor((y.data > 0).astype(y.data.dtype)))
_add_scalar = op("AddScalar", lambda x, c: x + c, lambda g, y, c: g)
_mul_scalar = op("MulScalar", lambda x, c: x * c, lambda g, y, c: g * c)
_power_scalar = op("PowerScalar", lambda x, c: x**c, lambda g, y, c: g * c * y.inputs[0] ** (c - 1))
_summation = op("Summation", lambda x, axes: x.sum(axes), lambda g, y, axes: _spread(g, y.inputs[0].shape, axes))
_reshape = op("Reshape", np.reshape, lambda g, y, shape: reshape(g, y.inputs[0].shape))
broadcast_to = op("BroadcastTo", np.broadcast_to, lambda g, y, shape: sum_to(g, y.inputs[0].shape))
_transpose = op("Transpose", lambda x, i, j: x.swapaxes(i, j), lambda g, y, i, j: transpose(g, (i, j)))
_matmul = op(
    "MatMul", np.matmul, lambda g, y: (matmul(g, transpose(y.inputs[1])), matmul(transpose(y.inputs[0]), g))
)  # y = a b;  da = dy b^T, db = a^T dy


def number(c):
    """A Python number, also of a NumPy array with one element."""
    return np.asarray(c).item()


def add_scalar(a, c):
    return _add_scalar(a, number(c))


def mul_scalar(a, c):
    return _mul_scalar(a, number(c))


def power_scalar(a, c):
    return _power_scalar(a, number(c))


def summation(a, axes=None, keepdims=False):
    """The sum over axes: None for all of them, a number or several."""
    axes = range(len(a.shape)) if axes is None else [axes] if isinstance(axes, int) else axes
    axes = tuple(axis % len(a.shape) for axis in axes)
    out = _summation(a, axes)
    return reshape(out, _kept(a.shape, axes)) if keepdims else out


def _kept(shape, axes):
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape))


def _spread(g, shape, axes):
    return broadcast_to(reshape(g, _kept(shape, axes)), shape)


def reshape(a, shape):
    return _reshape(a, tuple(shape))


def transpose(a, axes=None, other=None):
    """Swap two axes, the last two unless told."""
    i, j = (-2, -1) if axes is None else (axes, other) if other is not None else axes
    return _transpose(a, i, j)


def matmul(a, b):
    """(..., m, k) @ (..., k, n); a vector is a matrix of one row on the left, of one column on the right."""
    rows, columns = a.shape[:-1][-1:], b.shape[1:][-1:]
    a = a if rows else reshape(a, (1, *a.shape))
    b = b if columns else reshape(b, (*b.shape, 1))
    out = _matmul(a, b)
    return out if rows and columns else reshape(out, (*out.shape[:-2], *rows, *columns))
