"""PyTorch's questions about GPUs, as attributes of `needle.cuda` and `needle.accelerator`: `needle.cuda.is_available()`."""

from types import ModuleType
from typing import Any

import needle_ndarray as nd
from needle import amp, creation
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


def _on_gpu(name: str) -> Any:
    """FloatTensor and its kin, whose tensors are on a GPU."""
    make = getattr(creation, name)
    return lambda *given: make(*given).cuda()


QUESTIONS |= {name: _on_gpu(name) for name in ("FloatTensor", "DoubleTensor", "LongTensor", "IntTensor", "ByteTensor")}
vars(nd.cuda).update(QUESTIONS)


def current_accelerator(check_available: bool = False) -> Any:
    """The first GPU that can be used, or None."""
    return nd.cuda() if is_available() else None


accelerator = ModuleType("needle.accelerator", "PyTorch's questions about whatever makes it faster: here a GPU.")
vars(accelerator).update(
    {f.__name__: f for f in (is_available, device_count, synchronize, empty_cache, current_accelerator)}
)
FUNCTIONS: dict[str, Any] = {"accelerator": accelerator}
