"""Modules made of modules."""

from collections.abc import Iterable, Iterator

from needle_nn.nn.module import Module


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
    """

    _inline = "modules"

    def __init__(self, *modules: Module):
        super().__init__()
        self.modules = modules

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
        self.modules = list(modules)

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
        self.fn = fn

    def forward(self, x):
        return self.fn(x) + x
