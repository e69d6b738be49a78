"""From indices to a batch: ask the dataset, stack what came singly, make tensors of arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from needle import Tensor


def fetch_items(dataset: Any, indices: np.ndarray, collate_fn: Callable[[list[Any]], Any] | None) -> Any:
    """`collate_fn` of the list of items, asked for one by one."""
    return (collate_fn or collate)([dataset[int(i)] for i in indices])


def fetch_whole(dataset: Any, indices: np.ndarray) -> Any:
    """`dataset[indices]`; a TypeError where the answer has fields that are no arrays of a batch."""
    batch = dataset[indices]
    fields = batch if isinstance(batch, (tuple, list)) else batch.values() if isinstance(batch, dict) else (batch,)
    if any(np.ndim(field) == 0 for field in fields if not isinstance(field, Tensor)):
        raise TypeError(f"{type(dataset).__name__}[array of {len(indices)} indices] gave a field without a batch axis")
    return batch


def collate(items: Sequence[Any]) -> Any:
    """Stack items: tuples field by field, dicts key by key, anything else as one array.

    >>> collate([([1, 2], 0), ([3, 4], 1)])
    (array([[1, 2],
           [3, 4]]), array([0, 1]))
    """
    first = items[0]
    if isinstance(first, tuple):
        if any(len(item) != len(first) for item in items):
            raise ValueError(f"collate: items have {sorted({len(item) for item in items})} fields; give a collate_fn")
        return tuple(collate(field) for field in zip(*items, strict=True))
    if isinstance(first, dict):
        return {key: collate([item[key] for item in items]) for key in first}
    arrays = [item.numpy() if isinstance(item, Tensor) else np.asarray(item) for item in items]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"collate: shapes {arrays[0].shape} and {array.shape} (items 0 and {i}); give a collate_fn"
            )
    return np.stack(arrays)


def to_tensors(batch: Any, device: Any = None, dtype: Any = None) -> Any:
    """Tensors without gradient for arrays: a tuple of them, or a dict where the batch is one.

    >>> import numpy as np
    >>> [t.dtype for t in to_tensors((np.zeros((2, 3)), np.array([1, 2])))]
    ['float32', 'int64']
    """
    if isinstance(batch, (tuple, list)):
        return tuple(_to_tensor(field, device, dtype) for field in batch)
    if isinstance(batch, dict):
        return {key: _to_tensor(field, device, dtype) for key, field in batch.items()}
    return (_to_tensor(batch, device, dtype),)


def _to_tensor(field: Any, device: Any, dtype: Any) -> Any:
    if not isinstance(field, (np.ndarray, np.generic, int, float)) and not hasattr(field, "__array__"):
        return field  # what a collate_fn made: a list of strings, a tensor's subclass, anything
    if isinstance(field, Tensor):
        return field
    array = np.asarray(field)
    if array.dtype.kind not in "fiub":
        return field
    return Tensor(array, device=device, dtype=dtype if array.dtype.kind == "f" else None, requires_grad=False)
