"""Tensors that move to another device and stay the objects they are: what `to` of modules and optimizers does."""

from collections.abc import Iterable
from typing import Any

from needle import Tensor


def move_tensors(tensors: Iterable[Tensor], device: Any) -> None:
    """Move tensors and their gradients."""
    for tensor in tensors:
        tensor.cached_data = tensor.realize_cached_data().to(device)
        if tensor.grad is not None:
            tensor.grad = tensor.grad.detach().to(device)
