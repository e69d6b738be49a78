"""Losses as functions: each makes the module of needle.nn that has the formula, and calls it.

>>> import needle as ndl
>>> round(cross_entropy(ndl.zeros(2, 4), ndl.Tensor([1, 3])).item(), 4)
1.3863
"""

from needle.autograd import Tensor
from needle_nn.nn import class_losses, losses, pair_losses

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
    "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """See `needle.nn.CrossEntropyLoss`."""
    return class_losses.CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing)(input, target)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """See `needle.nn.NLLLoss`."""
    return class_losses.NLLLoss(weight, ignore_index, reduction)(input, target)


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """See `needle.nn.MSELoss`."""
    return losses.MSELoss(reduction)(input, target)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """See `needle.nn.L1Loss`."""
    return losses.L1Loss(reduction)(input, target)


def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """See `needle.nn.SmoothL1Loss`."""
    return losses.SmoothL1Loss(reduction, beta)(input, target)


def huber_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """See `needle.nn.HuberLoss`."""
    return losses.HuberLoss(delta, reduction)(input, target)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """See `needle.nn.BCELoss`."""
    return losses.BCELoss(weight, reduction)(input, target)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """See `needle.nn.BCEWithLogitsLoss`."""
    return losses.BCEWithLogitsLoss(reduction, weight=weight, pos_weight=pos_weight)(input, target)


def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """See `needle.nn.KLDivLoss`."""
    return losses.KLDivLoss(reduction, log_target)(input, target)


def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """See `needle.nn.SoftMarginLoss`."""
    return losses.SoftMarginLoss(reduction)(input, target)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-08,
    reduction: str = "mean",
) -> Tensor:
    """See `needle.nn.PoissonNLLLoss`."""
    return losses.PoissonNLLLoss(log_input, full, eps, reduction)(input, target)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-06, reduction: str = "mean"
) -> Tensor:
    """See `needle.nn.GaussianNLLLoss`."""
    return losses.GaussianNLLLoss(full=full, eps=eps, reduction=reduction)(input, target, var)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """See `needle.nn.CosineEmbeddingLoss`."""
    return pair_losses.CosineEmbeddingLoss(margin, reduction)(input1, input2, target)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """See `needle.nn.MarginRankingLoss`."""
    return pair_losses.MarginRankingLoss(margin, reduction)(input1, input2, target)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean") -> Tensor:
    """See `needle.nn.HingeEmbeddingLoss`."""
    return pair_losses.HingeEmbeddingLoss(margin, reduction)(input, target)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """See `needle.nn.TripletMarginLoss`."""
    return pair_losses.TripletMarginLoss(margin, p, eps, swap, reduction)(anchor, positive, negative)
