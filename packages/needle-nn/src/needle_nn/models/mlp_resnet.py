"""A residual multi-layer perceptron."""

from functools import partial
from typing import Any

from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn


class ResidualBlock(nn.Sequential):
    """y = relu(x + norm(W2 dropout(relu(norm(W1 x))))): (N, dim) -> (N, dim), hidden_dim wide inside"""

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        norm: Any = nn.BatchNorm1d,
        drop_prob: float = 0.1,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        plain = device is None and dtype == "float32"  # a norm of the user's own may take its size only
        sized = norm if plain else partial(norm, **made)
        inner = nn.Sequential(
            nn.Linear(dim, hidden_dim, **made),
            sized(hidden_dim),
            nn.ReLU(),
            nn.Dropout(drop_prob),
            nn.Linear(hidden_dim, dim, **made),
            sized(dim),
        )
        super().__init__(nn.Residual(inner), nn.ReLU())


class MLPResNet(nn.Sequential):
    """y = W' block(... block(relu(W x))): (N, dim) -> (N, num_classes).

    Parameters
    ----------
    hidden_dim, num_blocks : width and number of the blocks, which are hidden_dim // 2 wide inside
    norm : the class of the blocks' normalisation, called with its size
    drop_prob : of the blocks' dropout

    >>> import needle as ndl
    >>> MLPResNet(784, hidden_dim=32)(ndl.ones(2, 784)).shape
    (2, 10)
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int = 100,
        num_blocks: int = 3,
        num_classes: int = 10,
        norm: Any = nn.BatchNorm1d,
        drop_prob: float = 0.1,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            nn.Linear(dim, hidden_dim, **made),
            nn.ReLU(),
            *[ResidualBlock(hidden_dim, hidden_dim // 2, norm, drop_prob, **made) for _ in range(num_blocks)],
            nn.Linear(hidden_dim, num_classes, **made),
        )
