"""Ops on tuples of tensors."""

from __future__ import annotations

from needle.autograd import Slot, Tensor, TensorOp, TensorTuple, TensorTupleOp, frozen
from needle.ops.helpers import number
from needle.typing import Number


class MakeTensorTuple(TensorTupleOp):
    """t = (a, b, ...);  da = dt[0], db = dt[1], ..."""

    needs = ""

    def compute(self, *args):
        return args

    def gradient(self, out_grad, node):
        return out_grad.tuple()


class TupleGetItem(TensorOp):
    """y = t[i];  dt = dy in entry i, nothing in the others"""

    needs = ""

    def __init__(self, index: int) -> None:
        self.index = frozen(index)

    def __call__(self, value: TensorTuple) -> Tensor:
        if not isinstance(value, TensorTuple):
            raise TypeError(f"TupleGetItem: expected a TensorTuple, got {type(value).__name__}")
        if isinstance(value.op, MakeTensorTuple):
            return value.inputs[self.index]  # no node needed
        return super().__call__(value)

    def compute(self, value):
        return value[self.index]

    def gradient(self, out_grad, node):
        return Slot(self.index % len(node.inputs[0]), out_grad)


class FusedAddScalars(TensorTupleOp):
    """t = (x + c0, x + c1);  dx = dt[0] + dt[1]"""

    needs = ""

    def __init__(self, c0: Number, c1: Number) -> None:
        self.c0, self.c1 = number(c0), number(c1)

    def compute(self, x):
        return x + self.c0, x + self.c1

    def gradient(self, out_grad, node):
        return out_grad[0] + out_grad[1]


def make_tuple(*args: Tensor) -> TensorTuple:
    """A TensorTuple of tensors."""
    return MakeTensorTuple()(*args)


def tuple_get_item(value: TensorTuple, index: int) -> Tensor:
    """Entry `index` of a TensorTuple."""
    return TupleGetItem(index)(value)


def fused_add_scalars(x: Tensor, c0: Number, c1: Number) -> TensorTuple:
    """(x + c0, x + c1) as one op."""
    return FusedAddScalars(c0, c1)(x)
