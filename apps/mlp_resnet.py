"""A residual perceptron learns MNIST: the course's homework 2.

    python apps/mlp_resnet.py DATA_DIR [--epochs N]

DATA_DIR holds the four gzipped files of MNIST.
"""

import argparse
import math
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
from needle_nn.models import MLPResNet, ResidualBlock

__all__ = ["MLPResNet", "ResidualBlock", "epoch", "train_mnist"]


def epoch(dataloader: Any, model: nn.Module, opt: Any = None) -> tuple[float, float]:
    """One pass over the data, with a step of `opt` after every batch if there is one: (error rate, mean of the batches' losses)."""
    np.random.seed(4)  # noqa: NPY002
    model.train(opt is not None)
    loss_fn = nn.SoftmaxLoss()
    wrong, count, losses = 0, 0, []
    with ndl.set_grad_enabled(opt is not None):
        for x, y in dataloader:
            logits = model(nn.Flatten()(x))
            loss = loss_fn(logits, y)
            if opt is not None:
                opt.reset_grad()
                loss.backward()
                opt.step()
            wrong += int((logits.numpy().argmax(axis=1) != y.numpy()).sum())
            count += y.shape[0]
            losses.append(loss.item())
    return wrong / count, float(np.mean(losses))


def train_mnist(
    batch_size: int = 100,
    epochs: int = 10,
    optimizer: Any = ndl.optim.Adam,
    lr: float = 0.001,
    weight_decay: float = 0.001,
    hidden_dim: int = 100,
    data_dir: str = "data",
) -> tuple[float, ...]:
    """Train an MLPResNet on MNIST, by default with Adam: (training error, loss, test error, loss) of the last epoch."""
    np.random.seed(4)  # noqa: NPY002
    sets = [
        ndl.data.MNISTDataset(f"{data_dir}/{part}-images-idx3-ubyte.gz", f"{data_dir}/{part}-labels-idx1-ubyte.gz")
        for part in ("train", "t10k")
    ]
    train = ndl.data.DataLoader(sets[0], batch_size, shuffle=True)
    test = ndl.data.DataLoader(sets[1], batch_size)
    model = MLPResNet(sets[0][0][0].size, hidden_dim)
    opt = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)
    trained = (math.nan, math.nan)
    for _ in range(epochs):
        trained = epoch(train, model, opt)
    return *trained, *epoch(test, model)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data_dir")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    numbers = train_mnist(epochs=args.epochs, data_dir=args.data_dir)
    print("training error {:.4f}, loss {:.4f}; test error {:.4f}, loss {:.4f}".format(*numbers))


if __name__ == "__main__":
    main()
