"""PyTorch's place of what is in `needle.data` and elsewhere here: `from needle.utils.data import DataLoader`."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("data", "checkpoint"):
        return import_module(f"needle.utils.{name}")
    hint = "; a Trainer of needle_nn.training writes metrics and a report" if name == "tensorboard" else ""
    raise AttributeError(f"module 'needle.utils' has no attribute {name!r}{hint}", name=name)
