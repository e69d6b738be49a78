"""Converters of angles, hyperbolic functions, logarithms to other bases, and remainders."""

import math
from typing import Any

from needle import ops
from needle_nn.onnx.converters.elementwise import cast_all
from needle_nn.onnx.graph import Graph
from needle_nn.onnx.registry import Call, Converter, register

PLAIN = {
    ops.Tan: "Tan",
    ops.Asin: "Asin",
    ops.Acos: "Acos",
    ops.Atan: "Atan",
    ops.Sinh: "Sinh",
    ops.Cosh: "Cosh",
    ops.Asinh: "Asinh",
    ops.Acosh: "Acosh",
    ops.Atanh: "Atanh",
}


def _plain(type: str) -> Converter:
    return lambda graph, call: graph.op(type, *cast_all(graph, call))


for _op, _type in PLAIN.items():
    register(_op)(_plain(_type))


@register(ops.Log2, ops.Log10)
def _log(graph: Graph, call: Call) -> Any:
    (x,) = cast_all(graph, call)
    base = 2 if isinstance(call.op, ops.Log2) else 10
    return graph.op("Mul", graph.op("Log", x), graph.constant(1 / math.log(base), call.dtype))


@register(ops.Hypot)
def _hypot(graph: Graph, call: Call) -> Any:
    a, b = cast_all(graph, call)
    return graph.op("Sqrt", graph.op("Add", graph.op("Mul", a, a), graph.op("Mul", b, b)))


@register(ops.Atan2)
def _atan2(graph: Graph, call: Call) -> Any:
    """atan(a / b), turned by half a circle, up or down as a says, where b < 0"""
    (a, b), number = cast_all(graph, call), lambda c: graph.constant(c, call.dtype)
    turn = graph.op("Where", graph.op("Less", a, number(0)), number(-math.pi), number(math.pi))
    turn = graph.op("Where", graph.op("Less", b, number(0)), turn, number(0))
    return graph.op("Add", graph.op("Atan", graph.op("Div", a, b)), turn)


@register(ops.LogAddExp)
def _logaddexp(graph: Graph, call: Call) -> Any:
    """max(a, b) + log(1 + e^-|a - b|)"""
    a, b = cast_all(graph, call)
    small = graph.op("Exp", graph.op("Neg", graph.op("Abs", graph.op("Sub", a, b))))
    more = graph.op("Log", graph.op("Add", small, graph.constant(1, call.dtype)))
    return graph.op("Add", graph.op("Max", a, b), more)


@register(ops.Remainder)
def _remainder(graph: Graph, call: Call) -> Any:
    """a - floor(a / b) b; of integers ONNX's Mod, which has the sign of b"""
    a, b = cast_all(graph, call)
    if "float" not in call.dtype:
        return graph.op("Mod", a, b)
    return graph.op("Sub", a, graph.op("Mul", graph.op("Floor", graph.op("Div", a, b)), b))
