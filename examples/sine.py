"""An LSTM goes on drawing sine waves; L-BFGS trains it."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn


class Sequence(nn.Module):
    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, x: ndl.Tensor, future: int = 0) -> Any:  # (B, T, 1) -> (B, T + future, 1)
        y, state = self.lstm(x)
        outputs = [self.linear(y)]
        for _ in range(future):
            y, state = self.lstm(outputs[-1][:, -1:], state)
            outputs.append(self.linear(y))
        return ndl.concatenate(outputs, 1)


def main(steps: int = 8, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights are drawn from
    starts = np.random.default_rng(seed).uniform(0, 2 * np.pi, (20, 1))
    waves = np.sin(starts + np.arange(120) / 6).astype("float32")[..., None]
    x, target = ndl.Tensor(waves[:, :-1]), ndl.Tensor(waves[:, 1:])
    model, criterion = Sequence(), nn.MSELoss()
    optimizer = ndl.optim.LBFGS(model.parameters(), lr=0.8)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), target)
        loss.backward()
        return loss

    losses: list[float] = []
    for step in range(steps):
        losses.append(float(optimizer.step(closure)))
        print(f"step {step}: loss {losses[-1]:.6f}")
    with ndl.no_grad():
        drawn = model(x[:1, :60], future=59).numpy()[0, :, 0]
    return losses, drawn, waves[0, 1:, 0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    main(parser.parse_args().steps)
