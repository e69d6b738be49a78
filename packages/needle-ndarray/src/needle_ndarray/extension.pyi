"""Types of the compiled module."""

from needle_ndarray.buffer import format_bytes
from needle_ndarray.capture import (
    CaptureError,
    Plan,
    Recorder,
    Watched,
    active_recorder,
    depends,
    place_in_library,
    reading,
    repeat,
)
from needle_ndarray.capture.costs import flops, traffic
from needle_ndarray.capture.plan import show as show_call
from needle_ndarray.config import config
from needle_ndarray.devices import backend_of
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.geometry import Geometry, pair
from needle_ndarray.indexing import has_arrays
from needle_ndarray.linalg import _parse as parse_einsum
from needle_ndarray.listening import is_listened_to, listening
from needle_ndarray.ndarray import bounded, normal_axes
from needle_ndarray.replay import Layout, Runner, like, observe
from needle_ndarray.rules import RULES

ABI: int
C_INTERFACE: object

__all__ = [
    "ABI",
    "C_INTERFACE",
    "CaptureError",
    "DTYPES",
    "Geometry",
    "Layout",
    "Plan",
    "RULES",
    "Recorder",
    "Runner",
    "Watched",
    "active_recorder",
    "backend_of",
    "bounded",
    "config",
    "depends",
    "flops",
    "format_bytes",
    "has_arrays",
    "is_listened_to",
    "like",
    "listening",
    "normal_axes",
    "observe",
    "pair",
    "parse_einsum",
    "place_in_library",
    "reading",
    "repeat",
    "show_call",
    "traffic",
]
