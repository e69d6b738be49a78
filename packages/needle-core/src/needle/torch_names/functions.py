"""Second spellings that are functions of `needle` alone, and PyTorch's questions about devices."""

import math
import warnings
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import modes, ops
from needle._sister import sister
from needle.autograd import Tensor, get_default_dtype, result_dtype
from needle.ops.spelling import any_spelling
from needle.torch_names import missing

# ---- From lists of tensors --------------------------------------------------------------------------------


def cat(tensors: Any, axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis."""
    return ops.concatenate(tensors, axis)


def hstack(tensors: Any) -> Tensor:
    """Side by side: along axis 1, vectors along axis 0."""
    given = [ops.reshape(x, (1,)) if x.ndim == 0 else x for x in tensors]
    return ops.concatenate(given, 0 if given[0].ndim == 1 else 1)


def vstack(tensors: Any) -> Tensor:
    """One below the other: along axis 0, vectors as rows."""
    return ops.concatenate([ops.reshape(x, (1, -1)) if x.ndim < 2 else x for x in tensors], 0)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All of them at their common shape, as a tuple."""
    return ops.broadcast_arrays(*tensors)


def is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def is_floating_point(x: Tensor) -> bool:
    return x.dtype.is_float


def result_type(*given: Any) -> Any:
    """The dtype of an op on tensors, dtypes and Python's numbers: integers take that of the floats among them."""
    kinds = [x for x in given if not isinstance(x, (bool, int, float))]
    numbers = [x for x in given if isinstance(x, (bool, int, float))]
    found = result_dtype(*[nd.dtype(getattr(x, "dtype", x)) for x in kinds]) if kinds else nd.bool_
    made = nd.result_type(found, *numbers)
    return get_default_dtype() if made.is_float and not found.is_float else made


def promote_types(a: Any, b: Any) -> Any:
    """The dtype of an op on tensors of two dtypes."""
    return result_dtype(nd.dtype(a), nd.dtype(b))


# ---- Modes ------------------------------------------------------------------------------------------------


class inference_mode(modes.set_grad_enabled):
    """Nothing is recorded inside: `no_grad()`, under another name of PyTorch's."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class _set_detect_anomaly(modes.anomaly_mode):
    """`anomaly_mode(mode)`, from now on or for the body of `with`."""

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        super().__init__(mode)
        self.__enter__()


def _compile(model: Any = None, **settings: Any) -> Any:
    """The function or module as it is, which it says: `needle.capture` is what records and replays."""
    if model is None:
        return _compile
    warnings.warn(
        "compile: nothing is compiled; needle.capture(step) replays a whole step", RuntimeWarning, stacklevel=2
    )
    return model


def _variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """The tensor: PyTorch's Variable, of its first years."""
    return data.requires_grad_(True) if requires_grad else data


def set_float32_matmul_precision(precision: str) -> None:
    """Nothing: products of float32 are float32's."""


#: PyTorch's profiles, as numbers.
_PROFILES: dict[str | None, dict[str, Any]] = {
    None: {},
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": 2**62, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors, and NumPy's arrays, are shown: `np.set_printoptions`, with PyTorch's names."""
    if profile not in _PROFILES:
        raise ValueError(f"set_printoptions: profile {profile!r}: expected 'default', 'short' or 'full'")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    options = _PROFILES[profile] | {name: value for name, value in given.items() if value is not None}
    if options.get("threshold") == math.inf:
        options["threshold"] = 2**62
    if sci_mode is not None:
        options["suppress"] = not sci_mode
    np.set_printoptions(**options)


# ---- Files ------------------------------------------------------------------------------------------------


def save(obj: Any, f: Any) -> None:
    """Write a state (tensors, arrays, numbers, text, in dicts and lists) to a file; see needle_nn.checkpoint."""
    with sister("needle.save", "needle-nn"):
        from needle_nn.checkpoint import save_checkpoint
    save_checkpoint(f, obj)


def load(f: Any, map_location: Any = None, weights_only: bool = True) -> Any:
    """What `save` has written; map_location and weights_only are PyTorch's: tensors come to the CPU, and nothing is unpickled."""
    with sister("needle.load", "needle-nn"):
        from needle_nn.checkpoint import load_checkpoint
    return load_checkpoint(f)


_OWN = [f for f in list(globals().values()) if getattr(f, "__module__", None) == __name__ and f.__name__[0] != "_"]
FUNCTIONS: dict[str, Any] = {f.__name__: f if isinstance(f, type) else any_spelling(f) for f in _OWN}
#: A shape is a tuple, and there is one layout in memory.
FUNCTIONS |= {"Size": tuple, **dict.fromkeys(("preserve_format", "contiguous_format", "channels_last"), None)}
FUNCTIONS |= {"concat": FUNCTIONS["cat"]}
#: What needle_ndarray has, and PyTorch under the same name: dtypes, devices, rules.
FUNCTIONS |= {
    name: getattr(nd, name)
    for name in """device dtype finfo iinfo can_cast broadcast_shapes from_dlpack get_num_threads
    set_num_threads pi e inf nan newaxis float16 bfloat16 float32 float64 int32 int64 uint8""".split()
}
#: What `import *` leaves alone, as `float`, `int`, `bool` and `compile` are Python's: dtypes under PyTorch's other names, mostly.
ON_REQUEST: dict[str, Any] = {
    "float": nd.float32,
    "double": nd.float64,
    "half": nd.float16,
    "int": nd.int32,
    "long": nd.int64,
    "bool": nd.bool_,
}
ON_REQUEST |= {"compile": _compile}


def _backward(tensors: Any, grad_tensors: Any = None, retain_graph: Any = None, create_graph: bool = False) -> None:
    """`backward` of one tensor or several, whose gradients add up."""
    ys, starts = [list(given) if isinstance(given, (tuple, list)) else [given] for given in (tensors, grad_tensors)]
    starts = starts if grad_tensors is not None else [None] * len(ys)
    for i, (y, start) in enumerate(zip(ys, starts, strict=True)):
        y.backward(start, accumulate=True if i else None, create_graph=create_graph)


#: What PyTorch has in `autograd`.
AUTOGRAD: dict[str, Any] = {name: getattr(modes, name) for name in ("no_grad", "enable_grad", "set_grad_enabled")}
AUTOGRAD |= {"inference_mode": inference_mode, "backward": _backward}
AUTOGRAD |= {"Variable": _variable, "set_detect_anomaly": _set_detect_anomaly, "detect_anomaly": modes.anomaly_mode}
