"""Functions of one number, and of the numbers along one axis.

`inplace=True` is taken and changes nothing: a result is always new.

>>> import needle as ndl
>>> hardswish(ndl.Tensor([-4.0, 1.5, 4.0])).tolist()
[0.0, 1.125, 4.0]
>>> softmax(ndl.zeros(2, 4), dim=1).tolist()[0]
[0.25, 0.25, 0.25, 0.25]
"""

import math

from needle import init, ops
from needle.autograd import Tensor

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softmax",
    "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip

_SELU = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717  # of Klambauer et al., scale and alpha


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """y = max(x, 0)"""
    return ops.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """y = min(max(x, 0), 6)"""
    return ops.clip(ops.relu(input), None, 6.0)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """y = x where x > 0, else negative_slope x"""
    return ops.where(input > 0, input, input * negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """y = x where x > 0, else weight x; one weight, or one for every channel: (N, C, ...)"""
    if weight.size > 1:
        if input.ndim < 2 or weight.shape != (input.shape[1],):
            raise ValueError(f"prelu: weight has shape {weight.shape}, the input {input.shape}: expected (1,) or (C,)")
        weight = weight.reshape((-1,) + (1,) * (input.ndim - 2))
    return ops.where(input > 0, input, input * weight)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """y = x where x > 0, else alpha (e^x - 1)"""
    return ops.where(input > 0, input, ops.expm1(ops.clip(input, None, 0.0)) * alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """y = x where x > 0, else alpha (e^(x / alpha) - 1)"""
    return ops.where(input > 0, input, ops.expm1(ops.clip(input, None, 0.0) / alpha) * alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """y = scale elu(x, alpha), with the numbers that keep mean 0 and variance 1"""
    scale, alpha = _SELU
    return elu(input, alpha) * scale


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """y = x (1 + erf(x / sqrt 2)) / 2; with approximate="tanh" x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"""
    if approximate == "none":
        return ops.gelu(input)
    if approximate != "tanh":
        raise ValueError(f"gelu: approximate = {approximate!r}: expected 'none' or 'tanh'")
    inner = (input + input * input * input * 0.044715) * math.sqrt(2 / math.pi)
    return input * (ops.tanh(inner) + 1) * 0.5


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """y = x / (1 + e^-x)"""
    return ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """y = x tanh(log(1 + e^x))"""
    return input * ops.tanh(softplus(input))


def softplus(input: Tensor, beta: float = 1.0, threshold: float | None = None) -> Tensor:
    """y = log(1 + e^(beta x)) / beta, as max(z, 0) + log(1 + e^-|z|): never overflows, and needs no threshold"""
    z = input if beta == 1 else input * beta
    y = ops.maximum(z, 0.0) + ops.log1p(ops.exp(-ops.abs(z)))
    return y if beta == 1 else y / beta


def softsign(input: Tensor) -> Tensor:
    """y = x / (1 + |x|)"""
    return input / (ops.abs(input) + 1)


def sigmoid(input: Tensor) -> Tensor:
    """y = 1 / (1 + e^-x)"""
    return ops.sigmoid(input)


def logsigmoid(input: Tensor) -> Tensor:
    """y = log(1 / (1 + e^-x)) = -softplus(-x)"""
    return -softplus(-input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """y = min(max(x + 3, 0), 6) / 6"""
    return ops.clip(input + 3, 0.0, 6.0) / 6


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """y = x min(max(x + 3, 0), 6) / 6"""
    return input * hardsigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """y = tanh x"""
    return ops.tanh(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """y = min(max(x, min_val), max_val)"""
    return ops.clip(input, min_val, max_val)


def tanhshrink(input: Tensor) -> Tensor:
    """y = x - tanh x"""
    return input - ops.tanh(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """y = x - lambd where x > lambd, x + lambd where x < -lambd, else 0"""
    return input - ops.clip(input, -lambd, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """y = x where |x| > lambd, else 0"""
    return ops.where(ops.abs(input) > lambd, input, 0.0)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """y = x where x > threshold, else value"""
    return ops.where(input > threshold, input, value)


# ---- Along an axis ------------------------------------------------------------------------------------------------------


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """y = e^x / sum e^x"""
    return ops.softmax(input, dim)


def softmin(input: Tensor, dim: int = -1) -> Tensor:
    """y = e^-x / sum e^-x"""
    return ops.softmax(-input, dim)


def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """y = x - log sum e^x"""
    return ops.logsoftmax(input, dim)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """y = a sigmoid(b), a and b the halves of x along an axis

    >>> import needle as ndl
    >>> glu(ndl.Tensor([2.0, 0.0])).tolist()
    [1.0]
    """
    if not -input.ndim <= dim < input.ndim or input.shape[dim] % 2:
        raise ValueError(f"glu: axis {dim} of shape {input.shape}: expected an axis of even size")
    half, before = input.shape[dim] // 2, (slice(None),) * (dim % input.ndim)
    return input[(*before, slice(None, half))] * ops.sigmoid(input[(*before, slice(half, None))])


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """y = softmax((x + g) / tau), g = -log(-log u), u ~ U(0, 1): a sample of one class, softly

    With `hard`, the value is the one-hot vector of the largest entry, and the gradient that of y.
    """
    u = init.rand(*logits.shape, device=logits.device, dtype=logits.dtype)
    y = ops.softmax((logits - ops.log(-ops.log(u + 1e-20) + 1e-20)) / tau, dim)
    if not hard:
        return y
    largest = ops.equal(y, ops.amax(y, dim, keepdims=True)).astype(y.dtype)
    return largest - y.detach() + y
