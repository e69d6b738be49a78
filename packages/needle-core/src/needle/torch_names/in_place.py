"""Methods that write into a tensor: into its array where nothing is recorded; else the tensor becomes the result of a new node.

A leaf that requires a gradient may be written to within `no_grad()` alone, and what has been used already not at all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from needle import init, ops
from needle.autograd import Tensor, is_grad_enabled
from needle.autograd.tensor import become
from needle.modes import no_grad
from needle.sampling import randint
from needle.torch_names import both, composed


def _overwrite(x: Tensor, name: str, function: Callable[..., Tensor], *args: Any, **settings: Any) -> Tensor:
    """Give x the values of function(x, *args)."""
    wanted = x.requires_grad or any(isinstance(a, Tensor) and a.requires_grad for a in args)
    if is_grad_enabled() and wanted:
        _refuse_leaf(x, name)
        become(x, lambda old: _fitting(x, name, function(old, *args, **settings)), ())
        return x
    with no_grad():
        x[...] = _fitting(x, name, function(x, *args, **settings))
    return x


def _refuse_leaf(x: Tensor, name: str) -> None:
    if x.is_leaf() and x.requires_grad and is_grad_enabled():
        raise RuntimeError(
            f"{name}: a leaf that requires a gradient cannot be written to; do it within no_grad(), or to a clone()"
        )


def _fitting(x: Tensor, name: str, made: Tensor) -> Tensor:
    """What was computed, if it can be written into x."""
    if made.shape != x.shape:
        raise ValueError(f"{name}: the result has shape {made.shape}, the tensor {x.shape}")
    if made.dtype != x.dtype:
        if made.dtype.is_float and not x.dtype.is_float:
            raise TypeError(f"{name}: the result is {made.dtype}, the tensor {x.dtype}; convert it with .astype")
        made = ops.astype(made, x.dtype)
    return made


def _of(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The method that writes what a function of the tensor and others returns."""

    def method(self: Tensor, *args: Any, **settings: Any) -> Tensor:
        return _overwrite(self, name, function, *args, **settings)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{name[:-1]}`, written into the tensor; returns the tensor."
    return method


_FUNCTIONS = {name: both.FUNCTIONS[name] for name in "add sub mul div pow neg reciprocal rsqrt square clamp".split()}
_FUNCTIONS |= {
    name: both.FUNCTIONS[name] for name in "lerp addcmul addcdiv masked_fill scatter scatter_add index_add".split()
}
_FUNCTIONS |= {
    name: getattr(ops, name) for name in "abs exp log sqrt sin cos tanh sigmoid relu floor ceil round".split()
}
_FUNCTIONS |= {name: getattr(ops, name) for name in "tril triu clip floor_divide remainder".split()}
_FUNCTIONS |= {
    name: getattr(ops, name)
    for name in "acos asin atan sinh cosh tan erf expm1 log1p log2 log10 sign trunc cumsum cumprod".split()
}
_FUNCTIONS |= {
    name: composed.FUNCTIONS[name]
    for name in "clamp_min clamp_max nan_to_num fmod index_fill index_copy index_put masked_scatter scatter_reduce".split()
}
_FUNCTIONS |= {name: both.FUNCTIONS[name] for name in "addmm eq ne lt le gt ge true_divide subtract negative".split()}
_FUNCTIONS |= {"multiply": both.FUNCTIONS["mul"], "divide": both.FUNCTIONS["div"]}


# ---- Numbers ----------------------------------------------------------------------------------------------


def _put(x: Tensor, name: str, value: Any) -> Tensor:
    _refuse_leaf(x, name)
    x[...] = value
    return x


def fill_(self: Tensor, value: Any) -> Tensor:
    """A number everywhere; returns the tensor."""
    return _put(self, "fill_", value)


def zero_(self: Tensor) -> Tensor:
    """0 everywhere; returns the tensor."""
    return _put(self, "zero_", 0)


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """The values of another tensor, which may broadcast, be of another dtype or on another device; returns the tensor."""
    source = src if isinstance(src, Tensor) else Tensor(src, requires_grad=False)
    return _put(self, "copy_", ops.broadcast_to(ops.to_device(source, self.device), self.shape))


# ---- Random numbers ---------------------------------------------------------------------------------------


def _drawn(x: Tensor, name: str, draw: Callable[..., Tensor], **settings: Any) -> Tensor:
    """Random numbers in x; those of a wider dtype for what is no float."""
    return _put(x, name, draw(*x.shape, device=x.device, dtype=x.dtype if x.dtype.is_float else "float32", **settings))


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """N(mean, std^2); returns the tensor."""
    return _drawn(self, "normal_", init.randn, mean=mean, std=std, generator=generator)


def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    """U(low, high); returns the tensor."""
    return _drawn(self, "uniform_", init.rand, low=low, high=high, generator=generator)


def bernoulli_(self: Tensor, p: float = 0.5, *, generator: Any = None) -> Tensor:
    """1 with probability p, else 0; returns the tensor."""
    return _put(self, "bernoulli_", init.randb(*self.shape, p=p, device=self.device, generator=generator))


def random_(self: Tensor, low: int = 0, high: int | None = None, *, generator: Any = None) -> Tensor:
    """Whole numbers from low, below high; of one number, from 0 below it; returns the tensor."""
    if high is None:
        low, high = 0, low or 2**24
    return _put(self, "random_", randint(low, high, tuple(self.shape), generator=generator))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """The exponential distribution of rate lambd: -log(1 - U) / lambd; returns the tensor."""
    u = init.rand(*self.shape, device=self.device, dtype=self.dtype, generator=generator)
    return _put(self, "exponential_", ops.log(1 - u) * (-1 / lambd))


def fill_diagonal_(self: Tensor, fill_value: float) -> Tensor:
    """A number on the diagonal of a matrix; returns the tensor."""
    n = np.arange(min(self.shape))
    _refuse_leaf(self, "fill_diagonal_")
    self[n, n] = fill_value
    return self


METHODS: dict[str, Any] = {f"{name}_": _of(function, f"{name}_") for name, function in _FUNCTIONS.items()}
METHODS |= {
    f.__name__: f for f in (fill_, zero_, copy_, normal_, uniform_, bernoulli_, random_, exponential_, fill_diagonal_)
}
