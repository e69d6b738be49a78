"""What the tables of operators are made of: a row, its random inputs, and rows by the dozen."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import needle as ndl
from needle import ops

#: How near a result must be to NumPy's (or PyTorch's) in float64 of the same inputs.
TOLERANCE = {"float64": {"rtol": 1e-11, "atol": 1e-12}, "float32": {"rtol": 2e-5, "atol": 4e-6}}


@dataclass(frozen=True)
class Input:
    """A random array: distinct values, away from 0 where functions have kinks."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0

    def make(self, rng: np.random.Generator) -> np.ndarray:
        n = math.prod(self.shape)
        grid = self.low + (self.high - self.low) * (np.arange(n) + rng.uniform(0.2, 0.8, n)) / max(n, 1)
        grid += np.where(np.abs(grid) < 0.05, 0.1, 0.0)
        return rng.permutation(grid).reshape(self.shape)


@dataclass(frozen=True)
class Row:
    id: str
    fn: Callable[..., Any]
    ref: Callable[..., Any]
    inputs: tuple[Input, ...]
    order: int = 2  # 0: no derivative

    @property
    def name(self) -> str:
        return self.id.split("/")[0]

    def arrays(self, dtype: str = "float64") -> list[np.ndarray]:
        rng = np.random.default_rng(len(self.id))
        return [x.make(rng).astype(dtype) for x in self.inputs]

    def tensors(self, device: Any, dtype: str = "float64") -> list[ndl.Tensor]:
        return [ndl.Tensor(x, device=device, dtype=dtype) for x in self.arrays(dtype)]


def real(*shape: int) -> Input:
    return Input(shape)


def positive(*shape: int) -> Input:
    return Input(shape, 0.4, 2.4)


def outputs(result: Any) -> list[ndl.Tensor]:
    """What an op returns, as a list."""
    return [result] if isinstance(result, ndl.Tensor) else list(result)


def call(name, *args, **kwargs):
    """ops.<name> with arguments after the tensors, found when it is called."""
    return lambda *tensors: getattr(ops, name)(*tensors, *args, **kwargs)


def forms(name, ref, cases):
    """A row per case (shape, *arguments): op and twin get the same arguments after the array."""
    return [
        Row(
            f"{name}/{shape} {' '.join(map(str, args))}",
            call(name, *args),
            partial(_after, ref, args),
            (real(*shape),),
        )
        for shape, *args in cases
    ]


def _after(ref, args, *arrays):
    return ref(*arrays, *args)
