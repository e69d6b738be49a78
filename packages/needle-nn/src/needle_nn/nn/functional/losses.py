"""Losses as functions: each makes the module of needle.nn that has the formula, and calls it.

>>> import needle as ndl
>>> round(cross_entropy(ndl.zeros(2, 4), ndl.Tensor([1, 3])).item(), 4)
1.3863
"""

from needle_nn.nn import class_losses, losses, pair_losses

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "gaussian_nll_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """See `needle.nn.CrossEntropyLoss`."""
    return class_losses.CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing)(input, target)


def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """See `needle.nn.NLLLoss`."""
    return class_losses.NLLLoss(weight, ignore_index, reduction)(input, target)


def mse_loss(input, target, *, reduction="mean"):
    """See `needle.nn.MSELoss`."""
    return losses.MSELoss(reduction)(input, target)


def l1_loss(input, target, *, reduction="mean"):
    """See `needle.nn.L1Loss`."""
    return losses.L1Loss(reduction)(input, target)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """See `needle.nn.SmoothL1Loss`."""
    return losses.SmoothL1Loss(reduction, beta)(input, target)


def huber_loss(input, target, *, reduction="mean", delta=1.0):
    """See `needle.nn.HuberLoss`."""
    return losses.HuberLoss(delta, reduction)(input, target)


def binary_cross_entropy(input, target, weight=None, *, reduction="mean"):
    """See `needle.nn.BCELoss`."""
    return losses.BCELoss(weight, reduction)(input, target)


def binary_cross_entropy_with_logits(input, target, weight=None, *, reduction="mean", pos_weight=None):
    """See `needle.nn.BCEWithLogitsLoss`."""
    return losses.BCEWithLogitsLoss(reduction, weight=weight, pos_weight=pos_weight)(input, target)


def kl_div(input, target, *, reduction="mean", log_target=False):
    """See `needle.nn.KLDivLoss`."""
    return losses.KLDivLoss(reduction, log_target)(input, target)


def soft_margin_loss(input, target, *, reduction="mean"):
    """See `needle.nn.SoftMarginLoss`."""
    return losses.SoftMarginLoss(reduction)(input, target)


def poisson_nll_loss(input, target, log_input=True, full=False, *, eps=1e-8, reduction="mean"):
    """See `needle.nn.PoissonNLLLoss`."""
    return losses.PoissonNLLLoss(log_input, full, eps, reduction)(input, target)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """See `needle.nn.GaussianNLLLoss`."""
    return losses.GaussianNLLLoss(full=full, eps=eps, reduction=reduction)(input, target, var)


def cosine_embedding_loss(input1, input2, target, margin=0.0, *, reduction="mean"):
    """See `needle.nn.CosineEmbeddingLoss`."""
    return pair_losses.CosineEmbeddingLoss(margin, reduction)(input1, input2, target)


def margin_ranking_loss(input1, input2, target, margin=0.0, *, reduction="mean"):
    """See `needle.nn.MarginRankingLoss`."""
    return pair_losses.MarginRankingLoss(margin, reduction)(input1, input2, target)


def hinge_embedding_loss(input, target, margin=1.0, *, reduction="mean"):
    """See `needle.nn.HingeEmbeddingLoss`."""
    return pair_losses.HingeEmbeddingLoss(margin, reduction)(input, target)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, *, reduction="mean"):
    """See `needle.nn.TripletMarginLoss`."""
    return pair_losses.TripletMarginLoss(margin, p, eps, swap, reduction)(anchor, positive, negative)
