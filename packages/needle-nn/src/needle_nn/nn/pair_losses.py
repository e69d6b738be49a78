"""Losses of pairs and triples: what belongs together comes closer, what does not goes further apart.

>>> import needle as ndl
>>> near, far = ndl.Tensor([[1.0, 0.0]]), ndl.Tensor([[4.0, 4.0]])
>>> TripletMarginLoss()(near, near, far).item(), round(TripletMarginLoss()(near, far, near).item(), 3)
(0.0, 6.0)
"""

from needle import ops
from needle.autograd import Tensor
from needle_nn.nn.functional.maps import pairwise_distance
from needle_nn.nn.losses import Reduced


class CosineEmbeddingLoss(Reduced):
    """1 - c where target is 1, max(c - margin, 0) where it is -1; c = x1 . x2 / (|x1| |x2|): (N, D), (N, D), (N,)"""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        sizes = ((x1 * x1).sum(-1) + 1e-12) * ((x2 * x2).sum(-1) + 1e-12)
        c = (x1 * x2).sum(-1) / ops.sqrt(sizes)
        return self.reduced(ops.where(ops.equal(target, 1), 1 - c, ops.relu(c - self.margin)))


class MarginRankingLoss(CosineEmbeddingLoss):
    """max(margin - target (x1 - x2), 0): target is 1 where x1 should be the larger, else -1"""

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return self.reduced(ops.relu(self.margin - target * (x1 - x2)))


class HingeEmbeddingLoss(Reduced):
    """x where target is 1, max(margin - x, 0) where it is -1"""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.reduced(ops.where(ops.equal(target, 1), x, ops.relu(self.margin - x)))


class TripletMarginLoss(Reduced):
    """max(|anchor - positive + eps|_p - |anchor - negative + eps|_p + margin, 0): (N, D) each

    Parameters
    ----------
    margin : how much further away the negative should be
    swap : take the distance of positive and negative where it is the smaller one
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        far = pairwise_distance(anchor, negative, self.p, self.eps)
        if self.swap:
            far = ops.minimum(far, pairwise_distance(positive, negative, self.p, self.eps))
        return self.reduced(ops.relu(pairwise_distance(anchor, positive, self.p, self.eps) - far + self.margin))
