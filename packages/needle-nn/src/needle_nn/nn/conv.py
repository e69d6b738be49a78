"""Convolutions. Images are NCHW, sequences NCL; the weight is (height, width, in, out), its views go to the NHWC ops unchanged.

>>> import needle as ndl
>>> images = ndl.ones(2, 3, 8, 8)
>>> Conv(3, 16, 3, stride=2)(images).shape
(2, 16, 4, 4)
>>> Conv2d(3, 6, 3, dilation=2, groups=3)(images).shape
(2, 6, 4, 4)
>>> ConvTranspose2d(3, 4, 2, stride=2)(images).shape
(2, 4, 16, 16)
"""

import math
from typing import Any

from needle import init, ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike, Pair
from needle_nn.checks import check_flag
from needle_nn.nn import axes
from needle_nn.nn.functional.images import pair, same_padding, single
from needle_nn.nn.functional.resizing import pad
from needle_nn.nn.module import Module, Parameter, check_sizes, expect


class _Convolution(Module):
    """Draws kaiming_uniform weights of a shape (..., in / groups, out), then a bias from U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

    Within `needle.compat("torch")` the weights are from that distribution too, with PyTorch's axes: (out, in / groups, ...).
    """

    def __init__(self, in_channels, out_channels, groups, window, ends, bias, device, dtype) -> None:
        super().__init__()
        check_sizes(self, in_channels=in_channels, out_channels=out_channels, kernel_size=min(window))
        check_flag(type(self).__name__, "bias", bias)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: {in_channels} and {out_channels} channels do not make {groups} groups"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        area, shape = math.prod(window), (*window, *ends)
        fan_in, fan_out = in_channels // groups * area, out_channels // groups * area
        if self.as_torch:
            fan_in = shape[-2] * area
            bound = 1 / math.sqrt(fan_in)
            weight = init.rand(*shape, low=-bound, high=bound, device=device, dtype=dtype)
        else:
            weight = init.kaiming_uniform(fan_in, fan_out, shape=shape, device=device, dtype=dtype)
        self.weight = Parameter(axes.kept(self, weight, self._axes))
        self.bias = None
        if bias:
            bound = 1 / math.sqrt(fan_in)
            self.bias = Parameter(init.rand(out_channels, low=-bound, high=bound, device=device, dtype=dtype))

    _axes: tuple[int, ...] = axes.CONV2D

    #: Reads a size: the numbers of all axes from one number, or from one for each.
    _each: Any = staticmethod(pair)

    def _kept(self, size):
        """A size as the attributes of the layer have it: as it was given."""
        return size

    def kernel(self):
        """The weight as the ops take it: (..., in, out)."""
        return axes.used(self, self.weight, self._axes) if self.as_torch else self.weight


_PAD_MODES = ("zeros", "reflect", "replicate", "circular")


class _Correlation(_Convolution):
    """What `Conv1d`, `Conv2d` and `Conv3d` share."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        padding_mode: str = "zeros",
    ) -> None:
        kernel_size, stride, dilation = (self._kept(size) for size in (kernel_size, stride, dilation))
        window = self._each(kernel_size, f"{type(self).__name__}: kernel_size")
        ends = in_channels // max(groups, 1), out_channels
        super().__init__(in_channels, out_channels, groups, window, ends, bias, device, dtype)
        self.kernel_size, self.stride = kernel_size, stride
        place = self._place(padding, padding_mode, window, self._each(stride), self._each(dilation))
        self.padding, self._widths = place
        self.dilation, self.groups = dilation, groups

    def _place(self, padding, padding_mode, window, stride, dilation):
        """Padding as the ops take it, and, where it is no zeros, None or the widths of `pad`, which then goes first."""
        what = type(self).__name__
        if padding_mode not in _PAD_MODES:
            raise ValueError(f"{what}: padding_mode {padding_mode!r}: expected one of {', '.join(_PAD_MODES)}")
        padding = same_padding(what, padding, window, stride, dilation)
        self.padding_mode = padding_mode
        if padding_mode == "zeros":
            return padding, None
        sides = (padding,) * len(window) if isinstance(padding, int) else padding
        around = [n for side in reversed(sides) for n in (side if isinstance(side, (tuple, list)) else (side, side))]
        return 0, tuple(around)

    def _around(self, x):
        return x if self._widths is None else pad(x, self._widths, self.padding_mode)

    def _settings(self):
        return super()._settings().replace(", padding_mode='zeros'", "")


class _Transposed(_Convolution):
    """What `ConvTranspose1d`, `ConvTranspose2d` and `ConvTranspose3d` share."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        window = self._each(kernel_size, f"{type(self).__name__}: kernel_size")
        ends = out_channels // max(groups, 1), in_channels
        super().__init__(in_channels, out_channels, groups, window, ends, bias, device, dtype)
        self.kernel_size, self.stride, self.padding = (self._kept(size) for size in (kernel_size, stride, padding))
        self.output_padding, self.dilation, self.groups = self._kept(output_padding), self._kept(dilation), groups


class _OfSequences(_Convolution):
    """Sizes are single numbers."""

    _axes = axes.CONV1D

    @staticmethod
    def _each(size, what="kernel_size"):
        return (single(size, what),)

    def _kept(self, size):
        return single(size, f"{type(self).__name__}:")


class Conv2d(_Correlation):
    """y[n, f, i, j] = b[f] + sum over c, u, v of x[n, c, s i + d u - p, s j + d v - p] W[u, v, c, f]: NCHW -> NCHW.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : an int, or (rows, columns); padding also "same" or "valid"
    groups : cuts channels and filters into that many parts which do not see each other
    padding_mode : what is around an image: "zeros", "reflect", "replicate" or "circular"
    """

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "H", "W")
        nhwc = (x if self._widths is None else self._around(x)).permute((0, 2, 3, 1))
        y = ops.conv2d(nhwc, self.kernel(), self.bias, self.stride, self.padding, self.dilation, self.groups)
        return y.permute((0, 3, 1, 2))


class Conv(Conv2d):
    """`Conv2d` with a square kernel and padding (k - 1) // 2, which keeps the size of an image where k is odd and stride 1"""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        (size, wide), step = pair(kernel_size, "Conv: kernel_size"), pair(stride, "Conv: stride")
        if size != wide:
            raise ValueError(f"Conv: kernel_size {kernel_size}: expected a square one; Conv2d takes any")
        super().__init__(in_channels, out_channels, size, step, (size - 1) // 2, bias=bias, device=device, dtype=dtype)


class Conv1d(_OfSequences, _Correlation):
    """y[n, f, i] = b[f] + sum over c, u of x[n, c, s i + d u - p] W[u, c, f]: NCL -> NCL; see `Conv2d`"""

    def _place(self, padding, *sizes):
        padding, widths = super()._place(padding, *sizes)
        return padding[0] if isinstance(padding, (tuple, list)) and len(padding) == 1 else padding, widths

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "L")
        nlc = self._around(x).swapaxes(1, 2)
        y = ops.conv1d(nlc, self.kernel(), self.bias, self.stride, self.padding, self.dilation, self.groups)
        return y.swapaxes(1, 2)


class ConvTranspose2d(_Transposed):
    """The transpose of `Conv2d`, by W of shape (KH, KW, out / groups, in): H -> (H - 1) s - 2 p + d (k - 1) + 1 + output_padding"""

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "H", "W")
        sizes = (self.stride, self.padding, self.output_padding, self.dilation, self.groups)
        return ops.conv_transpose2d(x.permute((0, 2, 3, 1)), self.kernel(), self.bias, *sizes).permute((0, 3, 1, 2))


class ConvTranspose1d(_OfSequences, _Transposed):
    """The transpose of `Conv1d`, by W of shape (K, out / groups, in): L -> (L - 1) s - 2 p + d (k - 1) + 1 + output_padding"""

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "L")
        kernel = self.kernel()
        kernel = kernel.reshape((1, *kernel.shape))
        sizes = (1, self.stride), (0, self.padding), (0, self.output_padding), (1, self.dilation), self.groups
        nhwc = x.reshape((*x.shape[:2], 1, x.shape[2])).permute((0, 2, 3, 1))
        y = ops.conv_transpose2d(nhwc, kernel, self.bias, *sizes).permute((0, 3, 1, 2))
        return y.reshape((*y.shape[:2], y.shape[3]))
