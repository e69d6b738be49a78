"""Arrays that belong to parameters, as state_dicts have them: named by the place of the parameter."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray


def numbered(params: list[Tensor], kept: dict[Tensor, NDArray]) -> dict[str, NDArray]:
    """{"0": a copy of what is kept for the first parameter, ...}; parameters without an entry are left out."""
    return {str(i): kept[p].copy() for i, p in enumerate(params) if p in kept}


def keyed(what: str, params: list[Tensor], given: Any) -> dict[Tensor, NDArray]:
    """The inverse of `numbered`: copies in the dtype and on the device of each parameter, of its shape."""
    if not isinstance(given, dict):
        raise TypeError(f"{what}: expected a dict, got {type(given).__name__}")
    kept = {}
    for key, value in given.items():
        if not str(key).isdigit() or int(key) >= len(params):
            raise ValueError(f"{what}: entry {key!r}, but there are {len(params)} parameters")
        p = params[int(key)]
        array = as_array(value, p)
        if array.shape != p.shape:
            raise ValueError(f"{what}: entry {key} has shape {array.shape}, its parameter {p.shape}")
        kept[p] = array
    return kept


def parts(what: str, state: Any, *names: str) -> list[Any]:
    """The entries of a state_dict, or what is wrong with it."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{what}: expected a dict, got {type(state).__name__}")
    for name in names:
        if name not in state:
            raise ValueError(f"{what}: no {name!r} in it: a state of something else?")
    return [state[name] for name in names]


def as_array(value: Any, like: Tensor | NDArray) -> NDArray:
    """A copy of a Tensor, NDArray or NumPy array in the dtype and on the device of another."""
    host = value.numpy() if isinstance(value, (Tensor, NDArray)) else np.asarray(value)
    return nd.array(host, like.dtype, like.device)


__all__ = ["as_array", "keyed", "numbered", "parts"]
