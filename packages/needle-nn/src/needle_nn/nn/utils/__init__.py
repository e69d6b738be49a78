"""Helpers around modules, with PyTorch's names: clipping, parameters as one vector, parametrizations, sequences.

>>> from needle import nn
>>> vector = parameters_to_vector(nn.Linear(2, 3).parameters())
>>> vector.shape
(9,)
"""

import math
from collections.abc import Iterable
from typing import Any

from needle import Tensor, ops
from needle_nn.nn.utils import parametrizations, parametrize, rnn
from needle_nn.nn.utils.parametrizations import spectral_norm, weight_norm
from needle_nn.optim.clipping import clip_grad_norm_, clip_grad_value_

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm",
    "remove_weight_norm", "rnn", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """The layer with its weight as a Parameter again, after `weight_norm`."""
    return parametrize.remove_parametrizations(module, name)


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """The layer with its weight as a Parameter again, after `spectral_norm`."""
    return parametrize.remove_parametrizations(module, name)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters one after the other: (n,)."""
    listed = [p.reshape(-1) for p in parameters]
    if not listed:
        raise ValueError("parameters_to_vector: no parameters given")
    return ops.concatenate(listed, 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write a vector into parameters, the inverse of `parameters_to_vector`."""
    listed = list(parameters)
    total = sum(math.prod(p.shape) for p in listed)
    if vec.shape != (total,):
        raise ValueError(f"vector_to_parameters: the vector has shape {vec.shape}, the parameters {total} numbers")
    data, at = vec.realize_cached_data(), 0
    for p in listed:
        n = math.prod(p.shape)
        p.realize_cached_data()[...] = data[at : at + n].reshape(p.shape)
        at += n
