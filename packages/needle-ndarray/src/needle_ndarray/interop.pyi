"""Types of the compiled module."""

from typing import Any

import numpy.typing as npt

from needle_ndarray.ndarray import NDArray
from needle_ndarray.typing import DeviceLike

class Span: ...

def dlpack_device(a: NDArray) -> tuple[int, int]: ...
def to_dlpack(
    a: NDArray,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
    stream: Any = None,
) -> object: ...
def from_dlpack(x: Any, /, *, device: DeviceLike = None, copy: bool | None = None) -> NDArray: ...
def from_numpy(a: npt.NDArray[Any], /, *, device: DeviceLike = None) -> NDArray: ...
