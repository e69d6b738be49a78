"""Losses: a number to make small, from predictions and targets.

>>> import needle as ndl
>>> prediction, target = ndl.Tensor([0.0, 3.0]), ndl.Tensor([1.0, 1.0])
>>> [loss(prediction, target).item() for loss in (MSELoss(), L1Loss(), HuberLoss())]
[2.5, 1.5, 1.0]
>>> round(SoftmaxLoss()(ndl.Tensor([[0.0, 0.0]]), ndl.Tensor([1])).item(), 4)
0.6931
"""

import math

import numpy as np

import needle_ndarray as nd
from needle import Tensor, ops
from needle_nn.nn.module import Module


class SoftmaxLoss(Module):
    """mean of log sum e^logits - logits[label]: logits (..., C), integer labels (...)

    Parameters
    ----------
    ignore_index : labels of this number count nothing; the mean is over the others
    label_smoothing : the part of the weight that is spread evenly over all classes
    """

    ignore_index = None
    label_smoothing = 0.0

    def __init__(self, *, ignore_index=None, label_smoothing=0.0):
        super().__init__()
        if ignore_index is not None:
            self.ignore_index = ignore_index
        if label_smoothing:
            self.label_smoothing = label_smoothing

    def forward(self, logits, y):
        if self.ignore_index is None and not self.label_smoothing:
            return ops.cross_entropy(logits, y)
        return ops.cross_entropy(logits, y, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing)

    def count_targets(self, y):
        """How many labels the mean is over."""
        if self.ignore_index is None:
            return math.prod(y.shape)
        labels = y.realize_cached_data() if isinstance(y, Tensor) else nd.NDArray(np.asarray(y))
        return int((labels != self.ignore_index).sum().item())


class _Elementwise(Module):
    """The mean ("mean"), sum ("sum") or all ("none") of a loss of every element."""

    def __init__(self, reduction="mean"):
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{type(self).__name__}: reduction {reduction!r}: expected 'mean', 'sum' or 'none'")
        self.reduction = reduction

    def forward(self, prediction, target):
        if prediction.shape != target.shape:
            raise ValueError(
                f"{type(self).__name__}: prediction has shape {prediction.shape}, the target {target.shape}"
            )
        if self.reduction == "mean":
            return self.mean(prediction, target)
        losses = self.losses(prediction, target)
        return losses if self.reduction == "none" else losses.sum()

    def mean(self, prediction, target):
        return self.losses(prediction, target).mean()

    def losses(self, prediction, target):
        raise NotImplementedError(f"{type(self).__name__}.losses")


class MSELoss(_Elementwise):
    """(prediction - target)^2"""

    def losses(self, prediction, target):
        apart = prediction - target
        return apart * apart

    def mean(self, prediction, target):
        return ops.mean_squared_error(prediction, target)


class L1Loss(_Elementwise):
    """|prediction - target|"""

    def losses(self, prediction, target):
        return ops.abs(prediction - target)


class HuberLoss(_Elementwise):
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); d = prediction - target"""

    def __init__(self, delta=1.0, reduction="mean"):
        super().__init__(reduction)
        if not delta > 0:
            raise ValueError(f"HuberLoss: delta {delta}: expected a number above 0")
        self.delta = delta

    def losses(self, prediction, target):
        apart = ops.abs(prediction - target)
        near = ops.minimum(apart, self.delta)
        return near * (apart - near * 0.5)


class BCEWithLogitsLoss(_Elementwise):
    """-target log s - (1 - target) log(1 - s), s = sigmoid(logit), as max(x, 0) - x target + log(1 + e^-|x|): never overflows"""

    def losses(self, logits, target):
        return ops.maximum(logits, 0.0) - logits * target + ops.log1p(ops.exp(-ops.abs(logits)))
