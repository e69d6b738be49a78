"""Batches of datasets that are plain arrays: rows go from where they lie into the memory of the Tensors, once.

NumPy's `array[indices]` makes an array that a Tensor has to copy; the take kernel of Needle writes to the Tensor at once.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle.autograd import get_default_dtype
from needle_ndarray import NDArray
from needle_ndarray.extension import backend_of
from needle_nn.data.dataset import NDArrayDataset, Subset
from needle_nn.data.fetch import takes_arrays


class Rows:
    """The arrays of a dataset as NDArrays in the same memory, and which of their rows are the items."""

    def __init__(self, arrays: Sequence[np.ndarray], chosen: np.ndarray | None) -> None:
        self.arrays, self.chosen = arrays, chosen
        sources = [nd.from_dlpack(a) for a in arrays]
        self.sources = [(source, source.shape[1:], source.dtype) for source in sources]
        self.device, self.backend = nd.cpu(), backend_of(nd.cpu())
        self._last: tuple[np.ndarray, list[int], list[NDArray]] | None = None  # an order, where it is cut, the parts

    @staticmethod
    def of(dataset: Any, device: Any, dtype: Any, known: "Rows | None" = None) -> "Rows | None":
        """Those of a dataset, `known` where they are the same, or None where it has to be asked for its items."""
        found = _arrays_of(dataset)
        if found is None or (nd.default_device() if device is None else device) != nd.cpu():
            return None
        arrays, chosen = found
        if known is not None and chosen is known.chosen and list(map(id, arrays)) == list(map(id, known.arrays)):
            return known
        wanted = get_default_dtype() if dtype is None else nd.dtype(dtype)
        n = len(dataset) if chosen is None else int(chosen.max(initial=-1)) + 1
        if not all(_can_be_read(a, n, str(wanted)) for a in arrays):
            return None
        return Rows(arrays, chosen)

    def reader(self, ordering: list[np.ndarray]) -> Callable[[int], tuple[Tensor, ...]]:
        """A function that gives the Tensors of batch i; `ordering` holds their indices, which the loader has checked."""
        parts = self._parts(ordering)
        return lambda i: self._read(parts[i])

    def _parts(self, ordering: list[np.ndarray]) -> list[NDArray]:
        if not ordering:
            return []
        order = np.concatenate(ordering)
        stops = list(accumulate(map(len, ordering)))
        if self._last is not None and self._last[1] == stops and np.array_equal(self._last[0], order):
            return self._last[2]  # in order, every pass
        whole = nd.from_dlpack(np.ascontiguousarray(order if self.chosen is None else self.chosen[order]))
        parts = [whole[stop - len(part) : stop] for part, stop in zip(ordering, stops, strict=True)]
        self._last = order, stops, parts
        return parts

    def _read(self, index: NDArray) -> tuple[Tensor, ...]:
        tensors, n = [], index.shape[0]
        for source, row, dtype in self.sources:
            out = NDArray.make((n, *row), device=self.device, dtype=dtype)
            self.backend.take(source, index, out)
            tensors.append(Tensor.make_const(out))
        return tuple(tensors)


def _arrays_of(dataset: Any) -> tuple[Sequence[np.ndarray], np.ndarray | None] | None:
    """(arrays, which rows, or None for all) where `dataset[i]` is the tuple of rows i, and nothing else happens to them."""
    cls = type(dataset)
    if getattr(cls, "__getitem__", None) is NDArrayDataset.__getitem__ and takes_arrays(dataset):
        return dataset.arrays, None
    if cls is Subset and takes_arrays(dataset):
        found = _arrays_of(dataset.dataset)
        return None if found is None or found[1] is not None else (found[0], dataset.indices)
    return None


def _can_be_read(a: Any, n: int, wanted: str) -> bool:
    """Whether rows of an array become a Tensor's as they are: memory that can be shared, a dtype that is kept."""
    if type(a) is not np.ndarray or not a.ndim or not a.size or len(a) < n:
        return False
    if not (a.flags.c_contiguous and a.flags.writeable and a.flags.aligned and a.dtype.isnative):
        return False
    if a.dtype.kind == "f":
        return a.dtype.name == wanted
    return a.dtype.name in ("bool", "uint8", "int32", "int64")
