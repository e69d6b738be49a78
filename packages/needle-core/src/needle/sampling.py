"""Random tensors with PyTorch's arguments: numbers, orders, choices, and your own generators.

They come from where `needle.init`'s do: NumPy's global generator, or Needle's own after `needle.random.seed`, or the `generator`
that is given.
"""

from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import init
from needle.autograd import Tensor, array_api, data_of, get_default_dtype
from needle.init import given_shape
from needle_ndarray.extension import repeat

__all__ = [
    "Generator", "manual_seed", "rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "randperm",
    "normal", "bernoulli", "multinomial",
]  # fmt: skip


class Generator(nd.random.Generator):
    """A stream of random numbers of its own, by Philox: the same on every device. Not the numbers of PyTorch's.

    >>> g = Generator().manual_seed(3)
    >>> first = rand(2, generator=g)
    >>> bool((rand(2, generator=g.manual_seed(3)).numpy() == first.numpy()).all())
    True
    """

    def __init__(self, device: Any = None) -> None:
        super().__init__(0)

    def manual_seed(self, seed: int) -> "Generator":
        """Begin again with this seed; returns the generator."""
        self.seed, self.counter = nd.random.Generator(seed).seed, 0
        return self

    def initial_seed(self) -> int:
        return self.seed

    def __repr__(self) -> str:
        return f"needle.Generator(seed={self.seed}, counter={self.counter})"


def manual_seed(seed: int) -> None:
    """Begin again with this seed: NumPy's global generator, and Needle's own where that is in use."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"manual_seed: expected an int, got {seed!r}")
    np.random.seed(int(seed) % 2**32)  # noqa: NPY002
    if nd.random.get_state() is not None:
        nd.random.seed(int(seed))


def _settings(dtype: Any, device: Any, requires_grad: bool, generator: Any) -> dict[str, Any]:
    kind = get_default_dtype() if dtype is None else dtype
    return {"dtype": kind, "device": device, "requires_grad": requires_grad, "generator": generator}


def rand(
    *shape: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:
    """U(0, 1): even on [0, 1)."""
    return init.rand(*given_shape("rand", shape, size), **_settings(dtype, device, requires_grad, generator))


def randn(
    *shape: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:
    """N(0, 1): normal."""
    return init.randn(*given_shape("randn", shape, size), **_settings(dtype, device, requires_grad, generator))


def rand_like(x: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """U(0, 1) in the shape, dtype and device of a tensor unless others are given."""
    return rand(x.shape, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def randn_like(x: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """N(0, 1) in the shape, dtype and device of a tensor unless others are given."""
    return randn(x.shape, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def _sizes(size: Any) -> tuple:
    return (size,) if hasattr(size, "__index__") else tuple(size)


def randint(
    low: int, high: Any = None, size: Any = None, *, dtype: Any = "int64", device: Any = None, generator: Any = None
) -> Tensor:
    """Integers, even among low, ..., high - 1: `randint(high, size)` or `randint(low, high, size)`.

    >>> randint(2, (3,)).shape, randint(5, 6, (2,)).tolist()
    ((3,), [5, 5])
    """
    if size is None and not hasattr(high, "__index__"):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise TypeError("randint: expected randint(high, size) or randint(low, high, size)")
    made = nd.random.integers(int(low), int(high), _sizes(size), device=device, dtype=dtype, generator=generator)
    return Tensor.make_const(made)


def randint_like(x: Tensor, low: int, high: Any = None) -> Tensor:
    """Integers in the shape, dtype and device of a tensor."""
    return randint(low, high, x.shape, dtype=x.dtype, device=x.device)


def randperm(n: int, *, dtype: Any = "int64", device: Any = None, generator: Any = None) -> Tensor:
    """0, 1, ..., n - 1 in random order."""
    return Tensor.make_const(nd.random.permutation(n, device=device, generator=generator).astype(dtype, copy=False))


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, device: Any = None, generator: Any = None) -> Tensor:
    """N(mean, std^2): of a size, or of the shape of mean and std where these are tensors; a constant."""
    if size is None:
        shape = nd.broadcast_shapes(getattr(mean, "shape", ()), getattr(std, "shape", ()))
        device = next((x.device for x in (mean, std) if isinstance(x, Tensor)), device)
    else:
        shape = _sizes(size)
    made = randn(shape, device=device, generator=generator) * std + mean
    return made.detach()


def bernoulli(p: Tensor, *, generator: Any = None) -> Tensor:
    """1 with the probabilities in p, else 0: of p's shape and dtype."""
    if not p.dtype.is_float:
        raise TypeError(f"bernoulli: expected floats, got {p.dtype}")
    repeat(_check_weights, "bernoulli", data_of(p), 1.0)
    even = rand(p.shape, dtype=p.dtype, device=p.device, generator=generator)
    return (even < p).astype(p.dtype)


def _check_weights(name: str, p: nd.NDArray, most: float) -> None:
    if p.size and not (p.min().item() >= 0 and p.max().item() <= most):
        raise ValueError(f"{name}: weights from {p.min().item()} to {p.max().item()}: expected 0 to {most}")


def _check_samples(rows: nd.NDArray, num_samples: int, replacement: bool) -> None:
    _check_weights("multinomial", rows, float("inf"))
    possible = int((rows > 0).sum(-1).min().item()) if rows.size else 0
    if num_samples < 1 or possible < (1 if replacement else num_samples):
        raise ValueError(f"multinomial: {num_samples} samples of {possible} positions with a weight above 0")


def multinomial(p: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Positions drawn by weights along the last axis, which need not sum to 1: int64, `num_samples` of them for each row.

    >>> multinomial(Tensor([0.0, 1.0, 0.0]), 2, replacement=True).tolist()
    [1, 1]
    """
    weights = data_of(p)
    if weights.ndim not in (1, 2):
        raise ValueError(f"multinomial: weights have shape {weights.shape}, expected one axis or two")
    rows = (weights if weights.ndim == 2 else weights.reshape((1, -1))).astype("float64")
    repeat(_check_samples, rows, num_samples, bool(replacement))
    if replacement:  # where a number that is even on [0, total) falls among the running sums
        sums = rows.cumsum(-1)
        even = nd.random.uniform(rows.shape[0], num_samples, device=rows.device, dtype="float64", generator=generator)
        even = even * sums[:, -1:]
        found = (even.expand_dims(2) >= sums.expand_dims(1)).sum(-1)
    else:  # waiting times of rate w: those that come first are drawn by weight, without replacement
        even = nd.random.uniform(*rows.shape, device=rows.device, dtype="float64", generator=generator)
        found = array_api.argsort(-array_api.log1p(-even) / rows, axis=-1)[:, :num_samples]
    return Tensor.make_const(found.reshape((*weights.shape[:-1], num_samples)).astype("int64", copy=False))
