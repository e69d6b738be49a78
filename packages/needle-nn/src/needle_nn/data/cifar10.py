"""CIFAR-10: five training files and one for testing, in the layout for Python (pickles) or for C (records)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from needle_nn.checks import check_flag
from needle_nn.data.dataset import ImageDataset
from needle_nn.data.files import open_data
from needle_nn.data.pickles import load_arrays

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_CLASSES = 10


class CIFAR10Dataset(ImageDataset):
    """Colour images of ten kinds of things; `X` is float32 (n, 3, 32, 32) in [0, 1], made when asked for; `y` int64 (n,).

    `dataset[i]` is an image (3, 32, 32) and its label, `dataset[indices]` is (n, 3, 32, 32) and (n,). Transforms see each image as
    32 × 32 × 3, in the order of the indices; the channels come first again afterwards.

    Parameters
    ----------
    base_folder : holds data_batch_1 ... data_batch_5 and test_batch (pickles), or the same names with .bin (records)
    train : the five training files, or the one for testing
    p : kept for the course's signature; the probability of a flip is RandomFlipHorizontal's
    transforms : callables from an image H × W × C to an image
    """

    takes_arrays = True

    def __init__(
        self,
        base_folder: Any,
        train: bool,
        p: float = 0.5,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
    ) -> None:
        super().__init__(transforms)
        check_flag("CIFAR10Dataset", "train", train)
        self.p = p
        names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
        parts = [_read(path) for path in _paths(Path(base_folder), names)]
        self.y = np.concatenate([labels for _, labels in parts])
        self.pixels = np.concatenate([pixels for pixels, _ in parts]).reshape(-1, *_SHAPE)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        images, labels = self.images(index), self.y[index]
        if not self.transforms:
            return images, labels
        if images.ndim == 3:
            return self._transformed(images), labels
        made = [self._transformed(image) for image in images]
        return (np.stack(made) if made else images), labels

    def __len__(self) -> int:
        return len(self.y)

    def _transformed(self, image: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self.apply_transforms(image.transpose(1, 2, 0)).transpose(2, 0, 1))


def _paths(folder: Path, names: list[str]) -> list[Path]:
    """The files of the layout that is there; FileNotFoundError names the first one that is missing."""
    binary = not (folder / names[0]).exists() and (folder / f"{names[0]}.bin").exists()
    paths = [folder / (f"{name}.bin" if binary else name) for name in names]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file; expected {', '.join(names)}, all with .bin or all without")
    return paths


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 3072) uint8 and labels (n,) int64."""
    pixels, labels = (_from_records if path.suffix == ".bin" else _from_pickle)(path)
    if not len(labels):
        raise ValueError(f"{path}: holds no images")
    if labels.min() < 0 or labels.max() >= _CLASSES:
        raise ValueError(f"{path}: labels from {labels.min()} to {labels.max()}, expected 0 to {_CLASSES - 1}")
    return pixels, labels


def _from_records(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A byte of label and 3072 of pixels for each image."""
    one = 1 + _PIXELS
    with open_data(path) as (file, size):
        if size % one:
            raise ValueError(f"{path}: {size} bytes, expected a multiple of {one} (a label and {_PIXELS} pixels)")
        records = np.fromfile(file, dtype=np.uint8, count=size).reshape(-1, one)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _from_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A dict with `data` and `labels`."""
    with open_data(path) as (file, size):
        held = load_arrays(file.read(size), path)
    if not isinstance(held, dict):
        raise ValueError(f"{path}: the pickle holds a {type(held).__name__}, expected a dict with data and labels")
    held = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in held.items()}
    pixels, labels = held.get("data"), held.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"{path}: data is {_describe(pixels)}, expected uint8 (n, {_PIXELS})")
    if isinstance(labels, list) and all(type(label) is int and 0 <= label < 256 for label in labels):
        labels = np.array(labels, dtype=np.int64)
    if not isinstance(labels, np.ndarray) or labels.shape != (len(pixels),):
        raise ValueError(
            f"{path}: labels are {_describe(labels)}, expected {len(pixels)} ints from 0 to {_CLASSES - 1}"
        )
    return pixels, labels.astype(np.int64)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "missing" if value is None else f"a {type(value).__name__}"
