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
from needle_nn.nn.functional.activations import softplus
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

    def __init__(self, *, ignore_index: int | None = None, label_smoothing: float = 0.0) -> None:
        super().__init__()
        if ignore_index is not None:
            self.ignore_index = ignore_index
        if label_smoothing:
            self.label_smoothing = label_smoothing

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.ignore_index is None and not self.label_smoothing:
            return ops.cross_entropy(logits, y)
        return ops.cross_entropy(logits, y, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing)

    def count_targets(self, y: Tensor) -> int:
        """How many labels the mean is over."""
        if self.ignore_index is None:
            return math.prod(y.shape)
        labels = y.realize_cached_data() if isinstance(y, Tensor) else nd.NDArray(np.asarray(y))
        return int((labels != self.ignore_index).sum().item())


class Reduced(Module):
    """The mean ("mean"), sum ("sum") or all ("none") of many losses."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{type(self).__name__}: reduction {reduction!r}: expected 'mean', 'sum' or 'none'")
        self.reduction = reduction

    def reduced(self, losses: Tensor) -> Tensor:
        return losses if self.reduction == "none" else losses.mean() if self.reduction == "mean" else losses.sum()


class _Elementwise(Reduced):
    """A loss of every element of a prediction and a target of the same shape."""

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        if prediction.shape != target.shape:
            raise ValueError(
                f"{type(self).__name__}: prediction has shape {prediction.shape}, the target {target.shape}"
            )
        if self.reduction == "mean":
            return self.mean(prediction, target)
        return self.reduced(self.losses(prediction, target))

    def mean(self, prediction, target):
        return self.losses(prediction, target).mean()

    def losses(self, prediction, target):
        raise NotImplementedError(f"{type(self).__name__}.losses")


class MSELoss(_Elementwise):
    """(prediction - target)^2"""

    def losses(self, prediction: Tensor, target: Tensor) -> Tensor:
        difference = prediction - target
        return difference * difference

    def mean(self, prediction: Tensor, target: Tensor) -> Tensor:
        return ops.mean_squared_error(prediction, target)


class L1Loss(_Elementwise):
    """|prediction - target|"""

    def losses(self, prediction: Tensor, target: Tensor) -> Tensor:
        return ops.abs(prediction - target)


class HuberLoss(_Elementwise):
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); d = prediction - target"""

    def __init__(self, delta: float = 1.0, reduction: str = "mean") -> None:
        if isinstance(delta, str):  # PyTorch's order
            delta, reduction = 1.0 if isinstance(reduction, str) else reduction, delta
        super().__init__(reduction)
        if not delta > 0:
            raise ValueError(f"HuberLoss: delta {delta}: expected a number above 0")
        self.delta = delta

    def losses(self, prediction: Tensor, target: Tensor) -> Tensor:
        difference = ops.abs(prediction - target)
        near = ops.minimum(difference, self.delta)
        return near * (difference - near * 0.5)


class SmoothL1Loss(_Elementwise):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; d = prediction - target"""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        if not beta >= 0:
            raise ValueError(f"SmoothL1Loss: beta {beta}: expected a number from 0 on")
        self.beta = beta

    def losses(self, prediction: Tensor, target: Tensor) -> Tensor:
        difference = ops.abs(prediction - target)
        if self.beta == 0:
            return difference
        near = ops.minimum(difference, self.beta)
        return near * (difference - near * 0.5) / self.beta


class BCEWithLogitsLoss(_Elementwise):
    """-target log s - (1 - target) log(1 - s), s = sigmoid(logit), as max(x, 0) - x target + log(1 + e^-|x|): never overflows

    Parameters
    ----------
    weight : of the losses, broadcast to them
    pos_weight : of the first part, for every class
    """

    weight = pos_weight = None

    def __init__(
        self, reduction: str = "mean", *, weight: Tensor | None = None, pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction)
        if weight is not None:
            self.weight = weight
        if pos_weight is not None:
            self.pos_weight = pos_weight

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        tail = ops.log1p(ops.exp(-ops.abs(logits)))
        if self.pos_weight is None:
            found = ops.maximum(logits, 0.0) - logits * target + tail
        else:  # -log s = max(-x, 0) + tail, with a weight of 1 + (pos_weight - 1) target
            found = (1 - target) * logits + ((self.pos_weight - 1) * target + 1) * (ops.maximum(-logits, 0.0) + tail)
        return found if self.weight is None else found * self.weight


class BCELoss(_Elementwise):
    """-target log p - (1 - target) log(1 - p) for probabilities p, logarithms no lower than -100"""

    weight = None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        if weight is not None:
            self.weight = weight

    def losses(self, p: float, target: Tensor) -> Tensor:
        found = -(target * _log(p) + (1 - target) * _log(1 - p))
        return found if self.weight is None else found * self.weight


def _log(x):
    """max(log x, -100), with derivative 0 where x is 0."""
    some = x > 0
    return ops.where(some, ops.clip(ops.log(ops.where(some, x, 1.0)), -100.0, None), -100.0)


class KLDivLoss(Module):
    """target (log target - x), x the logarithm of the predicted probabilities; 0 where target is 0

    Parameters
    ----------
    reduction : "mean", "sum", "none", or "batchmean", the sum divided by the size of the batch: the divergence itself
    log_target : targets are logarithms too
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__()
        if reduction not in ("mean", "batchmean", "sum", "none"):
            raise ValueError(f"KLDivLoss: reduction {reduction!r}: expected 'mean', 'batchmean', 'sum' or 'none'")
        self.reduction, self.log_target = reduction, log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        if self.log_target:
            losses = ops.exp(target) * (target - x)
        else:
            some = target > 0
            losses = ops.where(some, target * ops.log(ops.where(some, target, 1.0)), 0.0) - target * x
        if self.reduction == "none":
            return losses
        if self.reduction == "mean":
            return losses.mean()
        return losses.sum() / x.shape[0] if self.reduction == "batchmean" else losses.sum()


class SoftMarginLoss(_Elementwise):
    """log(1 + e^(-target x)), targets 1 and -1"""

    def losses(self, x: Tensor, target: Tensor) -> Tensor:
        return softplus(-target * x)


class PoissonNLLLoss(_Elementwise):
    """e^x - target x; x - target log(x + eps) without log_input; `full` adds Stirling's log target! for targets above 1"""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-08, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def losses(self, x: Tensor, target: Tensor) -> Tensor:
        losses = ops.exp(x) - target * x if self.log_input else x - target * ops.log(x + self.eps)
        if not self.full:
            return losses
        n = ops.where(target > 1, target, 1.0)
        return losses + ops.where(target > 1, n * ops.log(n) - n + ops.log(n * (2 * math.pi)) * 0.5, 0.0)


class GaussianNLLLoss(Reduced):
    """(log v + (x - target)^2 / v) / 2, v = max(var, eps); `full` adds log(2 pi) / 2"""

    def __init__(self, *, full: bool = False, eps: float = 1e-06, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, x: Tensor, target: Tensor, var: Tensor) -> Tensor:
        v = ops.maximum(var, self.eps)
        losses = (ops.log(v) + (x - target) * (x - target) / v) * 0.5
        return self.reduced(losses + math.log(2 * math.pi) / 2 if self.full else losses)
