"""The divergence of Kullback and Leibler: the mean of log p(x) - log q(x) for x drawn from p.

>>> from needle.distributions import Normal
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

from collections.abc import Callable
from typing import Any

from needle import Tensor, ops
from needle_nn.distributions.base import Distribution
from needle_nn.distributions.continuous import Exponential, Normal
from needle_nn.distributions.discrete import Bernoulli, Categorical, Independent
from needle_nn.distributions.multivariate import MultivariateNormal, solve_lower
from needle_nn.nn.functional.activations import softplus


def _normal(p: Normal, q: Normal) -> Tensor:
    ratio, difference = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return (ratio * ratio + difference * difference - 1) * 0.5 - ops.log(ratio)


def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    return p.probs * (p.logits - q.logits) - softplus(p.logits) + softplus(q.logits)


def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return (p.probs * (p.logits - q.logits)).sum(-1)


def _exponential(p: Exponential, q: Exponential) -> Tensor:
    return ops.log(p.rate / q.rate) + q.rate / p.rate - 1


def _independent(p: Independent, q: Independent) -> Tensor:
    found = kl_divergence(p.base, q.base)
    return found.sum(p.axes) if p.axes else found


def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    ratio = solve_lower(q.scale_tril, p.scale_tril)
    distance = q.mahalanobis(p.loc) + (ratio * ratio).sum((-2, -1))
    return q.log_det_of_factor() - p.log_det_of_factor() + (distance - p.event_shape[0]) * 0.5


_KINDS: dict[type, Callable[[Any, Any], Tensor]] = {
    Normal: _normal,
    Bernoulli: _bernoulli,
    Categorical: _categorical,
    Exponential: _exponential,
    Independent: _independent,
    MultivariateNormal: _multivariate,
}


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The divergence of q from p, two distributions of one kind."""
    if type(p) is not type(q) or type(p) not in _KINDS:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise NotImplementedError(
            f"kl_divergence: {type(p).__name__} and {type(q).__name__}: expected two of one kind: {known}"
        )
    return _KINDS[type(p)](p, q)
