"""Images in folders, a folder for each class.

>>> import os, tempfile
>>> folder = tempfile.mkdtemp()
>>> for kind in ("cat", "dog"):
...     os.mkdir(os.path.join(folder, kind))
...     np.save(os.path.join(folder, kind, "1.npy"), np.zeros((4, 6, 3), "uint8"))
>>> data = ImageFolder(folder)
>>> data.classes, data[1][0].shape, data[1][1]
(['cat', 'dog'], (3, 4, 6), 1)
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from needle_nn.data.dataset import Dataset
from needle_nn.data.tables import needs

_READ_BY_PILLOW = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")


class ImageFolder(Dataset):
    """folder/class/image: item i is the image, float32 (channels, height, width) in [0, 1], and the number of its class.

    Parameters
    ----------
    folder : has a folder for each class, whose names, sorted, are `classes`
    transforms : functions of an image as height × width × channels, before its axes are moved
    channels : 3, or 1 for grey images

    Pictures need the extra `images`; arrays of uint8 or floats in .npy files (height × width, or height × width × channels) none.
    """

    def __init__(
        self, folder: Any, transforms: Sequence[Callable[[Any], Any]] | None = None, channels: int = 3
    ) -> None:
        super().__init__(transforms)
        if channels not in (1, 3):
            raise ValueError(f"ImageFolder: channels = {channels!r}: expected 1 or 3")
        self.channels = channels
        if not os.path.isdir(folder):
            raise ValueError(f"ImageFolder: {folder}: no such folder")
        self.classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        self.paths = [
            (os.path.join(folder, name, file), label)
            for label, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(folder, name)))
            if file.lower().endswith((".npy", *_READ_BY_PILLOW))
        ]
        if not self.paths:
            raise ValueError(f"ImageFolder: {folder}: no images in {len(self.classes)} folders of classes")

    def __getitem__(self, index: Any) -> tuple[np.ndarray, int]:
        path, label = self.paths[index]
        image = np.asarray(self.apply_transforms(self._read(path)), np.float32)
        return np.ascontiguousarray(image.transpose(2, 0, 1)), label

    def __len__(self) -> int:
        return len(self.paths)

    def _read(self, path: str) -> np.ndarray:
        """height × width × channels, float32 in [0, 1]"""
        if path.lower().endswith(".npy"):
            pixels = np.load(path, allow_pickle=False)
        else:
            with needs("ImageFolder", "PIL.Image", "images").open(path) as picture:
                pixels = np.asarray(picture.convert("RGB" if self.channels == 3 else "L"))
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if pixels.ndim != 3 or pixels.shape[2] != self.channels:
            raise ValueError(f"ImageFolder: {path} has shape {pixels.shape}, expected (height, width, {self.channels})")
        return np.divide(pixels, 255, dtype=np.float32) if pixels.dtype == np.uint8 else pixels.astype(np.float32)
