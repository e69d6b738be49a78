"""What a Trainer is made of, checked where it comes in."""

from collections.abc import Mapping
from typing import Any

from needle_nn.checks import described
from needle_nn.training.callbacks import Callback


def check_parts(model: Any, optimizer: Any, loss: Any) -> None:
    """A TypeError unless they are what they are called."""
    for name, part, method in (("model", model, "train"), ("optimizer", optimizer, "step"), ("loss", loss, "__call__")):
        if isinstance(part, type) or (part is not None and not hasattr(part, method)):
            raise TypeError(f"Trainer: the {name} is {described(part)}; expected Trainer(model, optimizer, loss)")


def check_options(metrics: Any, callbacks: Any, schedule_every: Any, accumulate: Any) -> None:
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise ValueError(f"Trainer: accumulate must be at least 1, an int, got {accumulate!r}")
    if isinstance(callbacks, Callback) or not isinstance(metrics or {}, Mapping):
        raise TypeError("Trainer: expected a list of callbacks, and {name: function} as metrics")
    if schedule_every not in ("step", "epoch"):
        raise ValueError(f"Trainer: schedule_every must be step or epoch, got {schedule_every!r}")


def form_of(batch: Any) -> str:
    """What a batch looks like, for an error.

    >>> form_of((1, [2])), form_of({"x": 1}), form_of(3)
    ('(int, list)', 'a dict of x', 'a int')
    """
    if isinstance(batch, dict):
        return f"a dict of {', '.join(map(str, batch))}"
    if isinstance(batch, (tuple, list)):
        return f"({', '.join(type(field).__name__ for field in batch)})"
    return f"a {type(batch).__name__}"
