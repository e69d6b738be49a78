"""When to stop training."""

import math
from typing import Any

from needle_nn.optim.options import count, number
from needle_nn.optim.state import parts


class EarlyStopping:
    """Stop when a value has not got better by more than min_delta for `patience` checks in a row.

    Parameters
    ----------
    patience : how many checks without progress are waited for
    min_delta : how much better counts as progress
    mode : "min" where smaller is better (losses), "max" where larger is (accuracies)

    >>> stopping = EarlyStopping(patience=2)
    >>> [stopping.step(loss) for loss in (1.0, 0.5, 0.6, 0.7)]
    [False, False, False, True]
    >>> stopping.best, stopping.best_step
    (0.5, 2)
    """

    def __init__(self, patience: int = 10, min_delta: float = 0.0, mode: str = "min") -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"EarlyStopping: mode = {mode!r}: expected 'min' or 'max'")
        self.patience, self.mode = count("EarlyStopping", "patience", patience), mode
        self.min_delta = number("EarlyStopping", "min_delta", min_delta)
        self.best, self.best_step, self.t = (math.inf if mode == "min" else -math.inf), 0, 0

    def step(self, value: Any) -> bool:
        """Note the value of one more check (NaN is no progress); whether to stop."""
        value = float(value)
        self.t += 1
        better = self.best - value if self.mode == "min" else value - self.best
        if better > self.min_delta:
            self.best, self.best_step = value, self.t
        return self.should_stop

    @property
    def should_stop(self) -> bool:
        return self.t - self.best_step >= self.patience

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "t": self.t}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        best, best_step, t = parts("EarlyStopping.load_state_dict", state, "best", "best_step", "t")
        self.best, self.best_step, self.t = float(best), int(best_step), int(t)
