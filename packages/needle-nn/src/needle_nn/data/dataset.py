"""Datasets: what can be asked for its length and for the items at an index."""

import bisect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from needle import randperm
from needle_nn.data.fetch import takes_arrays
from needle_nn.data.sources import check_seed
from needle_nn.data.sources import generator as seeded
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

    def __init__(self, transforms: Sequence[Callable[[Any], Any]] | None = None) -> None:
        self.transforms = check_transforms(type(self).__name__, transforms)

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def __add__(self, other: Any) -> "ConcatDataset":
        return ConcatDataset([self, other])

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

    def __init__(self, *arrays: Any) -> None:
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


class TensorDataset(NDArrayDataset):
    """`NDArrayDataset` of Tensors, whose values are taken as they are now.

    >>> import needle as ndl
    >>> data = TensorDataset(ndl.ones(3, 2), ndl.Tensor([7, 8, 9]))
    >>> len(data), data[1][0].tolist()
    (3, [1.0, 1.0])
    """


class Subset(Dataset):
    """The items of a dataset at some indices.

    >>> data = Subset(NDArrayDataset(np.arange(10.0)), [4, 7])
    >>> len(data), data[1]
    (2, (np.float64(7.0),))
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        super().__init__()
        self.dataset = dataset
        self.indices = np.asarray(list(indices), np.int64)
        n = len(dataset)
        if self.indices.size and not -n <= self.indices.min() <= self.indices.max() < n:
            low, high = self.indices.min(), self.indices.max()
            raise ValueError(f"Subset: indices from {low} to {high}, but the dataset has {n} items")
        self.indices = self.indices % max(n, 1)
        self.takes_arrays = takes_arrays(dataset)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[chosen if chosen.ndim else int(chosen)]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Datasets one after the other.

    >>> data = ConcatDataset([NDArrayDataset(np.arange(3)), NDArrayDataset(np.arange(10, 12))])
    >>> len(data), data[3], data[-1]
    (5, (np.int64(10),), (np.int64(11),))
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: no datasets given")
        self.ends = np.cumsum([len(d) for d in self.datasets]).tolist()

    def __getitem__(self, index: Any) -> Any:
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"ConcatDataset: item {i} of {len(self)}")
        i %= len(self)
        at = bisect.bisect_right(self.ends, i)
        return self.datasets[at][i - (self.ends[at - 1] if at else 0)]

    def __len__(self) -> int:
        return self.ends[-1]

    def __add__(self, other: Any) -> "ConcatDataset":
        return ConcatDataset([*self.datasets, other])


class IterableDataset:
    """The base of datasets that are only gone through: subclasses write `__iter__`, and a DataLoader takes items as they come.

    >>> class Countdown(IterableDataset):
    ...     def __iter__(self):
    ...         return iter([3.0, 2.0, 1.0])
    >>> from needle.data import DataLoader
    >>> [x.tolist() for (x,) in DataLoader(Countdown(), batch_size=2)]
    [[3.0, 2.0], [1.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Any = None, *, seed: int | None = None
) -> list[Subset]:
    """Cut a dataset at random into Subsets.

    Parameters
    ----------
    dataset : what is cut
    lengths : of the parts, which make up the whole; or shares of it, which make up 1
    seed, generator : makes the cut a function of it: an int, or a `needle.Generator`; else `np.random` draws

    >>> [len(part) for part in random_split(NDArrayDataset(np.arange(10)), [0.75, 0.25], seed=0)]
    [8, 2]
    """
    n, sizes = len(dataset), list(lengths)
    if sizes and all(isinstance(size, float) for size in sizes) and math.isclose(sum(sizes), 1):
        shares, sizes = sizes, [math.floor(n * share) for share in sizes]
        for i in range(n - int(sum(sizes))):
            sizes[i % len(shares)] += 1
    if sum(sizes) != n or any(size < 0 or size != int(size) for size in sizes):
        raise ValueError(
            f"random_split: lengths {list(lengths)} of {n} items: expected parts that make up all, or shares"
        )
    if isinstance(generator, int):
        seed, generator = generator, None
    check_seed(seed, "random_split")
    if generator is not None:
        order = randperm(n, generator=generator).numpy()
    else:
        order = (np.random if seed is None else seeded(seed)).permutation(n)
    stops = np.cumsum([int(size) for size in sizes])[:-1]
    return [Subset(dataset, part) for part in np.split(order, stops)]


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
