"""A model's graph: run it, and write down what was computed from what.

`needle.autograd.trace` gives every result with its op and inputs. Here these become a list of `Node`s, each after its inputs.
Leaves are told apart by their arrays: those of inputs and of the model's own tensors have names, others are constants.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from needle.autograd import NDArray, Tensor, TensorTuple, Value, data_of, trace
from needle.modes import enable_grad, lazy_mode
from needle.ops import GetItem, SetItem
from needle_nn.onnx.errors import ExportError, place, title

Spec = tuple[tuple[int, ...], str]  # shape and dtype


@dataclass
class Node:
    """One value: an "input", a "weight" (a tensor of the model), a "constant", or the result of an "op"."""

    kind: str
    specs: list[Spec]  # one, or one for each entry of a tuple
    op: Any = None
    inputs: list[int] = field(default_factory=list)  # places in the list of nodes
    name: str = ""
    data: Any = None  # of weights and constants
    origin: tuple[str, int] | None = None
    depends: bool = False  # on an input


@dataclass
class Trace:
    """The nodes of one run, in an order of computation, and the places of its results."""

    nodes: list[Node]
    outputs: list[int]


def run(
    model: Callable[..., Any], args: Sequence[Any], inputs: Mapping[str, Tensor], named: Mapping[str, Tensor]
) -> Trace:
    """Call a model and take down its graph.

    Parameters
    ----------
    args : what it is called with
    inputs : the Tensors in these that become inputs of the graph, by name
    named : the model's own tensors
    """
    with enable_grad(), lazy_mode(False):
        result, happened = trace(model, tuple(args))
    results = list(flat(result))
    wrong = [type(value).__name__ for value in results if not isinstance(value, Value)]
    if wrong or not results:
        raise ExportError(
            f"the model returned {wrong[0] if wrong else 'no Tensor'}, expected Tensors, in tuples, lists or dicts"
        )
    made = _Nodes(inputs, named, [value for value in happened if isinstance(value, Value)])
    outputs = [made.place_of(value) for value in results]
    count = len(made.nodes)
    for event in happened:
        if isinstance(event, tuple):
            _check(made, *event)
    return Trace(made.nodes[:count], outputs)


def flat(value: Any) -> Iterator[Any]:
    """The Tensors of nested tuples, lists and dicts; None is nothing."""
    if isinstance(value, TensorTuple):
        yield from value.tuple()
    elif isinstance(value, dict):
        for part in value.values():
            yield from flat(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from flat(part)
    elif value is not None:
        yield value


def _check(made: "_Nodes", what: str, value: Value, line: tuple[str, int]) -> None:
    """Refuse what no op has recorded, where the graph would lack something for it."""
    node = made.nodes[made.place_of(value)]
    of = f"the result of {title(node.op)}" if node.op is not None else node.name or "a constant"
    if what == "read" and node.depends:
        raise ExportError(
            f"the model looks at the values of {of}, which depend on its input, at {place(line)}; what follows from them"
            " would be frozen in the graph: compute it with ops on Tensors"
        )
    if what == "rewritten" or (what == "written" and (node.depends or node.kind == "weight")):
        raise ExportError(
            f"the model writes into {of} at {place(line)}, which the graph cannot follow: make a new Tensor (ops.setitem)"
        )


class _Nodes:
    """Nodes for values, each made once, after those of its inputs."""

    def __init__(self, inputs: Mapping[str, Tensor], named: Mapping[str, Tensor], made: list[Value]) -> None:
        self.nodes: list[Node] = []
        self.places: dict[int, int] = {}  # of values, by id
        self.kept: list[Value] = []  # whose ids must not be given to others
        self.owners: dict[int, Value] = {}  # of arrays, by id
        for value in made:
            # a result that is its input's array (a cast to the same dtype) is not where the array comes from
            if (
                isinstance(value, Tensor)
                and value.inputs
                and all(data_of(x) is not data_of(value) for x in value.inputs)
            ):
                self.owners[id(data_of(value))] = value
        self.labels = {id(x): ("weight", name) for name, x in named.items()}
        self.labels |= {id(x): ("input", name) for name, x in inputs.items()}
        for x in (*named.values(), *inputs.values()):
            self.owners[id(data_of(x))] = x
        for x in inputs.values():  # in the order given, whether used or not
            self.place_of(x)

    def source(self, value: Value) -> Value:
        """The value itself or, for a leaf that shares its array with something known (`x.detach()`), that."""
        if value.op is not None or id(value) in self.labels:
            return value
        return self.owners.get(id(data_of(value)), value)

    def inputs_of(self, value: Value) -> list[Value]:
        """The inputs of an op; of an indexing also the arrays in its key."""
        held = list(value.inputs)
        if isinstance(value.op, (GetItem, SetItem)):
            key = value.op.key if isinstance(value.op.key, tuple) else (value.op.key,)
            arrays = [
                NDArray(x) if isinstance(x, np.ndarray) else x for x in key if isinstance(x, (NDArray, np.ndarray))
            ]
            held += [Tensor.make_const(x) for x in arrays]
        return [self.source(x) for x in held]

    def place_of(self, value: Value) -> int:
        """The place of a value's node, which is made if need be; without recursion, as graphs may be deep."""
        value = self.source(value)
        stack: list[tuple[Value, list[Value] | None]] = [(value, None)]
        while stack:
            top, inputs = stack.pop()
            if id(top) in self.places:
                continue
            if inputs is None:
                inputs = self.inputs_of(top)
                stack.append((top, inputs))
                stack += [(x, None) for x in reversed(inputs) if id(x) not in self.places]
            else:
                self.add(top, inputs)
        return self.places[id(value)]

    def add(self, value: Value, inputs: list[Value]) -> None:
        node = Node("op", _specs(value), value.op, [self.places[id(x)] for x in inputs], origin=value.origin)
        if value.op is None:
            node.kind, node.name = self.labels.get(id(value), ("constant", ""))
            node.data = data_of(value)
        node.depends = node.kind == "input" or any(self.nodes[i].depends for i in node.inputs)
        self.places[id(value)] = len(self.nodes)
        self.nodes.append(node)
        self.kept.append(value)


def _specs(value: Value) -> list[Spec]:
    known = value.known if isinstance(value, TensorTuple) else (value.known,)
    return [(tuple(shape), str(dtype)) for shape, dtype, _ in known]
