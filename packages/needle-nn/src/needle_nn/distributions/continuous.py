"""Densities over real numbers.

>>> import needle as ndl
>>> loc = ndl.Tensor([0.0, 2.0])
>>> [round(x, 4) for x in Normal(loc, 1.0).log_prob(ndl.Tensor([0.0, 0.0])).tolist()]
[-0.9189, -2.9189]
"""

import math
from typing import Any

from needle import Tensor, init, ops
from needle_nn.distributions.base import Distribution, as_value, broadcast, check_positive


class _LocationScale(Distribution):
    """x = loc + scale e, e drawn from a distribution without parameters."""

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        what = type(self).__name__
        self.loc, self.scale = broadcast(what, loc, scale)
        check_positive(what, "scale", self.scale)
        self.batch_shape = self.loc.shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        made = {"device": self.loc.device, "dtype": self.loc.dtype}
        return self.loc + self.scale * self._noise(self._shape(sample_shape), made)

    def _noise(self, shape: tuple[int, ...], made: dict[str, Any]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._noise")

    def _scaled(self, value: Any) -> Tensor:
        return (as_value(value, self.loc) - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        return self.loc


class Normal(_LocationScale):
    """p(x) = e^(-z^2 / 2) / (scale sqrt(2 pi)), z = (x - loc) / scale"""

    def _noise(self, shape: tuple[int, ...], made: dict[str, Any]) -> Tensor:
        return init.randn(*shape, **made)

    def log_prob(self, value: Any) -> Tensor:
        z = self._scaled(value)
        return z * z * -0.5 - ops.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Any) -> Tensor:
        """The probability of less than a value."""
        return (ops.erf(self._scaled(value) / math.sqrt(2)) + 1) * 0.5

    def entropy(self) -> Tensor:
        return ops.log(self.scale) + 0.5 * (1 + math.log(2 * math.pi))

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale


class Laplace(_LocationScale):
    """p(x) = e^-|z| / (2 scale), z = (x - loc) / scale"""

    def _noise(self, shape: tuple[int, ...], made: dict[str, Any]) -> Tensor:
        u = init.rand(*shape, low=-0.5, high=0.5, **made)
        return -ops.sign(u) * ops.log1p(ops.maximum(ops.abs(u) * -2.0, -1 + 1e-7))

    def log_prob(self, value: Any) -> Tensor:
        return -ops.abs(self._scaled(value)) - ops.log(self.scale * 2)

    def entropy(self) -> Tensor:
        return ops.log(self.scale * 2) + 1

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale * 2


class Uniform(Distribution):
    """p(x) = 1 / (high - low) for low <= x < high, else 0"""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        self.low, self.high = broadcast("Uniform", low, high)
        check_positive("Uniform", "high - low", (self.high - self.low).detach())
        self.batch_shape = self.low.shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = init.rand(*self._shape(sample_shape), device=self.low.device, dtype=self.low.dtype)
        return self.low + (self.high - self.low) * u

    def log_prob(self, value: Any) -> Tensor:
        x = as_value(value, self.low)
        inside = ops.logical_and(x >= self.low, x < self.high)
        return ops.where(inside, -ops.log(self.high - self.low), -math.inf)

    def entropy(self) -> Tensor:
        return ops.log(self.high - self.low)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) * 0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12


class Exponential(Distribution):
    """p(x) = rate e^(-rate x) for x >= 0, else 0"""

    has_rsample = True

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = broadcast("Exponential", rate)
        check_positive("Exponential", "rate", self.rate)
        self.batch_shape = self.rate.shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = init.rand(*self._shape(sample_shape), device=self.rate.device, dtype=self.rate.dtype)
        return -ops.log1p(-u) / self.rate

    def log_prob(self, value: Any) -> Tensor:
        x = as_value(value, self.rate)
        return ops.where(x >= 0, ops.log(self.rate) - self.rate * x, -math.inf)

    def entropy(self) -> Tensor:
        return 1 - ops.log(self.rate)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return self.mean * self.mean
