"""Converters of ops that move elements: shapes, axes, joining, cutting, tuples."""

from typing import Any

import numpy as np

from needle import ops
from needle_ndarray.extension import normal_axes
from needle_nn.onnx.converters.elementwise import cast_all
from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.graph import Graph
from needle_nn.onnx.registry import Call, register
from needle_nn.onnx.sizes import Size

BEGIN = np.iinfo(np.int64).min  # bounds of a slice that reach beyond any array
END = np.iinfo(np.int64).max


def slice_node(graph: Graph, x: Any, slices: dict[int, slice]) -> str:
    """x cut along some axes, by Python's rules."""
    cuts = {axis: cut for axis, cut in slices.items() if cut not in (slice(None), slice(0, None), slice(None, None, 1))}
    if not cuts:
        return x if isinstance(x, str) else x.name
    steps = [1 if cut.step is None else cut.step for cut in cuts.values()]
    starts = [
        (0 if step > 0 else END) if c.start is None else c.start for c, step in zip(cuts.values(), steps, strict=True)
    ]
    stops = [
        (END if step > 0 else BEGIN) if c.stop is None else c.stop for c, step in zip(cuts.values(), steps, strict=True)
    ]
    axes = graph.constant(np.array(list(cuts), np.int64))
    return graph.op(
        "Slice", x, graph.sizes(starts), graph.sizes(stops), axes, graph.constant(np.array(steps, np.int64))
    )


@register(ops.Reshape, may_vary=("shape",))
def _reshape(graph: Graph, call: Call) -> Any:
    return graph.reshape(call.inputs[0], call.shape)


@register(ops.BroadcastTo, may_vary=("shape",))
def _broadcast_to(graph: Graph, call: Call) -> Any:
    (x,) = call.inputs
    return x.name if x.shape == call.shape else graph.expand(x, call.shape)


@register(ops.Transpose)
def _transpose(graph: Graph, call: Call) -> Any:
    (x,) = call.inputs
    order = list(range(x.ndim))
    a, b = (axis % x.ndim for axis in call.op.axes)
    order[a], order[b] = order[b], order[a]
    return graph.transpose(x, order)


@register(ops.Permute)
def _permute(graph: Graph, call: Call) -> Any:
    return graph.transpose(call.inputs[0], [axis % len(call.op.axes) for axis in call.op.axes])


@register(ops.Flip)
def _flip(graph: Graph, call: Call) -> Any:
    axes = normal_axes("flip", call.op.axes, call.inputs[0].ndim)
    return slice_node(graph, call.inputs[0], {axis: slice(None, None, -1) for axis in axes})


@register(ops.Dilate)
def _dilate(graph: Graph, call: Call) -> Any:
    """(n,) -> (n, 1), zeros behind -> (n, 1 + d) -> (n (1 + d),), along each axis"""
    (x,) = call.inputs
    axes = sorted({i % x.ndim for i in call.op.axes if -x.ndim <= i < x.ndim})
    if not axes or not call.op.dilation:
        return x.name
    behind = [axis + k + 1 for k, axis in enumerate(axes)]  # of the new axes, each after the one it dilates
    wide = graph.unsqueeze(x, *behind)
    after = [call.op.dilation if i in behind else 0 for i in range(x.ndim + len(axes))]
    padded = graph.op(
        "Pad", wide, graph.constant(np.array([0] * len(after) + after, np.int64)), graph.constant(0, x.dtype)
    )
    return graph.reshape(padded, call.shape)


@register(ops.UnDilate)
def _undilate(graph: Graph, call: Call) -> Any:
    places = call.op.places(call.inputs[0].ndim)
    return slice_node(graph, call.inputs[0], dict(enumerate(places)))


@register(ops.Pad)
def _pad(graph: Graph, call: Call) -> Any:
    before, after = zip(*call.op.widths, strict=True) if call.op.widths else ((), ())
    widths = graph.constant(np.array([*before, *after], np.int64))
    return graph.op("Pad", graph.cast(call.inputs[0], call.dtype), widths, graph.constant(call.op.value, call.dtype))


@register(ops.Stack)
def _stack(graph: Graph, call: Call) -> Any:
    axis = call.op.axis % len(call.shape)
    return graph.op("Concat", *[graph.unsqueeze(x, axis) for x in cast_all(graph, call)], axis=axis)


@register(ops.Concatenate)
def _concatenate(graph: Graph, call: Call) -> Any:
    return graph.op("Concat", *cast_all(graph, call), axis=call.op.axis % len(call.shape))


@register(ops.Split)
def _split(graph: Graph, call: Call) -> Any:
    (x,) = call.inputs
    axis = call.op.axis % x.ndim
    if isinstance(x.shape[axis], Size):
        raise ExportError("Split along the axis of the batch")
    return [graph.op("Gather", x, graph.constant(i, "int64"), axis=axis) for i in range(len(call.outputs))]


@register(ops.MakeTensorTuple)
def _make_tuple(graph: Graph, call: Call) -> Any:
    return [x.name for x in call.inputs]
