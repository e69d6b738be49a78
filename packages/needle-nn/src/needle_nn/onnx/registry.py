"""The table of converters: for every class of ops, the function that adds its nodes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from needle.autograd import Op
from needle.custom import Operator
from needle_nn.onnx.graph import Graph, Operand


@dataclass
class Call:
    """One use of an op, as its converter sees it.

    op : the op itself. What may follow the batch is in `settings` instead, with a `Size` there.
    inputs : what it is applied to
    outputs : (shape, dtype) of its result, or one for each entry of a tuple
    """

    op: Any
    inputs: list[Operand]
    outputs: list[tuple[tuple[Any, ...], str]]
    settings: dict[str, Any]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.outputs[0][0]

    @property
    def dtype(self) -> str:
        return self.outputs[0][1]


Converter = Callable[[Graph, Call], Any]
CONVERTERS: dict[type, tuple[Converter, tuple[str, ...]]] = {}


def register(*ops: Any, may_vary: tuple[str, ...] = ()) -> Callable[[Converter], Converter]:
    """Make a function the converter of classes of ops, or of what `needle.operator` made; a decorator.

    Parameters
    ----------
    ops : the classes; their subclasses are others
    may_vary : attributes of the op that may be different for batches of other sizes; the converter reads them in
        `call.settings`, where numbers that follow the batch are `Size`s

    The function gets (graph, call): `graph.op(type, *inputs, **attributes)` adds an ONNX node and returns the name of its result,
    `graph.constant(value, dtype)` a constant; it returns the name of the op's result, or a list of them for a tuple.

    >>> import needle as ndl
    >>> class Cube(ndl.TensorOp):
    ...     def compute(self, x):
    ...         return x * x * x
    >>> @register(Cube)
    ... def cube(graph, call):
    ...     (x,) = call.inputs
    ...     return graph.op("Mul", graph.op("Mul", x, x), x)
    """
    classes = [op.op if isinstance(op, Operator) else op for op in ops]
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, Op)):
            raise TypeError(f"onnx.register: {cls!r}: expected a class of ops, as ndl.TensorOp")

    def add(converter: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(classes, (converter, may_vary)))
        return converter

    return add


def may_vary(cls: type) -> tuple[str, ...]:
    """The settings of a class in which its converter takes a Size; for one without a converter, which is an error later, all."""
    return CONVERTERS[cls][1] if cls in CONVERTERS else ()
