"""Tensors that change device or dtype and stay the objects they are: what `to` of modules and optimizers does."""

from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_nn.checks import shown

_DEVICES = {"cpu": nd.cpu, "cuda": nd.cuda, "cpu_numpy": nd.cpu_numpy}


def move_tensors(tensors: Iterable[Tensor], device: Any) -> None:
    """Move tensors and their gradients."""
    for tensor in tensors:
        tensor.cached_data = tensor.realize_cached_data().to(device)
        if tensor.grad is not None:
            tensor.grad = tensor.grad.detach().to(device)


def cast_tensors(tensors: Iterable[Tensor], dtype: Any) -> None:
    """Those of floats, and their gradients, as another float dtype."""
    for tensor in tensors:
        if tensor.dtype.is_float:
            grad = tensor.grad
            tensor.cached_data = tensor.realize_cached_data().astype(dtype)
            tensor.grad = None if grad is None else grad.detach().astype(dtype)


def destination(what: str, where: tuple[Any, ...], device: Any, dtype: Any) -> tuple[Any, Any]:
    """(device or None, dtype or None) of what `to` was given: a device, a dtype, both, or a Tensor that has them."""
    for given in where:
        if isinstance(given, Tensor):
            device, dtype = given.device, given.dtype
        elif isinstance(given, str) and given.partition(":")[0] in _DEVICES:
            device = _DEVICES[given.partition(":")[0]]()
        elif hasattr(given, "randn"):  # devices can draw, dtypes cannot
            device = given
        elif not isinstance(given, bool):  # PyTorch's non_blocking
            dtype = given
    if dtype is not None:
        try:
            made = nd.dtype(dtype)
        except (TypeError, ValueError):
            raise TypeError(f"{what}.to: {shown(dtype)}: expected a device, as needle.cpu(), or a dtype") from None
        if not made.is_float:
            raise TypeError(f"{what}.to: dtype {made}: expected float32 or float64, float16 or bfloat16")
        dtype = made
    return device, dtype
