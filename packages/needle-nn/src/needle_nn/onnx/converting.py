"""From a model's nodes to an ONNX graph: one after the other, by the table of converters."""

from typing import Any

import numpy as np

from needle import ops
from needle_nn.onnx import converters  # noqa: F401  fills the table
from needle_nn.onnx.errors import ExportError, place, title
from needle_nn.onnx.fusing import Fusing
from needle_nn.onnx.graph import DTYPES, Graph, OnnxNode, Operand
from needle_nn.onnx.matching import Fitted
from needle_nn.onnx.reasons import NOT_EXPRESSIBLE
from needle_nn.onnx.registry import CONVERTERS, Call
from needle_nn.onnx.tracing import Node


def check_converters(nodes: list[Node]) -> None:
    """Raise where an op has no converter."""
    for node in nodes:
        if node.kind != "op" or type(node.op) in CONVERTERS or type(node.op) is ops.TupleGetItem:
            continue
        name = title(node.op)
        why = NOT_EXPRESSIBLE.get(type(node.op), "has no converter")
        raise ExportError(
            f"{name} {why}; it is called at {place(node.origin)}. @needle.onnx.register({name}) adds a converter"
        )


def convert(graph: Graph, nodes: list[Fitted], outputs: list[int], names: list[str]) -> None:
    """Add to a graph whose inputs are known what computes the outputs, which get these names."""
    made = _Conversion(graph, nodes, outputs)
    for at, fitted in enumerate(nodes):
        made.add(at, fitted)
    for at, wanted in zip(outputs, names, strict=True):
        shape, dtype = nodes[at].specs[0]
        name = graph.name(wanted)
        graph.nodes.append(OnnxNode("Identity", [made.names[at]], [name]))
        graph.outputs.append(Operand(name, shape, dtype))


class _Conversion:
    """The names that the nodes' values have in the graph."""

    def __init__(self, graph: Graph, nodes: list[Fitted], outputs: list[int]) -> None:
        self.graph, self.nodes = graph, nodes
        self.names: list[Any] = []  # a list of names for a tuple
        uses = [0] * len(nodes)
        for i in [i for fitted in nodes for i in fitted.node.inputs] + outputs:
            uses[i] += 1
        self.fusing = Fusing(graph, nodes, uses, self.call, self.operand)

    def operand(self, at: int) -> Operand:
        shape, dtype = self.nodes[at].specs[0]
        name = self.names[at]
        return Operand(name if isinstance(name, str) else "", shape, dtype)

    def call(self, at: int) -> Call:
        fitted = self.nodes[at]
        return Call(fitted.node.op, [self.operand(i) for i in fitted.node.inputs], fitted.specs, fitted.settings)

    def add(self, at: int, fitted: Fitted) -> None:
        node = fitted.node
        if node.kind == "op":
            self.names.append(self.result(at, node))
        elif node.kind == "input":
            self.names.append(node.name)
        else:
            self.names.append(self.stored(fitted))

    def result(self, at: int, node: Node) -> Any:
        if type(node.op) is ops.TupleGetItem:
            return self.names[node.inputs[0]][node.op.index % len(self.nodes[node.inputs[0]].specs)]
        fused = self.fusing.result(at)
        if fused is not None:
            return fused
        try:
            return CONVERTERS[type(node.op)][0](self.graph, self.call(at))
        except ExportError as error:
            raise ExportError(f"{error}; at {place(node.origin)}") from None

    def stored(self, fitted: Fitted) -> str:
        """A tensor of the model, or a constant; one that follows the batch is made when the graph runs."""
        graph, (shape, dtype), host = self.graph, fitted.specs[0], fitted.node.data.numpy()
        if dtype not in DTYPES:
            raise ExportError(f"a tensor of dtype {dtype}, which ONNX does not have")
        if fitted.fill == "":
            return graph.initializer(fitted.node.name, host, dtype) if fitted.node.name else graph.constant(host, dtype)
        if fitted.fill == "even":
            made = graph.expand(graph.constant(host.flat[0], dtype), shape)
            graph.even[made] = host.flat[0]
            return made
        if fitted.fill == "number":
            return (
                graph.reshape(graph.number(fitted.number, dtype), shape)
                if shape
                else graph.number(fitted.number, dtype)
            )
        count = next(n for n in shape if n != 1)
        zero, one = (graph.constant(np.array(n), "int64") for n in (0, 1))
        made = graph.reshape(graph.op("Range", zero, graph.number(count, "int64"), one), shape)
        return made if dtype == "int64" else graph.op("Cast", made, to=DTYPES[dtype])
