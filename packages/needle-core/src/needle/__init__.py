"""Needle: a deep-learning framework you can read in a weekend and train real models with."""

from importlib import import_module

from needle import autograd, backend_ndarray, ops
from needle.autograd import (
    Op,
    Tensor,
    TensorOp,
    TensorTuple,
    TensorTupleOp,
    Value,
    get_default_dtype,
    set_default_dtype,
)
from needle.backend_selection import NDArray, all_devices, cpu, cpu_numpy, cuda, default_device
from needle.modes import *
from needle.ops import *
from needle_ndarray import show_config

__version__ = "0.1.0"

__all__ = [
    "NDArray",
    "all_devices",
    "backend_ndarray",
    "cpu",
    "cpu_numpy",
    "cuda",
    "default_device",
    "show_config",
]

# needle-nn depends on this package, so these modules are imported when somebody asks for them.
_ON_FIRST_USE = ("nn", "optim", "data")


def __getattr__(name: str):
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'needle' has no attribute {name!r}")
    try:
        return import_module(f"needle.{name}")
    except ModuleNotFoundError as error:
        if error.name != "needle_nn":
            raise
        # hasattr(needle, "nn") must answer False, not raise
        raise AttributeError(str(error)) from error


def __dir__():
    return sorted({*globals(), *_ON_FIRST_USE})
