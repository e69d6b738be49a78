"""Batch norm over the batches of all ranks."""

import needle_ndarray as nd
from needle import ops
from needle.autograd import Tensor
from needle.statistics import follow
from needle.typing import DeviceLike, DTypeLike
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.ops import all_reduce
from needle_nn.distributed.starting import current
from needle_nn.nn import BatchNorm1d, Module
from needle_nn.nn.module import expect


class SyncBatchNorm(BatchNorm1d):
    """`BatchNorm1d` whose mean and variance are those of the batches of all ranks together: (N, dim) or (N, dim, ...).

    All ranks go through it together, forward and back; N may differ. Sums follow the tree over ranks, so that results depend on
    who has which examples, as a step does that is cut into as many parts. It is for training by hand: a `Trainer` computes the
    parts of a step one after the other, and none can wait for statistics of the next.

    Parameters
    ----------
    dim : how many channels
    world : the communicator; that of `init()`

    >>> import needle as ndl
    >>> SyncBatchNorm(3)(ndl.init.rand(4, 3, 5, 5)).shape
    (4, 3, 5, 5)
    """

    def __init__(
        self,
        dim: int,
        eps: float = 1e-05,
        momentum: float = 0.1,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        world: Communicator | None = None,
    ) -> None:
        super().__init__(dim, eps, momentum, device, dtype)
        self.world = current(world)

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.dim, *x.shape[2:])
        if not self.training:
            return super().forward(x)
        axes = (0, *range(2, x.ndim))
        shape = (1, self.dim, *[1] * (x.ndim - 2))
        count = int(self.world.all_reduce(nd.array([x.size // self.dim], "int64")).item())
        if not count:
            raise ValueError(f"SyncBatchNorm: no examples on any of {self.world.size} ranks")
        mean = all_reduce(x.sum(axes), world=self.world) / count
        centred = x - mean.reshape(shape)
        var = all_reduce((centred * centred).sum(axes), world=self.world) / count
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        assert self.weight is not None and self.bias is not None  # it is made with all four
        for running, new in ((self.running_mean, mean), (self.running_var, var)):
            follow(running, new.realize_cached_data().astype(running.dtype), 1 - self.momentum, self.momentum)
        y = centred / ops.sqrt(var + self.eps).reshape(shape)
        return y * self.weight.reshape(shape).astype(x.dtype) + self.bias.reshape(shape).astype(x.dtype)


def synchronised(model: Module, world: Communicator | None = None) -> Module:
    """The model with a `SyncBatchNorm` in the place of every BatchNorm1d and BatchNorm2d, with their parameters; in place.

    >>> from needle import nn
    >>> synchronised(nn.Sequential(nn.Conv(1, 4, 3), nn.BatchNorm2d(4)))
    Sequential(
      (0): Conv(in_channels=1, out_channels=4, kernel_size=3, stride=1, bias=True)
      (1): SyncBatchNorm(dim=4, eps=1e-05, momentum=0.1)
    )
    """
    return _replaced(model, current(world))


def _replaced(value, world):
    if isinstance(value, BatchNorm1d) and not isinstance(value, SyncBatchNorm):
        if value.weight is None or value.running_mean is None:
            raise ValueError("synchronised: a batch norm without parameters or without running statistics")
        if value.momentum is None:
            raise ValueError("synchronised: momentum None, the mean of all batches: expected a number")
        made = SyncBatchNorm(value.dim, value.eps, value.momentum, world=world)
        for name in ("weight", "bias", "running_mean", "running_var", "training"):
            setattr(made, name, getattr(value, name))
        return made
    if isinstance(value, Module):
        for name, child in vars(value).items():
            if isinstance(child, (Module, list, tuple, dict)):
                setattr(value, name, _replaced(child, world))
    elif isinstance(value, dict):
        return {name: _replaced(child, world) for name, child in value.items()}
    elif isinstance(value, (list, tuple)):
        return type(value)(_replaced(child, world) for child in value)
    return value
