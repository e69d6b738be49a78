"""A residual network of nine convolutions' depth for 32 x 32 images."""

from typing import Any

from needle.typing import DeviceLike, DTypeLike, Pair
from needle_nn import nn


class ConvBN(nn.Sequential):
    """y = relu(batch_norm(conv(x)))"""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            nn.Conv(in_channels, out_channels, kernel_size, stride, **made),
            nn.BatchNorm2d(out_channels, **made),
            nn.ReLU(),
        )


class ResNet9(nn.Sequential):
    """Images (N, 3, 32, 32) -> logits (N, 10): 431,946 parameters.

    >>> import needle as ndl
    >>> ResNet9().eval()(ndl.ones(2, 3, 32, 32)).shape
    (2, 10)
    """

    def __init__(self, device: DeviceLike = None, dtype: DTypeLike = "float32") -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            ConvBN(3, 16, 7, 4, **made),
            ConvBN(16, 32, 3, 2, **made),
            nn.Residual(nn.Sequential(ConvBN(32, 32, 3, 1, **made), ConvBN(32, 32, 3, 1, **made))),
            ConvBN(32, 64, 3, 2, **made),
            ConvBN(64, 128, 3, 2, **made),
            nn.Residual(nn.Sequential(ConvBN(128, 128, 3, 1, **made), ConvBN(128, 128, 3, 1, **made))),
            nn.Flatten(),
            nn.Linear(128, 128, **made),
            nn.ReLU(),
            nn.Linear(128, 10, **made),
        )
