"""Needle's CUDA kernels on a machine without a GPU: an emulator, and a stand-in for cupy on top of it.

With `NEEDLE_CUDA_EMULATION=1` the backend asks `standin()` instead of importing cupy; everything above it, and the text of
the kernels, is unchanged. It needs g++. What can be asked of it is in `settings`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from .settings import settings

__all__ = ["count_launches", "settings", "standin"]


def standin() -> ModuleType:
    """The module that stands in for cupy."""
    from . import cupy_standin

    return cupy_standin


@contextmanager
def count_launches() -> Iterator[Counter[str]]:
    """Counts what is launched within a `with` statement, kernels by name and graphs as "graph"; the counts are there at its end."""
    from .cupy_standin.module import launches

    before, found = launches.copy(), Counter[str]()
    yield found
    found.update(launches - before)
