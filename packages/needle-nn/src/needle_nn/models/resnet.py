"""Residual networks for images, in torchvision's names.

>>> import needle as ndl
>>> model = resnet18(num_classes=5).eval()
>>> model(ndl.ones(1, 3, 64, 64)).shape
(1, 5)
>>> list(model.state_dict())[:2]
['conv1.weight', 'bn1.weight']
"""

from typing import Any, ClassVar

from needle import ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike, Pair
from needle_nn import nn


class BasicBlock(nn.Module):
    """y = relu(norm(conv(relu(norm(conv(x))))) + x), 3 x 3 each; x is mapped where sizes differ"""

    expansion: ClassVar[int] = 1

    def __init__(
        self, in_channels: int, channels: int, stride: Pair, downsample: Any, device: DeviceLike, dtype: DTypeLike
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False, **made)
        self.bn1 = nn.BatchNorm2d(channels, **made)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False, **made)
        self.bn2 = nn.BatchNorm2d(channels, **made)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(ops.relu(self.bn1(self.conv1(x)))))
        return ops.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """The same with three convolutions: 1 x 1 to fewer channels, 3 x 3, and 1 x 1 to four times as many"""

    expansion: ClassVar[int] = 4

    def __init__(
        self, in_channels: int, channels: int, stride: Pair, downsample: Any, device: DeviceLike, dtype: DTypeLike
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False, **made)
        self.bn1 = nn.BatchNorm2d(channels, **made)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False, **made)
        self.bn2 = nn.BatchNorm2d(channels, **made)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False, **made)
        self.bn3 = nn.BatchNorm2d(4 * channels, **made)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        y = ops.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(ops.relu(self.bn2(self.conv2(y)))))
        return ops.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Images (N, in_channels, H, W) -> logits (N, num_classes).

    Parameters
    ----------
    block : BasicBlock or Bottleneck
    layers : how many blocks there are of each of four widths
    width : channels of the first blocks
    """

    def __init__(
        self,
        block: Any,
        layers: Any,
        num_classes: int = 1000,
        in_channels: int = 3,
        width: int = 64,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        if len(layers) != 4:
            raise ValueError(f"ResNet: layers {layers!r}: expected four numbers")
        self.conv1 = nn.Conv2d(in_channels, width, 7, 2, 3, bias=False, **made)
        self.bn1 = nn.BatchNorm2d(width, **made)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _blocks(block, width, width, layers[0], 1, made)
        self.layer2 = _blocks(block, width * block.expansion, 2 * width, layers[1], 2, made)
        self.layer3 = _blocks(block, 2 * width * block.expansion, 4 * width, layers[2], 2, made)
        self.layer4 = _blocks(block, 4 * width * block.expansion, 8 * width, layers[3], 2, made)
        self.fc = nn.Linear(8 * width * block.expansion, num_classes, **made)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(ops.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def _blocks(block: Any, in_channels: int, channels: int, count: int, stride: int, made: Any) -> nn.Sequential:
    """Blocks of one width; the first takes over from another width or size."""
    out = channels * block.expansion
    found = []
    for i in range(count):
        mapped = None
        if i == 0 and (stride != 1 or in_channels != out):
            mapped = nn.Sequential(
                nn.Conv2d(in_channels, out, 1, stride, bias=False, **made), nn.BatchNorm2d(out, **made)
            )
        found.append(block(out if i else in_channels, channels, 1 if i else stride, mapped, **made))
    return nn.Sequential(*found)


def resnet18(**settings: Any) -> ResNet:
    """The residual network of 18 layers: 11,689,512 parameters."""
    return ResNet(BasicBlock, (2, 2, 2, 2), **settings)


def resnet50(**settings: Any) -> ResNet:
    """The residual network of 50 layers: 25,557,032 parameters."""
    return ResNet(Bottleneck, (3, 4, 6, 3), **settings)
