"""Functions of `needle` that mean something else within `compat("torch")`; those of `needle.ops` mean the same everywhere."""

import functools
from collections.abc import Callable
from typing import Any

from needle import ops
from needle._sister import sister
from needle.autograd import Tensor, follows_torch


def equal(a: Any, b: Any) -> Any:
    """Elementwise `equal`; within compat("torch") whether shapes and all values are the same, a Python bool."""
    if not follows_torch():
        return ops.equal(a, b)
    return tuple(a.shape) == tuple(b.shape) and bool(ops.equal(a, b).all().item())


def _as_layers_take_it(name: str) -> Callable[..., Any]:
    """A function of (N, H, W, C); within compat("torch") that of `needle.nn.functional`, of (N, C, H, W)."""
    own = getattr(ops, name)

    @functools.wraps(own)
    def function(*args: Any, **settings: Any) -> Any:
        if not follows_torch():
            return own(*args, **settings)
        with sister(f"needle.{name} within compat('torch')", "needle-nn"):
            from needle_nn.nn import functional
        return getattr(functional, name)(*args, **settings)

    return function


class _Answer(int):
    """True or False, which may be called as well: `x.is_leaf` is PyTorch's, `x.is_leaf()` the course's."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))

    __str__ = __repr__


_YES, _NO = _Answer(1), _Answer(0)


def _is_leaf(self: Tensor) -> _Answer:
    """Whether no op has made the tensor."""
    return _YES if self.op is None else _NO


LAYOUTS = "conv1d conv2d conv_transpose2d max_pool2d avg_pool2d layer_norm".split()
FUNCTIONS: dict[str, Any] = {"equal": equal, **{name: _as_layers_take_it(name) for name in LAYOUTS}}
METHODS: dict[str, Any] = {"is_leaf": property(_is_leaf)}
