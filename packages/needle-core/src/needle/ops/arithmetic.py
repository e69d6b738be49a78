"""Sums, products, powers. Inputs broadcast as in NumPy; the engine sums gradients back to the inputs' shapes."""

from __future__ import annotations

from typing import Any

from needle.autograd import ScalarOp, Tensor, TensorOp, result_dtype
from needle.ops.choosing import equal, greater_equal, isfinite, logical_and, logical_not, where
from needle.ops.functions import log
from needle.ops.helpers import array_of
from needle.typing import Number, Operand


class EWiseAdd(TensorOp):
    """y = a + b;  da = dy, db = dy"""

    needs = ""
    broadcasts = True

    def compute(self, a, b):
        return a + b

    def gradient(self, out_grad, node):
        return out_grad, out_grad


class AddScalar(ScalarOp):
    """y = x + c;  dx = dy"""

    needs = ""
    __slots__ = ()

    def compute(self, x):
        try:
            return x + self.scalar
        except OverflowError:
            if self.scalar >= 0:
                raise
            return x - -self.scalar  # x - 1 of uint8 is AddScalar(-1)

    def gradient(self, out_grad, node):
        return out_grad


class EWiseMul(TensorOp):
    """y = a b;  da = dy b, db = dy a"""

    needs = "inputs"
    broadcasts = True

    def compute(self, a, b):
        return a * b

    def gradient(self, out_grad, node):
        a, b = node.inputs
        return out_grad * b if a.requires_grad else None, out_grad * a if b.requires_grad else None


class MulScalar(ScalarOp):
    """y = c x;  dx = c dy"""

    needs = ""
    __slots__ = ()

    def compute(self, x):
        return x * self.scalar

    def gradient(self, out_grad, node):
        return out_grad * self.scalar


class EWiseDiv(TensorOp):
    """y = a / b;  da = dy / b, db = -dy y / b"""

    broadcasts = True

    def compute(self, a, b):
        return a / b

    def gradient(self, out_grad, node):
        a, b = node.inputs
        return out_grad / b if a.requires_grad else None, -out_grad * node / b if b.requires_grad else None


class DivScalar(ScalarOp):
    """y = x / c;  dx = dy / c"""

    needs = ""
    __slots__ = ()

    def compute(self, x):
        return x / self.scalar

    def gradient(self, out_grad, node):
        return out_grad / self.scalar


class EWisePow(TensorOp):
    """y = a^b;  da = dy b a^(b-1) (0 where b is 0), db = dy y log a (0 where a is 0 and b is not negative)"""

    broadcasts = True

    def compute(self, a, b):
        return a**b

    def gradient(self, out_grad, node):
        a, b = node.inputs
        da = db = None
        if a.requires_grad:
            over = logical_not(isfinite(array_of(a) ** -1))
            safe = where(logical_and(over, equal(b, 0)), 1.0, a)  # 0^(0-1) would be infinite, times 0
            da = out_grad * (b * safe ** (b - 1))
        if b.requires_grad:
            db = out_grad * node * log(where(logical_and(equal(a, 0), greater_equal(b, 0)), 1.0, a))
        return da, db


class PowerScalar(ScalarOp):
    """y = x^c;  dx = dy c x^(c-1)"""

    needs = "inputs"
    __slots__ = ()

    def compute(self, x):
        return x**self.scalar

    def gradient(self, out_grad, node):
        if self.scalar == 0:
            return out_grad * 0.0
        return out_grad * (node.inputs[0] ** (self.scalar - 1) * self.scalar)


class Negate(TensorOp):
    """y = -x;  dx = -dy"""

    needs = ""

    def compute(self, x):
        return -x

    def gradient(self, out_grad, node):
        return -out_grad


class NegateBeside(TensorOp):
    """y = -x in the dtype of a - x;  dx = -dy. What the engine records for a - x in lazy mode."""

    needs = ""

    def compute(self, x, a):
        return -x.astype(result_dtype(a.dtype, x.dtype), copy=False)

    def gradient(self, out_grad, node):
        return -out_grad, None


# ---- The functions --------------------------------------------------------------------------


def add(a: Operand, b: Operand) -> Tensor:
    return EWiseAdd()(a, b)


def add_scalar(a: Tensor, scalar: Number) -> Tensor:
    return AddScalar(scalar)(a)


def subtract(a: Any, b: Any) -> Tensor:
    """a - b as a + (-b): two nodes."""
    return a - b if isinstance(a, Tensor) or isinstance(b, Tensor) else EWiseAdd()(a, b)


def multiply(a: Operand, b: Operand) -> Tensor:
    return EWiseMul()(a, b)


def mul_scalar(a: Tensor, scalar: Number) -> Tensor:
    return MulScalar(scalar)(a)


def divide(a: Operand, b: Operand) -> Tensor:
    return EWiseDiv()(a, b)


def divide_scalar(a: Tensor, scalar: Number) -> Tensor:
    return DivScalar(scalar)(a)


def power(a: Operand, b: Operand) -> Tensor:
    return EWisePow()(a, b)


def power_scalar(a: Tensor, scalar: Number) -> Tensor:
    return PowerScalar(scalar)(a)


def negate(a: Tensor) -> Tensor:
    return Negate()(a)
