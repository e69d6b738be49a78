"""Datasets: what can be asked for its length and for the items at an index."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Dataset:
    """The base of datasets: subclasses write `__getitem__` and `__len__`.

    `dataset[index]` takes an int, a slice or an array of indices; for the latter two it returns arrays with a leading batch axis.
    A dataset that only takes ints works too: `DataLoader` then asks for the items one by one and stacks them.

    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return self.apply_transforms(index), index**2
    ...     def __len__(self):
    ...         return 5
    >>> Squares(transforms=[lambda x: x + 100])[3]
    (103, 9)
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]] | None = None):
        self.transforms = transforms

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

    def __init__(self, *arrays: Any):
        super().__init__()
        if not arrays:
            raise ValueError("NDArrayDataset: no arrays given")
        self.arrays = tuple(a.numpy() if hasattr(a, "numpy") else np.asarray(a) for a in arrays)
        lengths = [a.shape[0] if a.ndim else None for a in self.arrays]
        if None in lengths or len(set(lengths)) > 1:
            raise ValueError(
                f"NDArrayDataset: arrays must have one length, got shapes {[a.shape for a in self.arrays]}"
            )

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class FlatImageDataset(Dataset):
    """Images kept as rows of pixels, with labels; transforms see them as H × W × C.

    `X` is float32 (n, H·W·C), `y` holds n integers. One index gives a row (H·W·C,) and a label; a slice or an array of n indices
    gives (n, H·W·C) and n labels. Transforms are applied image by image in the order of the indices.
    """

    X: np.ndarray
    y: np.ndarray
    image_shape: tuple[int, int, int]

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        rows, labels = self.X[index], self.y[index]
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
