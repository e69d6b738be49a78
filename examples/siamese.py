"""A siamese network: images of the same digit come near to each other, others go apart."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
import needle.nn.functional as F
from needle.data import DataLoader, Dataset, DigitsDataset


class Triplets(Dataset):
    """An image, another of the same digit, and one of another digit."""

    def __init__(self, digits: DigitsDataset, rng: np.random.Generator) -> None:
        super().__init__()
        self.images, self.labels, self.rng = digits.X, digits.y, rng

    def __getitem__(self, i: int) -> Any:
        same = np.flatnonzero(self.labels == self.labels[i])
        other = np.flatnonzero(self.labels != self.labels[i])
        return self.images[i], self.images[self.rng.choice(same)], self.images[self.rng.choice(other)]

    def __len__(self) -> int:
        return len(self.labels)


class Embed(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, 3, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(1),
            nn.Linear(256, width),
        )

    def forward(self, x: ndl.Tensor) -> ndl.Tensor:
        return F.normalize(self.layers(x), dim=1)


def main(steps: int = 100, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights and the order are drawn from
    loader = DataLoader(Triplets(DigitsDataset(), np.random.default_rng(seed)), 32, shuffle=True)
    model = Embed()
    optimizer = ndl.optim.RMSprop(model.parameters(), lr=1e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for anchor, positive, negative in loader:
            loss = F.triplet_margin_loss(model(anchor), model(positive), model(negative), margin=0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    test = DigitsDataset(train=False)
    with ndl.no_grad():
        known, asked = (model(ndl.Tensor(part)).numpy() for part in (test.X[::2], test.X[1::2]))
    nearest = (asked @ known.T).argmax(1)
    accuracy = (test.y[::2][nearest] == test.y[1::2]).mean()
    print(
        f"loss {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}; the nearest image is of the same digit: {accuracy:.1%}"
    )
    return losses, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
