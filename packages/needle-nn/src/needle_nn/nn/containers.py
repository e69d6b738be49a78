"""Modules made of modules."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from needle_ndarray.extension import bounded
from needle_nn.nn.module import Module, Named


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

    def __init__(self, *modules: Any):
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
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        layers = self.__dict__.get("modules")
        if isinstance(layers, Named) and name in layers.names:
            name, value = "modules", layers.replaced(name, value)
        super().__setattr__(name, value)

    def forward(self, x):
        for module in self.modules:
            x = module(x)
        return x

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, i):
        return self.modules[i]


class ModuleList(Module):
    """A list of modules; it calls none of them.

    >>> from needle import nn
    >>> layers = ModuleList([nn.Linear(4, 4, bias=False) for _ in range(3)])
    >>> len(layers), [name for name, _ in layers.named_parameters()]
    (3, ['0.weight', '1.weight', '2.weight'])
    """

    _inline = "modules"

    def __init__(self, modules: Iterable[Module] = ()):
        super().__init__()
        if isinstance(modules, Module) or not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList: expected a list of modules, got {type(modules).__name__}")
        self.modules = [_checked("ModuleList", module, i) for i, module in enumerate(bounded("ModuleList", modules))]

    def forward(self, *args, **kwargs):
        raise NotImplementedError("ModuleList: calls none of its modules; write a loop over them, or use Sequential")

    def append(self, module: Module) -> "ModuleList":
        self.modules.append(module)
        return self

    def extend(self, modules: Iterable[Module]) -> "ModuleList":
        self.modules.extend(modules)
        return self

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, i):
        return self.modules[i]

    def __setitem__(self, i, module):
        self.modules[i] = module


class Residual(Module):
    """y = f(x) + x"""

    def __init__(self, fn: Module):
        super().__init__()
        self.fn = _checked("Residual", fn, "fn")

    def forward(self, x):
        return self.fn(x) + x
