"""One graph out of several traces of a model: what differs between them can only come from the size of the batch."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from needle.autograd import NDArray, Op
from needle_nn.onnx.errors import ExportError, place, title
from needle_nn.onnx.sizes import NotFitted, equal_arrays, fit, varies
from needle_nn.onnx.tracing import Node, Trace

Shape = tuple[Any, ...]  # ints and Sizes


@dataclass
class Fitted:
    """A node of the graph: as in the traces, with a `Size` wherever a number follows the batch."""

    node: Node
    specs: list[tuple[Shape, str]]
    settings: dict[str, Any] = field(default_factory=dict)  # of the op
    fill: str = ""  # of a constant: "" as it is, "even" one value everywhere, "range" 0, 1, 2, ..., "number" that follows the batch
    number: Any = None


def match(traces: Sequence[Trace], batches: Sequence[int], may_vary: Callable[[type], tuple[str, ...]]) -> list[Fitted]:
    """The nodes that all traces agree on; an error names the first that depends on the batch in a way no graph can follow.

    Parameters
    ----------
    batches : the size of the batch in each trace
    may_vary : the settings of a class of ops in which its converter knows what to do with a Size
    """
    shape_of = {(len(t.nodes), tuple(t.outputs)) for t in traces}
    fitted = []
    for nodes in zip(*[t.nodes for t in traces], strict=False):
        if len({(n.kind, type(n.op), n.name, tuple(n.inputs), len(n.specs)) for n in nodes}) > 1:
            raise _differs(nodes, batches, "there are other ops")
        fitted.append(_fitted(nodes, batches, may_vary))
    if len(shape_of) > 1:
        raise _differs([t.nodes[-1] for t in traces], batches, "there are more ops")
    return fitted


def _fitted(nodes: Sequence[Node], batches: Sequence[int], may_vary: Callable[[type], tuple[str, ...]]) -> Fitted:
    first = nodes[0]
    try:
        shapes = [fit([n.specs[i][0] for n in nodes], batches) for i in range(len(first.specs))]
    except NotFitted:
        raise _differs(nodes, batches, "shapes are not in proportion to it") from None
    if len({tuple([dtype for _, dtype in n.specs]) for n in nodes}) > 1:
        raise _differs(nodes, batches, "dtypes differ")
    made = Fitted(first, [(shape, dtype) for shape, (_, dtype) in zip(shapes, first.specs, strict=True)])
    if first.kind == "constant":
        made.fill = _fill(made, nodes, batches)
    elif first.kind == "op":
        for name in settings_of(first.op):
            if name == "key":  # its arrays are inputs
                values = [_plain(settings_of(n.op)[name]) for n in nodes]
            else:
                values = [settings_of(n.op)[name] for n in nodes]
            allowed = name in may_vary(type(first.op))
            try:
                made.settings[name] = fit(values, batches)
            except NotFitted:
                raise _differs(nodes, batches, f"{name} is {values[0]!r} and {values[1]!r}") from None
            if varies(made.settings[name]) and not allowed:
                raise _differs(nodes, batches, f"{name} is {values[0]!r} and {values[1]!r}")
    return made


def settings_of(op: Op) -> dict[str, Any]:
    """What an op was made with: its attributes, without those that compute notes."""
    slots = [name for cls in type(op).__mro__ for name in getattr(cls, "__slots__", ())]
    found = {**{name: getattr(op, name) for name in slots if hasattr(op, name)}, **getattr(op, "__dict__", {})}
    if hasattr(op, "scalar"):
        found["scalar"] = op.scalar
    return {name: value for name, value in found.items() if name not in _NOTED}


def _plain(key: Any) -> tuple[Any, ...]:
    """An index with ARRAY in place of every array."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple([ARRAY if isinstance(item, (NDArray, np.ndarray)) else item for item in items])


ARRAY = "array"  # in the key of an indexing
_NOTED = {"statistics", "computed"}  # what BatchNorm keeps of its last computation


def _fill(made: Fitted, nodes: Sequence[Node], batches: Sequence[int]) -> str:
    """How a constant is made for any batch."""
    arrays = [n.data for n in nodes]
    if all(equal_arrays(arrays[0], other) for other in arrays[1:]):
        return ""
    hosts = [array.numpy() for array in arrays]
    if len({n.specs[0] for n in nodes}) == 1:
        if hosts[0].size == 1 and batches[0] != batches[1] and all(float(h.item()).is_integer() for h in hosts):
            with suppress(NotFitted):
                made.number = fit([int(h.item()) for h in hosts], batches)
                return "number"
        raise ExportError(
            f"a constant of shape {nodes[0].specs[0][0]} is another one in every run, so the model draws random numbers or"
            " keeps a state; make it an input, or a buffer"
        )
    if all(h.size and equal_arrays(h, np.full_like(h, hosts[0].flat[0])) for h in hosts):
        return "even"
    if all(h.dtype.kind == "i" and max(h.shape) == h.size and (h.ravel() == np.arange(h.size)).all() for h in hosts):
        return "range"
    raise _differs(nodes, batches, f"a constant of shape {hosts[0].shape} has another content")


def _differs(nodes: Sequence[Node], batches: Sequence[int], why: str) -> ExportError:
    node = nodes[0]
    at = f" at {title(node.op)}, {place(node.origin)}" if node.op is not None else ""
    one, other = batches[0], batches[1]
    if one == other:
        return ExportError(f"two runs of the model on the same example differ{at}: {why}")
    return ExportError(
        f"the graph depends on the size of the batch{at}: with {one} and {other} examples {why};"
        " dynamic_batch=False exports it for the example's shape"
    )
