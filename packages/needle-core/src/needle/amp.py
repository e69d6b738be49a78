"""PyTorch's mixed precision, in programs that switch it on: everything is computed in float32, and nothing needs scaling.

>>> import warnings
>>> import needle as ndl
>>> with warnings.catch_warnings(record=True) as told:
...     warnings.simplefilter("always")
...     with ndl.autocast("cpu", dtype=ndl.bfloat16):
...         y = ndl.ones(2, 2) @ ndl.ones(2, 2)
>>> y.dtype, len(told)
(float32, 1)
"""

import warnings
from contextlib import ContextDecorator
from typing import Any

__all__ = ["GradScaler", "autocast"]

_told: set[str] = set()


def _tell(what: str) -> None:
    """Say once in a process that nothing is cast."""
    if what not in _told:
        _told.add(what)
        warnings.warn(
            f"{what}: nothing is cast by itself: float32 stays float32; model.bfloat16() keeps weights in half the memory",
            RuntimeWarning,
            stacklevel=4,
        )


class autocast(ContextDecorator):
    """A `with` that changes nothing; where `enabled`, it says so once."""

    def __init__(
        self, device_type: Any = None, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
    ) -> None:
        self.enabled = enabled

    def __enter__(self) -> "autocast":
        if self.enabled:
            _tell("autocast")
        return self

    def __exit__(self, *exception: Any) -> None:
        return None


class GradScaler:
    """Scales nothing: gradients of float32 need it not. `step` is the optimizer's; where `enabled`, it says so once."""

    def __init__(self, device: Any = None, enabled: bool = True, **settings: Any) -> None:
        if enabled:
            _tell("GradScaler")

    def scale(self, loss: Any) -> Any:
        return loss

    def unscale_(self, optimizer: Any) -> None:
        return None

    def step(self, optimizer: Any, *args: Any, **named: Any) -> Any:
        return optimizer.step(*args, **named)

    def update(self, new_scale: Any = None) -> None:
        return None

    def get_scale(self) -> float:
        return 1.0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        return None
