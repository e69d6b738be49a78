"""Arrays that belong to parameters, as state_dicts have them: named by the place of the parameter."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray


def numbered(params: list[Tensor], kept: dict[Tensor, Any]) -> dict[str, Any]:
    """{"0": a copy of what is kept for the first parameter, ...}; parameters without an entry are left out."""
    return {str(i): _copied(kept[p]) for i, p in enumerate(params) if p in kept}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(part) for name, part in value.items()}
    if isinstance(value, Tensor):
        return Tensor.make_const(value.realize_cached_data().copy())
    return value.copy() if isinstance(value, (NDArray, np.ndarray)) else value


def of_parameters(optimizer: Any) -> dict[str, dict[Tensor, Any]]:
    """{attribute: {parameter: value}} of what an optimizer keeps without declaring it, as those of the course do."""
    params, declared = set(optimizer.params), (*optimizer.states, "params", "param_groups")
    return {
        name: value
        for name, value in vars(optimizer).items()
        if name not in declared and isinstance(value, dict) and value and all(_is_in(params, key) for key in value)
    }


def _is_in(params: set[Tensor], key: Any) -> bool:
    return isinstance(key, Tensor) and key in params


def check_complete(what: str, params: list[Tensor], places: list[int], kept: dict[Tensor, Any]) -> None:
    """A ValueError unless there is an entry for each of these parameters."""
    missing = [str(i) for i in places if not 0 <= i < len(params) or params[i] not in kept]
    if missing:
        raise ValueError(f"{what}: no entry for parameter {', '.join(missing)}: the state is incomplete")


def _as_tensor(value: Any) -> Any:
    """A copy of an array as a Tensor; numbers and texts as they are."""
    value = value.realize_cached_data() if isinstance(value, Tensor) else value
    return Tensor.make_const(nd.array(value)) if isinstance(value, (NDArray, np.ndarray)) else value


def restored(what: str, params: list[Tensor], given: Any) -> dict[Tensor, Any]:
    """Like `keyed`, with values of the types they had; numbers too."""
    if any(isinstance(value, Mapping) for value in given.values()):
        made = {
            params[int(key)]: {name: _as_tensor(part) for name, part in value.items()} for key, value in given.items()
        }
        return defaultdict(dict, made)
    numbers = {key: value for key, value in given.items() if isinstance(value, (int, float))}
    kept: dict[Tensor, Any] = dict(keyed(what, params, {k: v for k, v in given.items() if k not in numbers}))
    for key, value in given.items():
        p = params[int(key)]
        if key in numbers:
            kept[p] = value
        elif isinstance(value, Tensor):
            kept[p] = Tensor.make_const(kept[p])
        elif isinstance(value, np.ndarray):
            kept[p] = kept[p].numpy()
    return kept


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


__all__ = ["as_array", "check_complete", "keyed", "numbered", "of_parameters", "parts", "restored"]
