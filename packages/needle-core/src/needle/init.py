"""New tensors: constants, random numbers, and the initial weights of layers.

Random numbers come from NumPy's global generator in order of creation, so that `np.random.seed` reproduces published results, or,
after `needle.random.seed`, from Needle's own (see `needle.random`). They are drawn, rounded to `dtype`, and scaled in it.

Every function takes `device`, `dtype` and `requires_grad`; a shape is given as numbers, or as one tuple.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle.autograd import NDArray, Tensor, data_of, is_tracing, keep_in_trace
from needle.ops.helpers import Undifferentiable
from needle.typing import DeviceLike, DTypeLike, Operand, Shape

__all__ = [
    "constant",
    "draws",
    "kaiming_normal",
    "kaiming_uniform",
    "one_hot",
    "ones",
    "ones_like",
    "rand",
    "randb",
    "randn",
    "without_draws",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
    "zeros_like",
]


def _shape(name: str, shape: tuple) -> tuple[int, ...]:
    """Sizes from numbers or one tuple."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    try:
        made = tuple([operator.index(n) for n in sizes])
    except TypeError:
        raise TypeError(f"{name}: shape {tuple(sizes)}: expected ints") from None
    if any(n < 0 for n in made):
        raise ValueError(f"{name}: shape {made}: sizes are 0 or more")
    return made


def given_shape(name: str, shape: tuple, size: Any) -> tuple:
    """A shape given one by one, as one tuple, or as PyTorch's `size`."""
    if size is None:
        return shape
    if shape:
        raise TypeError(f"{name}: {shape} and size={size} are two shapes")
    return (size,)


def _drawn(dtype):
    """What to draw in: floats as asked for, float32 for what is cast to something else."""
    return dtype if nd.dtype(dtype).is_float else "float32"


def _tensor(array, dtype, requires_grad) -> Tensor:
    return Tensor.make_const(array.astype(dtype, copy=False), requires_grad=requires_grad)


# ---- Random numbers --------------------------------------------------------------------------

_UNDRAWN = contextvars.ContextVar("undrawn", default=False)


@contextlib.contextmanager
def without_draws() -> Iterator[None]:
    """`rand`, `randn` and all initial weights give zeros in this block and draw nothing: for weights that are loaded next.

    >>> with without_draws():
    ...     kaiming_uniform(1, 2).tolist()
    [[0.0, 0.0]]
    """
    before = _UNDRAWN.set(True)
    try:
        yield
    finally:
        _UNDRAWN.reset(before)


def draws() -> bool:
    """Whether initial weights are drawn here: False within `without_draws`."""
    return not _UNDRAWN.get()


def rand(
    *shape: Any,
    low: float = 0.0,
    high: float = 1.0,
    device: DeviceLike = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:
    """U(low, high): even on [low, high).

    >>> np.random.seed(0)
    >>> rand(2, low=-1, high=1).tolist()
    [0.09762704372406006, 0.43037867546081543]
    """
    sizes, kind = _shape("rand", shape), _drawn(dtype)
    if _UNDRAWN.get():
        return zeros(*sizes, device=device, dtype=dtype, requires_grad=requires_grad)
    made = nd.random.uniform(*sizes, low=low, high=high, device=device, dtype=kind, generator=generator)
    return _tensor(made, dtype, requires_grad)


def randn(
    *shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    device: DeviceLike = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:
    """N(mean, std^2): normal.

    >>> np.random.seed(0)
    >>> randn(2, 3).shape
    (2, 3)
    """
    if not std >= 0:
        raise ValueError(f"randn: std {std}: expected 0 or more")
    sizes, kind = _shape("randn", shape), _drawn(dtype)
    if _UNDRAWN.get():
        return zeros(*sizes, device=device, dtype=dtype, requires_grad=requires_grad)
    made = nd.random.normal(*sizes, mean=mean, std=std, device=device, dtype=kind, generator=generator)
    return _tensor(made, dtype, requires_grad)


def randb(
    *shape: Any,
    p: float = 0.5,
    device: DeviceLike = None,
    dtype: DTypeLike = "bool",
    requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:
    """1 with probability p, else 0: rand(*shape) <= p."""
    if not 0 <= p <= 1:
        raise ValueError(f"randb: p {p}: expected 0 to 1")
    made = nd.random.bernoulli(*_shape("randb", shape), p=p, device=device, generator=generator)
    return _tensor(made, dtype, requires_grad)


# ---- Constants --------------------------------------------------------------------------


def constant(
    *shape: Any, c: float = 1.0, device: DeviceLike = None, dtype: DTypeLike = "float32", requires_grad: bool = False
) -> Tensor:
    """c everywhere."""
    return _tensor(nd.full(_shape("constant", shape), c, dtype, device), dtype, requires_grad)


def ones(
    *shape: Any,
    size: Shape | None = None,
    device: DeviceLike = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """1 everywhere."""
    return _tensor(nd.ones(_shape("ones", given_shape("ones", shape, size)), dtype, device), dtype, requires_grad)


def zeros(
    *shape: Any,
    size: Shape | None = None,
    device: DeviceLike = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """0 everywhere."""
    return _tensor(nd.zeros(_shape("zeros", given_shape("zeros", shape, size)), dtype, device), dtype, requires_grad)


def _like(array, device, dtype) -> dict:
    return {"device": array.device if device is None else device, "dtype": array.dtype if dtype is None else dtype}


def zeros_like(
    array: Tensor | NDArray, *, device: DeviceLike = None, dtype: DTypeLike | None = None, requires_grad: bool = False
) -> Tensor:
    """0 everywhere, in the shape of a Tensor or NDArray, and with its dtype and device unless others are given."""
    return zeros(array.shape, **_like(array, device, dtype), requires_grad=requires_grad)


def ones_like(
    array: Tensor | NDArray, *, device: DeviceLike = None, dtype: DTypeLike | None = None, requires_grad: bool = False
) -> Tensor:
    """1 everywhere, in the shape of a Tensor or NDArray, and with its dtype and device unless others are given."""
    return ones(array.shape, **_like(array, device, dtype), requires_grad=requires_grad)


def one_hot(
    n: int, i: Operand, device: DeviceLike = None, dtype: DTypeLike = "float32", requires_grad: bool = False
) -> Tensor:
    """1 at position i of n: shape of i + (n,). `i` is a Tensor, an array, a list or an int; floats may stand for integers.

    >>> one_hot(3, [2, 0]).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if isinstance(n, (Tensor, nd.NDArray, np.ndarray, list, tuple)):
        raise TypeError(
            f"one_hot: the number of classes comes first, one_hot(n, positions); got a {type(n).__name__} for n"
        )
    place = i.device if device is None and isinstance(i, (Tensor, nd.NDArray)) else device
    held = data_of(i) if isinstance(i, Tensor) else i
    index = held.numpy() if isinstance(held, nd.NDArray) else np.asarray(held)
    if index.size and index.dtype.kind == "f" and not (index == np.floor(index)).all():
        raise ValueError(f"one_hot: {index[index != np.floor(index)].flat[0]} is no position")
    made = _tensor(nd.one_hot(n, index, dtype, place), dtype, requires_grad)
    if isinstance(i, Tensor) and is_tracing():
        keep_in_trace(made, Undifferentiable(nd.one_hot, {"n": n}), (i,))
    return made


# ---- Initial weights --------------------------------------------------------------------------

#: Factor that keeps the variance of a layer's output where its nonlinearity lessens it.
_GAIN = {"relu": math.sqrt(2.0), "linear": 1.0, "tanh": 5.0 / 3.0}


def _gain(name: str, nonlinearity: str) -> float:
    if nonlinearity not in _GAIN:
        raise ValueError(f"{name}: nonlinearity {nonlinearity!r}: expected one of {', '.join(_GAIN)}")
    return _GAIN[nonlinearity]


def _fans(name: str, fan_in: int, fan_out: int, shape) -> tuple:
    """The shape of the weights: that given, or (fan_in, fan_out)."""
    if fan_in <= 0 or fan_out <= 0:
        raise ValueError(f"{name}: fan_in {fan_in}, fan_out {fan_out}: expected 1 or more")
    return _shape(name, (fan_in, fan_out) if shape is None else (shape,))


def xavier_uniform(
    fan_in: int, fan_out: int, gain: float = 1.0, *, shape: Shape | None = None, **kwargs: Any
) -> Tensor:
    """U(-a, a), a = gain sqrt(6 / (fan_in + fan_out)); of shape (fan_in, fan_out) unless one is given."""
    sizes = _fans("xavier_uniform", fan_in, fan_out, shape)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return rand(*sizes, low=-bound, high=bound, **kwargs)


def xavier_normal(fan_in: int, fan_out: int, gain: float = 1.0, *, shape: Shape | None = None, **kwargs: Any) -> Tensor:
    """N(0, s^2), s = gain sqrt(2 / (fan_in + fan_out)); of shape (fan_in, fan_out) unless one is given."""
    sizes = _fans("xavier_normal", fan_in, fan_out, shape)
    return randn(*sizes, std=gain * math.sqrt(2.0 / (fan_in + fan_out)), **kwargs)


def kaiming_uniform(
    fan_in: int, fan_out: int, shape: Shape | None = None, nonlinearity: str = "relu", **kwargs: Any
) -> Tensor:
    """U(-a, a), a = gain sqrt(3 / fan_in), gain = sqrt 2 for relu; of shape (fan_in, fan_out) unless one is given.

    >>> kaiming_uniform(27, 144, shape=(3, 3, 3, 16)).shape  # a convolution
    (3, 3, 3, 16)
    """
    sizes = _fans("kaiming_uniform", fan_in, fan_out, shape)
    bound = _gain("kaiming_uniform", nonlinearity) * math.sqrt(3.0 / fan_in)
    return rand(*sizes, low=-bound, high=bound, **kwargs)


def kaiming_normal(
    fan_in: int, fan_out: int, nonlinearity: str = "relu", *, shape: Shape | None = None, **kwargs: Any
) -> Tensor:
    """N(0, s^2), s = gain / sqrt(fan_in), gain = sqrt 2 for relu; of shape (fan_in, fan_out) unless one is given."""
    sizes = _fans("kaiming_normal", fan_in, fan_out, shape)
    return randn(*sizes, std=_gain("kaiming_normal", nonlinearity) / math.sqrt(fan_in), **kwargs)
