"""The ONNX graph while it is being made: nodes, initializers, and shapes that are computed when it runs.

Nothing here needs the package onnx; `writing` turns the result into its protocol buffers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from needle_nn.onnx.sizes import Size, varies

#: needle's dtypes in ONNX's numbering (TensorProto.DataType)
DTYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "bool": 9, "float64": 11}


@dataclass(frozen=True)
class Operand:
    """A value as converters get it: its name in the graph, its shape of ints and `Size`s, its dtype."""

    name: str
    shape: tuple[Any, ...]
    dtype: str

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass
class OnnxNode:
    type: str
    inputs: list[str]  # "" for an optional one that is absent
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)


class Graph:
    """What converters add to; names are theirs to pass on, nothing else.

    >>> graph = Graph()
    >>> graph.op("Add", "x", graph.constant(np.float32(1)))
    'add_1'
    """

    def __init__(self) -> None:
        self.nodes: list[OnnxNode] = []
        self.inputs: list[Operand] = []
        self.outputs: list[Operand] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.dtypes: dict[str, str] = {}  # of initializers
        self.made_from: dict[str, str] = {}  # initializers in another layout: {name: name of the original}
        self.moves: dict[str, OnnxNode] = {}  # how these were made
        self.even: dict[str, Any] = {}  # results that hold one number everywhere
        self.batch_from: tuple[str, int] | None = None  # an input and its axis that is the batch
        self._taken: set[str] = {""}
        self._constants: dict[Any, str] = {}
        self._cached: dict[Any, str] = {}

    # ---- Names and values ---------------------------------------------------------------------

    def name(self, wanted: str) -> str:
        """The name that is wanted, or with a number after it where it is taken."""
        made, n = wanted, 0
        while made in self._taken:
            n += 1
            made = f"{wanted}_{n}"
        self._taken.add(made)
        return made

    def initializer(self, name: str, value: np.ndarray, dtype: str, made_from: str = "") -> str:
        """A tensor that is stored in the file."""
        made = self.name(name)
        self.initializers[made], self.dtypes[made] = value, dtype
        if made_from:
            self.made_from[made] = self.made_from.get(made_from, made_from)
        return made

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """An unnamed initializer, each value once."""
        host = np.asarray(value, dtype)
        kind = dtype or str(host.dtype)
        key = (kind, host.shape, host.tobytes()) if host.nbytes <= 1024 else None
        if key is None or key not in self._constants:
            made = self.initializer("constant", host, kind)
            if key is None:
                return made
            self._constants[key] = made
        return self._constants[key]

    def value(self, operand: Operand | str) -> np.ndarray | None:
        """The content of an initializer; None for what is computed when the graph runs."""
        return self.initializers.get(_name(operand))

    def is_zero(self, operand: Operand) -> bool:
        """Whether it is known to be zeros."""
        value = self.value(operand)
        return self.even.get(operand.name, 1) == 0 or (value is not None and not value.any())

    # ---- Nodes --------------------------------------------------------------------------------

    def op(self, type: str, *inputs: Operand | str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; returns the name of its result, or a list of names where `outputs` says that there are several.

        Attributes that are None are left out. Nodes that only move the elements of initializers are computed here.
        """
        names = [_name(x) for x in inputs]
        given = {name: value for name, value in attributes.items() if value is not None}
        if type in _MOVES and all(name in self.initializers for name in names):
            moved = _MOVES[type](*[self.initializers[name] for name in names], **given)
            if type == "Concat":
                parts = [self.made_from.get(name, name) for name in names]
                return self.initializer("+".join(parts), moved, self.dtypes[names[0]])
            made = self.initializer(f"{names[0]}.layout", moved, self.dtypes[names[0]], made_from=names[0])
            self.moves[made] = OnnxNode(type, names, [made], given)
            return made
        results = [self.name(f"{type.lower()}_{len(self.nodes) + 1}") for _ in range(outputs)]
        self.nodes.append(OnnxNode(type, names, results, given))
        return results[0] if outputs == 1 else results

    def cast(self, operand: Operand, dtype: str) -> str:
        """An operand in another dtype; itself where it has that one."""
        if operand.dtype == dtype:
            return operand.name
        value = self.value(operand)
        if value is not None and value.ndim == 0:
            return self.constant(value.astype(dtype))
        return self.op("Cast", operand, to=DTYPES[dtype])

    # ---- Shapes -------------------------------------------------------------------------------

    def sizes(self, shape: Sequence[Any]) -> str:
        """A shape as a list of int64: stored, or computed where it follows the batch."""
        if not varies(tuple(shape)):
            return self.constant(np.array(shape, np.int64))
        parts = [self._size(n) if isinstance(n, Size) else self.constant(np.array([n], np.int64)) for n in shape]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def number(self, n: Any, dtype: str) -> str:
        """A number, or a Size, as a scalar."""
        if not isinstance(n, Size):
            return self.constant(n, dtype)
        scalar = self.op("Squeeze", self._size(n), self.constant(np.array([0], np.int64)))
        return scalar if dtype == "int64" else self.op("Cast", scalar, to=DTYPES[dtype])

    def _size(self, size: Size) -> str:
        """scale * batch + offset, as a list of one int64"""
        if size not in self._cached:
            assert self.batch_from is not None
            name, axis = self.batch_from
            if "batch" not in self._cached:
                self._cached["batch"] = self.op("Shape", name, start=axis, end=axis + 1)
            made = self._cached["batch"]
            if size.scale != 1:
                made = self.op("Mul", made, self.constant(np.array([size.scale], np.int64)))
            if size.offset:
                made = self.op("Add", made, self.constant(np.array([size.offset], np.int64)))
            self._cached[size] = made
        return self._cached[size]

    def reshape(self, operand: Operand | str, shape: Sequence[Any]) -> str:
        """The elements in another shape; one size that follows the batch is left to be counted."""
        follow = [i for i, n in enumerate(shape) if isinstance(n, Size)]
        if len(follow) == 1 and 0 not in shape:
            target = self.constant(np.array([-1 if i in follow else n for i, n in enumerate(shape)], np.int64))
        else:
            target = self.sizes(shape)
        return self.op("Reshape", operand, target, allowzero=1 if 0 in shape else None)

    def expand(self, operand: Operand | str, shape: Sequence[Any]) -> str:
        """Repeated to a shape, as in broadcasting."""
        return self.op("Expand", operand, self.sizes(shape))

    def transpose(self, operand: Operand | str, order: Sequence[int]) -> str:
        return (
            _name(operand)
            if list(order) == list(range(len(order)))
            else self.op("Transpose", operand, perm=list(order))
        )

    def unsqueeze(self, operand: Operand | str, *axes: int) -> str:
        return self.op("Unsqueeze", operand, self.constant(np.array(axes, np.int64))) if axes else _name(operand)

    def squeeze(self, operand: Operand | str, *axes: int) -> str:
        return self.op("Squeeze", operand, self.constant(np.array(axes, np.int64))) if axes else _name(operand)


def _name(operand: Operand | str) -> str:
    return operand.name if isinstance(operand, Operand) else operand


def _reshape(x: np.ndarray, shape: np.ndarray, allowzero: int = 0) -> np.ndarray:
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape.tolist())])


_MOVES: dict[str, Callable[..., np.ndarray]] = {
    "Transpose": lambda x, perm: np.ascontiguousarray(x.transpose(perm)),
    "Reshape": _reshape,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes.tolist())),
    "Squeeze": lambda x, axes: np.squeeze(x, tuple(axes.tolist())),
    "Gather": lambda x, index, axis=0: np.take(x, index, axis),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
}
