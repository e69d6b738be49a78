"""Mistakes in training on two ranks: each is an error on all of them, with both sides in one line."""

import re

import numpy as np

import needle as ndl
import needle.distributed as dist
from needle_nn import nn, optim
from needle_nn.data import DataLoader, NDArrayDataset
from needle_nn.training import Trainer

world = dist.init()
X, Y = np.random.RandomState(0).randn(24, 3).astype("float32"), np.arange(24) % 2


class Counts(nn.Module):
    """A buffer that follows the data of this rank's parts only."""

    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(3, 2), ndl.zeros(3)

    def forward(self, x):
        self.seen = self.seen + x.sum(0).detach()
        return self.linear(x)


class Free(nn.Module):
    """Batch norm whose statistics nobody saves."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self._mean, self._var = ndl.zeros(3), ndl.ones(3)

    def forward(self, x):
        return self.linear(ndl.batch_norm(x, running_mean=self._mean, running_var=self._var))


def fit(model=None, n=24, accumulate=2, epochs=1, clip_norm=None, x=X, lr=0.1):
    model = model or nn.Linear(3, 2)
    trainer = Trainer(
        model,
        optim.SGD(model.parameters(), lr=lr),
        nn.SoftmaxLoss(),
        accumulate=accumulate,
        clip_norm=clip_norm,
        world=world,
    )
    trainer.fit(DataLoader(NDArrayDataset(x[:n], Y[:n]), 4), epochs)


BAD = np.where(np.arange(24)[:, None] == 13, np.float32("nan"), X)
MISTAKES = {
    "loaders": (
        lambda: fit(n=24 - 8 * world.rank),
        "rank 0 has a loader of 6 batches, rank 1 has a loader of 4 batches",
    ),
    "epochs": (lambda: fit(epochs=1 + world.rank), r"fit\(1 epochs, steps=None\).*rank 1 has fit\(2 epochs"),
    "clipping": (lambda: fit(clip_norm=world.rank or None), "rank 0 has clip_norm=None, rank 1 has clip_norm=1"),
    "models": (lambda: fit(nn.Linear(3, 2 + world.rank)), r"rank 0 has weight float32 \(3, 2\), rank 1 has weight"),
    "a loss that is none": (lambda: fit(x=BAD), "the loss is nan in epoch 1, batch 4"),
    "buffers": (
        lambda: fit(Counts()),
        "Trainer: after step 3: ranks differ: rank 0 has seen of sha256 .*, rank 1 has seen",
    ),
    "statistics": (lambda: fit(Free()), "running statistics of shape .* are no buffer of the model"),
}
for name, (call, told) in MISTAKES.items():
    try:
        call()
    except (ValueError, ArithmeticError, dist.DistributedError) as error:
        assert re.search(told, str(error)) and "\n" not in str(error), (name, str(error))
    else:
        raise AssertionError(f"{name}: no error")
print("all mistakes are told")
