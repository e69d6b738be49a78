"""Methods that write into a tensor: into its array where nothing is recorded; else the tensor becomes the result of a new node.

A leaf that requires a gradient may be written to within `no_grad()` alone, and what has been used already not at all.
"""

from collections.abc import Callable
from typing import Any

from needle import init, ops
from needle.autograd import Tensor, is_grad_enabled
from needle.autograd.tensor import become
from needle.modes import no_grad
from needle.torch_names import both


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


METHODS: dict[str, Any] = {f"{name}_": _of(function, f"{name}_") for name, function in _FUNCTIONS.items()}
METHODS |= {f.__name__: f for f in (fill_, zero_, copy_, normal_, uniform_, bernoulli_)}
