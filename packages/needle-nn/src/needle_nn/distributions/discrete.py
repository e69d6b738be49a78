"""Probabilities of classes, by themselves or by logits.

>>> import needle as ndl
>>> choice = Categorical(logits=ndl.Tensor([0.0, 0.0, -1e4]))
>>> sorted(set(choice.sample((50,)).tolist())), round(choice.entropy().item(), 4)
([0, 1], 0.6931)
"""

from typing import Any

import numpy as np

from needle import Tensor, init, ops
from needle.ops.helpers import index_of
from needle_nn.distributions.base import Distribution, as_value, broadcast
from needle_nn.nn.functional.activations import softplus


def _one_of(what: str, probs: Any, logits: Any) -> Any:
    if (probs is None) == (logits is None):
        raise ValueError(f"{what}: expected either probs or logits")
    (made,) = broadcast(what, logits if probs is None else probs)
    if probs is not None:
        values = made.numpy()
        if not ((values >= 0) & (values <= (1 if what == "Bernoulli" else np.inf))).all():
            raise ValueError(f"{what}: probs from {values.min()} to {values.max()}: expected probabilities")
    return made


class Bernoulli(Distribution):
    """p(1) = probs = 1 / (1 + e^-logits), p(0) = 1 - probs"""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        made = _one_of("Bernoulli", probs, logits)
        if probs is None:
            self.logits, self.probs = made, ops.sigmoid(made)
        else:
            self.probs = made
            p = ops.clip(made, 1e-7, 1 - 1e-7)
            self.logits = ops.log(p) - ops.log1p(-p)
        self.batch_shape = made.shape

    def sample(self, sample_shape: Any = ()) -> Tensor:
        u = init.rand(*self._shape(sample_shape), device=self.probs.device, dtype=self.probs.dtype)
        return (u < self.probs).astype(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        return as_value(value, self.logits) * self.logits - softplus(self.logits)

    def entropy(self) -> Tensor:
        return softplus(self.logits) - self.probs * self.logits

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Categorical(Distribution):
    """p(i) = probs_i / sum probs = e^logits_i / sum e^logits, over the last axis: a sample is an int64"""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        made = _one_of("Categorical", probs, logits)
        if made.ndim == 0:
            raise ValueError("Categorical: expected probabilities along an axis, got one number")
        if probs is None:
            self.logits = ops.logsoftmax(made, -1)
            self.probs = ops.exp(self.logits)
        else:
            self.probs = made / made.sum(-1, keepdims=True)
            self.logits = ops.log(ops.maximum(self.probs, float(np.finfo(str(made.dtype)).tiny)))
        self.batch_shape = made.shape[:-1]

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        steps = np.cumsum(self.probs.numpy().astype("float64"), -1)
        u = init.rand(*shape, dtype="float64").numpy() * steps[..., -1]
        found = (steps <= u[..., None]).sum(-1)  # steps of width 0 are never stopped at
        return Tensor(found.astype("int64"), device=self.probs.device, requires_grad=False)

    def log_prob(self, value: Any) -> Tensor:
        labels = index_of(self.logits, value)
        shape = np.broadcast_shapes(labels.shape, self.batch_shape)
        labels = labels if labels.shape == shape else ops.broadcast_to(labels, shape)
        logits = ops.broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        return ops.logsumexp(logits, -1) - ops.cross_entropy(logits, labels, "none")

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits).sum(-1)


class Independent(Distribution):
    """A distribution whose last batch axes belong to one sample: log_prob is summed over them."""

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: Any = None
    ) -> None:
        batch, n = base_distribution.batch_shape, reinterpreted_batch_ndims
        if not 0 <= n <= len(batch):
            raise ValueError(f"Independent: {n} of the axes {batch}: there are {len(batch)}")
        self.base, self.axes = base_distribution, tuple(range(-n, 0))
        self.batch_shape = batch[: len(batch) - n]
        self.event_shape = batch[len(batch) - n :] + base_distribution.event_shape
        self.has_rsample = base_distribution.has_rsample

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base.rsample(sample_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base.sample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        found = self.base.log_prob(value)
        return found.sum(self.axes) if self.axes else found

    def entropy(self) -> Tensor:
        found = self.base.entropy()
        return found.sum(self.axes) if self.axes else found

    @property
    def mean(self) -> Tensor:
        return self.base.mean

    @property
    def variance(self) -> Tensor:
        return self.base.variance
