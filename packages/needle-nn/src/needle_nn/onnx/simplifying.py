"""What the converters left: Transposes that cancel, nodes and initializers that nobody uses, names."""

from collections import Counter
from typing import Any

from needle_nn.onnx.graph import Graph, OnnxNode

LARGE = 4096  # bytes of a tensor that is worth a node


def simplify(graph: Graph) -> None:
    """Remove from a graph what does not change its results, and give initializers the names of the model's tensors."""
    merge_transposes(graph)
    stored = dict(graph.initializers)
    remove_unused(graph)
    store_once(graph, stored)
    name_outputs(graph)
    restore_names(graph)


def merge_transposes(graph: Graph) -> None:
    """A Transpose of a Transpose becomes one, or none where they cancel."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        if node.type != "Transpose":
            continue
        before = made_by.get(node.inputs[0])
        if before is not None and before.type == "Transpose":
            order = [before.attributes["perm"][i] for i in node.attributes["perm"]]
            node.inputs, node.attributes = list(before.inputs), {"perm": order}
        if node.attributes["perm"] == list(range(len(node.attributes["perm"]))):
            renamed[node.outputs[0]] = node.inputs[0]


def remove_unused(graph: Graph) -> None:
    """Keep what the outputs need."""
    needed = {operand.name for operand in graph.outputs}
    kept: list[OnnxNode] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    graph.nodes = kept[::-1]
    graph.initializers = {name: value for name, value in graph.initializers.items() if name in needed}


def store_once(graph: Graph, stored: dict[str, Any]) -> None:
    """A large tensor of the model that is used in several layouts is stored in its own, and moved when the graph runs."""
    sources = Counter([graph.made_from.get(name, name) for name in graph.initializers])
    for name in [name for name in graph.initializers if sources[graph.made_from.get(name, name)] > 1]:
        if name not in graph.moves or graph.initializers[name].nbytes <= LARGE:
            continue
        del graph.initializers[name]
        chain, made = [], name
        while made in graph.moves:
            node = graph.moves[made]
            chain.append(OnnxNode(node.type, list(node.inputs), list(node.outputs), node.attributes))
            graph.initializers |= {x: stored[x] for x in node.inputs if x not in graph.moves}
            made = node.inputs[0]
        graph.nodes[:0] = [node for node in reversed(chain) if not any(n.outputs == node.outputs for n in graph.nodes)]


def name_outputs(graph: Graph) -> None:
    """Where an output is the copy of a node's result that is no output yet, that result gets its name."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    outputs = {operand.name for operand in graph.outputs}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.type == "Identity" else ""
        if source in made_by and source not in outputs and source not in renamed and node.outputs[0] in outputs:
            renamed[source] = node.outputs[0]
            node.type = ""
    graph.nodes = [node for node in graph.nodes if node.type]
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        node.outputs = [renamed.get(name, name) for name in node.outputs]


def restore_names(graph: Graph) -> None:
    """An initializer that is used in one layout, ONNX's, has the name of the model's tensor."""
    layouts = Counter([graph.made_from[name] for name in graph.initializers if name in graph.made_from])
    renamed = {
        name: source
        for name in graph.initializers
        if (source := graph.made_from.get(name, "")) and layouts[source] == 1 and source not in graph.initializers
    }
    graph.initializers = {renamed.get(name, name): value for name, value in graph.initializers.items()}
    graph.dtypes = {renamed.get(name, name): graph.dtypes[name] for name in graph.dtypes}
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
