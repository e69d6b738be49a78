"""Needle: a deep-learning framework you can read in a weekend and train real models with."""

from importlib import import_module as _import_module

from needle import autograd, backend_ndarray, init, ops, random
from needle.autograd import (
    NDArray,
    Op,
    Tensor,
    TensorOp,
    TensorTuple,
    TensorTupleOp,
    Value,
    get_default_dtype,
    set_default_dtype,
)  # fmt: skip
from needle.backend_selection import all_devices, cpu, cpu_numpy, cuda, default_device
from needle.creation import *
from needle.custom import *
from needle.init import ones, ones_like, zeros, zeros_like
from needle.modes import *
from needle.sampling import *
from needle.torch_names import FUNCTIONS as _FUNCTIONS
from needle.torch_names import ON_REQUEST as _ON_REQUEST
from needle.torch_names.missing import FUNCTIONS as _MISSING
from needle.transforms import *
from needle_ndarray import show_config

__version__ = "0.1.0"

# Ops, and PyTorch's names of them. Not by `import *`: editors would list the classes, which the stub leaves to needle.ops.
globals().update({name: getattr(ops, name) for name in ops.__all__} | _FUNCTIONS)

# needle-nn depends on this package, and drawing takes longer to import than everything else: on first use.
_ON_FIRST_USE = tuple(
    "nn optim data distributions func onnx distributed testing drawing profiling capturing utils amp backends".split()
)
_FROM = {"draw_graph": "drawing", "Graph": "drawing", "profile": "profiling", "Profile": "profiling"}
_FROM["vmap"] = "batching"
_FROM["autocast"] = "amp"
_FROM |= dict.fromkeys(("capture", "Captured", "CapturedPlan", "CaptureError", "CaptureWarning"), "capturing")


def __getattr__(name: str):
    if name in _ON_REQUEST:
        return _ON_REQUEST[name]
    if name in _FROM:
        return getattr(_import_module(f"needle.{_FROM[name]}"), name)
    if name not in _ON_FIRST_USE:
        hint = f"; {_MISSING[name]}" if name in _MISSING else ""
        raise AttributeError(f"module 'needle' has no attribute {name!r}{hint}", name=name)
    try:
        return _import_module(f"needle.{name}")
    except ModuleNotFoundError as error:
        if error.name != "needle_nn":
            raise
        # hasattr(needle, "nn") must answer False, not raise; the name is given so that Python does not guess at others
        raise AttributeError(str(error), name=name) from error


def __dir__():
    """Without the classes of ops, which are half of all names; needle.ops lists them."""
    classes = {name for name in ops.__all__ if isinstance(globals()[name], type)}
    return sorted({*globals(), *_ON_FIRST_USE, *_FROM, *_ON_REQUEST} - classes)
