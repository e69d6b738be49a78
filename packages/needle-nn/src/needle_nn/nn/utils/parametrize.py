"""Parameters of a layer as functions of others: the layer stays what it is, and computes its weight whenever it is asked for it.

>>> from needle import nn
>>> class Symmetric(nn.Module):
...     def forward(self, x):
...         return x.triu() + x.triu(1).transpose(0, 1)
>>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
>>> bool((layer.weight.numpy() == layer.weight.numpy().T).all()), [name for name, _ in layer.named_parameters()]
(True, ['bias', 'parametrizations.weight.original'])
"""

from typing import Any

from needle import Tensor, no_grad
from needle_nn.nn.module import Module, Parameter

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations"]


class ParametrizationList(Module):
    """The functions that make a weight, one after the other, and what the first one takes: `original`, or several of them."""

    _inline = "steps"

    def __init__(self, weight: Parameter, first: Module) -> None:
        super().__init__()
        self.trained = weight.requires_grad
        with no_grad():
            given = first.right_inverse(weight.detach()) if hasattr(first, "right_inverse") else weight
        self.names = ["original"] if isinstance(given, Tensor) else [f"original{i}" for i in range(len(given))]
        for name, value in zip(self.names, [given] if isinstance(given, Tensor) else given, strict=True):
            kept = value if value is weight else Parameter(value.detach().clone()).requires_grad_(weight.requires_grad)
            setattr(self, name, kept)
        self.steps = [first]  # after the originals, as in PyTorch's states

    def forward(self) -> Tensor:
        made = self.steps[0](*[getattr(self, name) for name in self.names])
        for step in self.steps[1:]:
            made = step(made)
        return made

    def invert(self, value: Tensor) -> None:
        """Write what makes this value into the originals."""
        with no_grad():
            for step in reversed(self.steps):
                if not hasattr(step, "right_inverse"):
                    raise RuntimeError(
                        f"{type(step).__name__} has no right_inverse: the weight that it makes cannot be set"
                    )
                value = step.right_inverse(value)
            for name, x in zip(self.names, [value] if isinstance(value, Tensor) else value, strict=True):
                getattr(self, name).copy_(x)

    def __getitem__(self, i: int) -> Module:
        return self.steps[i]

    def __len__(self) -> int:
        return len(self.steps)


def _made(name: str) -> property:
    """The attribute: what the functions make of the originals."""

    def get(module: Any) -> Tensor:
        return module.parametrizations[name]()

    def put(module: Any, value: Tensor) -> None:
        module.parametrizations[name].invert(value)

    return property(get, put)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Make a Parameter of a module a function of itself; returns the module, whose class is one of its own from then on.

    Parameters
    ----------
    module, tensor_name : the layer, and its Parameter
    parametrization : a module that takes the original; one more goes after those that are there. With a method `right_inverse` the
        layer begins with the weight that it has, and can be given another
    unsafe : the shape may change
    """
    what = "register_parametrization"
    layer: Any = module  # which gets the attribute parametrizations
    if is_parametrized(module, tensor_name):
        held = layer.parametrizations[tensor_name]
        before = held()
        after = parametrization(before)
        _check(what, tensor_name, before, after, unsafe)
        held.steps.append(parametrization)
        return module
    weight = module.__dict__.get(tensor_name)
    if not isinstance(weight, Parameter):
        raise ValueError(f"{what}: {type(module).__name__} has no Parameter {tensor_name!r}")
    held = ParametrizationList(weight, parametrization)
    _check(what, tensor_name, weight, held(), unsafe)
    if not is_parametrized(module):
        kind = type(module)
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), {"__module__": kind.__module__})
        layer.parametrizations = {}
    delattr(module, tensor_name)
    setattr(type(module), tensor_name, _made(tensor_name))
    layer.parametrizations[tensor_name] = held
    return module


def _check(what: str, name: str, before: Tensor, after: Any, unsafe: bool) -> None:
    if not isinstance(after, Tensor) or (after.shape != before.shape and not unsafe):
        got = after.shape if isinstance(after, Tensor) else type(after).__name__
        raise ValueError(
            f"{what}: {name} of shape {before.shape} becomes {got}: expected the same shape, or unsafe=True"
        )


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one of this Parameter."""
    held = module.__dict__.get("parametrizations", {})
    return bool(held) if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """A Parameter again: with the value that was made, or with the original one; returns the module."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: {type(module).__name__} has no parametrization of {tensor_name!r}")
    held = module.parametrizations[tensor_name]
    if not leave_parametrized and held.names != ["original"]:
        raise ValueError(
            f"remove_parametrizations: {tensor_name} is made of {len(held.names)} originals: expected leave_parametrized"
        )
    with no_grad():
        value = held().detach().clone() if leave_parametrized else held.original
    del module.parametrizations[tensor_name]
    delattr(type(module), tensor_name)
    if not module.parametrizations:
        del module.parametrizations
        module.__class__ = type(module).__mro__[1]
    setattr(
        module, tensor_name, value if isinstance(value, Parameter) else Parameter(value).requires_grad_(held.trained)
    )
    return module
