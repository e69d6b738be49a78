"""Indexing with arrays. Every form becomes `take` or `put` along one axis of a view.

An element of x lies at the sum of index * stride over its axes. For axes that are indexed by arrays those sums are computed
once, as an int64 array of offsets; x is then seen as (span, *rest) with stride 1 along the first axis, which they index.
"""

import math
from typing import Any

import numpy as np

from needle_ndarray.backend import SCATTER
from needle_ndarray.capture import active_recorder, again
from needle_ndarray.creation import arange, empty, only_arrays
from needle_ndarray.dtypes import bool_, int64
from needle_ndarray.ndarray import NDArray, bounds, broadcast_shapes, make_array, normal_axes


def _index_array(x: NDArray, item: Any) -> NDArray:
    """An entry of an index as an int64 or bool array on x's device."""
    if isinstance(item, NDArray):
        kind = "b" if item.dtype is bool_ else "f" if item.dtype.is_float else "i"
        if item.backend is not x.backend:
            raise ValueError(f"index on {item.device}, array on {x.device}; move one with .to(device)")
    else:
        host = np.asarray(item)
        kind = "i" if host.size == 0 and not isinstance(item, np.ndarray) else host.dtype.kind
    if kind not in "biu":
        given = item.dtype if isinstance(item, NDArray) else host.dtype if host.ndim else type(item).__name__
        raise IndexError(f"an index is of type {given}: expected ints, bools, slices, None or ...")
    if isinstance(item, NDArray):
        return item if kind == "b" or item.dtype is int64 else item.astype(int64)
    return make_array(host, "bool" if kind == "b" else "int64", x.device)


def nonzero(x: NDArray, /) -> tuple[NDArray, ...]:
    """Positions of the elements that are not 0, one int64 array per axis."""
    only_arrays("nonzero", x)
    if x.ndim == 0:
        raise ValueError("nonzero: expected one axis or more, got a 0-d array")
    return tuple(make_array(found, "int64", x.device) for found in np.nonzero(x.numpy()))


def _expand(x: NDArray, key: Any) -> tuple[list[Any], bool]:
    """The key as one entry per axis of x (and None for new axes): ... filled in, bool arrays as their positions.

    Also whether the arrays and ints stand side by side: for NumPy a slice, None or ... between them, however little it spans,
    parts them.
    """
    items: list[Any] = []
    for item in key if isinstance(key, tuple) else (key,):
        if item is None or item is Ellipsis or isinstance(item, slice):
            items.append(item)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
            items.append(int(item))
        else:
            items.append(_index_array(x, item))
    used = sum(0 if i is None or i is Ellipsis else i.ndim if _is_mask(i) else 1 for i in items)
    if sum(i is Ellipsis for i in items) > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    if used > x.ndim:
        raise IndexError(f"too many indices: {used} for shape {x.shape}")
    advanced = [i for i, item in enumerate(items) if isinstance(item, (int, NDArray))]
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    if not any(i is Ellipsis for i in items):
        items.append(Ellipsis)
    out: list[Any] = []
    axis = 0
    for item in items:
        if item is Ellipsis:
            out += [slice(None)] * (x.ndim - used)
            axis += x.ndim - used
        elif _is_mask(item):
            if item.shape != x.shape[axis : axis + item.ndim]:
                raise IndexError(f"a bool index of shape {item.shape} does not fit axes {axis} on of shape {x.shape}")
            out += [_mask_0d(item)] if item.ndim == 0 else nonzero(item)
            axis += item.ndim
        else:
            out.append(item)
            axis += item is not None
    return out, together


def _is_mask(item: Any) -> bool:
    return isinstance(item, NDArray) and item.dtype == "bool"


class _Mask0d:
    """A 0-d bool index: a new axis of size 1 or 0."""

    def __init__(self, positions: NDArray) -> None:
        self.positions = positions


def _mask_0d(item: NDArray) -> _Mask0d:
    return _Mask0d(make_array(np.zeros(int(bool(item))), "int64", item.device))


def _checked(index: NDArray, size: int, axis: int) -> NDArray:
    """Negative entries counted from the end; IndexError with the numbers where one is out of bounds."""
    if index.size == 0:
        return index
    low = again(_check_index, index, size, axis)
    wraps = active_recorder() is not None or low < 0  # a replay may be given other positions
    return (index + size).where(index < 0, index) if wraps else index


def _check_index(index: NDArray, size: int, axis: int) -> int:
    """The lowest entry; IndexError where one is out of bounds."""
    low, high = bounds(index)
    if low < -size or high >= size:
        raise IndexError(f"index {low if low < -size else high} is out of bounds for axis {axis} of size {size}")
    return low


def _plan(x: NDArray, key: Any) -> tuple[NDArray, NDArray, tuple[int, ...], int]:
    """(rows, offsets, shape of the index, axis where it goes): rows[offsets] are the elements, first axis flattened.

    NumPy's rule: index arrays broadcast together; their axes replace the indexed ones where these stand side by side, else
    go first.
    """
    if x.size and not isinstance(key, tuple):
        key = _index_array(x, key)
        if key.size and not _is_mask(key):  # entries of the first axis: rows of x itself
            return x, _checked(key, x.shape[0], 0).reshape(-1).compact(), key.shape, 0
    entries, together = _expand(x, key)
    is_array = [isinstance(e, (NDArray, _Mask0d)) for e in entries]
    arrays_at = [i for i, yes in enumerate(is_array) if yes]
    # With an array around, an int is a 0-d array.
    advanced = [i for i, e in enumerate(entries) if is_array[i] or isinstance(e, int)]
    shape = broadcast_shapes(
        *(entries[i].positions.shape if isinstance(entries[i], _Mask0d) else entries[i].shape for i in arrays_at)
    )
    # First the slices and new axes, which leave a view; the indexed axes are kept whole.
    basic = tuple(slice(None) if i in advanced and not isinstance(e, _Mask0d) else e for i, e in enumerate(entries))
    basic = tuple(None if isinstance(e, _Mask0d) else e for e in basic)
    view = x[basic]
    offsets: Any = make_array(np.zeros(shape), "int64", x.device)
    low = reach = 0  # known without a look at the indices: on another device it would be a wait
    for i in advanced:
        entry = entries[i]
        size, stride = view.shape[i], view.strides[i]
        if isinstance(entry, _Mask0d):
            continue
        index = make_array(entry, "int64", x.device) if isinstance(entry, int) else entry
        if math.prod(shape):  # like NumPy: where nothing is asked for, nothing is out of bounds
            offsets = offsets + _checked(index, size, i) * stride
            low += min((size - 1) * stride, 0)
            reach += (size - 1) * abs(stride)
    rest = [i for i in range(view.ndim) if i not in advanced]
    position = sum(i < advanced[0] for i in rest) if together else 0
    offsets = (offsets - low).reshape(-1)
    if view.size == 0 or offsets.size == 0:
        rows = empty((1, *(view.shape[i] for i in rest)), x.dtype, x.device)
        offsets = offsets * 0
    else:
        rows = view.as_strided((reach + 1, *(view.shape[i] for i in rest)), (1, *(view.strides[i] for i in rest)), low)
    return rows, offsets, shape, position


def get(x: NDArray, key: Any) -> NDArray:
    """x[key] where the key holds an array: a copy."""
    rows, offsets, shape, position = _plan(x, key)
    out = empty((offsets.size, *rows.shape[1:]), x.dtype, x.device)
    x.backend.take(rows, offsets, out)
    out = out.reshape(shape + out.shape[1:])
    n = len(shape)
    order = [*range(n, n + position), *range(n), *range(n + position, out.ndim)]
    return out.permute(tuple(order)).compact() if position else out


def _aligned(what: str, x: NDArray, key: Any, values: Any) -> tuple[NDArray, NDArray, NDArray]:
    """(rows, offsets, source): source[i] belongs to rows[offsets[i]]; values broadcast to the shape of x[key]."""
    if x.size and any(stride == 0 and n > 1 for stride, n in zip(x.strides, x.shape, strict=True)):
        raise ValueError(f"{what}: the target of shape {x.shape} is a broadcast view (strides {x.strides})")
    rows, offsets, shape, position = _plan(x, key)
    n, rest = len(shape), rows.shape[1:]
    target = rest[:position] + shape + rest[position:]
    source = values if isinstance(values, NDArray) else make_array(values, x.dtype, x.device)
    if source.device != x.device:
        raise ValueError(f"{what}: values on {source.device}, array on {x.device}; move one with .to(device)")
    while source.ndim > len(target) and source.shape[0] == 1:
        source = source.reshape(source.shape[1:])
    source = source.astype(x.dtype, copy=False).broadcast_to(target)
    order = [*range(position, position + n), *range(position), *range(position + n, source.ndim)]
    source = source.permute(tuple(order)).reshape((offsets.size, *rest))
    return rows, _apart(offsets, x), _apart(source, x)


def _apart(a: NDArray, target: NDArray) -> NDArray:
    """The array, or a copy of one that lies in the memory that is written to"""
    return a.copy() if a._handle is target._handle else a


def put(x: NDArray, key: Any, values: Any) -> None:
    """x[key] = values where the key holds an array; where positions repeat, the last one wins."""
    rows, offsets, source = _aligned("setitem", x, key, values)
    if offsets.size and source.size:
        x.backend.scatter(SCATTER["put"], source, offsets, rows)
    x._handle.mark_written()


def add_at(x: NDArray, key: Any, values: Any) -> NDArray:
    """x[key] += values for any key, in place; positions that repeat add up. Returns x.

    >>> from needle_ndarray import zeros
    >>> add_at(zeros(3), [0, 2, 2], 1.0).tolist()
    [1.0, 0.0, 2.0]
    """
    only_arrays("add_at", x)
    if x.dtype.is_half:  # added up in float32, rounded once
        x[...] = add_at(x.astype("float32"), key, values)
    elif has_arrays(key):
        rows, offsets, source = _aligned("add_at", x, key, values)
        if offsets.size and source.size:
            x.backend.scatter(SCATTER["scatter_add"], source, offsets, rows)
        x._handle.mark_written()
    else:
        view = x[key]
        view += values
    return x


def has_arrays(key: Any) -> bool:
    """Whether a key holds arrays, lists or bools, rather than slices, ints, None and ... alone."""
    items = key if isinstance(key, tuple) else (key,)
    basic = (int, np.integer, slice, type(None), type(Ellipsis))
    return not all(isinstance(item, basic) and not isinstance(item, bool) for item in items)


def take(x: NDArray, indices: Any, /, *, axis: int | None = None) -> NDArray:
    """Entries at integer positions along an axis, of the flattened array where axis is None."""
    only_arrays("take", x)
    source = x.reshape(-1) if axis is None else x
    (at,) = normal_axes("take", 0 if axis is None else axis, source.ndim)
    index = _integers("take", source, indices)
    if at:
        return get(source, (slice(None),) * at + (index,))
    index = _checked(index, source.shape[0], 0)
    out = NDArray.make((index.size, *source.shape[1:]), device=source.device, dtype=source.dtype)
    if index.size:
        out.backend.take(source, index.reshape(-1).compact(), out)
    return out.reshape(index.shape + source.shape[1:])


def _integers(what: str, x: NDArray, indices: Any) -> NDArray:
    index = _index_array(x, indices)
    if index.dtype is bool_:
        raise IndexError(f"{what}: indices are bool, expected ints")
    return index


def take_along_axis(x: NDArray, indices: Any, /, *, axis: int = -1) -> NDArray:
    """out[i, j, k] = x[i, indices[i, j, k], k] for axis 1, and so on for other axes."""
    only_arrays("take_along_axis", x)
    (at,) = normal_axes("take_along_axis", axis, x.ndim)
    index = _integers("take_along_axis", x, indices)
    if index.ndim != x.ndim:
        raise ValueError(
            f"take_along_axis: indices have shape {index.shape}, the array {x.shape}: expected as many axes"
        )
    shape = broadcast_shapes(index.shape[:at] + (1,) + index.shape[at + 1 :], x.shape[:at] + (1,) + x.shape[at + 1 :])
    key = [
        index if i == at else arange(shape[i], device=x.device).reshape((1,) * i + (-1,) + (1,) * (x.ndim - i - 1))
        for i in range(x.ndim)
    ]
    wide = x.broadcast_to(shape[:at] + (x.shape[at],) + shape[at + 1 :])
    return get(wide, tuple(key))


gather = take_along_axis


def _add_rows(source: NDArray, index: NDArray, out: NDArray) -> None:
    """out[index[i]] += source[i]; halves are added up in float32 and rounded once."""
    if out.dtype.is_half:
        wide = out.astype("float32")
        _add_rows(source.astype("float32"), index, wide)
        out.backend.copy(wide, out)
    else:
        out.backend.scatter(SCATTER["scatter_add"], source, index, out)


def scatter_add(x: NDArray, indices: Any, values: Any, /, *, axis: int = 0) -> NDArray:
    """x[..., indices[i], ...] += values[..., i, ...] along an axis, in place; repeated indices add up. Returns x.

    >>> from needle_ndarray import zeros, ones
    >>> scatter_add(zeros(3), [0, 2, 2], ones(3)).tolist()
    [1.0, 0.0, 2.0]
    """
    only_arrays("scatter_add", x)
    (at,) = normal_axes("scatter_add", axis, x.ndim)
    index = _checked(_integers("scatter_add", x, indices), x.shape[at], at)
    if not x.is_compact() and any(stride == 0 and n > 1 for stride, n in zip(x.strides, x.shape, strict=True)):
        raise ValueError(f"scatter_add: the target of shape {x.shape} is a broadcast view (strides {x.strides})")
    source = values if isinstance(values, NDArray) else make_array(values, x.dtype, x.device)
    if source.backend is not x.backend:
        raise ValueError(f"scatter_add: values on {source.device}, array on {x.device}; move one with .to(device)")
    source = source.astype(x.dtype, copy=False).broadcast_to(x.shape[:at] + index.shape + x.shape[at + 1 :])
    target = x
    if at:  # the axes of the index go first
        n = index.ndim
        source = source.permute((*range(at, at + n), *range(at), *range(at + n, source.ndim)))
        target = x.permute((at, *(i for i in range(x.ndim) if i != at)))
    source = _apart(source.reshape((index.size, *target.shape[1:])), x)
    if index.size and source.size:
        _add_rows(source, _apart(index.reshape(-1).compact(), x), target)
    x._handle.mark_written()
    return x


class Flat:
    """The elements of a strided array in row-major order, where no 1-d view exists: reads and writes go through."""

    def __init__(self, array: NDArray) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int]:
        return (self._array.size,)

    def __len__(self) -> int:
        return self._array.size

    def _positions(self, key: Any) -> tuple:
        """Entries of the flat array as an index of the real one."""
        count = np.arange(self._array.size)[key.numpy() if isinstance(key, NDArray) else key]
        return tuple(np.unravel_index(count, self._array.shape))

    def __getitem__(self, key: Any) -> NDArray:
        return self._array[self._positions(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[self._positions(key)] = value
