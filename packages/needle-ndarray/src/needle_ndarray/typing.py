"""The types of arguments, under the names that annotations and stubs have for them.

>>> from needle_ndarray.typing import Axes, Shape
"""

from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from needle_ndarray.devices import Device
from needle_ndarray.ndarray import NDArray

__all__ = ["ArrayLike", "Axes", "DTypeLike", "DeviceLike", "Number", "Shape"]

#: One axis, several, or None: all of them, or the function's default.
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
#: Sizes: several, or one for a single axis.
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
#: A dtype of ours (which is a str), its name, NumPy's, or a Python type.
DTypeLike: TypeAlias = str | type | np.dtype[Any]
#: A device or its name; None for the default one.
DeviceLike: TypeAlias = Device | str | None
#: A Python or NumPy number; `float` stands for int and bool as well.
Number: TypeAlias = float | np.number[Any] | np.bool_
#: What becomes an array: numbers, (nested) lists and tuples of them, arrays.
ArrayLike: TypeAlias = NDArray | np.ndarray[Any, Any] | np.generic | Number | list[Any] | tuple[Any, ...]
