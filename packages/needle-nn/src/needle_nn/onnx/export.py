"""The whole way: trace, match, convert, simplify, check, write."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from needle.autograd import Tensor
from needle_nn.nn import Module
from needle_nn.onnx.converting import check_converters, convert
from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.examples import SIZES, Example
from needle_nn.onnx.graph import DTYPES, Graph, Operand
from needle_nn.onnx.matching import match
from needle_nn.onnx.preserving import evaluated
from needle_nn.onnx.registry import may_vary
from needle_nn.onnx.simplifying import simplify
from needle_nn.onnx.tracing import Trace, run
from needle_nn.onnx.writing import need_onnx, to_model, write


def export(
    model: Callable[..., Any],
    example: Any,
    path: Any,
    *,
    dynamic_batch: bool = True,
    batch_axis: int | Sequence[int | None] | None = 0,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Path:
    """Write a model as an ONNX file, which onnxruntime and others run; returns its path.

    The model is traced in eval mode: run, and its ops written down. Afterwards it is as it was. An op that ONNX cannot express, or
    for which there is no converter, is an ExportError that names it; nothing is written then.

    Parameters
    ----------
    model : a Module, or a function of Tensors
    example : what it is called with: a Tensor or an array, or a tuple with an entry for each argument
    path : of the file; it is written under another name first and checked by onnx
    dynamic_batch : whether the file takes batches of any size; else of the example's
    batch_axis : the axis of the batch in the inputs, or a tuple with one for each argument, None where there is none
    input_names, output_names : the names in the file; by default inputs are called as the arguments of `forward`, the output
        "output", and several "output_0" and so on

    >>> import needle as ndl, tempfile
    >>> model = ndl.nn.Sequential(ndl.nn.Linear(4, 3), ndl.nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(model, ndl.ones(1, 4), f"{folder}/model.onnx").name
    'model.onnx'
    """
    if not callable(model):
        raise TypeError(f"onnx.export: model is a {type(model).__name__}, expected a Module or a function")
    need_onnx()
    given = Example(model, example, batch_axis if dynamic_batch else None, input_names)
    graph = to_graph(model, given, output_names)
    return write(to_model(graph, type(model).__name__), path)


def to_graph(model: Callable[..., Any], example: Example, output_names: Sequence[str] | None = None) -> Graph:
    """The ONNX graph of a model."""
    batches = list(SIZES) if example.has_batch else [0, 0]
    with evaluated(model):
        named = dict(model._tensors()) if isinstance(model, Module) else {}
        traces = [_trace(model, example, named, size if example.has_batch else None, batches) for size in batches]
        nodes = match(traces, batches, may_vary)
        graph = Graph()
        for place, x in enumerate(example.inputs):
            shape, dtype = nodes[place].specs[0]
            if dtype not in DTYPES:
                raise ExportError(f"input {x.name} is of dtype {dtype}, which ONNX does not have")
            graph.inputs.append(Operand(graph.name(x.name), shape, dtype))
            if x.axis is not None and graph.batch_from is None:
                graph.batch_from = (x.name, x.axis)
        convert(graph, nodes, traces[0].outputs, _output_names(output_names, len(traces[0].outputs)))
    simplify(graph)
    return graph


def _trace(
    model: Callable[..., Any], example: Example, named: dict[str, Tensor], size: int | None, batches: list[int]
) -> Trace:
    args, inputs = example.call(size)
    try:
        traced = run(model, args, inputs, named)
    except ExportError:
        raise
    except Exception as error:
        if size is None:
            raise
        raise ExportError(
            f"the model does not take a batch of {size} examples: {error}; batch_axis says which axis is the batch, and"
            " dynamic_batch=False exports it for the example's shape"
        ) from error
    check_converters(traced.nodes)
    return traced


def _output_names(given: Sequence[str] | None, count: int) -> list[str]:
    if given is None:
        return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    if len(given) != count or len(set(given)) != count:
        raise ValueError(f"onnx.export: output_names {list(given)}: expected {count} different ones")
    return list(given)
