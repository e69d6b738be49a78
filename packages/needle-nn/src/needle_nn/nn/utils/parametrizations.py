"""A weight as a function of other parameters: of a length and a direction, or divided by its largest singular value.

>>> from needle import nn
>>> [name for name, _ in weight_norm(nn.Linear(3, 2)).named_parameters()]
['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
>>> import numpy as np
>>> layer = spectral_norm(nn.Linear(4, 4), n_power_iterations=30)
>>> round(float(np.linalg.svd(layer.weight.numpy())[1][0]), 4)
1.0
"""

from typing import Any

import needle_ndarray as nd
from needle import Tensor, init, ops
from needle_nn.nn.conv import ConvTranspose1d, ConvTranspose2d
from needle_nn.nn.module import Module, check_sizes
from needle_nn.nn.utils.parametrize import register_parametrization

__all__ = ["spectral_norm", "weight_norm"]


def _outputs(what: str, module: Module, name: str, dim: int | None) -> int:
    """The axis of a weight that PyTorch calls `dim`, by default that of the outputs."""
    weight = getattr(module, name)
    turned = isinstance(module, (ConvTranspose1d, ConvTranspose2d))
    usual = 1 if turned and what == "spectral_norm" else 0
    if module.as_torch or type(module).__name__.startswith("Embedding"):
        return (usual if dim is None else dim) % weight.ndim
    if dim not in (None, usual):
        raise ValueError(
            f"{what}: dim {dim}: expected {usual}, the outputs; WeightNorm(module, axis=...) takes any axis"
        )
    return weight.ndim - (2 if usual else 1)


class _Length(Module):
    """g v / |v|, one length for each entry of an axis, or for all together"""

    def __init__(self, axis: int | None, ndim: int) -> None:
        super().__init__()
        self.axes, self.each = tuple([i for i in range(ndim) if i != axis]), axis is not None

    def _norm(self, v: Tensor) -> Tensor:
        return ops.sqrt((v * v).sum(self.axes, keepdims=self.each))

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / self._norm(direction))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self._norm(weight), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """W = g v / |v|: a layer's weight as a length for each output and a direction; returns the layer.

    Parameters
    ----------
    module, name : the layer, and its weight
    dim : PyTorch's axis of what has a length, 0 the outputs (in Needle's weights the last axis); None: one length for all
    """
    axis = None if dim is None else _outputs("weight_norm", module, name, dim)
    return register_parametrization(module, name, _Length(axis, getattr(module, name).ndim), unsafe=True)


class _Spectrum(Module):
    """W / s, s = u^T W v near the largest singular value; in training each call brings u and v nearer to its vectors."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, axis: int, iterations: int, eps: float) -> None:
        super().__init__()
        self.axis, self.n_power_iterations, self.eps = axis, iterations, eps
        if weight.ndim < 2:
            return
        matrix = self._matrix(weight.detach())
        for name, n in zip(("_u", "_v"), matrix.shape, strict=True):
            drawn = init.randn(n, device=weight.device, dtype=weight.dtype)
            self.register_buffer(name, Tensor.make_const(self._unit(drawn.realize_cached_data())))
        self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        """(outputs, all else)"""
        order = [self.axis, *[i for i in range(weight.ndim) if i != self.axis]]
        return weight.permute(order).reshape((weight.shape[self.axis], -1))

    def _unit(self, x: Any) -> Any:
        return x / nd.maximum((x * x).sum().sqrt(), self.eps)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        w, u, v = (x.realize_cached_data() for x in (matrix, self._u, self._v))
        for _ in range(times):
            u[...] = self._unit(w @ v)
            v[...] = self._unit(u @ w)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim < 2:
            return weight / ops.maximum(ops.sqrt((weight * weight).sum()), self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        u, v = (Tensor.make_const(x.realize_cached_data().copy()) for x in (self._u, self._v))
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """W / s, s the largest singular value of a layer's weight as a matrix of outputs and all else; returns the layer.

    Parameters
    ----------
    module, name : the layer, and its weight
    n_power_iterations : how often each forward in training brings the estimate of s nearer
    eps : least norm of a vector
    dim : PyTorch's axis of the outputs
    """
    check_sizes(module, n_power_iterations=n_power_iterations)
    axis = _outputs("spectral_norm", module, name, dim)
    return register_parametrization(module, name, _Spectrum(getattr(module, name), axis, n_power_iterations, eps))
