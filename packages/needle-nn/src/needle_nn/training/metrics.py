"""Metrics: functions of a model's output and the targets, and the running mean that gathers them."""

import math
from typing import Any

import numpy as np


class Mean:
    """Mean of what was added, each value with its weight.

    >>> mean = Mean()
    >>> mean.add(1.0, weight=3)
    >>> mean.add(5.0)
    >>> mean.value
    2.0
    """

    def __init__(self) -> None:
        self.total, self.weight = 0.0, 0.0

    def add(self, value: float, weight: float = 1) -> None:
        if weight:  # a mean of nothing is NaN, and no part of this one
            self.total += value * weight
            self.weight += weight

    @property
    def value(self) -> float:
        """The mean; nan before anything was added."""
        return self.total / self.weight if self.weight else math.nan

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.weight = float(state["total"]), float(state["weight"])


def count_targets(function: Any, target: Any) -> float:
    """How many targets a loss or metric is the mean of: `function.count_targets(target)` where it has that, else all elements.

    >>> count_targets(accuracy, np.zeros((4, 3)))
    12.0
    """
    own = getattr(function, "count_targets", None)
    return float(math.prod(target.shape) if own is None else own(target))


def accuracy(output: Any, target: Any) -> float:
    """Share of targets that are the class of the largest number: (..., classes) and (...).

    >>> accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
    0.5
    """
    return top_k_accuracy(output, target, 1)


class Accuracy:
    """`top_k_accuracy` that leaves the targets of one label out, as losses with an `ignore_index` do.

    >>> metric = Accuracy(ignore_index=0)
    >>> metric(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 0])), metric.count_targets(np.array([1, 0]))
    (1.0, 1)
    """

    def __init__(self, k: int = 1, ignore_index: int | None = None) -> None:
        self.k, self.ignore_index = k, ignore_index

    def __call__(self, output: Any, target: Any) -> float:
        scores, labels = _pair(output, target)
        kept = slice(None) if self.ignore_index is None else labels != self.ignore_index
        return top_k_accuracy(scores[kept], labels[kept], self.k) if self.count_targets(target) else math.nan

    def count_targets(self, target: Any) -> int:
        labels = np.asarray(target)
        return labels.size if self.ignore_index is None else int((labels != self.ignore_index).sum())


def top_k_accuracy(output: Any, target: Any, k: int = 5) -> float:
    """Share of targets among the k largest numbers; of equal ones the first counts as the larger."""
    scores, labels = _pair(output, target)
    if not 1 <= k <= scores.shape[1]:
        raise ValueError(f"top_k_accuracy: k = {k}, but there are {scores.shape[1]} classes")
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k] if k > 1 else scores.argmax(axis=1)[:, None]
    return float((best == labels[:, None]).any(axis=1).mean())


def confusion_matrix(output: Any, target: Any, classes: int | None = None) -> np.ndarray:
    """Counts: row i, column j is how often class i was taken for j.

    >>> confusion_matrix(np.eye(3), [0, 2, 2])
    array([[1, 0, 0],
           [0, 0, 0],
           [0, 1, 1]])
    """
    scores, labels = _pair(output, target)
    n = classes or scores.shape[1]
    return np.bincount(labels * n + scores.argmax(axis=1), minlength=n * n).reshape(n, n)


def perplexity(loss: float) -> float:
    """exp of a mean cross-entropy: among how many equal choices a model hesitates."""
    return math.exp(loss) if loss < 700 else math.inf


def _pair(output: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, classes) and labels (n,)."""
    scores, labels = np.asarray(output), np.asarray(target)
    if scores.shape[:-1] != labels.shape:
        raise ValueError(f"metrics: output {scores.shape} and target {labels.shape}: expected (..., classes) and (...)")
    return scores.reshape(-1, scores.shape[-1]), labels.reshape(-1).astype(np.int64)
