"""The same values in another dtype, on another device, or in other memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle.autograd import Tensor, TensorOp, array_api, constant
from needle.ops.helpers import cast
from needle.typing import DeviceLike, DTypeLike


class Astype(TensorOp):
    """y = x in another float dtype;  dx = dy in x's"""

    needs = ""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = array_api.dtype(dtype)

    def compute(self, x):
        return x.astype(self.dtype)

    def gradient(self, out_grad, node):
        return astype(out_grad, node.inputs[0].dtype)


class ToDevice(TensorOp):
    """y = x on another device;  dx = dy on x's"""

    needs = ""

    def __init__(self, device: DeviceLike) -> None:
        self.device = device

    def compute(self, x):
        return x.to(self.device)

    def gradient(self, out_grad, node):
        return to_device(out_grad, node.inputs[0].device)


class Clone(TensorOp):
    """y = a copy of x;  dx = dy"""

    needs = ""

    def compute(self, x):
        return x.copy()

    def gradient(self, out_grad, node):
        return out_grad


class Alias(TensorOp):
    """y = x, the same data as another node;  dx = dy"""

    needs = ""

    def compute(self, x):
        return x

    def gradient(self, out_grad, node):
        return out_grad


# ---- The functions --------------------------------------------------------------------------


def astype(a: Tensor, dtype: DTypeLike) -> Tensor:
    """a in another dtype: recorded between float dtypes, a constant otherwise."""
    if array_api.dtype(dtype) == a.dtype:
        return a
    if array_api.dtype(dtype).is_float and a.dtype.is_float:
        return Astype(dtype)(a)
    return constant(cast, a, dtype=dtype)


def to(a: Tensor, *where: Any, device: DeviceLike = None, dtype: DTypeLike | None = None, copy: bool = False) -> Tensor:
    """On a device, in a dtype, or as another tensor is: `to(a, device)`, `to(a, dtype)`, `to(a, device, dtype)`, `to(a, other)`."""
    for given in where:
        if isinstance(given, Tensor):
            device, dtype = given.device, given.dtype
        elif isinstance(given, (array_api.DType, np.dtype, type)) or _names_dtype(given):
            dtype = given
        elif given is not None and not isinstance(given, bool):  # non_blocking and copy are PyTorch's
            device = given
    made = to_device(a, None if device is None else array_api.device(device))
    made = made if dtype is None else astype(made, dtype)
    return Clone()(made) if copy and made is a else made


def _names_dtype(given):
    kind = {"float": float, "int": int}.get(given, getattr(np, given, None)) if isinstance(given, str) else None
    return isinstance(kind, type) and issubclass(kind, (np.generic, float, int))


def to_device(a: Tensor, device: DeviceLike) -> Tensor:
    """a on another device; a itself where it is there already."""
    if isinstance(device, (array_api.DType, np.dtype, type)) or _names_dtype(device):
        raise TypeError(f"to: {device!r} is a dtype; x.astype(dtype) converts, x.to(device) moves")
    return a if device is None or a.device == device else ToDevice(device)(a)


def clone(a: Tensor) -> Tensor:
    """A copy with a memory of its own."""
    return Clone()(a)
