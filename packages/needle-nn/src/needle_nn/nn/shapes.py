"""Layers that move numbers: flattening, padding, resizing, channels to places.

>>> import needle as ndl
>>> x = ndl.ones(2, 4, 3, 3)
>>> [layer(x).shape for layer in (Flatten(), Upsample(scale_factor=2), PixelShuffle(2), ZeroPad2d(1))]
[(2, 36), (2, 4, 6, 6), (2, 1, 6, 6), (2, 4, 5, 5)]
"""

import math
from typing import Any

from needle.autograd import Tensor
from needle.typing import Pair
from needle_nn.nn.functional import resizing
from needle_nn.nn.functional.images import pair
from needle_nn.nn.module import Module, check_sizes, expect


class Flatten(Module):
    """(N, a, b, ...) -> (N, a b ...), or with the axes from start_dim to end_dim as one"""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        shape, ndim = x.shape, x.ndim
        first, last = (i % max(ndim, 1) if -ndim <= i < ndim else i for i in (self.start_dim, self.end_dim))
        if (first, last) == (1, 0):  # (N,) has no axis 1: it becomes (N, 1)
            return x.reshape((*shape, 1))
        if not 0 <= first <= last < ndim:
            raise ValueError(f"Flatten: axes {self.start_dim} to {self.end_dim} of shape {shape}")
        return x.reshape((*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))

    def _settings(self):
        return "" if (self.start_dim, self.end_dim) == (1, -1) else super()._settings()


class Unflatten(Module):
    """One axis in several: (..., n, ...) -> (..., *unflattened_size, ...); one of these may be -1"""

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(f"Unflatten: axis {self.dim} of shape {x.shape}")
        at = self.dim % x.ndim
        return x.reshape((*x.shape[:at], *self._sizes(x.shape[at]), *x.shape[at + 1 :]))

    def _sizes(self, n):
        known = math.prod([m for m in self.unflattened_size if m != -1])
        return tuple([n // max(known, 1) if m == -1 else m for m in self.unflattened_size])


# ---- Padding ------------------------------------------------------------------------------------------------------------


class _Pad(Module):
    """`padding` places on both sides of the last axes, or (before, after) for each, from the last one on."""

    mode = "constant"
    axes = "NCHW"
    value = 0.0

    def __init__(self, padding: Any) -> None:
        super().__init__()
        count = len(self.axes) - 2
        self.padding = (padding,) * (2 * count) if hasattr(type(padding), "__index__") else tuple(padding)
        if len(self.padding) != 2 * count:
            raise ValueError(f"{type(self).__name__}: padding {padding}: expected an int or {2 * count} of them")

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, *self.axes)
        return resizing.pad(x, self.padding, self.mode, self.value)


class ZeroPad2d(_Pad):
    """Zeros around images: an int, or (left, right, top, bottom)"""


class ConstantPad2d(_Pad):
    """A value around images: an int, or (left, right, top, bottom)"""

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value


class ReflectionPad2d(_Pad):
    """Images mirrored at their edges: an int, or (left, right, top, bottom)"""

    mode = "reflect"


class ReplicationPad2d(_Pad):
    """Images with their edges repeated: an int, or (left, right, top, bottom)"""

    mode = "replicate"


class ZeroPad1d(_Pad):
    """Zeros around sequences: an int, or (before, after)"""

    axes = "NCL"


class ConstantPad1d(ConstantPad2d):
    """A value around sequences: an int, or (before, after)"""

    axes = "NCL"


class ReflectionPad1d(ZeroPad1d):
    """Sequences mirrored at their ends: an int, or (before, after)"""

    mode = "reflect"


class ReplicationPad1d(ZeroPad1d):
    """Sequences with their ends repeated: an int, or (before, after)"""

    mode = "replicate"


# ---- Resizing -----------------------------------------------------------------------------------------------------------


class Upsample(Module):
    """Images (N, C, H, W) or sequences (N, C, L) in another size; see `needle.nn.functional.interpolate`

    Parameters
    ----------
    size, scale_factor : of the result, one of the two: a number, or one for each axis
    mode : "nearest", "linear", "bilinear" or "bicubic"
    align_corners : whether corners lie on corners
    """

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
    ) -> None:
        super().__init__()
        if (size is None) == (scale_factor is None):
            raise ValueError("Upsample: expected either size or scale_factor")
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        return resizing.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)


class UpsamplingNearest2d(Upsample):
    """`Upsample` of images by their nearest pixels"""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """`Upsample` of images by linear interpolation, corners on corners"""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """(N, C r r, H, W) -> (N, C, H r, W r)"""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        check_sizes(self, upscale_factor=upscale_factor)
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return resizing.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """(N, C, H r, W r) -> (N, C r r, H, W)"""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        check_sizes(self, downscale_factor=downscale_factor)
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return resizing.pixel_unshuffle(x, self.downscale_factor)


class Unfold(Module):
    """Every window as a column: (N, C, H, W) -> (N, C KH KW, OH OW)"""

    def __init__(self, kernel_size: Pair, dilation: Pair = 1, padding: Any = 0, stride: Pair = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = map(pair, (kernel_size, dilation, padding, stride))

    def forward(self, x: Tensor) -> Tensor:
        return resizing.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)
