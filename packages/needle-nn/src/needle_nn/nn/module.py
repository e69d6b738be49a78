"""Parameters, and the tree of modules that holds them."""

from collections.abc import Iterator, Mapping
from reprlib import recursive_repr
from typing import Any, ClassVar

import numpy as np

import needle_ndarray as nd
from needle.autograd import Tensor
from needle_nn.moving import move_tensors


class Parameter(Tensor):
    """A Tensor that is trained: what `Module.parameters` finds. `Parameter(tensor)` shares the tensor's data."""


class Module:
    """A function with parameters: subclasses set Parameters and other Modules as attributes and define `forward`.

    Attributes may also be dicts, lists and tuples of these. A Tensor that is no Parameter is a buffer: it is saved and moved with
    the module, but not trained. Any attribute may be replaced at any time.

    >>> import needle as ndl
    >>> class Scale(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = Parameter(ndl.ones(1))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> scale = Scale()
    >>> scale(ndl.Tensor([3.0])).tolist(), [name for name, _ in scale.named_parameters()]
    ([3.0], ['factor'])
    """

    training = True

    #: An attribute whose entries go by their position alone: "0.weight" instead of "modules.0.weight".
    _inline: ClassVar[str] = ""

    def __init__(self):
        self.training = True

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def __call__(self, *args, **kwargs):
        if kwargs or len(args) != 1:
            return self.forward(*args, **kwargs)
        return self.forward(args[0])  # nearly always: in two thirds of the time

    # ---- The tree --------------------------------------------------------------------------

    def _members(self) -> Iterator[tuple[str, Any]]:
        """(name, Tensor or Module) of what the attributes hold, in the order they were set."""
        for name, value in self.__dict__.items():
            yield from _unpack("" if name == self._inline else name, value)

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
        """(dotted name, Tensor or Module) of this module and everything in it, depth first, each once."""
        seen.add(id(self))
        yield prefix, self
        for name, value in self._members():
            if id(value) in seen:
                continue
            if isinstance(value, Module):
                yield from value._walk(_dotted(prefix, name), seen)
            else:
                seen.add(id(value))
                yield _dotted(prefix, name), value

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, value) for name, value in self._walk("", set()) if isinstance(value, Tensor))

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, Parameter), in the order of creation, each once."""
        return ((name, value) for name, value in self._tensors() if isinstance(value, Parameter))

    def parameters(self) -> list[Parameter]:
        """Every Parameter, in the order of creation, each once."""
        return [value for _, value in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, Tensor) of the state that is not trained."""
        return ((name, value) for name, value in self._tensors() if not isinstance(value, Parameter))

    def named_modules(self) -> Iterator[tuple[str, "Module"]]:
        """(dotted name, Module), this one first, under the name ""."""
        return ((name, value) for name, value in self._walk("", set()) if isinstance(value, Module))

    def children(self) -> list["Module"]:
        """The modules directly below this one."""
        return list({id(value): value for _, value in self._members() if isinstance(value, Module)}.values())

    # ---- Switches --------------------------------------------------------------------------

    def train(self, mode: bool = True):
        """Set `training` here and in every module below; returns the module."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self):
        """`train(False)`: dropout off, batch norm by its running statistics."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget every gradient."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self, device):
        """Move parameters, their gradients and buffers; they stay the objects they are. Returns the module."""
        move_tensors([tensor for _, tensor in self._tensors()], device)
        return self

    # ---- State --------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name, tensor in self._tensors():
            if name in state:
                raise ValueError(f"{type(self).__name__}: two tensors have the name {name}")
            state[name] = tensor
        return state

    def state_dict(self) -> dict[str, Tensor]:
        """{dotted name: a copy} of parameters and buffers: what training changes later is not changed in it."""
        return {name: Tensor.make_const(value.realize_cached_data().copy()) for name, value in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Copy tensors or arrays into the parameters and buffers of these names, or, where one does not fit, change nothing.

        Parameters
        ----------
        state : what `state_dict` returned; values are converted to the dtype and device of what they replace
        strict : names that are missing or unexpected are errors; shapes that differ always are
        """
        own = self._state()
        given = {name: _host(state[name]) for name in own if name in state}
        shapes = [
            f"{name} {array.shape} instead of {own[name].shape}"
            for name, array in given.items()
            if array.shape != own[name].shape
        ]
        problems = [("other shapes", shapes)]
        if strict:
            problems.insert(0, ("missing", [name for name in own if name not in state]))
            problems.insert(1, ("unexpected", [name for name in state if name not in own]))
        if any(names for _, names in problems):
            told = "; ".join(f"{what}: {', '.join(names)}" for what, names in problems if names)
            raise ValueError(f"{type(self).__name__}.load_state_dict: {told}")
        arrays = {name: nd.array(a, dtype=own[name].dtype, device=own[name].device) for name, a in given.items()}
        for name, array in arrays.items():
            own[name].realize_cached_data()[...] = array

    # ---- Looking --------------------------------------------------------------------------

    def summary(self, *input_shapes: tuple[int, ...]) -> str:
        """A table of layers, output shapes and parameters for inputs of these shapes; see `needle.nn.summary`."""
        from needle_nn.nn.summary import summary

        return summary(self, *input_shapes)

    def _settings(self) -> str:
        shown = {k: v for k, v in self.__dict__.items() if k != "training" and k[0] != "_" and _is_setting(v)}
        return ", ".join([f"{name}={value!r}" for name, value in shown.items()])

    @recursive_repr("...")
    def __repr__(self):
        children = [(name, value) for name, value in self._members() if isinstance(value, Module)]
        settings = self._settings()
        if not children:
            return f"{type(self).__name__}({settings})"
        lines = [f"{name}: {value!r}".replace("\n", "\n  ") for name, value in children]
        return "\n  ".join([f"{type(self).__name__}({settings}", *lines]) + "\n)"


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _unpack(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(name, Tensor or Module) of a value and, if it is a container, of what it holds."""
    if isinstance(value, (Tensor, Module)):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unpack(_dotted(name, str(key)), item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _unpack(_dotted(name, str(i)), item)


def _host(value: Any) -> Any:
    """Something with a shape, from a Tensor, an NDArray or whatever NumPy takes."""
    if isinstance(value, Tensor):
        return value.realize_cached_data()
    return value if isinstance(value, nd.NDArray) else np.asarray(value)


def _is_setting(value: Any) -> bool:
    """Whether a value is worth showing in a line: a number, a string, None, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(_is_setting, value)) and bool(value)
    return value is None or isinstance(value, (bool, int, float, str))


def expect(layer: Any, x: Any, *sizes: Any) -> None:
    """Raise unless x has these sizes: ints as they are, letters for any size, `...` at the front for any axes.

    >>> import needle as ndl
    >>> expect(Module(), ndl.ones(2, 5), ..., 3)
    Traceback (most recent call last):
    ValueError: Module: input has shape (2, 5), expected (..., 3)
    """
    shape, wanted = x.shape, sizes
    if sizes[0] is ...:
        wanted = sizes[1:]
        shape = shape[-len(wanted) :]
    fits = len(shape) == len(wanted)
    for n, given in zip(wanted, shape, strict=False):
        fits = fits and (n == given or type(n) is str)
    if fits:
        return
    text = ", ".join(["..." if n is ... else str(n) for n in sizes])
    raise ValueError(f"{type(layer).__name__}: input has shape {x.shape}, expected ({text})")
