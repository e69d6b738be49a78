"""Losses of classes, with PyTorch's meaning: classes lie along axis 1, and labels of `ignore_index` count nothing.

>>> import needle as ndl
>>> logits = ndl.zeros(2, 4, 3)  # 4 classes at 3 places of 2 examples
>>> round(CrossEntropyLoss()(logits, ndl.Tensor([[0, 1, 2], [3, -100, -100]])).item(), 4)
1.3863
"""

import math

import numpy as np

from needle import Tensor, ops
from needle.ops.helpers import index_of
from needle_nn.nn.losses import Reduced


def _classes_last(x):
    """(N, C, d1, ...) -> (N, d1, ..., C)"""
    return x if x.ndim < 3 else x.permute((0, *range(2, x.ndim), 1))


class NLLLoss(Reduced):
    """-w[label] x[label], x the logarithm of the predicted probabilities: (N, C, d1, ...), integer labels (N, d1, ...)

    Parameters
    ----------
    weight : of every class; a mean is divided by the sum of the weights of the labels
    ignore_index : labels of this number count nothing
    """

    weight = None

    def __init__(self, weight: Tensor | None = None, ignore_index: int | None = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        if weight is not None:
            self.weight = weight
        self.ignore_index = ignore_index

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = _classes_last(x)
        losses, counted = self._weighted(x, index_of(x, target))
        return self._mean(losses, counted)

    def _weighted(self, x, labels):
        """w[label] -x[label], 0 where the label is ignored, and what each counts."""
        kept = ops.not_equal(labels, self.ignore_index)
        labels = ops.where(kept, labels, 0)
        # -x[label], and an error for a label that is no class: (log sum e^x - x[label]) - log sum e^x
        losses = ops.cross_entropy(x, labels, "none") - ops.logsumexp(x, -1)
        counted = kept.astype(losses.dtype)
        if self.weight is not None:
            counted = counted * ops.take(self.weight, labels, 0)
        return ops.where(kept, losses, 0.0) * counted, counted

    def _mean(self, losses, counted):
        if self.reduction == "mean":
            return losses.sum() / counted.sum()
        return self.reduced(losses)

    def count_targets(self, target: Tensor) -> float:
        """What the mean is divided by: how many labels count, or the sum of their weights."""
        labels = target.numpy() if isinstance(target, Tensor) else np.asarray(target)
        kept = labels[labels != self.ignore_index]
        return int(kept.size) if self.weight is None else float(self.weight.numpy()[kept.astype(np.int64)].sum())


class CrossEntropyLoss(NLLLoss):
    """log sum e^logits - logits[label]: (N, C, d1, ...), integer labels (N, d1, ...) or probabilities (N, C, d1, ...)

    Parameters
    ----------
    weight : of every class; a mean is divided by the sum of the weights of the labels
    ignore_index : labels of this number count nothing
    reduction : "mean", "sum" or "none"
    label_smoothing : the part of the weight that is spread evenly over all classes

    >>> import needle as ndl
    >>> loss = CrossEntropyLoss(weight=ndl.Tensor([1.0, 3.0], requires_grad=False))
    >>> loss(ndl.Tensor([[0.0, 0.0], [8.0, 0.0]]), ndl.Tensor([1, 0])).item() < math.log(2)
    True
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"CrossEntropyLoss: label_smoothing {label_smoothing}: expected a number from 0 to 1")
        self.label_smoothing = label_smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        logits, smooth = _classes_last(logits), self.label_smoothing
        if isinstance(target, Tensor) and target.dtype.is_float and target.ndim == logits.ndim > 1:
            return self._of_probabilities(logits, _classes_last(target))
        labels = index_of(logits, target)
        if self.weight is None:
            losses = ops.cross_entropy(logits, labels, "none", self.ignore_index, smooth)
            if self.reduction != "mean":
                return self.reduced(losses)
            return losses.sum() / ops.not_equal(labels, self.ignore_index).astype(losses.dtype).sum()
        log_p = ops.logsoftmax(logits, -1)
        losses, counted = self._weighted(log_p, labels)
        if smooth:
            even = ops.where(counted > 0, -(log_p * self.weight).sum(-1), 0.0)
            losses = losses * (1 - smooth) + even * (smooth / logits.shape[-1])
        return self._mean(losses, counted)

    def _of_probabilities(self, logits, target):
        if target.shape != logits.shape:
            raise ValueError(f"CrossEntropyLoss: probabilities {target.shape} do not fit logits {logits.shape}")
        smooth, log_p = self.label_smoothing, ops.logsoftmax(logits, -1)
        if smooth:
            target = target * (1 - smooth) + smooth / logits.shape[-1]
        losses = -(target * (log_p if self.weight is None else log_p * self.weight)).sum(-1)
        return self.reduced(losses)

    def count_targets(self, target: Tensor) -> float:
        """What the mean is divided by; of probabilities, how many there are."""
        if isinstance(target, Tensor) and target.dtype.is_float:
            return math.prod(_classes_last(target).shape[:-1])
        return super().count_targets(target)
