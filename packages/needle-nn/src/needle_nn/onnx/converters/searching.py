"""Converters of functions without a derivative that sort, search, count and look at bits."""

from typing import Any

from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.graph import DTYPES, Graph, Operand
from needle_nn.onnx.registry import Call

BITS = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "invert": "Not"}
#: The functions that `convert` knows, by the names of what computes them.
NAMES = {
    *BITS,
    *("bitwise_left_shift", "bitwise_right_shift", "bitwise_not"),
    *("argsort", "searchsorted", "isin", "count_nonzero", "logical_xor", "trunc", "signbit", "floor_divide"),
}


def convert(graph: Graph, call: Call) -> Any:
    """The node or nodes of a function in NAMES."""
    name, (x, *others), settings = call.op.name, call.inputs, call.op.settings
    if name in BITS and call.dtype == "bool":
        return graph.op(BITS[name], *[graph.cast(a, "bool") for a in call.inputs])
    if name.startswith("bitwise") or name == "invert":
        raise ExportError(
            f"{name} of integers: ONNX has no node for it before opset 18; of bools it is And, Or, Xor, Not"
        )
    if name == "logical_xor":
        return graph.op("Xor", *[graph.cast(a, "bool") for a in call.inputs])
    if name == "count_nonzero":
        return _count(graph, graph.cast(x, "bool"), settings["axis"], settings["keepdims"])
    if name == "argsort":
        return _argsort(graph, x, settings["axis"], settings["descending"])
    if name in ("isin", "searchsorted"):
        return _search(graph, name, x, others[0], settings)
    if name == "floor_divide":
        return _floor_divide(graph, call)
    return _rounded(graph, name, graph.cast(x, x.dtype if "float" in x.dtype else "float32"), x.dtype, call.dtype)


def _rounded(graph: Graph, name: str, x: str, given: str, dtype: str) -> Any:
    """trunc as ceil below 0 and floor above; the sign of a zero is that of 1 over it"""
    kind = given if "float" in given else "float32"
    zero = graph.constant(0, kind)
    if name == "trunc":
        made = graph.op("Where", graph.op("Less", x, zero), graph.op("Ceil", x), graph.op("Floor", x))
        return made if kind == dtype else graph.op("Cast", made, to=DTYPES[dtype])
    below = graph.op("Less", graph.op("Div", graph.constant(1, kind), x), zero)
    return graph.op("Or", graph.op("Less", x, zero), below)


def _count(graph: Graph, truth: str, axis: Any, keepdims: bool) -> Any:
    ones = graph.op("Cast", truth, to=DTYPES["int64"])
    axes = None if axis is None else graph.constant([axis] if isinstance(axis, int) else list(axis), "int64")
    if axes is None:
        return graph.op("ReduceSum", ones, keepdims=int(keepdims))
    return graph.op("ReduceSum", ones, axes, keepdims=int(keepdims))


def _argsort(graph: Graph, x: Operand, axis: int, descending: bool) -> Any:
    given = graph.cast(x, "int32") if x.dtype in ("bool", "uint8") else x.name
    count = graph.sizes([x.shape[axis]])
    _, places = graph.op("TopK", given, count, outputs=2, axis=axis, largest=int(descending), sorted=1)
    return places


def _search(graph: Graph, name: str, x: Operand, values: Operand, settings: dict[str, Any]) -> Any:
    """Every element of one beside every element of the other: how many are before it, or whether one is equal."""
    dtype = (
        "float64"
        if "float64" in (x.dtype, values.dtype)
        else "float32"
        if "float" in x.dtype + values.dtype
        else "int64"
    )
    many, one = (x, values) if name == "searchsorted" else (values, x)
    row, each = graph.reshape(graph.cast(many, dtype), (-1,)), graph.unsqueeze(graph.cast(one, dtype), one.ndim)
    last = graph.constant([one.ndim], "int64")
    if name == "searchsorted":
        before = graph.op("LessOrEqual" if settings["side"] == "right" else "Less", row, each)
        return graph.op("ReduceSum", graph.op("Cast", before, to=DTYPES["int64"]), last, keepdims=0)
    same = graph.op("Cast", graph.op("Equal", row, each), to=DTYPES["int64"])
    found = graph.op("Greater", graph.op("ReduceSum", same, last, keepdims=0), graph.constant(0, "int64"))
    return graph.op("Not", found) if settings["invert"] else found


def _floor_divide(graph: Graph, call: Call) -> Any:
    """floor(a / b); of integers, whose quotient ONNX cuts off, one less where something is left and the signs differ"""
    a, b = [graph.cast(x, call.dtype) for x in call.inputs]
    quotient = graph.op("Div", a, b)
    if "float" in call.dtype:
        return graph.op("Floor", quotient)
    left = graph.op("Sub", a, graph.op("Mul", quotient, b))
    zero = graph.constant(0, call.dtype)
    differ = graph.op("Xor", graph.op("Less", left, zero), graph.op("Less", b, zero))
    less = graph.op("And", differ, graph.op("Not", graph.op("Equal", left, zero)))
    return graph.op("Sub", quotient, graph.op("Cast", less, to=DTYPES[call.dtype]))
