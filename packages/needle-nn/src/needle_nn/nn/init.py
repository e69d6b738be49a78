"""Initial values, written into a tensor that there is; each function returns it.

What goes in and what comes out of a weight is read as Needle's layers hold it: (in, out), and (KH, KW, in, out) for a convolution;
within `needle.compat("torch")` as PyTorch's layers do: (out, in), and (out, in, KH, KW).

>>> from needle import nn
>>> layer = nn.Linear(400, 100)
>>> _ = kaiming_normal_(layer.weight, nonlinearity="linear"), constant_(layer.bias, 0.5)
>>> round(float(layer.weight.numpy().std() * 400**0.5), 1), layer.bias.tolist()[0][:2]
(1.0, [0.5, 0.5])
"""

import math
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import Tensor, init
from needle.autograd import follows_torch

__all__ = [
    "calculate_gain", "constant_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip


def _written(tensor: Tensor, values: Any) -> Tensor:
    tensor.realize_cached_data()[...] = values.realize_cached_data() if isinstance(values, Tensor) else values
    return tensor


def _made(tensor: Tensor) -> dict[str, Any]:
    return {"device": tensor.device, "dtype": tensor.dtype}


def constant_(tensor: Tensor, val: float) -> Tensor:
    """val everywhere"""
    return _written(tensor, val)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere"""
    return _written(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere"""
    return _written(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """1 on the diagonal, else 0"""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: expected two axes, got shape {tensor.shape}")
    return _written(tensor, nd.array(np.eye(tensor.shape[0], tensor.shape[1]), **_made(tensor)))


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """U(a, b)"""
    return _written(tensor, init.rand(*tensor.shape, low=a, high=b, **_made(tensor)))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """N(mean, std^2)"""
    return _written(tensor, init.randn(*tensor.shape, mean=mean, std=std, **_made(tensor)))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """N(mean, std^2), drawn again where it is outside of [a, b]"""
    if not (mean - 6 * std < b and mean + 6 * std > a and a < b):
        raise ValueError(f"trunc_normal_: [{a}, {b}] is too far from N({mean}, {std}^2)")
    values = init.randn(*tensor.shape, mean=mean, std=std, device=tensor.device, dtype="float64").numpy().copy()
    outside = (values < a) | (values > b)
    while outside.any():
        values[outside] = init.randn(int(outside.sum()), mean=mean, std=std, dtype="float64").numpy()
        outside = (values < a) | (values > b)
    return _written(tensor, nd.array(values, **_made(tensor)))


# ---- By the sizes of a layer --------------------------------------------------------------------------------------------

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2.0), "selu": 0.75}
_GAINS |= dict.fromkeys(("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"), 1.0)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of a layer's output where its nonlinearity lessens it.

    >>> calculate_gain("relu") ** 2, calculate_gain("leaky_relu", 0.0) ** 2
    (2.0000000000000004, 2.0000000000000004)
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"calculate_gain: nonlinearity {nonlinearity!r}: expected leaky_relu, {', '.join(_GAINS)}")
    return _GAINS[nonlinearity]


def _fans(what: str, tensor: Tensor) -> tuple[int, int]:
    """(in, out): the last two axes, times the size of the kernel; within compat("torch") the first two, (out, in)."""
    if tensor.ndim < 2:
        raise ValueError(f"{what}: shape {tensor.shape}: expected (in, out), or the same after the axes of a kernel")
    *kernel, fan_in, fan_out = tensor.shape
    if follows_torch():
        fan_out, fan_in, *kernel = tensor.shape
    area = math.prod(kernel)
    return fan_in * area, fan_out * area


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """U(-a, a), a = gain sqrt(6 / (in + out))"""
    bound = gain * math.sqrt(6 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """N(0, s^2), s = gain sqrt(2 / (in + out))"""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans("xavier_normal_", tensor))))


def _spread(what: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """gain / sqrt(fan)"""
    fan_in, fan_out = _fans(what, tensor)
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{what}: mode {mode!r}: expected 'fan_in' or 'fan_out'")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan_in if mode == "fan_in" else fan_out, 1))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """U(-b, b), b = gain sqrt(3 / in), or out by `mode`; `a` is the slope of a leaky relu"""
    bound = math.sqrt(3) * _spread("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """N(0, s^2), s = gain / sqrt(in), or out by `mode`; `a` is the slope of a leaky relu"""
    return normal_(tensor, 0.0, _spread("kaiming_normal_", tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """A matrix (everything before, out) of orthogonal columns or rows, times gain; in compat("torch") (out, everything after)"""
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: shape {tensor.shape}: expected two axes or more")
    at = 1 if follows_torch() else -1
    rows, columns = math.prod(tensor.shape[:at]), math.prod(tensor.shape[at:])
    drawn = init.randn(max(rows, columns), min(rows, columns), dtype="float64").numpy()
    q, r = np.linalg.qr(drawn)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    q = q if rows >= columns else q.T
    return _written(tensor, nd.array((gain * q).reshape(tensor.shape), **_made(tensor)))


# PyTorch's first names of them, which old programs have
globals().update({_name[:-1]: globals()[_name] for _name in __all__ if _name[-1] == "_"})
