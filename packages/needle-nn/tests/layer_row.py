"""What a row of the tables of layers is."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from needle import nn


class Row(NamedTuple):
    id: str
    make: Callable[..., nn.Module]  # takes device and dtype
    inputs: tuple[Any, ...]  # shapes of normal numbers, tuples of these, or arrays; ints are held constant
    outputs: Any  # a shape, or nested tuples of shapes
    reference: Callable[..., Any]

    @property
    def name(self):
        return self.id.split("/")[0]

    def build(self, device=None, dtype="float64", seed=0):
        """The layer; parameters that start as ones and zeros get values of their own."""
        np.random.seed(seed)
        layer = self.make(device=device, dtype=dtype)
        rng = np.random.default_rng(seed)
        state = {name: value.numpy() for name, value in layer.state_dict().items()}
        fresh = {name: a + rng.uniform(0.1, 0.6, a.shape) for name, a in state.items() if np.ptp(a) == 0 or a.size == 1}
        layer.load_state_dict({**state, **fresh})
        return layer

    def arrays(self, dtype="float64", seed=1):
        """The inputs; a tuple of shapes becomes a tuple of arrays."""
        rng = np.random.default_rng(seed)

        def fill(x):
            if isinstance(x, tuple) and isinstance(x[0], tuple):
                return tuple([fill(part) for part in x])
            x = rng.standard_normal(x) if isinstance(x, tuple) else x
            return x.astype(dtype) if x.dtype.kind == "f" else x

        return [fill(x) for x in self.inputs]


def plain(make):
    """A layer that has neither device nor dtype."""
    return lambda device, dtype: make()
