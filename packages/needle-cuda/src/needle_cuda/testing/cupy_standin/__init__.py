"""A stand-in for the part of cupy that needle-cuda uses: the same names, kernels run by the emulator."""

from . import cuda
from .arrays import from_dlpack, ndarray
from .memory import get_default_memory_pool, get_default_pinned_memory_pool
from .module import RawKernel, RawModule

__version__ = "0 (stand-in)"
is_standin = True

__all__ = [
    "RawKernel",
    "RawModule",
    "cuda",
    "from_dlpack",
    "get_default_memory_pool",
    "get_default_pinned_memory_pool",
    "is_standin",
    "ndarray",
]
