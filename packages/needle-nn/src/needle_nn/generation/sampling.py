"""Which token comes next: temperature, the likeliest k or the likeliest that make up p, and a penalty for repetitions.

>>> logits = np.log([[0.5, 0.3, 0.15, 0.05]])
>>> [np.isfinite(how.allowed(logits)).sum().item() for how in (Sampling(), Sampling(top_k=3), Sampling(top_p=0.7))]
[4, 3, 2]
>>> Sampling(temperature=0).draw(logits, np.random.default_rng(0)).tolist()
[0]
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle_nn.checks import shown

_FIRST = 64  # so many of the likeliest are sorted at first to find those that make up p, then 8 times as many


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Parameters
    ----------
    temperature : below 1 likelier tokens, above 1 more variety; 0 always takes the likeliest
    top_k : draw among the k likeliest only
    top_p : draw among the fewest likeliest whose probabilities add up to p only
    repetition_penalty : logits of tokens that are there already are divided by it where positive, else multiplied
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        wrong = {
            "temperature": (_is_number(self.temperature) and self.temperature >= 0, "0 or more"),
            "top_k": (self.top_k is None or (_is_whole(self.top_k) and self.top_k >= 1), "an int of 1 or more"),
            "top_p": (self.top_p is None or (_is_number(self.top_p) and 0 < self.top_p <= 1), "above 0, at most 1"),
            "repetition_penalty": (_is_number(self.repetition_penalty) and self.repetition_penalty > 0, "above 0"),
        }
        for name, (right, expected) in wrong.items():
            if not right:
                raise ValueError(f"Sampling: {name} {shown(getattr(self, name))}: expected {expected}")

    def draw(self, logits: np.ndarray, rng: np.random.Generator, before: Sequence[Any] | None = None) -> np.ndarray:
        """One token for each row of logits: (B, V) -> (B,); `before` are the tokens that each row has."""
        logits = np.array(logits, np.float64)
        if not np.isfinite(highest := logits.max(axis=1)).all():
            raise ValueError(
                f"Sampling: the largest logit of a row is {highest[~np.isfinite(highest)][0]}, nothing to draw"
            )
        if self.repetition_penalty != 1 and before is not None:
            for row, seen in zip(logits, before, strict=True):
                there = np.unique(np.asarray(seen, np.int64))
                row[there] = _penalised(row[there], self.repetition_penalty)
        if self.temperature == 0:
            return logits.argmax(axis=1)
        logits -= logits.max(axis=1, keepdims=True)  # so that the likeliest stays finite, however cold it is
        with np.errstate(over="ignore", under="ignore"):
            logits /= self.temperature
            reached = np.exp(self.allowed(logits)).cumsum(axis=1)
        wanted = (
            rng.random(len(reached)) * reached[:, -1]
        )  # less than all, rounded too: a number below 1 times one of 1 or more
        return np.array([row.searchsorted(x, "right") for row, x in zip(reached, wanted, strict=True)])

    def allowed(self, logits: np.ndarray) -> np.ndarray:
        """Logits, -inf where a token is not among the likeliest."""
        if self.top_k is not None and self.top_k < logits.shape[1]:
            least = np.partition(logits, -self.top_k, axis=1)[:, -self.top_k, None]
            logits = np.where(logits < least, -np.inf, logits)
        if self.top_p is not None and self.top_p < 1:
            least = np.array([[_least_of_nucleus(row, self.top_p)] for row in logits])
            logits = np.where(logits < least, -np.inf, logits)
        return logits


def _penalised(logits: np.ndarray, penalty: float) -> np.ndarray:
    """Positive ones divided by the penalty, others multiplied; finite ones stay so."""
    with np.errstate(over="ignore", under="ignore"):
        changed = np.where(logits > 0, logits / penalty, logits * penalty)
    return np.where(np.isfinite(logits), np.clip(changed, -1e300, 1e300), logits)


def _least_of_nucleus(row: np.ndarray, p: float) -> float:
    """The smallest of the fewest largest logits whose probabilities add up to p."""
    highest = row.max()
    wanted = p * np.exp(row - highest).sum()
    count = _FIRST
    while True:
        count = min(count, len(row))
        top = -np.sort(-np.partition(row, -count)[-count:])
        reached = np.searchsorted(np.cumsum(np.exp(top - highest)), wanted)
        if reached < count or count == len(row):
            return float(top[min(int(reached), count - 1)])
        count *= 8


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float, np.integer, np.floating))
        and not isinstance(value, bool)
        and bool(-sys.float_info.max <= value <= sys.float_info.max)
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
