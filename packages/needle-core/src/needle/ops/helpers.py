"""What the ops' constructors and functions make of their arguments."""

from typing import Any

from needle.autograd import Tensor


def number(scalar: Any) -> Any:
    """A Python number from a number, a NumPy scalar or an array of one element."""
    if isinstance(scalar, Tensor):
        raise TypeError("expected a number, got a Tensor")
    return scalar if type(scalar) in (float, int) or not hasattr(scalar, "item") else scalar.item()


def array_of(a: Any) -> Any:
    """The NDArray of a Tensor; anything else as it is."""
    return a.realize_cached_data() if isinstance(a, Tensor) else a


def key_of(key: Any) -> Any:
    """An index with arrays in place of its tensors."""
    return tuple([key_of(item) for item in key]) if isinstance(key, tuple) else array_of(key)


def index_of(a: Tensor, index: Any) -> Tensor:
    """Positions as an int64 Tensor on a's device: numbers, arrays, or tensors, of whole floats too."""
    if not isinstance(index, Tensor):
        kept = "int64" if isinstance(index, (int, list, tuple)) else None
        index = Tensor(index, device=a.device, dtype=kept, requires_grad=False)
    positions = index.realize_cached_data()
    if positions.dtype.is_float and bool((positions != positions.astype("int64")).any()):
        raise IndexError("positions are floats that are not whole")
    return Tensor.make_const(positions.astype("int64", copy=False))
