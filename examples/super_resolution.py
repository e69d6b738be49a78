"""Digits of 4 x 4 pixels become digits of 8 x 8: convolutions, and a shuffle of channels into pixels (Shi et al. 2016)."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
import needle.nn.functional as F
from needle.data import DataLoader, DigitsDataset


class Net(nn.Module):
    def __init__(self, upscale: int = 2) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, upscale**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(upscale)
        for conv in (self.conv1, self.conv2):
            nn.init.orthogonal_(conv.weight, nn.init.calculate_gain("relu"))
        nn.init.orthogonal_(self.conv3.weight)

    def forward(self, x: ndl.Tensor) -> Any:
        return self.shuffle(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))


def small(images: ndl.Tensor) -> tuple[ndl.Tensor, ndl.Tensor]:
    """(B, 64) -> (B, 1, 4, 4) and (B, 1, 8, 8)"""
    large = images.reshape((-1, 1, 8, 8))
    return F.avg_pool2d(large, 2), large


def main(steps: int = 200, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights and the order are drawn from
    loader = DataLoader(DigitsDataset(), 64, shuffle=True, drop_last=True)
    model, criterion = Net(), nn.MSELoss()
    optimizer = ndl.optim.Adam(model.parameters(), lr=2e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for images, _ in loader:
            x, target = small(images)
            loss = criterion(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    x, target = small(ndl.Tensor(DigitsDataset(train=False).X, requires_grad=False))
    with ndl.no_grad():
        found = criterion(model.eval()(x), target).item()
        plain = criterion(F.interpolate(x, scale_factor=2, mode="bicubic"), target).item()
    print(f"mean squared error on the test digits: {found:.4f}; of bicubic interpolation {plain:.4f}")
    return losses, found, plain


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    main(parser.parse_args().steps)
