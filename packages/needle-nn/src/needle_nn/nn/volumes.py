"""Layers of volumes, (N, C, D, H, W): convolutions and poolings, put together of those of images.

>>> import needle as ndl
>>> x = ndl.ones(2, 3, 4, 8, 8)
>>> Conv3d(3, 5, 3, padding=1)(x).shape, MaxPool3d(2)(x).shape, ConvTranspose3d(3, 4, 2, stride=2)(x).shape
((2, 5, 4, 8, 8), (2, 3, 2, 4, 4), (2, 4, 8, 16, 16))
"""

from typing import Any

from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn.nn import axes
from needle_nn.nn.basic import Dropout
from needle_nn.nn.conv import _Convolution
from needle_nn.nn.functional import maps, volumes
from needle_nn.nn.functional.volumes import triple
from needle_nn.nn.module import expect
from needle_nn.nn.norms import BatchNorm1d
from needle_nn.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d


class Conv3d(_Convolution):
    """y[n, f, t, i, j] = b[f] + sum over c, r, u, v of x[n, c, s t + d r - p, ...] W[r, u, v, c, f]: NCDHW; see `Conv2d`"""

    _axes = axes.CONV3D

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
        window = triple(kernel_size, f"{type(self).__name__}: kernel_size")
        shape = (*window, in_channels // max(groups, 1), out_channels)
        super().__init__(in_channels, out_channels, groups, window, shape, bias, device, dtype)
        self.kernel_size, self.stride = kernel_size, stride
        self.padding, self._widths = self._place(padding, padding_mode, window, triple(stride), triple(dilation))
        self.dilation, self.groups = dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "D", "H", "W")
        weight = self.kernel().permute((4, 3, 0, 1, 2))
        return volumes.conv3d(self._around(x), weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose3d(_Convolution):
    """The transpose of `Conv3d`, by W (KD, KH, KW, out / groups, in): D -> (D - 1) s - 2 p + d (k - 1) + 1 + output_padding"""

    _axes = axes.CONV3D

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
        window = triple(kernel_size, f"{type(self).__name__}: kernel_size")
        shape = (*window, out_channels // max(groups, 1), in_channels)
        super().__init__(in_channels, out_channels, groups, window, shape, bias, device, dtype)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.output_padding, self.dilation, self.groups = output_padding, dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "D", "H", "W")
        sizes = self.stride, self.padding, self.output_padding, self.groups, self.dilation
        return volumes.conv_transpose3d(x, self.kernel().permute((4, 3, 0, 1, 2)), self.bias, *sizes)


class MaxPool3d(MaxPool2d):
    """`MaxPool2d` of volumes"""

    function = staticmethod(volumes.max_pool3d)
    axes = "NCDHW"

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, *self.axes)
        return self.function(x, self.kernel_size, self.stride, self.padding, **self._more())


class AvgPool3d(AvgPool2d):
    """`AvgPool2d` of volumes"""

    function = staticmethod(volumes.avg_pool3d)
    axes = "NCDHW"
    forward = MaxPool3d.forward


class AdaptiveAvgPool3d(AdaptiveAvgPool2d):
    """y[t, i, j] = the average of slices floor(t D / OD) to ceil((t + 1) D / OD), and of rows and columns likewise"""

    function = staticmethod(volumes.adaptive_avg_pool3d)
    axes = "NCDHW"


class BatchNorm3d(BatchNorm1d):
    """`BatchNorm1d` of volumes: (N, dim, D, H, W)"""

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.dim, "D", "H", "W")
        return super().forward(x)


class Dropout3d(Dropout):
    """`Dropout` of whole channels: (N, C, D, H, W)"""

    function = staticmethod(maps.dropout3d)
