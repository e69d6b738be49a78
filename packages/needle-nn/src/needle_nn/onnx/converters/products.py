"""Converters of matrix products."""

from typing import Any

from needle import ops
from needle_nn.onnx.converters.elementwise import cast_all
from needle_nn.onnx.graph import Graph
from needle_nn.onnx.registry import Call, register


@register(ops.MatMul)
def _matmul(graph: Graph, call: Call) -> Any:
    names = [
        graph.transpose(name, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]) if flipped else name
        for name, x, flipped in zip(cast_all(graph, call), call.inputs, call.op.transposed, strict=True)
    ]
    return graph.op("MatMul", *names)


@register(ops.Linear)
def _linear(graph: Graph, call: Call) -> Any:
    """x w + b: one node where x has two axes"""
    x, w, b = cast_all(graph, call)
    if call.inputs[0].ndim == 2 and call.inputs[2].ndim <= 2:
        return graph.op("Gemm", x, w, b)
    return graph.op("Add", graph.op("MatMul", x, w), b)


@register(ops.Einsum)
def _einsum(graph: Graph, call: Call) -> Any:
    return graph.op("Einsum", *cast_all(graph, call), equation=f"{','.join(call.op.inputs)}->{call.op.output}")
