"""Converters of elementwise ops. Operands are cast to the dtype of the result first: ONNX does not promote."""

import math
from typing import Any

import numpy as np

from needle import ops
from needle.ops.helpers import Undifferentiable
from needle_nn.onnx.converters import searching
from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.graph import DTYPES, Graph, Operand
from needle_nn.onnx.registry import Call, Converter, register


def cast_all(graph: Graph, call: Call) -> list[str]:
    """The operands in the dtype of the result."""
    return [graph.cast(x, call.dtype) for x in call.inputs]


def _plain(type: str) -> Converter:
    return lambda graph, call: graph.op(type, *cast_all(graph, call))


PLAIN = {
    ops.EWiseAdd: "Add",
    ops.EWiseMul: "Mul",
    ops.EWiseDiv: "Div",
    ops.EWisePow: "Pow",
    ops.Negate: "Neg",
    ops.Abs: "Abs",
    ops.Maximum: "Max",
    ops.Minimum: "Min",
    ops.Log: "Log",
    ops.Exp: "Exp",
    ops.Sqrt: "Sqrt",
    ops.Deviation: "Sqrt",
    ops.Sin: "Sin",
    ops.Cos: "Cos",
    ops.Tanh: "Tanh",
    ops.Sigmoid: "Sigmoid",
    ops.Erf: "Erf",
    ops.ReLU: "Relu",
}
for _op, _type in PLAIN.items():
    register(_op)(_plain(_type))

WITH_NUMBER = {ops.AddScalar: "Add", ops.MulScalar: "Mul", ops.DivScalar: "Div", ops.PowerScalar: "Pow"}


def _with_number(type: str) -> Converter:
    def convert(graph: Graph, call: Call) -> Any:
        (x,) = cast_all(graph, call)
        return graph.op(type, x, graph.number(call.settings["scalar"], call.dtype))

    return convert


for _scalar_op, _type in WITH_NUMBER.items():
    register(_scalar_op, may_vary=("scalar",))(_with_number(_type))


@register(ops.Alias, ops.Clone, ops.ToDevice)
def _same(graph: Graph, call: Call) -> Any:
    return call.inputs[0].name


@register(ops.Astype, ops.NegateBeside)
def _astype(graph: Graph, call: Call) -> Any:
    made = graph.cast(call.inputs[0], call.dtype)
    return graph.op("Neg", made) if isinstance(call.op, ops.NegateBeside) else made


@register(ops.Clip)
def _clip(graph: Graph, call: Call) -> Any:
    (made,) = cast_all(graph, call)
    for type, bound in (("Max", call.op.low), ("Min", call.op.high)):
        made = made if bound is None else graph.op(type, made, graph.constant(bound, call.dtype))
    return made


@register(ops.Where)
def _where(graph: Graph, call: Call) -> Any:
    condition, a, b = call.inputs
    return graph.op("Where", graph.cast(condition, "bool"), graph.cast(a, call.dtype), graph.cast(b, call.dtype))


@register(ops.FusedAddScalars)
def _add_scalars(graph: Graph, call: Call) -> Any:
    x = graph.cast(call.inputs[0], call.dtype)
    return [graph.op("Add", x, graph.constant(c, call.dtype)) for c in (call.op.c0, call.op.c1)]


# ---- Functions that ONNX lacks ----------------------------------------------------------------


def _near_zero(graph: Graph, x: str, near: str, far: str, dtype: str) -> Any:
    """One formula where |x| < 0.5, which does not cancel there, and another elsewhere."""
    return graph.op("Where", graph.op("Less", graph.op("Abs", x), graph.constant(0.5, dtype)), near, far)


@register(ops.Log1p)
def _log1p(graph: Graph, call: Call) -> Any:
    """2 atanh(x / (x + 2)) near 0, log(x + 1) elsewhere"""
    (x,), number = cast_all(graph, call), lambda c: graph.constant(c, call.dtype)
    near = graph.op("Mul", graph.op("Atanh", graph.op("Div", x, graph.op("Add", x, number(2)))), number(2))
    return _near_zero(graph, x, near, graph.op("Log", graph.op("Add", x, number(1))), call.dtype)


@register(ops.Expm1)
def _expm1(graph: Graph, call: Call) -> Any:
    """2 t / (1 - t), t = tanh(x / 2), near 0, e^x - 1 elsewhere"""
    (x,), number = cast_all(graph, call), lambda c: graph.constant(c, call.dtype)
    t = graph.op("Tanh", graph.op("Mul", x, number(0.5)))
    near = graph.op("Div", graph.op("Mul", t, number(2)), graph.op("Sub", number(1), t))
    return _near_zero(graph, x, near, graph.op("Sub", graph.op("Exp", x), number(1)), call.dtype)


@register(ops.GELU)
def _gelu(graph: Graph, call: Call) -> Any:
    """x (1 + erf(x / sqrt 2)) / 2, in the order of nodes that runtimes fuse"""
    (x,), number = cast_all(graph, call), lambda c: graph.constant(c, call.dtype)
    wide = graph.op("Add", graph.op("Erf", graph.op("Div", x, number(math.sqrt(2)))), number(1))
    return graph.op("Mul", graph.op("Mul", x, wide), number(0.5))


@register(ops.SiLU)
def _silu(graph: Graph, call: Call) -> Any:
    (x,) = cast_all(graph, call)
    return graph.op("Mul", x, graph.op("Sigmoid", x))


# ---- Without a derivative ---------------------------------------------------------------------

COMPARISONS = {
    "equal": "Equal",
    "not_equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}
LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_not": "Not"}
STEPS = {"sign": "Sign", "floor": "Floor", "ceil": "Ceil", "round": "Round"}
EXTREMES = {"argmax": "ArgMax", "argmin": "ArgMin", "any": "ReduceMax", "all": "ReduceMin"}
#: Every function of needle.ops without a derivative that has a converter.
UNDIFFERENTIABLE = {
    *COMPARISONS,
    *LOGIC,
    *STEPS,
    *EXTREMES,
    "isnan",
    "isinf",
    "isfinite",
    "cast",
    "copied",
    "where",
    "one_hot",
    *searching.NAMES,
}


@register(Undifferentiable, may_vary=("settings",))
def _undifferentiable(graph: Graph, call: Call) -> Any:
    name, (x, *others) = call.op.name, call.inputs
    if name in COMPARISONS:
        made = graph.op(COMPARISONS[name], *_comparable(graph, x, *others))
        return graph.op("Not", made) if name == "not_equal" else made
    if name in LOGIC:
        return graph.op(LOGIC[name], *[graph.cast(a, "bool") for a in call.inputs])
    if name in ("isnan", "isinf", "isfinite"):
        return _special(graph, name, x)
    if name in STEPS:
        return x.name if name != "sign" and not _is_float(x) else graph.op(STEPS[name], graph.cast(x, call.dtype))
    if name in EXTREMES:
        return _extreme(graph, call, name, x)
    if name in ("cast", "copied"):
        return graph.cast(x, call.dtype)
    if name == "where":
        return _where(graph, call)
    if name == "one_hot":
        values = graph.constant(np.array([0, 1]), call.dtype)
        return graph.op(
            "OneHot", graph.cast(x, "int64"), graph.number(call.settings["settings"]["n"], "int64"), values, axis=-1
        )
    if name in searching.NAMES:
        return searching.convert(graph, call)
    raise ExportError(f"{name} has no converter")


def _is_float(x: Operand) -> bool:
    return "float" in x.dtype


def _comparable(graph: Graph, a: Operand, b: Operand) -> list[str]:
    """Both in one dtype; a single number takes that of the other, as in Python's arithmetic."""
    numbers = [graph.value(x) is not None and x.shape == () for x in (a, b)]
    if numbers[0] != numbers[1]:
        number, other = (a, b) if numbers[0] else (b, a)
        dtype = other.dtype if _is_float(other) or not _is_float(number) else "float32"
    else:
        dtype = str(np.result_type(a.dtype, b.dtype))
    dtype = {"uint8": "int32", "bool": "int32"}.get(dtype, dtype)  # which runtimes compare
    return [graph.cast(a, dtype), graph.cast(b, dtype)]


def _special(graph: Graph, name: str, x: Operand) -> Any:
    given = x.name if _is_float(x) else graph.cast(x, "float32")
    if name == "isnan":
        return graph.op("IsNaN", given)
    if name == "isinf":
        return graph.op("IsInf", given)
    return graph.op("Not", graph.op("Or", graph.op("IsNaN", given), graph.op("IsInf", given)))


def _extreme(graph: Graph, call: Call, name: str, x: Operand) -> Any:
    """argmax and argmin along an axis or over all; any and all as the largest and the smallest of 0 and 1"""
    axis, keepdims = call.op.settings["axis"], bool(call.op.settings["keepdims"])
    if name in ("argmax", "argmin"):
        given = graph.cast(x, "int32") if x.dtype in ("bool", "uint8") else x.name
        if axis is None:
            made = graph.op(EXTREMES[name], graph.reshape(given, (-1,)), axis=0, keepdims=0)
            return graph.reshape(made, call.shape) if keepdims else made
        return graph.op(EXTREMES[name], given, axis=axis, keepdims=int(keepdims))
    axes = None if axis is None else [axis] if isinstance(axis, int) else list(axis)
    truth = graph.op("Cast", graph.cast(x, "bool"), to=DTYPES["int32"])
    if axes != []:
        truth = graph.op(EXTREMES[name], truth, axes=axes, keepdims=int(keepdims))
    return graph.op("Cast", truth, to=DTYPES["bool"])
