"""Parameters, and the tree of modules that holds them."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from reprlib import recursive_repr
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

import needle_ndarray as nd
from needle.autograd import Tensor, follows_torch
from needle_nn.checks import shown
from needle_nn.moving import cast_tensors, destination, move_tensors
from needle_nn.nn import buffers
from needle_nn.nn.buffers import MOVED, NONE, SAVED
from needle_nn.nn.hooks import Handle, Hooks


class Parameter(Tensor):
    """A Tensor that is trained: what `Module.parameters` finds. `Parameter(tensor)` shares the tensor's data."""


class Listed(list):
    """A list that `next` walks along as well, as it would along PyTorch's generators: `next(model.parameters()).device`."""

    __slots__ = ("_at",)

    def __next__(self) -> Any:
        at = getattr(self, "_at", 0)
        if at >= len(self):
            raise StopIteration
        self._at = at + 1
        return self[at]


class Named(tuple):
    """A tuple whose entries have names, under which a module finds them instead of under their positions."""

    names: list[str]

    def __new__(cls, names: Iterable[str], entries: Iterable[Any]) -> "Named":
        self = super().__new__(cls, entries)
        self.names = list(names)
        return self

    def __reduce__(self) -> Any:
        return Named, (self.names, tuple(self))

    def replaced(self, name: str, entry: Any) -> "Named":
        return Named(self.names, [entry if n == name else old for n, old in zip(self.names, self, strict=True)])


class StateMismatch(ValueError, RuntimeError):
    """A state that does not fit a module: a ValueError, and PyTorch's RuntimeError."""


class IncompatibleKeys(NamedTuple):
    """The names that `load_state_dict` has not found, and those that it did not look for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """A function with parameters: subclasses set Parameters and other Modules as attributes and define `forward`.

    Attributes may also be dicts, lists and tuples of these. A Tensor that is no Parameter is a buffer: it is saved and moved with
    the module, but not trained. No buffers are Tensors that `forward` keeps under a name of its own, those with a graph, and those
    whose name begins with an underscore; `register_buffer` says it for any name. Any attribute may be replaced at any time.

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

    #: Whether weights have PyTorch's axes and names: of layers made within `needle.compat("torch")`; see `nn.axes`.
    as_torch = False

    #: An attribute whose entries go by their position alone: "0.weight" instead of "modules.0.weight".
    _inline: ClassVar[str] = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if follows_torch():
            self.as_torch = True
        if args or kwargs:
            given = ", ".join([*map(shown, args), *[f"{name}={shown(value)}" for name, value in kwargs.items()]])
            raise TypeError(f"{type(self).__name__}: takes no arguments, got {given}")
        self.training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.forward")

    #: What is called before and after `forward`.
    _hooks: Hooks | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._hooks is not None:
                return self._hooks.call(self, args, kwargs)
            if kwargs or len(args) != 1:
                return self.forward(*args, **kwargs)
            return self.forward(args[0])  # nearly always: in two thirds of the time
        except Exception as error:
            with contextlib.suppress(Exception):  # an error that takes no notes stays what it is
                _note_place(error, self)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is not Parameter and isinstance(value, (Tensor, list, tuple, dict)):
            buffers.note(self, name, value, Parameter)
        object.__setattr__(self, name, value)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Set an attribute that is a buffer under any name, whatever replaces it later.

        Parameters
        ----------
        name : of the attribute, which must be free
        tensor : its value; None where it comes later
        persistent : part of `state_dict`; else it is only moved with the module
        """
        what = f"{type(self).__name__}.register_buffer"
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"{what}: name {name!r}: expected a text without dots")
        if tensor is not None and (not isinstance(tensor, Tensor) or isinstance(tensor, Parameter)):
            raise TypeError(f"{what}: {name} is a {type(tensor).__name__}, expected a Tensor that is no Parameter")
        roles = self.__dict__.setdefault("_roles", {})
        if name not in roles and hasattr(self, name):
            raise ValueError(f"{what}: there is an attribute {name} already")
        roles[name] = SAVED if persistent else MOVED
        self.__dict__[name] = tensor

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Set an attribute that is a Parameter, or None."""
        if parameter is not None and not isinstance(parameter, Parameter):
            given = type(parameter).__name__
            raise TypeError(f"{type(self).__name__}.register_parameter: {name} is a {given}, expected a Parameter")
        setattr(self, name, parameter)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Set an attribute that is a Module, or None."""
        if module is not None and not isinstance(module, Module):
            given = type(module).__name__
            raise TypeError(f"{type(self).__name__}.add_module: {name} is a {given}, expected a Module")
        setattr(self, name, module)

    register_module = add_module

    def register_forward_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> Handle:
        """Call `hook(module, args, output)` after each `forward`; what it returns, unless None, is the output.

        Parameters
        ----------
        prepend : before the hooks that there are
        with_kwargs : call `hook(module, args, kwargs, output)`
        """
        self._hooks = self._hooks or Hooks()
        return self._hooks.add(self._hooks.after, hook, with_kwargs, prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_input, grad_output)` in backward, with tuples of gradients; it may return another grad_input."""
        self._hooks = self._hooks or Hooks()
        return self._hooks.add(self._hooks.backward, hook, False, prepend)

    def register_forward_pre_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> Handle:
        """Call `hook(module, args)` before each `forward`; what it returns, unless None, are the arguments.

        Parameters
        ----------
        prepend : before the hooks that there are
        with_kwargs : call `hook(module, args, kwargs)`, which returns both
        """
        self._hooks = self._hooks or Hooks()
        return self._hooks.add(self._hooks.before, hook, with_kwargs, prepend)

    # ---- The tree --------------------------------------------------------------------------

    def _members(self) -> Iterator[tuple[str, Any, str]]:
        """(name, Tensor or Module, its role) of what the attributes hold, in the order they were set."""
        roles = self.__dict__.get("_roles", {})
        for attribute, held in self.__dict__.items():
            for name, value in _unpack("" if attribute == self._inline else attribute, held):
                trained = isinstance(value, (Module, Parameter))
                yield name, value, SAVED if trained else buffers.role(roles, attribute, value)

    def _walk(self, prefix: str, seen: set[int], wanted: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        """(dotted name, Tensor or Module) of this module and everything of these roles in it, depth first, each once."""
        seen.add(id(self))
        yield prefix, self
        for name, value, role in self._members():
            if id(value) in seen or role not in wanted:
                continue
            if isinstance(value, Module):
                yield from value._walk(_dotted(prefix, name), seen, wanted)
            else:
                seen.add(id(value))
                yield _dotted(prefix, name), value

    def _tensors(self, *wanted: str) -> Iterator[tuple[str, Tensor]]:
        """The Tensors of these roles, or all of them."""
        found = self._walk("", set(), wanted or (SAVED, MOVED, NONE))
        return ((name, value) for name, value in found if isinstance(value, Tensor))

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, Parameter), in the order of creation, each once.

        Parameters
        ----------
        prefix : a first part of all names
        recurse : with False those of no module below
        """
        return self._named(prefix, recurse, True, SAVED)

    def parameters(self, recurse: bool = True) -> list[Parameter]:
        """Every Parameter, in the order of creation, each once; with recurse=False those of no module below."""
        return Listed([value for _, value in self.named_parameters(recurse=recurse)])

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, Tensor) of the state that is not trained; see `named_parameters`."""
        return self._named(prefix, recurse, False, SAVED, MOVED)

    def buffers(self, recurse: bool = True) -> list[Tensor]:
        """Every buffer, in the order of creation, each once; with recurse=False those of no module below."""
        return Listed([value for _, value in self.named_buffers(recurse=recurse)])

    def _named(self, prefix: str, recurse: bool, trained: bool, *wanted: str) -> Iterator[tuple[str, Any]]:
        if recurse:
            found = self._tensors(*wanted)
        else:
            first: dict[int, tuple[str, Any]] = {}
            for name, value, role in self._members():
                if role in wanted and isinstance(value, Tensor):
                    first.setdefault(id(value), (name, value))
            found = iter(first.values())
        return ((_dotted(prefix, name), value) for name, value in found if isinstance(value, Parameter) == trained)

    def named_modules(self) -> Iterator[tuple[str, "Module"]]:
        """(dotted name, Module), this one first, under the name ""."""
        return ((name, value) for name, value in self._walk("", set(), (SAVED,)) if isinstance(value, Module))

    def modules(self) -> list["Module"]:
        """This module and every one below it, each once."""
        return Listed([module for _, module in self.named_modules()])

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """(name, Module) directly below this one, each once."""
        seen: set[int] = set()
        for name, value, _ in list(self._members()):  # a loop over children may replace them
            if isinstance(value, Module) and id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def children(self) -> list["Module"]:
        """The modules directly below this one."""
        return Listed([module for _, module in self.named_children()])

    def get_submodule(self, name: str) -> "Module":
        """The module of a dotted name."""
        return self._found("module", name, self.named_modules())

    def get_parameter(self, name: str) -> Parameter:
        """The Parameter of a dotted name."""
        return self._found("parameter", name, self.named_parameters())

    def get_buffer(self, name: str) -> Tensor:
        """The buffer of a dotted name."""
        return self._found("buffer", name, self.named_buffers())

    def _found(self, kind: str, name: str, there: Iterable[tuple[str, Any]]) -> Any:
        entries = dict(there)
        if name not in entries:
            raise AttributeError(f"{type(self).__name__}: no {kind} {name!r}; there are {', '.join(entries) or 'none'}")
        return entries[name]

    def apply(self, function: Any) -> Any:
        """Call a function of every module below, then of this one; returns the module."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    # ---- Switches --------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and in every module below; returns the module."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`: dropout off, batch norm by its running statistics."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether the parameters are trained; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every gradient."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(
        self, *where: Any, device: Any = None, dtype: Any = None, non_blocking: Any = None, memory_format: Any = None
    ) -> Self:
        """Move every Tensor in the module, and gradients, to a device, or floats to a dtype, or to those of a Tensor.

        They stay the objects they are. Returns the module. `non_blocking` and `memory_format` are PyTorch's, of no effect.
        """
        device, dtype = destination(type(self).__name__, where, device, dtype)
        tensors = [tensor for _, tensor in self._tensors()]
        if device is not None:
            move_tensors(tensors, device)
        if dtype is not None:
            cast_tensors(tensors, dtype)
        return self

    def float(self) -> Self:
        """Floats of the module as float32; returns the module."""
        return self.to("float32")

    def double(self) -> Self:
        """Floats of the module as float64; returns the module."""
        return self.to("float64")

    def half(self) -> Self:
        """Floats of the module as float16, half the memory; returns the module. Optimizers want float32."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Floats of the module as bfloat16, half the memory; returns the module. Optimizers want float32."""
        return self.to("bfloat16")

    def type(self, dtype: Any) -> Self:
        """Floats of the module in a dtype; returns the module."""
        return self.to(dtype)

    def share_memory(self) -> Self:
        """The module: threads share memory already."""
        return self

    def cpu(self) -> Self:
        """`to(needle.cpu())`"""
        return self.to(nd.cpu())

    def cuda(self, device: Any = None) -> Self:
        """`to(needle.cuda())`"""
        return self.to(nd.cuda() if device is None else device)

    # ---- State --------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name, tensor in self._tensors(SAVED):
            if name in state:
                raise ValueError(f"{type(self).__name__}: two tensors have the name {name}")
            state[name] = tensor
        return state

    def state_dict(self) -> dict[str, Tensor]:
        """{dotted name: a copy} of parameters and buffers: what training changes later is not changed in it."""
        return {name: Tensor.make_const(value.realize_cached_data().copy()) for name, value in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Copy tensors or arrays into the parameters and buffers of these names, or, where one does not fit, change nothing.

        Returns the names that are missing and those that are unexpected: (missing_keys, unexpected_keys).

        Parameters
        ----------
        state : what `state_dict` returned; values are converted to the dtype and device of what they replace
        strict : names that are missing or unexpected are errors; shapes that differ always are

        The name of a Tensor that is there but no buffer is not unexpected: older states may have it, and it is left alone.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"{type(self).__name__}.load_state_dict: expected a dict, got {type(state).__name__}")
        own, others = self._state(), {name for name, _ in self._tensors()}
        given = {name: _host(state[name]) for name in own if name in state}
        unexpected = [name for name in state if name not in own and name not in others]
        if unexpected:
            unexpected = self._without_second_names(unexpected, state, own, given)
        missing = [name for name in own if name not in given]
        shapes = [
            f"{name} {array.shape} instead of {own[name].shape}"
            for name, array in given.items()
            if array.shape != own[name].shape
        ]
        problems = [("missing", missing), ("unexpected", unexpected)] if strict else []
        problems.append(("other shapes", shapes))
        if any(names for _, names in problems):
            told = "; ".join(f"{what}: {', '.join(names)}" for what, names in problems if names)
            raise StateMismatch(f"{type(self).__name__}.load_state_dict: {told}")
        arrays = {name: nd.array(a, dtype=own[name].dtype, device=own[name].device) for name, a in given.items()}
        for name, array in arrays.items():
            own[name].realize_cached_data()[...] = array
        return IncompatibleKeys(missing, unexpected)

    def _without_second_names(
        self, unexpected: list[str], state: Mapping[str, Any], own: dict[str, Tensor], given: dict[str, Any]
    ) -> list[str]:
        """The names that are no second ones of tensors with several, as of tied weights, which PyTorch's states hold for each."""
        first = {id(tensor): name for name, tensor in own.items()}
        every = dict(self._every_name("", ()))
        rest = []
        for name in unexpected:
            known = first.get(id(every.get(name)))
            array = _host(state[name])
            if known is None or (known in given and not _alike(given[known], array)):
                rest.append(name)
            else:
                given.setdefault(known, array)
        return rest

    def _every_name(self, prefix: str, above: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, Tensor) under all names."""
        for name, value, _ in self._members():
            if isinstance(value, Module):
                if id(value) not in above:
                    yield from value._every_name(_dotted(prefix, name), (*above, id(self)))
            else:
                yield _dotted(prefix, name), value

    # ---- Looking --------------------------------------------------------------------------

    def summary(self, *input_shapes: tuple[int, ...]) -> str:
        """A table of layers, output shapes and parameters for inputs of these shapes; see `needle.nn.summary`."""
        from needle_nn.nn.summary import summary

        return summary(self, *input_shapes)

    def extra_repr(self) -> str:
        """What stands between the parentheses of the repr: the settings, unless a subclass says something else."""
        return self._settings()

    def _settings(self) -> str:
        shown = {
            k: v
            for k, v in self.__dict__.items()
            if k not in ("training", "as_torch") and k[0] != "_" and _is_setting(v)
        }
        return ", ".join([f"{name}={value!r}" for name, value in shown.items()])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from needle_nn.notebook import module_html

        return module_html(self)

    @recursive_repr("...")
    def __repr__(self):
        children = [(name, value) for name, value, _ in self._members() if isinstance(value, Module)]
        settings = self.extra_repr()
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
        names = value.names if isinstance(value, Named) else range(len(value))
        for key, item in zip(names, value, strict=True):
            yield from _unpack(_dotted(name, str(key)), item)


def _note_place(error: Exception, module: Module) -> None:
    """Note in an error where it was raised, as seen from this module; the one further out writes it again, from its place."""
    inner, told = getattr(error, "_raised_in", (module, None))
    name = next((name for name, part in module.named_modules() if part is inner), None)
    notes = getattr(error, "__notes__", None)
    if name is None:  # made in a forward, or known to a function only
        return
    place = f"in {name} ({type(inner).__name__})" if name else f"in {type(inner).__name__}"
    if isinstance(notes, list) and told in notes:
        notes[notes.index(told)] = place
    else:
        error.add_note(place)
    error._raised_in = (inner, place)  # type: ignore[attr-defined]


def _host(value: Any) -> Any:
    """Something with a shape, from a Tensor, an NDArray or whatever NumPy takes."""
    if isinstance(value, Tensor):
        return value.realize_cached_data()
    return value if isinstance(value, nd.NDArray) else np.asarray(value)


def _alike(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same numbers, bit for bit."""
    a, b = (x.numpy() if isinstance(x, nd.NDArray) else x for x in (a, b))
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _is_setting(value: Any) -> bool:
    """Whether a value is worth showing in a line: a number, a string, None, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(_is_setting, value)) and bool(value)
    return value is None or isinstance(value, (bool, int, float, str))


def check_sizes(layer: Any, least: int = 1, **sizes: Any) -> None:
    """Raise unless all of these are ints from `least` on.

    >>> check_sizes(Module(), width=0)
    Traceback (most recent call last):
    ValueError: Module: width = 0: expected an int from 1 on
    """
    for name, value in sizes.items():
        if type(value) is not int or value < least:
            whole = not isinstance(value, bool) and hasattr(type(value), "__index__")
            if not whole or value.__index__() < least:
                kind = ValueError if whole else TypeError
                raise kind(f"{type(layer).__name__}: {name} = {shown(value)}: expected an int from {least} on")


def expect(layer: Any, x: Any, *sizes: Any, name: str = "input") -> None:
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
    raise ValueError(f"{type(layer).__name__}: {name} has shape {x.shape}, expected ({text})")
