"""Normal numbers that depend on each other, and the factors of their covariances.

>>> import needle as ndl
>>> normal = MultivariateNormal(ndl.zeros(2), ndl.tensor([[4.0, 2.0], [2.0, 5.0]]))
>>> normal.scale_tril.tolist(), round(normal.log_prob(ndl.zeros(2)).item(), 4)
([[2.0, 0.0], [1.0, 2.0]], -3.2242)
"""

import math
from typing import Any

import numpy as np

from needle import Tensor, init, ops
from needle_nn.distributions.base import Distribution, as_value, broadcast


def cholesky(a: Tensor) -> Tensor:
    """L with L L^T = a, its diagonal positive: (..., n, n), column by column, so that derivatives of every order are there."""
    n = a.shape[-1]
    columns: list[Tensor] = []
    for j in range(n):
        column = a[..., j:, j]
        if j:
            before = ops.stack([c[..., j - i :] for i, c in enumerate(columns)], -1)  # (..., n - j, j)
            column = column - (before * before[..., :1, :]).sum(-1)
        pivot = column[..., :1]
        if not bool((pivot.numpy() > 0).all()):
            raise ValueError(
                f"cholesky: the matrix is not positive definite: pivot {j} is {float(pivot.numpy().min()):g}"
            )
        columns.append(column / ops.sqrt(pivot))
    lead = ((0, 0),) * (a.ndim - 2)
    return ops.stack([ops.pad(c, (*lead, (j, 0))) for j, c in enumerate(columns)], -1)


def solve_lower(lower: Tensor, b: Tensor) -> Tensor:
    """x with lower x = b, for lower triangular matrices (..., n, n) and b (..., n, m), row by row."""
    rows: list[Tensor] = []
    for i in range(lower.shape[-1]):
        row = b[..., i, :]
        if rows:
            row = row - (ops.expand_dims(lower[..., i, :i], -1) * ops.stack(rows, -2)).sum(-2)
        rows.append(row / lower[..., i, i : i + 1])
    return ops.stack(rows, -2)


def _eye(n: int, like: Tensor) -> Tensor:
    return Tensor(np.eye(n), device=like.device, dtype=like.dtype, requires_grad=False)


class MultivariateNormal(Distribution):
    """p(x) = e^(-|z|^2 / 2) / ((2 pi)^(n/2) |L|), z = L^-1 (x - loc), covariance L L^T

    Parameters
    ----------
    loc : (..., n)
    covariance_matrix, precision_matrix, scale_tril : one of them: L L^T, its inverse, or L, which is lower triangular: (..., n, n)
    """

    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: Any = None,
    ) -> None:
        what = type(self).__name__
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError(
                f"{what}: expected one of covariance_matrix, precision_matrix and scale_tril, got {len(given)}"
            )
        (loc,), (matrix,) = broadcast(what, loc), broadcast(what, given[0])
        if loc.ndim < 1 or matrix.ndim < 2 or matrix.shape[-2:] != (loc.shape[-1],) * 2:
            raise ValueError(f"{what}: loc {loc.shape} and a matrix {matrix.shape}: expected (..., n) and (..., n, n)")
        if scale_tril is not None:
            lower = matrix
        elif covariance_matrix is not None:
            lower = cholesky(matrix)
        else:  # a Cholesky factor from below: of P = R^T R with R = L^-1
            turned = ops.transpose(ops.flip(cholesky(ops.flip(matrix, (-2, -1))), (-2, -1)))
            lower = solve_lower(turned, _eye(loc.shape[-1], matrix))
        n = loc.shape[-1]
        self.batch_shape = np.broadcast_shapes(loc.shape[:-1], lower.shape[:-2])
        self.event_shape = (n,)
        self.loc = ops.broadcast_to(loc, (*self.batch_shape, n))
        self.scale_tril = ops.broadcast_to(lower, (*self.batch_shape, n, n))

    @property
    def covariance_matrix(self) -> Tensor:
        return self.scale_tril @ ops.transpose(self.scale_tril)

    @property
    def precision_matrix(self) -> Tensor:
        inverse = solve_lower(
            self.scale_tril, ops.broadcast_to(_eye(self.event_shape[0], self.loc), self.scale_tril.shape)
        )
        return ops.transpose(inverse) @ inverse

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril * self.scale_tril).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = init.randn(*self._shape(sample_shape), device=self.loc.device, dtype=self.loc.dtype)
        return self.loc + (self.scale_tril * ops.expand_dims(drawn, -2)).sum(-1)

    def log_det_of_factor(self) -> Tensor:
        """log |L|"""
        n = self.event_shape[0]
        return ops.log((self.scale_tril * _eye(n, self.loc)).sum(-1)).sum(-1)

    def mahalanobis(self, value: Any) -> Tensor:
        """|z|^2, the squared distance of Mahalanobis"""
        off = as_value(value, self.loc) - self.loc
        lower = ops.broadcast_to(self.scale_tril, (*off.shape[:-1], *self.scale_tril.shape[-2:]))
        z = solve_lower(lower, ops.expand_dims(off, -1))
        return (z * z).sum((-2, -1))

    def log_prob(self, value: Any) -> Tensor:
        return (
            self.mahalanobis(value) * -0.5
            - self.log_det_of_factor()
            - 0.5 * self.event_shape[0] * math.log(2 * math.pi)
        )

    def entropy(self) -> Tensor:
        return self.log_det_of_factor() + 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))
