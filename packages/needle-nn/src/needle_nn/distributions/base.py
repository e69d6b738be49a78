"""What distributions have in common: shapes, samples, and parameters that broadcast.

>>> from needle import distributions
>>> normal = distributions.Normal([0.0, 1.0], 2.0)
>>> normal.batch_shape, normal.sample((3,)).shape
((2,), (3, 2))
"""

from typing import Any

import numpy as np

from needle import Tensor, no_grad, ops
from needle_nn.checks import shown


class Distribution:
    """`batch_shape` is that of the parameters, `event_shape` that of one sample; `log_prob` gives a number for each sample.

    A subclass writes `log_prob`, `entropy`, and `rsample` where samples have a derivative by the parameters, else `sample`.
    Parameters are always checked: `validate_args` is PyTorch's, of no effect.
    """

    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()
    has_rsample = False

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self) -> Tensor:
        """sqrt variance"""
        return ops.sqrt(self.variance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples (*sample_shape, *batch_shape, *event_shape), with derivatives by the parameters."""
        raise NotImplementedError(
            f"{type(self).__name__}.rsample: its samples have no derivative; use sample and log_prob"
        )

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Samples (*sample_shape, *batch_shape, *event_shape), which are constants."""
        with no_grad():
            return self.rsample(sample_shape).detach()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or probability, at a value."""
        raise NotImplementedError(f"{type(self).__name__}.log_prob")

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError(f"{type(self).__name__}.entropy")

    def _shape(self, sample_shape: Any) -> tuple[int, ...]:
        """The shape of samples."""
        sizes = tuple(sample_shape) if isinstance(sample_shape, (tuple, list)) else (sample_shape,)
        for n in sizes:
            if not hasattr(type(n), "__index__") or n < 0:
                raise ValueError(f"{type(self).__name__}: sample_shape {shown(sample_shape)}: expected sizes from 0 on")
        return (*sizes, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


def broadcast(what: str, *values: Any) -> list[Tensor]:
    """Parameters as Tensors of floats of one shape."""
    first = next((v for v in values if isinstance(v, Tensor) and v.dtype.is_float), None)
    dtype, device = ("float32", None) if first is None else (first.dtype, first.device)
    made = []
    for value in values:
        if isinstance(value, Tensor):
            made.append(value if value.dtype.is_float else value.astype(dtype))
        else:
            made.append(Tensor(value, dtype=dtype, device=device, requires_grad=False))
    try:
        shape = np.broadcast_shapes(*[x.shape for x in made])
    except ValueError:
        raise ValueError(
            f"{what}: parameters of shapes {', '.join(str(x.shape) for x in made)} do not broadcast"
        ) from None
    return [x if x.shape == shape else ops.broadcast_to(x, shape) for x in made]


def check_positive(what: str, name: str, x: Tensor) -> None:
    """Raise unless all numbers are above 0."""
    if not bool((x.numpy() > 0).all()):
        raise ValueError(f"{what}: {name} is {shown(x.numpy().min())} somewhere: expected numbers above 0")


def as_value(value: Any, like: Tensor) -> Tensor:
    """What log_prob is asked of, in the dtype of the parameters."""
    if not isinstance(value, Tensor):
        return Tensor(value, dtype=like.dtype, device=like.device, requires_grad=False)
    return value if value.dtype.is_float else value.astype(like.dtype)
