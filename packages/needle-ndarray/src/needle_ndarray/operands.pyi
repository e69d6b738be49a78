"""Types of the compiled module."""

from needle_ndarray.ndarray import NDArray
from needle_ndarray.typing import Number

def constant_like(a: NDArray, value: Number) -> NDArray: ...
