"""What the ops' constructors and functions make of their arguments.

An op outlives the call that made it: backward reads its arguments again. So what the caller could change meanwhile is copied here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from needle.autograd import NDArray, Tensor, TensorOp, constant, data_of, is_plain_key
from needle.typing import Axes
from needle_ndarray import int64
from needle_ndarray.extension import normal_axes


def number(scalar: Any) -> Any:
    """A Python number from a number, a NumPy scalar or an array of one element."""
    if isinstance(scalar, Tensor):
        raise TypeError("expected a number, got a Tensor")
    return scalar if type(scalar) in (float, int) or not hasattr(scalar, "item") else scalar.item()


def kept_shape(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    """The shape with every reduced axis of size 1.

    >>> kept_shape((2, 3, 4), (0, -1))
    (1, 3, 1)
    """
    gone = normal_axes("axes", axes, len(shape))
    return tuple([1 if i in gone else n for i, n in enumerate(shape)])


def array_of(a: Any) -> Any:
    """The NDArray of a Tensor; anything else as it is."""
    return data_of(a) if isinstance(a, Tensor) else a


class ValuesAndIndices(NamedTuple):
    """What `max(x, dim=1)`, `sort` and `topk` return: elements, and where they stood along the axis."""

    values: Any
    indices: Any


class Undifferentiable(TensorOp):
    """y = function(inputs), without a derivative: a node of traces alone, elsewhere y is a constant."""

    def __init__(self, function: Callable[..., Any], settings: dict[str, Any]) -> None:
        self.function, self.settings = function, settings

    @property
    def name(self) -> str:
        return self.function.__name__

    def compute(self, *inputs):
        return self.function(*inputs, **self.settings)


def cast(x: Any, dtype: Any) -> Any:
    """x in another dtype; itself where it has that one."""
    return x.astype(dtype, copy=False)


def copied(x: Any) -> Any:
    """A copy that nobody else can change."""
    return x.copy()


class Key(tuple):
    """An index that holds copies of the arrays it was made of."""

    __slots__ = ()


def key_of(key: Any) -> Any:
    """An index that nobody else can change: copies in place of tensors, arrays and lists."""
    if is_plain_key(key) or type(key) is Key:
        return key
    items = tuple([_item(item) for item in key]) if isinstance(key, tuple) else (_item(key),)
    if any(isinstance(item, (NDArray, np.ndarray)) for item in items):
        return Key(items)
    return items if isinstance(key, tuple) else items[0]


def _item(item: Any) -> Any:
    """One entry of an index, as `key_of` keeps it."""
    if is_plain_key(item) and not isinstance(item, tuple):
        return item
    if isinstance(item, slice):
        return slice(_bound(item.start), _bound(item.stop), _bound(item.step))
    if isinstance(item, (Tensor, NDArray)):
        return array_of(constant(copied, item))
    if isinstance(item, np.generic):
        return item
    if isinstance(item, (list, tuple)) or hasattr(item, "__array__"):
        made = np.array(item)
        return made.astype(np.int64) if made.size == 0 and not hasattr(item, "__array__") else made
    return operator.index(item) if hasattr(item, "__index__") else item


def _bound(n: Any) -> Any:
    return operator.index(n) if hasattr(n, "__index__") else n


def no_bool(what: str, given: Any) -> Any:
    """What was given for a mask or for positions, unless it is a Python bool: then an `==` between Tensors was meant for values."""
    if type(given) is bool:
        raise TypeError(f"{what} is {given}: == compares the identities of Tensors, x.equal(y) compares their values")
    return given


def index_of(a: Tensor, index: Any) -> Tensor:
    """Positions as an int64 Tensor on a's device: numbers, arrays, or tensors, of whole floats too."""
    if not isinstance(index, Tensor):
        no_bool("the index", index)
        kept = "int64" if isinstance(index, (int, list, tuple)) else None
        index = Tensor(index, device=a.device, dtype=kept, requires_grad=False)
    positions = data_of(index)
    if positions.dtype.is_float and bool((positions != positions.astype("int64")).any()):
        raise IndexError("positions are floats that are not whole")
    return Tensor.make_const(positions) if positions.dtype is int64 else constant(cast, index, dtype="int64")
