"""What the emulation is told by environment variables, read once; tests change the fields for a while.

| variable | values | what it does |
|---|---|---|
| `NEEDLE_CUDA_EMULATION` | `1` | kernels run on the CPU, under a stand-in for cupy |
| `NEEDLE_CUDA_EMULATION_ORDER` | `forward`, `reverse`, `random` | the order of the threads of a block, and of blocks |
| `NEEDLE_CUDA_EMULATION_CHECKS` | `guards`, `accesses` | stores beside a buffer, found after a launch; or every load and store |
| `NEEDLE_CUDA_EMULATION_STREAMS` | `immediate`, `deferred` | work is done at once, or not before somebody waits for it |
| `NEEDLE_CUDA_EMULATION_DEVICES` | a number, 2 | how many devices there are |
| `NEEDLE_CUDA_EMULATION_CACHE` | a folder | where compiled kernels are kept |
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CHOICES = {
    "order": ("forward", "reverse", "random"),
    "checks": ("guards", "accesses"),
    "streams": ("immediate", "deferred"),
}


@dataclass
class Settings:
    order: str = "forward"
    checks: str = "guards"
    streams: str = "immediate"
    devices: int = 2
    cache: str = ""
    memory: int = 4 << 30  # bytes of each device
    seed: int = 0  # of the random order

    def __setattr__(self, name: str, value: object) -> None:
        if name in CHOICES and value not in CHOICES[name]:
            raise ValueError(f"emulation: {name} is one of {', '.join(CHOICES[name])}, not {value!r}")
        super().__setattr__(name, value)

    @contextmanager
    def changed(self, **values: object) -> Iterator["Settings"]:
        """Other values within a `with` statement."""
        before = {name: getattr(self, name) for name in values}
        try:
            for name, value in values.items():
                setattr(self, name, value)
            yield self
        finally:
            for name, value in before.items():
                setattr(self, name, value)


def from_environment() -> Settings:
    found = Settings()
    for name in ("order", "checks", "streams", "devices", "cache"):
        value = os.environ.get(f"NEEDLE_CUDA_EMULATION_{name.upper()}")
        if value:
            setattr(found, name, int(value) if name == "devices" else value)
    return found


settings = from_environment()
