"""LeNet-5 for square images of digits."""

from typing import Any

from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn


class LeNet(nn.Sequential):
    """Two convolutions with relu and max pool, then three linear maps: (N, in_channels, in_size, in_size) -> (N, num_classes).

    >>> import needle as ndl
    >>> LeNet(in_size=8)(ndl.ones(2, 1, 8, 8)).shape
    (2, 10)
    """

    def __init__(
        self,
        in_size: int = 28,
        in_channels: int = 1,
        num_classes: int = 10,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        if in_size < 4:
            raise ValueError(f"LeNet: in_size {in_size}: expected 4 or more, it is halved twice")
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            nn.Conv(in_channels, 6, 5, **made),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv(6, 16, 5, **made),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * (in_size // 4) ** 2, 120, **made),
            nn.ReLU(),
            nn.Linear(120, 84, **made),
            nn.ReLU(),
            nn.Linear(84, num_classes, **made),
        )
