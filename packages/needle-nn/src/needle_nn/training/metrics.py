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
        self.total, self.weight = 0.0, 0

    def add(self, value: float, weight: int = 1) -> None:
        self.total += value * weight
        self.weight += weight

    @property
    def value(self) -> float:
        """The mean; nan before anything was added."""
        return self.total / self.weight if self.weight else math.nan

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.weight = float(state["total"]), int(state["weight"])


def accuracy(output: Any, target: Any) -> float:
    """Share of targets that are the class of the largest number: (..., classes) and (...).

    >>> accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
    0.5
    """
    return top_k_accuracy(output, target, 1)


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
