"""Ops that choose: comparisons, which have no derivative, and what follows from them. Inputs broadcast as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle.autograd import (
    Tensor,
    TensorOp,
    array_api,
    as_constant,
    constant,
    get_default_dtype,
    handed_out,
    result_dtype,
)
from needle.ops.conversion import astype
from needle.ops.helpers import no_bool, number
from needle.typing import Number, Operand


class Abs(TensorOp):
    """y = |x|;  dx = dy sign x (0 at 0)"""

    needs = "inputs"

    def compute(self, x):
        return x.abs()

    def gradient(self, out_grad, node):
        return out_grad * sign(node.inputs[0])


class Clip(TensorOp):
    """y = min(max(x, low), high);  dx = dy where low <= x <= high, else 0"""

    def __init__(self, low: Number | None = None, high: Number | None = None) -> None:
        self.low, self.high = number(low), number(high)

    def compute(self, x):
        return array_api.clip(x, self.low, self.high)

    def gradient(self, out_grad, node):
        return where(equal(node, node.inputs[0]), out_grad, 0.0)


class Where(TensorOp):
    """y = a where c else b;  da = dy where c else 0, db = 0 where c else dy"""

    needs = ""
    broadcasts = True

    def compute(self, condition, a, b):
        return array_api.where(condition, a, b)

    def gradient(self, out_grad, node):
        c, a, b = node.inputs
        da = where(c, out_grad, 0.0) if a.requires_grad else None
        db = where(c, 0.0, out_grad) if b.requires_grad else None
        return None, da, db


class Maximum(TensorOp):
    """y = max(a, b);  dy goes to the larger, half to each where they are equal"""

    broadcasts = True

    def compute(self, a, b):
        return array_api.maximum(a, b)

    def gradient(self, out_grad, node):
        return _to_winner(out_grad, node)


class Minimum(TensorOp):
    """y = min(a, b);  dy goes to the smaller, half to each where they are equal"""

    broadcasts = True

    def compute(self, a, b):
        return array_api.minimum(a, b)

    def gradient(self, out_grad, node):
        return _to_winner(out_grad, node)


def _to_winner(out_grad, node):
    a, b = node.inputs
    share = astype(where(equal(a, b), 0.5, 1.0), out_grad.dtype) * out_grad
    return where(equal(a, node), share, 0.0), where(equal(b, node), share, 0.0)


# ---- The functions --------------------------------------------------------------------------


def abs(a: Tensor) -> Tensor:
    return Abs()(a)


def clip(a: Tensor, low: Number | None = None, high: Number | None = None) -> Tensor:
    """Every element between low and high; None: no bound."""
    return Clip(low, high)(a)


def where(condition: Any, a: Operand | None = None, b: Operand | None = None) -> Any:
    """a where the condition holds, else b; a and b may be numbers, and all of them arrays. Of a condition alone, where it holds."""
    if a is None and b is None:
        return tuple([Tensor.make_const(i) for i in array_api.nonzero(handed_out(condition))])
    no_bool("where: the condition", condition)
    like = next((x for x in (a, b) if isinstance(x, Tensor)), None)
    if like is None:
        device = condition.device if isinstance(condition, Tensor) else None
        dtype = None if isinstance(a, (int, np.integer, np.ndarray)) else get_default_dtype()
        like = a = Tensor.make_const(array_api.asarray(a, dtype=dtype, device=device))
    return Where()(as_constant(condition, like, "where"), as_constant(a, like, "where"), as_constant(b, like, "where"))


def maximum(a: Operand, b: Operand) -> Tensor:
    return Maximum()(a, b)


def minimum(a: Operand, b: Operand) -> Tensor:
    return Minimum()(a, b)


# ---- Without a derivative: results are constants --------------------------------------------------------------------------


def _comparison(function):
    def compare(a, b):
        return constant(function, a, b)

    compare.__name__ = compare.__qualname__ = function.__name__
    compare.__doc__ = f"Elementwise `{function.__name__}`: a bool Tensor, without a derivative."
    return compare


equal = _comparison(array_api.equal)
not_equal = _comparison(array_api.not_equal)
less = _comparison(array_api.less)
less_equal = _comparison(array_api.less_equal)
greater = _comparison(array_api.greater)
greater_equal = _comparison(array_api.greater_equal)
logical_and = _comparison(array_api.logical_and)
logical_or = _comparison(array_api.logical_or)
logical_xor = _comparison(array_api.logical_xor)


def _constant(function, name=None):
    def apply(*args):
        return constant(function, *args)

    apply.__name__ = apply.__qualname__ = name or function.__name__
    apply.__doc__ = f"Elementwise `{apply.__name__}`: a Tensor without a derivative."
    return apply


bitwise_and = _constant(array_api.bitwise_and)
bitwise_or = _constant(array_api.bitwise_or)
bitwise_xor = _constant(array_api.bitwise_xor)
bitwise_not = _constant(array_api.invert, "bitwise_not")
bitwise_left_shift = _constant(array_api.bitwise_left_shift)
bitwise_right_shift = _constant(array_api.bitwise_right_shift)


def _step(function):
    def apply(a):
        return constant(function, a)

    apply.__name__ = apply.__qualname__ = function.__name__
    apply.__doc__ = f"Elementwise `{function.__name__}`: a Tensor without a derivative."
    return apply


def floor_divide(a: Operand, b: Operand) -> Tensor:
    """floor(a / b): a Tensor without a derivative."""
    like = next((x for x in (a, b) if isinstance(x, Tensor)), None)
    if like is None:
        raise TypeError(f"floor_divide: expected a Tensor, got {type(a).__name__} and {type(b).__name__}")
    a, b = as_constant(a, like, "floor_divide"), as_constant(b, like, "floor_divide")
    return constant(_floor_of_quotient, a, b, dtype=result_dtype(a.dtype, b.dtype))


def _floor_of_quotient(a, b, dtype):
    return array_api.floor_divide(a.astype(dtype, copy=False), b.astype(dtype, copy=False))


_floor_of_quotient.__name__ = "floor_divide"  # what traces, and errors about them, call it


logical_not = _step(array_api.logical_not)
sign = _step(array_api.sign)
floor = _step(array_api.floor)
ceil = _step(array_api.ceil)


def round(a: Tensor, decimals: int = 0) -> Tensor:
    """To the nearest whole number, halves to the even one, or to so many decimals: a Tensor without a derivative."""
    if not decimals or not a.dtype.is_float:
        return constant(array_api.round, a)
    scale = 10.0**decimals
    return constant(array_api.round, a.detach() * scale) / scale


trunc = _step(array_api.trunc)
signbit = _step(array_api.signbit)
isnan = _step(array_api.isnan)
isinf = _step(array_api.isinf)
isfinite = _step(array_api.isfinite)
