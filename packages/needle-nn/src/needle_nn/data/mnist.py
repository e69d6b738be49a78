"""MNIST and its relatives: IDX files, gzipped or plain.

An IDX file is 0, 0, a code of the element type, the rank, each size as a big-endian uint32, then the elements.
"""

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from needle_nn.data.dataset import FlatImageDataset
from needle_nn.data.files import MAX_BYTES, open_packed, read_exactly

_TYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_KINDS = {1: "labels", 3: "images"}


def read_idx(path: Any, ndim: int) -> np.ndarray:
    """The uint8 array in an IDX file of this rank: 1 for labels, 3 for images."""
    kind = _KINDS.get(ndim, f"rank {ndim}")
    with open_packed(path) as (stream, bound):
        magic = stream.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
            raise ValueError(f"{path}: not an IDX file: it begins with {magic!r}, expected {bytes([0, 0, 8, ndim])!r}")
        if magic[2] != 0x08:
            raise ValueError(f"{path}: IDX file of {_TYPES[magic[2]]}, expected uint8")
        if magic[3] != ndim:
            found = _KINDS.get(magic[3], "something else")
            raise ValueError(f"{path}: IDX file of rank {magic[3]} ({found}), expected rank {ndim} ({kind})")
        header = stream.read(4 * ndim)
        if len(header) < 4 * ndim:
            raise ValueError(f"{path}: the file is cut short in its header: {4 + len(header)} bytes of {4 + 4 * ndim}")
        shape = struct.unpack(f">{ndim}I", header)
        if 0 in shape:
            raise ValueError(f"{path}: holds no {kind}: its shape is {shape}")
        if prod(shape) > MAX_BYTES:
            raise ValueError(f"{path}: shape {shape} is {prod(shape)} bytes, more than the limit of {MAX_BYTES}")
        return read_exactly(stream, prod(shape), bound, path, f"{kind} {shape}").reshape(shape)


def parse_mnist(image_filename: Any, label_filename: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 784) float32 in [0, 1] and labels (n,) uint8 of a pair of IDX files."""
    images, labels = _read_pair(image_filename, label_filename)
    return _to_unit(images), labels


class MNISTDataset(FlatImageDataset):
    """Images and labels of a pair of IDX files, gzipped or plain.

    `X` is float32 (n, 784) in [0, 1], made when asked for; `y` uint8 (n,). `dataset[i]` is an image (784,) and its label,
    `dataset[indices]` gives (n, 784) and (n,). Transforms see each image as 28 × 28 × 1, in the order of the indices; their result
    is flattened again.

    Parameters
    ----------
    image_filename, label_filename : paths of the two files
    transforms : callables from an image H × W × C to an image
    """

    def __init__(
        self, image_filename: Any, label_filename: Any, transforms: Sequence[Callable[[Any], Any]] | None = None
    ) -> None:
        super().__init__(transforms)
        images, self.y = _read_pair(image_filename, label_filename)
        self.image_shape = (*images.shape[1:], 1)
        self.pixels = images.reshape(len(images), -1)


def _read_pair(image_filename: Any, label_filename: Any) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_idx(image_filename, 3), read_idx(label_filename, 1)
    if len(images) != len(labels):
        raise ValueError(f"{label_filename}: {len(labels)} labels, but {image_filename} has {len(images)} images")
    return images, labels


def _to_unit(images: np.ndarray) -> np.ndarray:
    return np.divide(images.reshape(len(images), -1), 255, dtype=np.float32)
