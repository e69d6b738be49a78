"""Modules as functions of their parameters, and the transforms of functions, by the names of PyTorch's torch.func.

>>> import needle as ndl
>>> from needle import nn
>>> from needle.func import functional_call, grad, vmap
>>> model = nn.Linear(3, 1)
>>> params = dict(model.named_parameters())
>>> def loss(params, x, y):
...     return ((functional_call(model, params, x) - y) ** 2).sum()
>>> of_each = vmap(grad(loss), in_dims=(None, 0, 0))(params, ndl.ones(5, 3), ndl.zeros(5, 1))
>>> of_each["weight"].shape
(5, 3, 1)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import needle
from needle import Tensor, grad, hessian, jvp, ops, vjp, vmap
from needle import jacobian as jacrev
from needle_nn.nn.module import Module

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp", "vmap",
]  # fmt: skip

jacfwd = jacrev  # goes by rows or by columns, whichever are fewer


def grad_and_value(fn: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
    """x -> (df/dx, f(x)): `needle.value_and_grad` the other way round."""
    both = needle.value_and_grad(fn, argnums, has_aux)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, slope = both(*args, **kwargs)
        return slope, value

    return differentiated


def functional_call(module: Module, tensors: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """module(*args, **kwargs) with other Tensors in the place of its parameters and buffers, which are as before afterwards.

    Parameters
    ----------
    module : what is called
    tensors : {dotted name: Tensor}, for some or all of them; or a tuple of such dicts
    args, kwargs : what it is called with; a single argument needs no tuple
    """
    given: dict[str, Any] = {}
    for part in tensors if isinstance(tensors, (tuple, list)) else (tensors,):
        given |= part
    with _replaced(module, given):
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))


@contextmanager
def _replaced(module: Module, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Other Tensors under these names, inside of the block."""
    own = dict(module._tensors())
    for name, value in tensors.items():
        if name not in own:
            raise ValueError(
                f"functional_call: {type(module).__name__} has no {name!r}; it has {', '.join(own) or 'none'}"
            )
        if not isinstance(value, Tensor) or value.shape != own[name].shape:
            got = f"shape {value.shape}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(f"functional_call: {name}: {got}, expected a Tensor of shape {own[name].shape}")
    wanted = {id(own[name]): value for name, value in tensors.items()}  # under all of its names, where it has several
    undo: list[tuple[Any, Any, Any]] = []
    try:
        for _, part in module.named_modules():
            for name, held in list(part.__dict__.items()):
                part.__dict__[name] = _exchanged(held, wanted)
                undo.append((part, name, held))
        yield
    finally:
        for part, name, held in reversed(undo):
            part.__dict__[name] = held


def _exchanged(held: Any, wanted: Mapping[int, Any]) -> Any:
    """An attribute with other Tensors in it; itself where nothing changes."""
    if isinstance(held, Tensor):
        return wanted.get(id(held), held)
    if type(held) in (list, tuple):
        parts = [_exchanged(part, wanted) for part in held]
        return held if all(a is b for a, b in zip(parts, held, strict=True)) else type(held)(parts)
    if type(held) is dict:
        entries = {key: _exchanged(part, wanted) for key, part in held.items()}
        return held if all(entries[key] is held[key] for key in held) else entries
    return held


def stack_module_state(modules: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of modules of one kind, each stacked along a new axis 0: what `vmap` takes for an ensemble."""
    listed = list(modules)
    if not listed:
        raise ValueError("stack_module_state: no modules given")

    def together(name: str) -> dict[str, Tensor]:
        parts = [dict(getattr(module, name)()) for module in listed]
        if any(part.keys() != parts[0].keys() for part in parts):
            raise ValueError("stack_module_state: expected modules of one kind, with the same names")
        stacked = {key: ops.stack([part[key].detach() for part in parts], 0) for key in parts[0]}
        return {key: Tensor.make_const(t, requires_grad=name == "named_parameters") for key, t in stacked.items()}

    return together("named_parameters"), together("named_buffers")
