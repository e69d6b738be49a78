"""Sums, and broadcasting, which is their reverse; extremes, softmax and relatives. Axes are None (all), an int or a tuple."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

from needle.autograd import Tensor, TensorOp, array_api, constant, count, follows_torch, frozen
from needle.ops.choosing import equal, where
from needle.ops.conversion import astype
from needle.ops.functions import exp
from needle.ops.helpers import kept_shape
from needle.ops.shapes import flip, reshape
from needle.typing import Axes, Shape
from needle_ndarray.extension import normal_axes


def _spread(y, x, axes):
    """A result of reducing x over axes, brought back to x's shape."""
    if axes is None or y.ndim == x.ndim:
        return broadcast_to(y, x.shape)
    return broadcast_to(reshape(y, kept_shape(x.shape, axes)), x.shape)


class Summation(TensorOp):
    """y = sum of x over axes;  dx = dy at every element that was summed"""

    needs = ""
    __slots__ = ("axes", "keepdims")

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = frozen(axes), keepdims

    def compute(self, x):
        return x.sum(self.axes, self.keepdims)

    def gradient(self, out_grad, node):
        return _spread(out_grad, node.inputs[0], self.axes)


SUM_OF_ROWS = Summation((0,))
SUM_OF_ROWS_KEPT = Summation((0,), keepdims=True)


class Mean(TensorOp):
    """y = average of x over axes;  dx = dy / count at every element"""

    needs = ""
    __slots__ = ("axes", "keepdims")

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = frozen(axes), keepdims

    def compute(self, x):
        return x.mean(self.axes, self.keepdims)

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return _spread(out_grad / (count(x) // (count(out_grad) or 1)), x, self.axes)


class BroadcastTo(TensorOp):
    """y = x repeated along axes of size 1 and new leading ones;  dx = dy summed over them"""

    needs = ""
    __slots__ = ("shape",)

    def __init__(self, shape: Shape) -> None:
        self.shape = frozen(shape)

    def compute(self, x):
        return x.broadcast_to(self.shape)

    def gradient(self, out_grad, node):
        return sum_to(out_grad, node.inputs[0].shape)


class FitTo(TensorOp):
    """y = g summed to the shape of x, in its dtype;  dg = dy repeated. What the engine records for gradients in lazy mode."""

    needs = ""

    def __init__(self, op: Any) -> None:
        self.op = op  # whose gradient g is

    def compute(self, g, x):
        if g.shape != x.shape:
            if not self.op.broadcasts:
                raise ValueError(
                    f"{type(self.op).__name__}.gradient returned shape {g.shape} for an input of shape {x.shape}"
                )
            lead = g.ndim - x.ndim
            g = g.sum((*range(lead), *[i for i, n in enumerate(x.shape, lead) if n != g.shape[i]])).reshape(x.shape)
        return g.astype(x.dtype, copy=False)

    def gradient(self, out_grad, node):
        g = node.inputs[0]
        return astype(broadcast_to(out_grad, g.shape), g.dtype), None


class Deviation(TensorOp):
    """y = sqrt v, v a variance;  dv = dy / (2 y), 0 where y is 0: there v does not change with what it is the variance of"""

    needs = "output"

    def compute(self, v):
        return v.sqrt()

    def gradient(self, out_grad, node):
        return out_grad / (where(equal(node, 0), math.inf, node) * 2)


class CumSum(TensorOp):
    """y_i = x_0 + ... + x_i;  dx_i = dy_i + ... + dy_n"""

    needs = ""

    def __init__(self, axis: SupportsIndex) -> None:
        self.axis = frozen(axis)

    def compute(self, x):
        return array_api.cumsum(x, self.axis)

    def gradient(self, out_grad, node):
        return flip(cumsum(flip(out_grad, self.axis), self.axis), self.axis)


class LogSumExp(TensorOp):
    """y = log sum e^x over axes;  dx = dy e^(x - y)"""

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = frozen(axes), keepdims

    def compute(self, x):
        return array_api.logsumexp(x, self.axes, keepdims=self.keepdims)

    def gradient(self, out_grad, node):
        return LogSumExpGrad(self.axes)(out_grad, node.inputs[0], node)


class LogSumExpGrad(TensorOp):
    """z = g e^(x - y), 0 where y is -inf;  dg = sum dz e^(x - y), dx = dz z, dy = -sum dx"""

    def __init__(self, axes: Axes = None) -> None:
        self.axes = frozen(axes)

    def compute(self, g, x, y):
        return array_api.logsumexp_grad(g, x, y, self.axes)

    def gradient(self, out_grad, node):
        g, x, y = node.inputs
        shift = where(equal(y, -math.inf), 0.0, y)
        dx = out_grad * node
        dg = summation(out_grad * exp(x - _spread(shift, x, self.axes)), self.axes, keepdims=True)
        return reshape(dg, g.shape), dx, -reshape(summation(dx, self.axes, keepdims=True), y.shape)


class Softmax(TensorOp):
    """y = e^x / sum e^x;  dx = y (dy - sum y dy)"""

    needs = "output"

    def __init__(self, axes: Axes = -1) -> None:
        self.axes = frozen(axes)

    def compute(self, x):
        return array_api.softmax(x, self.axes)

    def gradient(self, out_grad, node):
        return SoftmaxGrad(self.axes)(out_grad, node)


class SoftmaxGrad(TensorOp):
    """z = y (g - sum y g);  dg = y (dz - sum y dz), dy = dz (g - sum y g) - g sum y dz"""

    needs = "inputs"

    def __init__(self, axes: Axes = -1) -> None:
        self.axes = frozen(axes)

    def compute(self, g, y):
        return array_api.softmax_grad(g, y, self.axes)

    def gradient(self, out_grad, node):
        g, y = node.inputs
        mean_g, mean_dz = (summation(y * a, self.axes, keepdims=True) for a in (g, out_grad))
        return SoftmaxGrad(self.axes)(out_grad, y), out_grad * (g - mean_g) - g * mean_dz


class LogSoftmax(TensorOp):
    """y = x - log sum e^x;  dx = dy - e^y sum dy"""

    needs = "output"

    def __init__(self, axes: Axes = -1) -> None:
        self.axes = frozen(axes)

    def compute(self, x):
        return array_api.log_softmax(x, self.axes)

    def gradient(self, out_grad, node):
        return LogSoftmaxGrad(self.axes)(out_grad, node)


class LogSoftmaxGrad(TensorOp):
    """z = g - e^y sum g;  dg = dz - sum e^y dz, dy = -dz e^y sum g"""

    needs = "inputs"

    def __init__(self, axes: Axes = -1) -> None:
        self.axes = frozen(axes)

    def compute(self, g, y):
        return array_api.log_softmax_grad(g, y, self.axes)

    def gradient(self, out_grad, node):
        g, y = node.inputs
        spent = exp(y) * out_grad
        return out_grad - summation(spent, self.axes, keepdims=True), -spent * summation(g, self.axes, keepdims=True)


def summation(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over axes."""
    return Summation(axes, keepdims)(a)


def broadcast_to(a: Tensor, shape: Shape) -> Tensor:
    """a repeated along axes of size 1 and new leading ones; nothing is copied."""
    return BroadcastTo(shape)(a)


def sum_to(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """a summed over the axes along which `shape` would have to be broadcast to a's: the reverse of broadcasting."""
    given = a.shape
    if given == shape:
        return a
    lead = len(given) - len(shape)
    if given[lead:] == shape:
        return SUM_OF_ROWS(a) if lead == 1 else Summation(tuple(range(lead)))(a)
    if lead == 0 and given[1:] == shape[1:]:
        return SUM_OF_ROWS_KEPT(a)
    axes = (*range(lead), *[i for i, n in enumerate(shape, lead) if n == 1 and given[i] != 1])
    return Summation(axes, keepdims=True)(a) if lead == 0 else reshape(Summation(axes)(a), shape)


def mean(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """The average over axes."""
    return Mean(axes, keepdims)(a)


def var(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    ddof: int | None = None,
    *,
    correction: int | None = None,
    unbiased: bool | None = None,
) -> Tensor:
    """The average squared distance from the mean; its divisor is the number of elements minus ddof.

    `correction` and `unbiased` are PyTorch's spellings of ddof, which is 0 unless given, and 1 within `needle.compat("torch")`.
    """
    ddof = _freedom(ddof, correction, unbiased)
    n = _count(a, axes)
    centred = a - mean(a, axes, keepdims=True)
    return summation(centred * centred, axes, keepdims) / (n - ddof if n > ddof else math.nan)


def std(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    ddof: int | None = None,
    *,
    correction: int | None = None,
    unbiased: bool | None = None,
) -> Tensor:
    """The square root of `var`; where all values are equal, its gradient is 0."""
    return Deviation()(var(a, axes, keepdims, ddof, correction=correction, unbiased=unbiased))


def _freedom(ddof, correction, unbiased):
    given = [n for n in (ddof, correction, None if unbiased is None else int(unbiased)) if n is not None]
    if len(given) > 1:
        raise TypeError("var: ddof, correction and unbiased are names for the same argument")
    return given[0] if given else int(follows_torch())


def _count(a, axes):
    n = math.prod([a.shape[i] for i in normal_axes("mean", axes, a.ndim)])
    return n if n else math.nan


def cumsum(a: Tensor, axis: SupportsIndex | None = None) -> Tensor:
    """Running sums along an axis; over all elements in row-major order where axis is None."""
    return CumSum(0)(reshape(a, (-1,))) if axis is None else CumSum(axis)(a)


def logsumexp(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """log sum e^a over axes, stable for large and small a."""
    return LogSumExp(axes, keepdims)(a)


def softmax(a: Tensor, axes: Axes = -1) -> Tensor:
    """e^a / sum e^a over axes."""
    return Softmax(axes)(a)


def logsoftmax(a: Tensor, axes: Axes = -1) -> Tensor:
    """log softmax over axes, the last one by default."""
    return LogSoftmax(axes)(a)


# ---- Without a derivative: results are constants ----------------------------------------------------------


def any(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether one element is not 0."""
    return constant(array_api.any, a, axis=axes, keepdims=keepdims)


def all(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether no element is 0."""
    return constant(array_api.all, a, axis=axes, keepdims=keepdims)
