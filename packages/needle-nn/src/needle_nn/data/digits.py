"""A small set of images that comes with the package."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from needle_nn.checks import check_flag
from needle_nn.data.dataset import FlatImageDataset

_TRAIN = 1437  # four fifths; writers follow one another, so the test images are of people the training set has few of


class DigitsDataset(FlatImageDataset):
    """Handwritten digits of 8 × 8 pixels: the first 1437 for training, the last 360 for testing.

    `X` is float32 (n, 64) in [0, 1], `y` uint8 (n,); transforms see each image as 8 × 8 × 1. The images are the test part of
    "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998; UCI Machine Learning Repository, CC BY 4.0).

    >>> len(DigitsDataset()), len(DigitsDataset(train=False)), DigitsDataset()[0][0].shape
    (1437, 360, (64,))
    """

    image_shape = (8, 8, 1)
    white = 16

    def __init__(self, train: bool = True, transforms: Sequence[Callable[[Any], Any]] | None = None) -> None:
        super().__init__(transforms)
        check_flag("DigitsDataset", "train", train)
        images, labels = _bundled()
        part = slice(None, _TRAIN) if train else slice(_TRAIN, None)
        self.pixels = images[part].reshape(-1, 64).copy()
        self.y = labels[part].copy()


@lru_cache(maxsize=1)
def _bundled() -> tuple[np.ndarray, np.ndarray]:
    with (files("needle_nn.data") / "digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        return held["images"], held["target"]
