"""PyTorch's questions about GPUs, as attributes of the function `needle.cuda`: `needle.cuda.is_available()`."""

from typing import Any

import needle_ndarray as nd
from needle import amp
from needle.sampling import manual_seed


def is_available() -> bool:
    """Whether cuda() can be used here."""
    return nd.cuda().enabled()


def device_count() -> int:
    """How many GPUs can be used here."""
    number = 0
    while nd.cuda(number).enabled():
        number += 1
    return number


def synchronize(device: Any = None) -> None:
    """Wait until the GPU has done what it was asked for."""
    nd.device("cuda" if device is None else device).backend.synchronize()


def empty_cache() -> None:
    """Give back memory that is kept for later arrays."""
    nd.empty_cache()


QUESTIONS: dict[str, Any] = {f.__name__: f for f in (is_available, device_count, synchronize, empty_cache)}
QUESTIONS |= {"manual_seed": manual_seed, "manual_seed_all": manual_seed}
QUESTIONS |= {"amp": amp, "current_device": lambda: 0, "is_bf16_supported": lambda *_: False}
vars(nd.cuda).update(QUESTIONS)
