"""Datasets: what can be asked for its length and for the items at an index."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from needle_nn.data.transforms import check_transforms


class Dataset:
    """The base of datasets: subclasses write `__getitem__` and `__len__`.

    `dataset[i]` is an item, and `DataLoader` asks for the items one by one and stacks them. A class whose `__getitem__` also takes
    an array of indices, and answers with arrays that have an entry for each of them, may say `takes_arrays = True`: it is then
    asked once for a batch. A subclass with a `__getitem__` of its own has to say it again. Transforms are for single items.

    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return self.apply_transforms(index), index**2
    ...     def __len__(self):
    ...         return 5
    >>> Squares(transforms=[lambda x: x + 100])[3]
    (103, 9)
    """

    #: Whether `self[array of indices]` gives a whole batch, of the same values as the items one by one.
    takes_arrays = False

    def __init__(self, transforms: Sequence[Callable[[Any], Any]] | None = None):
        self.transforms = check_transforms(type(self).__name__, transforms)

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def apply_transforms(self, x: Any) -> Any:
        """x after each of the transforms, in their order."""
        for transform in self.transforms or ():
            x = transform(x)
        return x


class NDArrayDataset(Dataset):
    """Arrays of one length; item i is the tuple of their rows i.

    >>> import numpy as np
    >>> NDArrayDataset(np.arange(6).reshape(3, 2), np.array([7, 8, 9]))[1]
    (array([2, 3]), np.int64(8))
    """

    takes_arrays = True

    def __init__(self, *arrays: Any):
        super().__init__()
        if not arrays:
            raise ValueError("NDArrayDataset: no arrays given")
        if len(arrays) == 1 and isinstance(arrays[0], tuple) and any(hasattr(a, "shape") for a in arrays[0]):
            raise TypeError("NDArrayDataset: got a tuple, expected arrays one by one: NDArrayDataset(*arrays)")
        self.arrays = tuple(_as_array(i, a) for i, a in enumerate(arrays))
        lengths = [a.shape[0] if a.ndim else None for a in self.arrays]
        if None in lengths or len(set(lengths)) > 1:
            raise ValueError(
                f"NDArrayDataset: arrays must have one length, got shapes {[a.shape for a in self.arrays]}"
            )

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


def _as_array(i: int, a: Any) -> np.ndarray:
    if hasattr(a, "numpy"):
        return a.numpy()
    try:
        return np.asarray(a)
    except ValueError:
        raise ValueError(f"NDArrayDataset: array {i} is a {type(a).__name__} of rows of different lengths") from None


class ImageDataset(Dataset):
    """Images kept as they come out of files, a byte for each pixel; those asked for become float32 in [0, 1].

    A subclass sets `pixels`, or `X` itself. `X`, all images as float32, is made when it is asked for; from then on items are taken
    from it, and what is written to it is seen.
    """

    pixels: np.ndarray | None = None  # uint8 (n, ...)
    white = 255  # the value that becomes 1
    _floats: np.ndarray | None = None

    @property
    def X(self) -> np.ndarray:
        """All images, float32 in [0, 1]."""
        if self._floats is None:
            self._floats, self.pixels = self.images(slice(None)), None
        return self._floats

    @X.setter
    def X(self, images: np.ndarray) -> None:
        self._floats, self.pixels = images, None

    def images(self, index: Any) -> np.ndarray:
        """Those at an index, float32 in [0, 1]."""
        pixels = self.pixels  # read once: another thread may ask for X
        return self.X[index] if pixels is None else np.divide(pixels[index], self.white, dtype=np.float32)


class FlatImageDataset(ImageDataset):
    """Images kept as rows of pixels, with labels; transforms see them as H × W × C.

    `X` is float32 (n, H·W·C), `y` holds n integers. One index gives a row (H·W·C,) and a label; a slice or an array of n indices
    gives (n, H·W·C) and n labels. Transforms are applied image by image in the order of the indices.
    """

    takes_arrays = True
    y: np.ndarray
    image_shape: tuple[int, int, int]

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        rows, labels = self.images(index), self.y[index]
        if not self.transforms:
            return rows, labels
        if rows.ndim == 1:
            return self._transformed(rows), labels
        images = [self._transformed(row) for row in rows]
        return (np.stack(images) if images else rows), labels

    def __len__(self) -> int:
        return len(self.y)

    def _transformed(self, row: np.ndarray) -> np.ndarray:
        return np.asarray(self.apply_transforms(row.reshape(self.image_shape))).reshape(-1)
