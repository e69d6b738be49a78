"""From indices to a batch: ask the dataset, stack what came singly, make tensors of arrays."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from needle import Tensor


def takes_arrays(dataset: Any) -> bool:
    """Whether `dataset[array of indices]` gives a batch: said by the object, or by the class that has its `__getitem__`.

    A subclass that writes a `__getitem__` of its own says it again: what it does to one item may be wrong for a batch.
    """
    if type(dataset) is np.ndarray:
        return dataset.dtype != object
    if "takes_arrays" in getattr(dataset, "__dict__", ()):
        return bool(dataset.takes_arrays)
    for cls in type(dataset).__mro__:
        if "takes_arrays" in cls.__dict__:
            return bool(cls.__dict__["takes_arrays"])
        if "__getitem__" in cls.__dict__:
            return False
    return False


def fetch_items(dataset: Any, indices: np.ndarray, collate_fn: Callable[[list[Any]], Any] | None) -> Any:
    """`collate_fn` of the list of items, asked for one by one."""
    return (collate_fn or collate)([dataset[int(i)] for i in indices])


def fetch_whole(dataset: Any, indices: np.ndarray) -> Any:
    """`dataset[indices]`; a ValueError where a field has not one entry for each index."""
    batch = dataset[indices]
    for name, field in _fields(batch):
        shape = field.shape if hasattr(field, "shape") else np.shape(field)
        if not shape or shape[0] != len(indices):
            raise ValueError(
                f"{type(dataset).__name__}[array of {len(indices)} indices]: {name} has shape {tuple(shape)},"
                f" expected ({len(indices)}, ...); without takes_arrays it is asked item by item"
            )
    return batch


def _fields(batch: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, array) of everything in nested tuples, lists and dicts; a list of texts is one field."""
    if isinstance(batch, dict):
        for key, field in batch.items():
            yield from _fields(field, f"{name}[{key!r}]")
    elif isinstance(batch, (tuple, list)) and not (batch and all(isinstance(part, (str, bytes)) for part in batch)):
        for i, field in enumerate(batch):
            yield from _fields(field, f"{name}[{i}]")
    else:
        yield f"field {name}" if name else "the batch", batch


def collate(items: Sequence[Any]) -> Any:
    """Stack items: tuples and lists field by field, dicts key by key, anything else as one array.

    Fields may be nested; namedtuples stay what they are. A list of numbers, or of such lists, is an array. Texts and other
    objects become an array of objects.

    >>> collate([([1, 2], 0), ([3, 4], 1)])
    (array([[1, 2],
           [3, 4]]), array([0, 1]))
    >>> collate([{"x": 1.0, "name": "a"}, {"x": 2.0, "name": "b"}])
    {'x': array([1., 2.]), 'name': array(['a', 'b'], dtype=object)}
    """
    if not len(items):
        raise ValueError("collate: no items")
    first = items[0]
    if isinstance(first, dict):
        for i, item in enumerate(items):
            if not isinstance(item, dict) or item.keys() != first.keys():
                there = sorted(map(str, item)) if isinstance(item, dict) else f"a {type(item).__name__}"
                raise ValueError(
                    f"collate: item 0 has the keys {sorted(map(str, first))}, item {i} is {there}; give a collate_fn"
                )
        return {key: collate([item[key] for item in items]) for key in first}
    if _has_fields(first):
        for i, item in enumerate(items):
            if not isinstance(item, (tuple, list)) or isinstance(item, tuple) != isinstance(first, tuple):
                raise ValueError(
                    f"collate: item 0 is a {type(first).__name__}, item {i} a {type(item).__name__}; give a collate_fn"
                )
        if any(len(item) != len(first) for item in items):
            raise ValueError(f"collate: items have {sorted({len(item) for item in items})} fields; give a collate_fn")
        return _rebuilt(first, [collate(field) for field in zip(*items, strict=True)])
    if isinstance(first, (str, bytes)):
        return _objects(items)  # an array of str would drop zeros at the end
    kinds = set(map(type, items))
    if len(kinds) == 1 and issubclass(type(first), (np.number, np.bool_)):
        return np.array(items)
    arrays = items if kinds == {np.ndarray} else [_array(item) for item in items]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"collate: shapes {arrays[0].shape} and {array.shape} (items 0 and {i}); give a collate_fn"
            )
    return np.stack(arrays)


def _has_fields(item: Any) -> bool:
    return isinstance(item, tuple) or (isinstance(item, list) and not _is_numbers(item))


def _is_numbers(item: list[Any]) -> bool:
    """Whether a list holds numbers only, or only such lists: what NumPy makes one array of."""
    if item and isinstance(item[0], list):
        return all(isinstance(part, list) and _is_numbers(part) for part in item)
    return all(isinstance(part, (int, float, np.number, np.bool_)) for part in item)


def _rebuilt(like: Any, fields: list[Any]) -> Any:
    """The fields in a namedtuple, tuple or list as `like` is one."""
    if isinstance(like, tuple):
        return getattr(type(like), "_make", tuple)(fields)
    return fields


def _array(item: Any) -> np.ndarray:
    if isinstance(item, Tensor):
        return item.numpy()
    if isinstance(item, list):
        try:
            return np.array(item)
        except ValueError:
            raise ValueError("collate: an item is a list of lists of different lengths; give a collate_fn") from None
    return np.asarray(item)


def _objects(items: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def to_tensors(batch: Any, device: Any = None, dtype: Any = None) -> Any:
    """Tensors without gradient for arrays, nested as they are: a tuple of fields, or a dict where the batch is one.

    >>> import numpy as np
    >>> [t.dtype for t in to_tensors((np.zeros((2, 3)), np.array([1, 2])))]
    ['float32', 'int64']
    """
    if isinstance(batch, dict):
        return {key: _to_tensor(field, device, dtype) for key, field in batch.items()}
    if isinstance(batch, (tuple, list)):
        fields = [_to_tensor(field, device, dtype) for field in batch]
        return _rebuilt(batch, fields) if isinstance(batch, tuple) else tuple(fields)
    return (_to_tensor(batch, device, dtype),)


def _to_tensor(field: Any, device: Any, dtype: Any) -> Any:
    """A Tensor of an array or number; containers keep their form, and only arrays in them change."""
    if isinstance(field, Tensor):
        return field
    if isinstance(field, dict):
        return {key: _nested(part, device, dtype) for key, part in field.items()}
    if isinstance(field, (tuple, list)):
        return _rebuilt(field, [_nested(part, device, dtype) for part in field])
    if not isinstance(field, (int, float)) and not hasattr(field, "__array__"):
        return field  # what a collate_fn made: a string, anything
    array = np.asarray(field)
    if array.dtype.kind not in "fiub":
        return field
    return Tensor(array, device=device, dtype=dtype if array.dtype.kind == "f" else None, requires_grad=False)


def _nested(part: Any, device: Any, dtype: Any) -> Any:
    return part if isinstance(part, (int, float)) else _to_tensor(part, device, dtype)
