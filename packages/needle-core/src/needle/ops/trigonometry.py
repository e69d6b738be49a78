"""Angles, hyperbolic functions, logarithms to other bases, and what belongs to them."""

from __future__ import annotations

import math

from needle.autograd import Tensor, TensorOp, array_api
from needle.ops.choosing import floor_divide
from needle.ops.functions import sqrt
from needle.typing import Operand


class Tan(TensorOp):
    """y = tan x;  dx = dy (1 + y^2)"""

    needs = "output"

    def compute(self, x):
        return x.tan()

    def gradient(self, out_grad, node):
        return out_grad * (node * node + 1)


class Asin(TensorOp):
    """y = asin x;  dx = dy / sqrt(1 - x^2)"""

    needs = "inputs"

    def compute(self, x):
        return x.asin()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad / sqrt(1 - x * x)


class Acos(TensorOp):
    """y = acos x;  dx = -dy / sqrt(1 - x^2)"""

    needs = "inputs"

    def compute(self, x):
        return x.acos()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return -out_grad / sqrt(1 - x * x)


class Atan(TensorOp):
    """y = atan x;  dx = dy / (1 + x^2)"""

    needs = "inputs"

    def compute(self, x):
        return x.atan()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad / (x * x + 1)


class Sinh(TensorOp):
    """y = sinh x;  dx = dy cosh x"""

    needs = "inputs"

    def compute(self, x):
        return x.sinh()

    def gradient(self, out_grad, node):
        return out_grad * cosh(node.inputs[0])


class Cosh(TensorOp):
    """y = cosh x;  dx = dy sinh x"""

    needs = "inputs"

    def compute(self, x):
        return x.cosh()

    def gradient(self, out_grad, node):
        return out_grad * sinh(node.inputs[0])


class Asinh(TensorOp):
    """y = asinh x;  dx = dy / sqrt(x^2 + 1)"""

    needs = "inputs"

    def compute(self, x):
        return x.asinh()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad / sqrt(x * x + 1)


class Acosh(TensorOp):
    """y = acosh x;  dx = dy / sqrt(x^2 - 1)"""

    needs = "inputs"

    def compute(self, x):
        return x.acosh()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad / sqrt(x * x - 1)


class Atanh(TensorOp):
    """y = atanh x;  dx = dy / (1 - x^2)"""

    needs = "inputs"

    def compute(self, x):
        return x.atanh()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad / (1 - x * x)


class Log2(TensorOp):
    """y = log x to base 2;  dx = dy / (x ln 2)"""

    needs = "inputs"

    def compute(self, x):
        return x.log2()

    def gradient(self, out_grad, node):
        return out_grad / (node.inputs[0] * math.log(2))


class Log10(TensorOp):
    """y = log x to base 10;  dx = dy / (x ln 10)"""

    needs = "inputs"

    def compute(self, x):
        return x.log10()

    def gradient(self, out_grad, node):
        return out_grad / (node.inputs[0] * math.log(10))


# ---- Of two numbers ---------------------------------------------------------------------------------------


class Atan2(TensorOp):
    """y = the angle of the point (b, a);  da = dy b / (a^2 + b^2), db = -dy a / (a^2 + b^2)"""

    needs = "inputs"
    broadcasts = True

    def compute(self, a, b):
        return array_api.atan2(a, b)

    def gradient(self, out_grad, node):
        a, b = node.inputs
        part = out_grad / (a * a + b * b)
        return part * b, -part * a


class Hypot(TensorOp):
    """y = sqrt(a^2 + b^2);  da = dy a / y, db = dy b / y"""

    broadcasts = True

    def compute(self, a, b):
        return array_api.hypot(a, b)

    def gradient(self, out_grad, node):
        a, b = node.inputs
        return out_grad * (a / node), out_grad * (b / node)


class LogAddExp(TensorOp):
    """y = log(e^a + e^b);  da = dy sigmoid(a - b), db = dy sigmoid(b - a)"""

    needs = "inputs"
    broadcasts = True

    def compute(self, a, b):
        return array_api.logaddexp(a, b)

    def gradient(self, out_grad, node):
        a, b = node.inputs
        return out_grad * (a - b).sigmoid(), out_grad * (b - a).sigmoid()


class Remainder(TensorOp):
    """y = a - floor(a / b) b;  da = dy, db = -dy floor(a / b)"""

    needs = "inputs"
    broadcasts = True

    def compute(self, a, b):
        return array_api.remainder(a, b)

    def gradient(self, out_grad, node):
        a, b = node.inputs
        return out_grad, -out_grad * floor_divide(a, b) if b.requires_grad else None


# ---- The functions --------------------------------------------------------------------------


def tan(a: Tensor) -> Tensor:
    return Tan()(a)


def asin(a: Tensor) -> Tensor:
    return Asin()(a)


def acos(a: Tensor) -> Tensor:
    return Acos()(a)


def atan(a: Tensor) -> Tensor:
    return Atan()(a)


def sinh(a: Tensor) -> Tensor:
    return Sinh()(a)


def cosh(a: Tensor) -> Tensor:
    return Cosh()(a)


def asinh(a: Tensor) -> Tensor:
    return Asinh()(a)


def acosh(a: Tensor) -> Tensor:
    return Acosh()(a)


def atanh(a: Tensor) -> Tensor:
    return Atanh()(a)


def log2(a: Tensor) -> Tensor:
    return Log2()(a)


def log10(a: Tensor) -> Tensor:
    return Log10()(a)


def atan2(a: Operand, b: Operand) -> Tensor:
    """The angle of the point (b, a), from -pi to pi."""
    return Atan2()(a, b)


def hypot(a: Operand, b: Operand) -> Tensor:
    """sqrt(a^2 + b^2), without overflow."""
    return Hypot()(a, b)


def logaddexp(a: Operand, b: Operand) -> Tensor:
    """log(e^a + e^b), without overflow."""
    return LogAddExp()(a, b)


def remainder(a: Operand, b: Operand) -> Tensor:
    """a - floor(a / b) b: the sign of b."""
    return Remainder()(a, b)
