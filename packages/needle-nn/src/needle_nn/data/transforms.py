"""Transforms of one image, an array H × W × C; random ones draw from `random_source()`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from needle_nn.checks import described
from needle_nn.data.sources import random_source


class Transform:
    """The base of transforms: a callable from array to array. Draw random numbers from `needle.data.random_source()`."""

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __call__")


class Compose(Transform):
    """y = t_n(...t_2(t_1(x)))

    >>> Compose([lambda x: x + 1, lambda x: x * 10])(2)
    30
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = check_transforms("Compose", transforms) or []

    def __call__(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x


class RandomFlipHorizontal(Transform):
    """Reverse the columns with probability p: `rand() < p`.

    >>> import numpy as np
    >>> RandomFlipHorizontal(p=1)(np.arange(3).reshape(1, 3, 1)).ravel()
    array([2, 1, 0])
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"RandomFlipHorizontal: p must be in [0, 1], got {p}")
        self.p = p

    def __call__(self, img: np.ndarray) -> np.ndarray:
        check_image("RandomFlipHorizontal", img)
        return img[:, ::-1, :] if random_source().rand() < self.p else img


class RandomCrop(Transform):
    """Shift by `randint(-padding, padding + 1, size=2)` rows and columns; what comes in from outside is 0.

    >>> import numpy as np
    >>> np.random.seed(0)
    >>> RandomCrop(1)(np.arange(1, 10).reshape(3, 3, 1))[:, :, 0]
    array([[0, 0, 0],
           [1, 2, 3],
           [4, 5, 6]])
    """

    def __init__(self, padding: int = 3) -> None:
        if isinstance(padding, (tuple, list, str)) or padding < 0:
            raise ValueError(f"RandomCrop: padding must not be negative, got {padding!r}")
        self.padding = padding

    def __call__(self, img: np.ndarray) -> np.ndarray:
        check_image("RandomCrop", img)
        down, right = random_source().randint(-self.padding, self.padding + 1, size=2)
        out = np.zeros_like(img)  # a slice into zeros: ten times as fast as np.pad
        (rows, from_rows), (columns, from_columns) = shifted(img.shape[0], down), shifted(img.shape[1], right)
        out[rows, columns] = img[from_rows, from_columns]
        return out


class RandomRotation(Transform):
    """Turn about the centre by an angle drawn evenly from ±degrees; bilinear, 0 outside.

    >>> import numpy as np
    >>> bool((RandomRotation(0)(np.ones((4, 4, 1))) == 1).all())
    True
    """

    def __init__(self, degrees: float) -> None:
        if not 0 <= degrees <= 180:
            raise ValueError(f"RandomRotation: degrees must be in [0, 180], got {degrees}")
        self.degrees = degrees

    def __call__(self, img: np.ndarray) -> np.ndarray:
        check_image("RandomRotation", img)
        return rotate(img, random_source().uniform(-self.degrees, self.degrees))


class RandomScale(Transform):
    """Enlarge about the centre by a factor drawn evenly from [low, high]; the size stays; bilinear, 0 outside.

    >>> import numpy as np
    >>> RandomScale(2, 2)(np.array([0.0, 1, 1, 0]).reshape(1, 4, 1)).ravel()
    array([0.75, 1.  , 1.  , 0.75])
    """

    def __init__(self, low: float = 0.9, high: float = 1.1) -> None:
        if not 0 < low <= high < float("inf"):
            raise ValueError(f"RandomScale: expected 0 < low <= high, got low={low}, high={high}")
        self.low, self.high = low, high

    def __call__(self, img: np.ndarray) -> np.ndarray:
        check_image("RandomScale", img)
        return resample(img, np.eye(2) / random_source().uniform(self.low, self.high))


class Normalize(Transform):
    """y = (x - mean) / std, a number for all channels or one for each.

    >>> import numpy as np
    >>> Normalize(0.5, 0.25)(np.array([[[0.5], [1.0]]], dtype="float32")).ravel()
    array([0., 2.], dtype=float32)
    """

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = np.asarray(mean, dtype=np.float32), np.asarray(std, dtype=np.float32)
        if not (self.std > 0).all():
            raise ValueError(f"Normalize: std must be positive, got {std}")

    def __call__(self, img: np.ndarray) -> np.ndarray:
        return (img - self.mean) / self.std


def rotate(img: np.ndarray, degrees: float) -> np.ndarray:
    """The image turned about its centre, counterclockwise as it is seen (row 0 on top)."""
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return resample(img, np.array([[cos, sin], [-sin, cos]]))


def resample(img: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """out[p] = img[centre + matrix @ (p - centre)], bilinear between pixels, 0 outside; integer images are rounded."""
    height, width, _ = img.shape
    centre = np.array([height - 1, width - 1]) / 2
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1) - centre  # (H, W, 2)
    where = grid @ matrix.T + centre + 1  # in the image with a border of one
    padded = np.pad(img, ((1, 1), (1, 1), (0, 0))).astype(np.float64)
    where = np.clip(where, 0, (height + 1, width + 1))
    low = np.minimum(where.astype(np.intp), (height, width))
    (r, c), (fr, fc) = np.moveaxis(low, -1, 0), np.moveaxis(where - low, -1, 0)[..., None]
    out = (1 - fr) * ((1 - fc) * padded[r, c] + fc * padded[r, c + 1])
    out += fr * ((1 - fc) * padded[r + 1, c] + fc * padded[r + 1, c + 1])
    return out.astype(img.dtype) if img.dtype.kind == "f" else np.rint(out).astype(img.dtype)


def shifted(n: int, by: int) -> tuple[slice, slice]:
    """Where elements go and come from when n of them are seen from `by` further on.

    >>> shifted(5, 2)
    (slice(0, 3, None), slice(2, 5, None))
    """
    by = max(-n, min(n, int(by)))
    start, stop = max(0, -by), n - max(0, by)
    return slice(start, stop), slice(start + by, stop + by)


def check_transforms(what: str, transforms: Any) -> Any:
    """A list of callables, or None, as it is; a TypeError for anything else, such as one transform without a list."""
    if transforms is None:
        return None
    if callable(transforms) or not isinstance(transforms, Sequence):
        raise TypeError(f"{what}: transforms are a {type(transforms).__name__}, expected a list: [transform, ...]")
    for i, transform in enumerate(transforms):
        if not callable(transform) or isinstance(transform, type):
            raise TypeError(f"{what}: transform {i} is {described(transform)}, expected a function of one image")
    return transforms


def check_image(name: str, img: Any) -> None:
    if np.ndim(img) != 3:
        raise ValueError(f"{name}: expected an image H x W x C, got shape {np.shape(img)}")
