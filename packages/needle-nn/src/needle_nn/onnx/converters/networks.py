"""Converters of the ops of networks: convolution, pooling, norms, losses, attention. Needle's images are NHWC, ONNX's NCHW."""

import math
from typing import Any

import numpy as np

from needle import ops
from needle_nn.onnx.converters.elementwise import cast_all
from needle_nn.onnx.converters.reductions import reduce
from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.graph import Graph, Operand
from needle_nn.onnx.registry import Call, register
from needle_nn.onnx.sizes import varies

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def _pads(padding: Any) -> list[int]:
    """((top, bottom), (left, right)) as ONNX has it: all beginnings, then all ends"""
    return [*[before for before, _ in padding], *[after for _, after in padding]]


# ---- Convolution ------------------------------------------------------------------------------


def convolution(graph: Graph, call: Call, bias: tuple[str, ...] = ()) -> str:
    """Conv, with a bias if there is one, between a Transpose of the images and one back."""
    x, weight = cast_all(graph, call)
    stride, padding, dilation, groups = call.op.geometry
    settings = {"strides": list(stride), "dilations": list(dilation), "group": groups, "pads": _pads(padding)}
    turned = graph.transpose(weight, (3, 2, 0, 1))  # (KH, KW, C, F) -> (F, C, KH, KW)
    y = graph.op("Conv", graph.transpose(x, TO_NCHW), turned, *bias, **settings)
    return graph.transpose(y, TO_NHWC)


def transposed_convolution(graph: Graph, call: Call, bias: tuple[str, ...] = ()) -> str:
    """ConvTranspose: its weight is (in, out, KH, KW), in being the filters here"""
    x, weight = cast_all(graph, call)
    stride, padding, dilation, groups = call.op.geometry
    height, width = call.inputs[0].shape[1:3]
    extra = [
        size - ((n - 1) * s - sum(p) + d * (k - 1) + 1)
        for size, n, s, p, d, k in zip(
            call.shape[1:3], (height, width), stride, padding, dilation, call.inputs[1].shape[:2], strict=True
        )
    ]
    settings = {"strides": list(stride), "dilations": list(dilation), "group": groups, "pads": _pads(padding)}
    turned = graph.transpose(weight, (3, 2, 0, 1))  # (KH, KW, C, F) -> (F, C, KH, KW)
    y = graph.op("ConvTranspose", graph.transpose(x, TO_NCHW), turned, *bias, output_padding=extra, **settings)
    return graph.transpose(y, TO_NHWC)


register(ops.Conv2d, ops.Conv)(convolution)
register(ops.Conv2dInputGrad, may_vary=("shape",))(transposed_convolution)


@register(ops.MaxPool2d, ops.AvgPool2d)
def _pool(graph: Graph, call: Call) -> Any:
    (x,) = cast_all(graph, call)
    size, stride, padding = call.op.geometry
    largest = isinstance(call.op, ops.MaxPool2d)
    images, pads = graph.transpose(x, TO_NCHW), _pads(padding)
    if any(p >= size[i % 2] for i, p in enumerate(pads)):  # more than ONNX lets a window lie outside
        around = graph.constant(np.array([0, 0, *pads[:2], 0, 0, *pads[2:]], np.int64))
        images = graph.op("Pad", images, around, graph.constant(-math.inf if largest else 0, call.dtype))
        pads = [0, 0, 0, 0]
    settings: dict[str, Any] = {"kernel_shape": list(size), "strides": list(stride), "pads": pads}
    y = (
        graph.op("MaxPool", images, **settings)
        if largest
        else graph.op("AveragePool", images, count_include_pad=1, **settings)
    )
    return graph.transpose(y, TO_NHWC)


# ---- Norms ------------------------------------------------------------------------------------


@register(ops.LayerNorm)
def _layer_norm(graph: Graph, call: Call) -> Any:
    return graph.op("LayerNormalization", *cast_all(graph, call), axis=-1, epsilon=float(call.op.eps))


@register(ops.BatchNorm)
def _batch_norm(graph: Graph, call: Call) -> Any:
    """By the statistics of the batch: (x - mean) / sqrt(var + eps) w + b, channels last"""
    x, weight, bias = cast_all(graph, call)
    axes = tuple(range(call.inputs[0].ndim - 1))
    centred = graph.op("Sub", x, reduce(graph, "ReduceMean", x, axes, True))
    variance = reduce(graph, "ReduceMean", graph.op("Mul", centred, centred), axes, True)
    deviation = graph.op("Sqrt", graph.op("Add", variance, graph.constant(call.op.eps, call.dtype)))
    return graph.op("Add", graph.op("Mul", graph.op("Div", centred, deviation), weight), bias)


# ---- Losses -----------------------------------------------------------------------------------


@register(ops.CrossEntropy)
def _cross_entropy(graph: Graph, call: Call) -> Any:
    """-log softmax(logits)[label]"""
    logits, labels = call.inputs
    chances = graph.op("LogSoftmax", graph.cast(logits, call.dtype), axis=-1)
    last = logits.ndim - 1
    chosen = graph.op("GatherElements", chances, graph.unsqueeze(graph.cast(labels, "int64"), last), axis=last)
    return graph.op("Neg", graph.squeeze(chosen, last))


@register(ops.MeanSquaredError)
def _mean_squared_error(graph: Graph, call: Call) -> Any:
    difference = graph.op("Sub", *cast_all(graph, call))
    return reduce(
        graph, "ReduceMean", graph.op("Mul", difference, difference), tuple(range(call.inputs[0].ndim)), False
    )


# ---- Attention --------------------------------------------------------------------------------


@register(ops.Attention)
def _attention(graph: Graph, call: Call) -> Any:
    """softmax(q k^T scale + mask) v; a query that may look at nothing gets zeros"""
    q, k, v, *mask = call.inputs
    scale = 1 / math.sqrt(q.shape[-1]) if call.op.scale is None else call.op.scale
    flipped = graph.transpose(k, [*range(k.ndim - 2), k.ndim - 1, k.ndim - 2])
    scores = graph.op("Mul", graph.op("MatMul", q, flipped), graph.constant(scale, call.dtype))
    allowed = _causal(graph, q.shape[-2], k.shape[-2]) if call.op.causal else ""
    if mask and mask[0].dtype == "bool":
        allowed = graph.op("And", mask[0], allowed) if allowed else mask[0].name
    elif mask:
        scores = graph.op("Add", scores, graph.cast(mask[0], call.dtype))
    if not allowed:
        return graph.op("MatMul", graph.op("Softmax", scores, axis=-1), v)
    never, zero = graph.constant(-math.inf, call.dtype), graph.constant(0, call.dtype)
    if graph.value(allowed) is not None and np.asarray(graph.value(allowed)).any(-1).all():
        return graph.op("MatMul", graph.op("Softmax", graph.op("Where", allowed, scores, never), axis=-1), v)
    some = graph.op("Cast", reduce(graph, "ReduceMax", graph.op("Cast", allowed, to=6), (_last(mask, q),), True), to=9)
    masked = graph.op("Where", allowed, scores, graph.op("Where", some, never, zero))
    chances = graph.op("Where", some, graph.op("Softmax", masked, axis=-1), zero)
    return graph.op("MatMul", chances, v)


def _last(mask: list[Operand], q: Operand) -> int:
    """The last axis of what says which keys a query may look at."""
    return max(mask[0].ndim if mask else 0, 2) - 1


def _causal(graph: Graph, queries: Any, keys: Any) -> str:
    if varies((queries, keys)):
        raise ExportError(
            f"causal Attention over {queries} positions: batch_axis=1 or dynamic_batch=False says that axis 0 is no batch"
        )
    return graph.constant(np.tril(np.ones((queries, keys), bool), keys - queries), "bool")
