"""Modules made of modules.

>>> import needle as ndl
>>> len(ModuleList([Module(), Module()]))
2
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from needle import Tensor
from needle_ndarray.extension import bounded
from needle_nn.nn.module import Module, Named, Parameter


def _checked(what: str, layer: Any, i: Any) -> Any:
    """A layer: a Module or any function; the mistakes that are often made are named."""
    if isinstance(layer, type):
        raise TypeError(f"{what}: layer {i} is the class {layer.__name__}, expected a layer: {layer.__name__}(...)")
    if isinstance(layer, (list, tuple)):
        how = f"{what}([*layers])" if what == "ModuleList" else f"{what}(*layers)"
        raise TypeError(f"{what}: layer {i} is a {type(layer).__name__}, expected layers one by one: {how}")
    if not callable(layer):
        raise TypeError(f"{what}: layer {i} is a {type(layer).__name__}, expected a Module or a function")
    return layer


class _Layers(tuple):
    """The layers of a Sequential, which can be called as the method of that name."""

    owner: "Sequential"

    def of(self, owner: "Sequential") -> "_Layers":
        self.owner = owner
        return self

    def __call__(self) -> list[Module]:
        return Module.modules(self.owner)


class Sequential(Module):
    """y = f_n(... f_2(f_1(x))).

    >>> import needle as ndl
    >>> from needle import nn
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> net(ndl.ones(5, 2)).shape
    (5, 1)
    >>> net
    Sequential(
      0: Linear(in_features=2, out_features=3)
      1: ReLU()
      2: Linear(in_features=3, out_features=1)
    )

    A dict gives the layers names, in its order:

    >>> net = nn.Sequential({"map": nn.Linear(2, 3), "bend": nn.ReLU()})
    >>> [name for name, _ in net.named_parameters()], net.bend
    (['map.weight', 'map.bias'], ReLU())
    """

    _inline = "modules"

    @property
    def modules(self) -> Any:
        """The layers, a tuple; called, this module and every one below it, as in any module."""
        return _Layers(self.__dict__["modules"]).of(self)

    @modules.setter
    def modules(self, layers: Any) -> Any:
        self.__dict__["modules"] = layers

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            names = list(modules[0])
            for name in names:
                if not isinstance(name, str) or not name or "." in name or hasattr(self, name) or name == "modules":
                    raise ValueError(f"Sequential: a layer cannot have the name {name!r}")
            modules = Named(names, modules[0].values())
        for i, module in enumerate(modules):
            _checked(type(self).__name__, module, i)
        self.modules = modules

    def __getattr__(self, name: str) -> Any:
        """A layer by its name; asked for where there is no attribute of that name."""
        layers = self.__dict__.get("modules")
        if isinstance(layers, Named) and name in layers.names:
            return layers[layers.names.index(name)]
        if layers is not None and name.isdigit() and int(name) < len(layers):
            return layers[int(name)]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        layers = self.__dict__.get("modules")
        if isinstance(layers, Named) and name in layers.names:
            name, value = "modules", layers.replaced(name, value)
        elif layers is not None and name.isdigit() and int(name) < len(layers):
            self[int(name)] = value
            return
        super().__setattr__(name, value)

    def add_module(self, name: str, module: Any) -> None:
        """One more layer at the end, under a name."""
        layers = self.__dict__["modules"]
        names = layers.names if isinstance(layers, Named) else [str(i) for i in range(len(layers))]
        if name in names:
            setattr(self, name, module)
            return
        if not isinstance(module, Module):
            given = type(module).__name__
            raise TypeError(f"{type(self).__name__}.add_module: {name} is a {given}, expected a Module")
        self.modules = (*layers, module) if name == str(len(layers)) else Named([*names, name], (*layers, module))

    register_module = add_module

    def forward(self, x: Any) -> Any:
        for module in self.__dict__["modules"]:
            x = module(x)
        return x

    def append(self, module: Any) -> "Sequential":
        """One more layer at the end."""
        self.modules = (*self.modules, _checked(type(self).__name__, module, len(self)))
        return self

    def extend(self, modules: Iterable[Any]) -> "Sequential":
        """More layers at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, i: int, module: Any) -> "Sequential":
        """One more layer, before the i-th."""
        layers = list(self.__dict__["modules"])
        layers.insert(i, _checked(type(self).__name__, module, i))
        self.modules = tuple(layers)
        return self

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, i):
        layers = self.__dict__["modules"]
        if not isinstance(i, slice):
            return layers[i]
        if isinstance(layers, Named):
            return Sequential(dict(zip(layers.names[i], layers[i], strict=True)))
        return Sequential(*layers[i])

    def __setitem__(self, i, module):
        layers = list(self.__dict__["modules"])
        layers[i] = _checked(type(self).__name__, module, i)
        old = self.__dict__["modules"]
        self.modules = Named(old.names, layers) if isinstance(old, Named) else tuple(layers)


class ModuleList(Module):
    """A list of modules; it calls none of them.

    >>> from needle import nn
    >>> layers = ModuleList([nn.Linear(4, 4, bias=False) for _ in range(3)])
    >>> len(layers), [name for name, _ in layers.named_parameters()]
    (3, ['0.weight', '1.weight', '2.weight'])
    """

    _inline = "modules"
    modules: Any

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        if isinstance(modules, Module) or not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList: expected a list of modules, got {type(modules).__name__}")
        self.modules = [_checked("ModuleList", module, i) for i, module in enumerate(bounded("ModuleList", modules))]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("ModuleList: calls none of its modules; write a loop over them, or use Sequential")

    def append(self, module: Module) -> "ModuleList":
        self.modules.append(module)
        return self

    def extend(self, modules: Iterable[Module]) -> "ModuleList":
        self.modules.extend(modules)
        return self

    def insert(self, i: int, module: Module) -> None:
        self.modules.insert(i, module)

    def pop(self, i: int = -1) -> Module:
        return self.modules.pop(i)

    def __delitem__(self, i: Any) -> None:
        del self.modules[i]

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, i):
        return self.modules[i]

    def __setitem__(self, i, module):
        self.modules[i] = module


class ModuleDict(Module):
    """A dict of modules; it calls none of them.

    >>> import needle as ndl
    >>> from needle import nn
    >>> heads = ModuleDict({"mean": nn.Linear(4, 1), "value": nn.Linear(4, 1, bias=False)})
    >>> heads["mean"](ndl.ones(2, 4)).shape, [name for name, _ in heads.named_parameters()]
    ((2, 1), ['mean.weight', 'mean.bias', 'value.weight'])
    """

    _inline = "entries"
    _kind: ClassVar[type] = Module

    def __init__(self, entries: Any = ()) -> None:
        super().__init__()
        self.entries: dict[str, Any] = {}
        self.update(entries)

    def __getattr__(self, name: str) -> Any:
        """An entry by its name; asked for where there is no attribute of that name."""
        entries = self.__dict__.get("entries", ())
        if name in entries:
            return entries[name]
        raise AttributeError(f"{type(self).__name__!r} has no entry {name!r}; there are {', '.join(entries) or 'none'}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("entries", ()):
            self[name] = value
        else:
            super().__setattr__(name, value)

    def update(self, entries: Any) -> None:
        """Set entries from a dict, or from pairs."""
        for name, entry in dict(entries).items():
            self[name] = entry

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: calls none of its entries")

    def __setitem__(self, name: str, entry: Any) -> None:
        kind = self._kind.__name__
        if not isinstance(name, str) or "." in name:
            raise TypeError(f"{type(self).__name__}: name {name!r}: expected a text without dots")
        if not isinstance(entry, self._kind):
            raise TypeError(f"{type(self).__name__}: {name} is a {type(entry).__name__}, expected a {kind}")
        self.entries[name] = entry

    def __getitem__(self, name: str) -> Any:
        return self.entries[name]

    def __delitem__(self, name: str) -> None:
        del self.entries[name]

    def __contains__(self, name: Any) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def pop(self, name: str) -> Any:
        return self.entries.pop(name)

    def clear(self) -> None:
        self.entries.clear()

    def keys(self) -> Any:
        return self.entries.keys()

    def values(self) -> Any:
        return self.entries.values()

    def items(self) -> Any:
        return self.entries.items()


class ParameterDict(ModuleDict):
    """A dict of Parameters; Tensors become Parameters."""

    _kind = Parameter

    def __setitem__(self, name: str, entry: Any) -> None:
        super().__setitem__(name, _parameter(entry))


def _parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """A list of Parameters; Tensors become Parameters.

    >>> import needle as ndl
    >>> steps = ParameterList([ndl.ones(2), ndl.zeros(3)])
    >>> [name for name, _ in steps.named_parameters()], steps[1].shape
    (['0', '1'], (3,))
    """

    _inline = "entries"

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.entries: list[Parameter] = []
        self.extend(bounded("ParameterList", values))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("ParameterList: holds Parameters, and computes nothing")

    def append(self, value: Any) -> "ParameterList":
        self.entries.append(self._checked(value, len(self)))
        return self

    def extend(self, values: Iterable[Any]) -> "ParameterList":
        for value in values:
            self.append(value)
        return self

    def _checked(self, value: Any, i: Any) -> Any:
        if not isinstance(value, Tensor):
            raise TypeError(f"ParameterList: entry {i} is a {type(value).__name__}, expected a Parameter or a Tensor")
        return _parameter(value)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, i):
        return self.entries[i]

    def __setitem__(self, i, value):
        self.entries[i] = self._checked(value, i)


class Residual(Module):
    """y = f(x) + x"""

    def __init__(self, fn: Module) -> None:
        super().__init__()
        self.fn = _checked("Residual", fn, "fn")

    def forward(self, x: Any) -> Any:
        return self.fn(x) + x
