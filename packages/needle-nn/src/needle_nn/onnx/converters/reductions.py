"""Converters of sums, extremes, softmax and their relatives."""

from typing import Any

from needle import ops
from needle_ndarray.extension import normal_axes
from needle_nn.onnx.converters.elementwise import cast_all
from needle_nn.onnx.graph import Graph
from needle_nn.onnx.registry import Call, Converter, register


def reduce(graph: Graph, type: str, x: Any, axes: tuple[int, ...], keepdims: bool) -> str:
    """One of ONNX's reductions; the axes of a sum are an input, those of the others an attribute."""
    if not axes:
        return x if isinstance(x, str) else x.name
    if type == "ReduceSum":
        return graph.op(type, x, graph.constant(axes, "int64"), keepdims=int(keepdims))
    return graph.op(type, x, axes=list(axes), keepdims=int(keepdims))


def _reduction(type: str) -> Converter:
    def convert(graph: Graph, call: Call) -> Any:
        axes = normal_axes("axes", call.op.axes, call.inputs[0].ndim)
        (x,) = cast_all(graph, call)
        if call.dtype == "bool":  # which ONNX does not compare
            raised = graph.op("Cast", x, to=6)
            return graph.op("Cast", reduce(graph, type, raised, axes, call.op.keepdims), to=9)
        return reduce(graph, type, x, axes, call.op.keepdims)

    return convert


for _op, _type in {
    ops.Summation: "ReduceSum",
    ops.Mean: "ReduceMean",
    ops.Max: "ReduceMax",
    ops.Min: "ReduceMin",
    ops.LogSumExp: "ReduceLogSumExp",
}.items():
    register(_op)(_reduction(_type))


@register(ops.CumSum)
def _cumsum(graph: Graph, call: Call) -> Any:
    (x,) = cast_all(graph, call)
    return graph.op("CumSum", x, graph.constant(call.op.axis, "int64"))


@register(ops.Softmax, ops.LogSoftmax)
def _softmax(graph: Graph, call: Call) -> Any:
    """Along one axis a node; along several x - max, e^, and the sum"""
    axes = normal_axes("axes", call.op.axes, call.inputs[0].ndim)
    (x,), log = cast_all(graph, call), isinstance(call.op, ops.LogSoftmax)
    if len(axes) == 1:
        return graph.op("LogSoftmax" if log else "Softmax", x, axis=axes[0])
    moved = graph.op("Sub", x, reduce(graph, "ReduceMax", x, axes, True))
    powers = graph.op("Exp", moved)
    total = reduce(graph, "ReduceSum", powers, axes, True)
    return graph.op("Sub", moved, graph.op("Log", total)) if log else graph.op("Div", powers, total)
