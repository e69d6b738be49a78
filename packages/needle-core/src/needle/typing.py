"""The types of arguments, under the names that annotations and stubs have for them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from needle.autograd import NDArray, Tensor
from needle_ndarray.typing import ArrayLike, Axes, DeviceLike, DTypeLike, Number, Shape

__all__ = ["ArrayLike", "Axes", "DTypeLike", "DeviceLike", "Key", "Number", "Operand", "Pair", "Shape", "Tensors"]

#: What an operator takes beside a Tensor.
Operand: TypeAlias = Tensor | NDArray | np.ndarray[Any, Any] | Number | list[Any] | tuple[Any, ...]
#: What may stand in brackets: integers, slices, None, ..., arrays of integers or bools, and tuples of these.
Key: TypeAlias = Any
#: A number for both axes of an image, or one for each.
Pair: TypeAlias = int | Sequence[int]
#: Several tensors.
Tensors: TypeAlias = Sequence[Tensor]
