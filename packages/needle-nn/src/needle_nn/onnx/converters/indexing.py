"""Converters of indexing, take, and products by index letters."""

from typing import Any

import numpy as np

from needle import ops
from needle_nn.onnx.converters.shapes import slice_node
from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.graph import Graph, Operand
from needle_nn.onnx.matching import ARRAY
from needle_nn.onnx.registry import Call, register
from needle_nn.onnx.sizes import Size, varies


@register(ops.Take)
def _take(graph: Graph, call: Call) -> Any:
    x, index = call.inputs
    return graph.op("Gather", x, index, axis=call.op.axis % x.ndim)


@register(ops.GetItem, may_vary=("key",))
def _getitem(graph: Graph, call: Call) -> Any:
    """Slices first; then numbers, or numbers and arrays together; then new axes."""
    x, *arrays = call.inputs
    items = _items(graph, call, x.ndim, arrays)
    axes = _axes(items)
    cut = slice_node(graph, x, {axis: item for item, axis in zip(items, axes, strict=True) if isinstance(item, slice)})
    if not any(isinstance(item, Operand) for item in items):
        for item, axis in reversed(list(zip(items, axes, strict=True))):
            if _is_number(item):
                cut = graph.op("Gather", cut, graph.number(item, "int64"), axis=axis)
        left = [item for item in items if not _is_number(item)]
        return graph.unsqueeze(cut, *[i for i, item in enumerate(left) if item is None])
    return _by_arrays(graph, cut, items, axes)


def _is_number(item: Any) -> bool:
    return isinstance(item, (int, Size))


def _items(graph: Graph, call: Call, ndim: int, arrays: list[Operand]) -> list[Any]:
    """The key with an entry for each axis: Operands for arrays, slices in place of `...`, masks as the places they hold."""
    waiting, items = list(arrays), list[Any]()
    for item in call.settings["key"]:
        if isinstance(item, (bool, np.bool_)):
            raise ExportError(f"{type(call.op).__name__} with a bool as a key")
        if item == ARRAY:
            items += _places(graph, call, waiting.pop(0))
        else:
            items.append(int(item) if isinstance(item, np.integer) else item)
    missing = ndim - sum([item is not None and item is not Ellipsis for item in items])
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    return [*items[:at], *[slice(None)] * missing, *items[at + 1 :]]


def _places(graph: Graph, call: Call, array: Operand) -> list[Operand]:
    """An array of positions as it is; a mask as one array of positions for each of its axes."""
    if array.dtype != "bool":
        return [Operand(graph.cast(array, "int64"), array.shape, "int64")]
    mask = graph.value(array)
    if mask is None:
        raise ExportError(
            f"{type(call.op).__name__} by a mask that depends on the input: the shape of the result would depend on values;"
            " ops.where keeps the shape"
        )
    return [Operand(graph.constant(p, "int64"), p.shape, "int64") for p in np.nonzero(mask)]


def _axes(items: list[Any]) -> list[int]:
    """The axis of x that each item is for; -1 for a new one."""
    taken = np.cumsum([item is not None for item in items]) - 1
    return [int(axis) if item is not None else -1 for item, axis in zip(items, taken, strict=True)]


def _by_arrays(graph: Graph, x: str, items: list[Any], axes: list[int]) -> str:
    """GatherND over the indexed axes, brought to the front; its axes go where the first was, if they were neighbours."""
    chosen = [i for i, item in enumerate(items) if isinstance(item, Operand) or _is_number(item)]
    kept = [i for i in range(len(items)) if i not in chosen]
    index = [
        item if isinstance(item, Operand) else Operand(graph.number(item, "int64"), (), "int64")
        for item in [items[i] for i in chosen]
    ]
    shape = _broadcast([operand.shape for operand in index])
    together = chosen == list(range(chosen[0], chosen[-1] + 1))
    whole = [axes[i] for i in kept if items[i] is not None]
    if len(index) == 1:
        made, lead = graph.op("Gather", x, index[0], axis=axes[chosen[0]]), axes[chosen[0]]
    else:
        front = graph.transpose(x, [*[axes[i] for i in chosen], *whole])
        made, lead = graph.op("GatherND", front, _stacked(graph, index, shape)), 0
    before = len([i for i in kept if i < chosen[0] and items[i] is not None]) if together else 0
    order = list(range(lead)) + list(range(lead + len(shape), len(shape) + len(whole)))  # axes of `whole` in `made`
    made = graph.transpose(made, [*order[:before], *range(lead, lead + len(shape)), *order[before:]])
    # new axes: the final order is that of the items, with the indexed ones as a block
    at = len([i for i in kept if i < chosen[0]]) if together else 0
    final = [items[i] for i in kept[:at]] + [slice(None)] * len(shape) + [items[i] for i in kept[at:]]
    return graph.unsqueeze(made, *[i for i, item in enumerate(final) if item is None])


def _broadcast(shapes: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The shape that shapes with Sizes broadcast to."""
    ndim = max(map(len, shapes))
    wide = [(1,) * (ndim - len(shape)) + shape for shape in shapes]
    return tuple([next((n for n in sizes if n != 1), 1) for sizes in zip(*wide, strict=True)])


def _stacked(graph: Graph, index: list[Operand], shape: tuple[Any, ...]) -> str:
    """Positions side by side along a new last axis, as GatherND takes them."""
    values = [graph.value(operand) for operand in index]
    if not varies(shape) and all(value is not None for value in values):
        return graph.constant(np.stack([np.broadcast_to(v, shape) for v in values if v is not None], -1), "int64")
    return graph.op("Concat", *[graph.unsqueeze(graph.expand(i, shape), -1) for i in index], axis=-1)


@register(ops.SetItem, may_vary=("key",))
def _setitem(graph: Graph, call: Call) -> Any:
    """The places that the key names, counted within an example, as the indices of ScatterElements."""
    a, b, *arrays = call.inputs
    items = _items(graph, call, a.ndim, arrays)
    dynamic = varies(a.shape)
    numbers = [graph.value(item) if isinstance(item, Operand) else item for item in items]
    if any(number is None and isinstance(item, Operand) for number, item in zip(numbers, items, strict=True)):
        raise ExportError("SetItem at positions that depend on the input")
    plain = not any(isinstance(item, Operand) for item in items)
    if varies(call.settings["key"]) or (
        dynamic and not (isinstance(a.shape[0], Size) and items[0] == slice(None) and plain)
    ):
        raise ExportError("SetItem at positions that depend on the size of the batch")
    rows, inner, key = ((a.shape[0],), a.shape[1:], numbers[1:]) if dynamic else ((1,), a.shape, numbers)
    places = np.arange(int(np.prod(inner))).reshape(inner)[tuple(key)]
    if np.unique(places).size < places.size:
        raise ExportError("SetItem at positions that repeat")
    target = graph.reshape(graph.cast(a, call.dtype), (*rows, int(np.prod(inner))))
    index = graph.expand(graph.constant(places.reshape(1, -1), "int64"), (*rows, places.size))
    values = graph.expand(graph.cast(b, call.dtype), (*(rows if dynamic else ()), *places.shape))
    updates = graph.reshape(values, (*rows, places.size))
    return graph.reshape(graph.op("ScatterElements", target, index, updates, axis=1), call.shape)
