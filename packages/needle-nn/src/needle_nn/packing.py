"""Nested state as arrays and JSON, and back: what a checkpoint file holds. Nothing in it can run code.

Dicts, lists, tuples, strings, numbers and None go into the JSON text; Tensors, NDArrays and NumPy arrays are named by their
place, `model.fc.weight`, and only the names go into the text. What comes back is equal and of the same types, to the bit.

>>> arrays, text = pack({"step": 3, "model": {"fc.weight": np.ones(2)}})
>>> list(arrays), text
(['model.fc.weight'], '{"step": 3, "model": {"fc.weight": {"$numpy": "model.fc.weight"}}}')
>>> unpack(arrays, text)
{'step': 3, 'model': {'fc.weight': array([1., 1.])}}
"""

import json
import math
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray

#: The words of bfloat16, in arrays of NumPy's, which does not have it.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])


def host_copy(value: Any) -> np.ndarray:
    """A copy of a Tensor, an NDArray or an array as a NumPy array; of bfloat16 as its words, marked as such."""
    array = value.realize_cached_data() if isinstance(value, Tensor) else value
    if isinstance(array, NDArray) and array.dtype == "bfloat16":
        return nd.words(array).view(BFLOAT16)
    return np.array(value if isinstance(value, np.ndarray) else array, order="C")


def _ndarray(array: np.ndarray) -> NDArray:
    if array.dtype == BFLOAT16:
        return nd.from_words(array.view(np.uint16), "bfloat16")
    return nd.array(array, array.dtype.name)


_MAKE = {
    "$numpy": lambda array: array,
    "$ndarray": _ndarray,
    "$tensor": lambda array: Tensor.make_const(_ndarray(array)),
}


def pack(state: Any, name: str = "") -> tuple[dict[str, np.ndarray], str]:
    """Arrays by name, and JSON that refers to them."""
    arrays: dict[str, np.ndarray] = {}
    tree = _encode(state, name, arrays)
    return arrays, json.dumps(tree, allow_nan=False)  # in ASCII: half a surrogate pair, as in a path, has no UTF-8


def unpack(arrays: dict[str, np.ndarray], text: str) -> Any:
    """What was packed; ValueError where the text is not of `pack`."""
    try:
        return _decode(json.loads(text), dict(arrays))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"its JSON is damaged: {error}") from None


def _encode(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}  # JSON has neither inf nor nan
    if isinstance(value, np.generic):
        return _encode(value.item(), path, arrays)
    if isinstance(value, (Tensor, NDArray, np.ndarray)):
        return _encode_array(value, path, arrays)
    if isinstance(value, list):
        return [_encode(item, _join(path, i), arrays) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": _encode(list(value), path, arrays)}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(item, _join(path, key), arrays) for key, item in value.items()}
        keys = [_encode(_key(key), path, arrays) for key in value]
        return {
            "$dict": [
                [k, _encode(v, _join(path, key), arrays)] for k, (key, v) in zip(keys, value.items(), strict=True)
            ]
        }
    raise TypeError(f"checkpoint: {path or 'the state'} is a {type(value).__name__}, which has no form in a file")


def _encode_array(value: Any, path: str, arrays: dict[str, np.ndarray]) -> dict[str, str]:
    mark = "$tensor" if isinstance(value, Tensor) else "$ndarray" if isinstance(value, NDArray) else "$numpy"
    array = host_copy(value)  # a copy: the state may go on changing
    if array.dtype.kind not in "fiub" and (mark == "$numpy" or array.dtype != BFLOAT16):
        raise TypeError(f"checkpoint: {path or 'the state'} is an array of {array.dtype}, which has no form in a file")
    name = path or "array"
    while name in arrays:
        name += "'"  # {"a": {"b": x}, "a.b": y} would give one name twice
    arrays[name] = array
    return {mark: name}


def _key(key: Any) -> Any:
    """`key`, if a file may hold it as the key of a dict: ints beyond 60 bits can be chosen so that all have one hash."""
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    if isinstance(key, (int, np.integer)) and not -(2**60) < key < 2**60:
        raise ValueError("a dict has an int of more than 60 bits as a key")
    if not isinstance(key, (str, int, float, np.generic, type(None))):
        raise TypeError(f"a dict has a {type(key).__name__} as a key, which has no form in a file")
    return key


def _decode(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """What the JSON stands for. Each array is taken out of `arrays`: `pack` names it once, and a copy per name has no bound."""
    if isinstance(tree, list):
        return [_decode(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((mark, content),) = tree.items()
        if mark in _MAKE:
            if not isinstance(content, str) or content not in arrays:
                raise ValueError(f"its JSON names an array {content!r:.80} that it does not hold, or twice")
            return _MAKE[mark](arrays.pop(content))
        if mark == "$float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if mark == "$tuple" and isinstance(content, list):
            return tuple(_decode(content, arrays))
        if mark == "$dict" and isinstance(content, list) and all(isinstance(i, list) and len(i) == 2 for i in content):
            return {_key(_decode(key, arrays)): _decode(item, arrays) for key, item in content}
        if mark.startswith("$"):
            raise ValueError(f"its JSON holds {mark:.80}, which this version does not know")
    return {key: _decode(item, arrays) for key, item in tree.items()}


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
