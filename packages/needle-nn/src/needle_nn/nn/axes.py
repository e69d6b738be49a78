"""The axes of a weight: Needle's, as a layer multiplies with it, or PyTorch's, of layers made within `needle.compat("torch")`.

>>> import needle as ndl
>>> from needle import nn
>>> with ndl.compat("torch"):
...     layer = nn.Linear(3, 2)
>>> layer.weight.shape, layer.bias.shape, layer(ndl.ones(4, 3)).shape
((2, 3), (2,), (4, 2))
"""

from typing import Any

from needle import Tensor

LINEAR, CONV1D, CONV2D, CONV3D = (1, 0), (2, 1, 0), (2, 3, 1, 0), (2, 3, 4, 1, 0)  # PyTorch's axes, in Needle's order


def kept(layer: Any, weight: Tensor, axes: tuple[int, ...]) -> Any:
    """A weight with Needle's axes, as the layer keeps it: what a Parameter is made of."""
    if not layer.as_torch:
        return weight
    with_torch = sorted(range(len(axes)), key=axes.__getitem__)
    return Tensor.make_const(weight.realize_cached_data().permute(with_torch).compact())


def used(layer: Any, weight: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The weight of a layer with Needle's axes."""
    return weight.permute(axes) if layer.as_torch else weight
