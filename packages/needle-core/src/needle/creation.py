"""New tensors from numbers, lists and arrays, with PyTorch's arguments and defaults: no gradient unless asked for.

`Tensor(...)` is the course's: it requires a gradient, and makes Python's integers floats. `tensor(...)` does neither.
"""

from typing import Any

import numpy as np

import needle_ndarray as nd
from needle.autograd import Tensor, get_default_dtype
from needle.init import given_shape

__all__ = [
    "tensor", "as_tensor", "from_numpy", "arange", "linspace", "full", "full_like", "empty", "empty_like", "eye",
    "FloatTensor", "DoubleTensor", "LongTensor", "ByteTensor", "IntTensor", "BoolTensor",
]  # fmt: skip


def _made(array: Any, requires_grad: bool) -> Tensor:
    return Tensor.make_const(array, requires_grad=requires_grad)


def _dtype_of(host: np.ndarray, given: Any) -> Any:
    """That of arrays; Python's floats become the default dtype, its integers int64."""
    if isinstance(given, (np.ndarray, np.generic)):
        return None
    return get_default_dtype() if host.dtype.kind == "f" else None


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of numbers, lists, an array or a tensor: integers stay integers, and NumPy's arrays keep their dtype.

    >>> tensor([1, 2]).dtype, tensor([1.0, 2.0]).dtype, tensor(np.ones(2)).dtype
    ('int64', 'float32', 'float64')
    """
    if isinstance(data, Tensor):
        data = data.detach().realize_cached_data()
    elif isinstance(data, (list, tuple)):
        data = _plain(data)
    if isinstance(data, nd.NDArray):
        made = data.copy() if dtype is None else data.astype(dtype)
        return _made(made if device is None else made.to(device), requires_grad)
    host = np.asarray(data)
    if host.dtype.kind not in "biuf":
        raise TypeError(f"tensor: expected numbers, got {type(data).__name__} of {host.dtype}")
    kind = _dtype_of(host, data) if dtype is None else dtype
    made = nd.asarray(host, dtype=kind, device=device, copy=True)
    if requires_grad and not made.dtype.is_float:
        raise TypeError(f"tensor: {made.dtype} cannot require a gradient; dtype='float32' makes it floats")
    return _made(made, requires_grad)


def _plain(data: Any) -> Any:
    """Nested lists with numbers in place of tensors of one element, and arrays in place of larger ones."""
    if isinstance(data, (list, tuple)):
        return [_plain(each) for each in data]
    return (data.item() if data.ndim == 0 else data.numpy()) if isinstance(data, (Tensor, nd.NDArray)) else data


def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The tensor itself where it fits; a NumPy array's memory shared; else a copy, as `tensor` makes it."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray) and dtype is None and device is None:
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array, in its dtype; what is written to one is seen in the other."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected a NumPy array, got {type(array).__name__}")
    return _made(nd.from_numpy(array), False)


# ---- Ranges and constants ---------------------------------------------------------------------------------


def _size(size: Any) -> Any:
    return (size,) if hasattr(size, "__index__") else tuple(size)


def arange(
    start: Any, stop: Any = None, step: Any = 1, *, end: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, ... before stop; int64 for ints, else the default float.

    >>> arange(3).tolist(), arange(1, 2, 0.5).tolist()
    ([0, 1, 2], [1.0, 1.5])
    """
    stop = end if stop is None else stop
    whole = all(isinstance(n, (int, np.integer)) for n in (start, stop or 0, step))
    kind = dtype if dtype is not None else "int64" if whole else get_default_dtype()
    return _made(nd.arange(start, stop, step, dtype=kind, device=device), requires_grad)


def linspace(
    start: float, stop: Any = None, steps: Any = None, *, end: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` evenly spaced numbers from start to stop, both included."""
    stop = end if stop is None else stop
    if stop is None or steps is None:
        raise TypeError("linspace: expected start, stop and the number of steps")
    return _made(nd.linspace(start, stop, steps, dtype=dtype or get_default_dtype(), device=device), requires_grad)


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A number everywhere; its type gives the dtype: bool, int64, or the default float."""
    value = fill_value.item() if hasattr(fill_value, "item") else fill_value
    kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else get_default_dtype()
    return _made(nd.full(_size(size), value, kind if dtype is None else dtype, device), requires_grad)


def full_like(
    x: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A number everywhere, in the shape, dtype and device of a tensor unless others are given."""
    where = x.device if device is None else device
    return _made(nd.full(x.shape, fill_value, x.dtype if dtype is None else dtype, where), requires_grad)


def empty(*shape: Any, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Uninitialised."""
    shape = given_shape("empty", shape, size)
    return _made(
        nd.empty(_size(shape[0] if len(shape) == 1 else shape), dtype or get_default_dtype(), device), requires_grad
    )


def empty_like(x: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Uninitialised, in the shape, dtype and device of a tensor unless others are given."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def eye(
    n: int, m: int | None = None, *, k: int = 0, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """n rows and m columns, 1 on the k-th diagonal, 0 elsewhere."""
    return _made(nd.eye(n, m, k=k, dtype=dtype or get_default_dtype(), device=device), requires_grad)


# ---- PyTorch's old constructors ---------------------------------------------------------------------------


def _of(name: str, dtype: str) -> Any:
    def make(*data: Any) -> Tensor:
        if data and all(isinstance(n, (int, np.integer)) for n in data):
            return _made(nd.empty(data, dtype), False)
        return tensor(*data, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A tensor of {dtype} from lists or an array, or an uninitialised one from sizes."
    return make


FloatTensor = _of("FloatTensor", "float32")
DoubleTensor = _of("DoubleTensor", "float64")
LongTensor = _of("LongTensor", "int64")
IntTensor = _of("IntTensor", "int32")
ByteTensor = _of("ByteTensor", "uint8")
BoolTensor = _of("BoolTensor", "bool")
