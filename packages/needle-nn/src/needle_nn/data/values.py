"""Batches as PyTorch makes them: what a DataLoader does within `compat("torch")`, and `default_collate`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from needle import Tensor


def default_convert(item: Any) -> Any:
    """Tensors for the arrays in an item, in their dtypes; numbers, texts and anything else stay."""
    if isinstance(item, (np.ndarray, np.generic)):
        return _tensor(np.asarray(item)) if item.dtype.kind in "fiub" else item
    if isinstance(item, Mapping):
        return {key: default_convert(part) for key, part in item.items()}
    return _like(item, map(default_convert, item)) if isinstance(item, (tuple, list)) else item


def default_collate(items: Sequence[Any]) -> Any:
    """PyTorch's batch of items: a tensor of arrays or numbers, a list of the fields of tuples and lists, texts as they are.

    >>> default_collate([(1, "a", [0.5, 2]), (3, "b", [1.5, 4])])[1:]
    [('a', 'b'), [needle.Tensor([0.5, 1.5], dtype=float64, device=cpu()), needle.Tensor([2, 4], dtype=int64, device=cpu())]]
    """
    if not len(items):
        raise ValueError("default_collate: no items")
    first = items[0]
    if isinstance(first, (str, bytes)):
        return items
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in items]) for key in first}
    if isinstance(first, (tuple, list)):
        if any(len(item) != len(first) for item in items):
            sizes = sorted({len(item) for item in items})
            raise RuntimeError(f"default_collate: items have {sizes} fields; give a collate_fn")
        fields = map(default_collate, zip(*items, strict=True))
        return _like(first, fields) if hasattr(first, "_make") else list(fields)
    arrays = [x.numpy() if isinstance(x, Tensor) else np.asarray(x) for x in items]
    if arrays[0].dtype.kind not in "fiub":
        raise TypeError(f"default_collate: an item is a {type(first).__name__}; expected tensors, arrays, numbers, texts, or dicts"
                        " and lists of them; or give a collate_fn")  # fmt: skip
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            shapes = f"{arrays[0].shape} and {array.shape} (items 0 and {i})"
            raise RuntimeError(f"default_collate: shapes {shapes}; give a collate_fn")
    return _tensor(np.stack(arrays))


def _tensor(array: np.ndarray) -> Tensor:
    return Tensor(array, dtype=array.dtype, requires_grad=False)


def _like(first: Any, parts: Any) -> Any:
    return first._make(parts) if hasattr(first, "_make") else type(first)(parts)
