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

from needle import init, ops
from needle_nn.checks import check_flag
from needle_nn.nn.module import Module, Parameter, check_sizes, expect


def pair(value, what="kernel_size") -> tuple[int, int]:
    """(rows, columns) from one number or two."""
    both = (value, value) if hasattr(type(value), "__index__") else value
    if not isinstance(both, (tuple, list)) or len(both) != 2 or not all(hasattr(type(n), "__index__") for n in both):
        raise TypeError(f"{what} {value!r}: expected an int or a pair of ints")
    rows, columns = both
    return rows.__index__(), columns.__index__()


class _Convolution(Module):
    """Draws kaiming_uniform weights of a shape (..., in / groups, out), then a bias from U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""

    def __init__(self, in_channels, out_channels, groups, window, shape, bias, device, dtype):
        super().__init__()
        check_sizes(self, in_channels=in_channels, out_channels=out_channels, kernel_size=min(window))
        check_flag(type(self).__name__, "bias", bias)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: {in_channels} and {out_channels} channels do not make {groups} groups"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        area = math.prod(window)
        fan_in, fan_out = in_channels // groups * area, out_channels // groups * area
        self.weight = Parameter(init.kaiming_uniform(fan_in, fan_out, shape=shape, device=device, dtype=dtype))
        self.bias = None
        if bias:
            bound = 1 / math.sqrt(fan_in)
            self.bias = Parameter(init.rand(out_channels, low=-bound, high=bound, device=device, dtype=dtype))


class Conv2d(_Convolution):
    """y[n, f, i, j] = b[f] + sum over c, u, v of x[n, c, s i + d u - p, s j + d v - p] W[u, v, c, f]: NCHW -> NCHW.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : an int, or (rows, columns)
    groups : cuts channels and filters into that many parts which do not see each other
    """

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        device=None,
        dtype="float32",
    ):
        window = pair(kernel_size, f"{type(self).__name__}: kernel_size")
        shape = (*window, in_channels // max(groups, 1), out_channels)
        super().__init__(in_channels, out_channels, groups, window, shape, bias, device, dtype)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.groups = dilation, groups

    def forward(self, x):
        expect(self, x, "N", self.in_channels, "H", "W")
        nhwc = x.permute((0, 2, 3, 1))
        y = ops.conv2d(nhwc, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return y.permute((0, 3, 1, 2))


class Conv(Conv2d):
    """`Conv2d` with a square kernel and padding (k - 1) // 2, which keeps the size of an image where k is odd and stride 1"""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, bias=True, device=None, dtype="float32"):
        (size, wide), step = pair(kernel_size, "Conv: kernel_size"), pair(stride, "Conv: stride")
        if size != wide:
            raise ValueError(f"Conv: kernel_size {kernel_size}: expected a square one; Conv2d takes any")
        super().__init__(in_channels, out_channels, size, step, (size - 1) // 2, bias=bias, device=device, dtype=dtype)


class Conv1d(_Convolution):
    """y[n, f, i] = b[f] + sum over c, u of x[n, c, s i + d u - p] W[u, c, f]: NCL -> NCL; see `Conv2d`"""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        device=None,
        dtype="float32",
    ):
        if isinstance(kernel_size, (tuple, list)) and len(kernel_size) == 1:
            (kernel_size,) = kernel_size
        shape = (kernel_size, in_channels // max(groups, 1), out_channels)
        super().__init__(in_channels, out_channels, groups, shape[:1], shape, bias, device, dtype)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.groups = dilation, groups

    def forward(self, x):
        expect(self, x, "N", self.in_channels, "L")
        nlc = x.swapaxes(1, 2)
        y = ops.conv1d(nlc, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return y.swapaxes(1, 2)


class ConvTranspose2d(_Convolution):
    """The transpose of `Conv2d`, by W of shape (KH, KW, out / groups, in): H -> (H - 1) s - 2 p + d (k - 1) + 1 + output_padding"""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        dilation=1,
        groups=1,
        bias=True,
        device=None,
        dtype="float32",
    ):
        window = pair(kernel_size, f"{type(self).__name__}: kernel_size")
        shape = (*window, out_channels // max(groups, 1), in_channels)
        super().__init__(in_channels, out_channels, groups, window, shape, bias, device, dtype)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.output_padding, self.dilation, self.groups = output_padding, dilation, groups

    def forward(self, x):
        expect(self, x, "N", self.in_channels, "H", "W")
        sizes = (self.stride, self.padding, self.output_padding, self.dilation, self.groups)
        return ops.conv_transpose2d(x.permute((0, 2, 3, 1)), self.weight, self.bias, *sizes).permute((0, 3, 1, 2))
