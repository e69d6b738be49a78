"""Layers of volumes, (N, C, D, H, W): convolutions and poolings, put together of those of images.

>>> import needle as ndl
>>> x = ndl.ones(2, 3, 4, 8, 8)
>>> Conv3d(3, 5, 3, padding=1)(x).shape, MaxPool3d(2)(x).shape, ConvTranspose3d(3, 4, 2, stride=2)(x).shape
((2, 5, 4, 8, 8), (2, 3, 2, 4, 4), (2, 4, 8, 16, 16))
"""

from needle.autograd import Tensor
from needle_nn.nn import axes
from needle_nn.nn.basic import Dropout
from needle_nn.nn.conv import _Convolution, _Correlation, _Transposed
from needle_nn.nn.functional import maps, volumes
from needle_nn.nn.functional.volumes import triple
from needle_nn.nn.module import expect
from needle_nn.nn.norms import BatchNorm1d
from needle_nn.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d


class _OfVolumes(_Convolution):
    _axes = axes.CONV3D
    _each = staticmethod(triple)


class Conv3d(_OfVolumes, _Correlation):
    """y[n, f, t, i, j] = b[f] + sum over c, r, u, v of x[n, c, s t + d r - p, ...] W[r, u, v, c, f]: NCDHW; see `Conv2d`"""

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "D", "H", "W")
        weight = self.kernel().permute((4, 3, 0, 1, 2))
        return volumes.conv3d(self._around(x), weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose3d(_OfVolumes, _Transposed):
    """The transpose of `Conv3d`, by W (KD, KH, KW, out / groups, in): D -> (D - 1) s - 2 p + d (k - 1) + 1 + output_padding"""

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.in_channels, "D", "H", "W")
        sizes = self.stride, self.padding, self.output_padding, self.groups, self.dilation
        return volumes.conv_transpose3d(x, self.kernel().permute((4, 3, 0, 1, 2)), self.bias, *sizes)


class MaxPool3d(MaxPool2d):
    """`MaxPool2d` of volumes"""

    function = staticmethod(volumes.max_pool3d)
    op = None
    axes = "NCDHW"


class AvgPool3d(AvgPool2d):
    """`AvgPool2d` of volumes"""

    function = staticmethod(volumes.avg_pool3d)
    op = None
    axes = "NCDHW"


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
