"""A generative adversarial network (Goodfellow et al. 2014): points on eight spots of a circle."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn


def spots(rng: np.random.Generator, n: int) -> np.ndarray:
    angle = rng.integers(0, 8, n) * np.pi / 4
    return (2 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * rng.standard_normal((n, 2))).astype("float32")


def network(inputs: int, outputs: int, hidden: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Linear(hidden, outputs),
    )


def main(steps: int = 2000, batch: int = 128, latent: int = 8, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights and noise are drawn from
    rng = np.random.default_rng(seed)
    generator, discriminator = network(latent, 2), network(2, 1)
    of_generator = ndl.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    of_discriminator = ndl.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    criterion = nn.BCEWithLogitsLoss()
    real, fake = ndl.ones(batch, 1), ndl.zeros(batch, 1)
    losses: list[tuple[float, float]] = []
    for step in range(steps):
        points = generator(ndl.init.randn(batch, latent))
        # Each loss has a backward of its own: here gradients add up only where one says so.
        of_discriminator.zero_grad()
        loss_real = criterion(discriminator(ndl.Tensor(spots(rng, batch))), real)
        loss_real.backward()
        loss_fake = criterion(discriminator(points.detach()), fake)
        loss_fake.backward(accumulate=True)
        of_discriminator.step()

        of_generator.zero_grad()
        loss = criterion(discriminator(points), real)
        loss.backward()
        of_generator.step()
        losses.append((loss_real.item() + loss_fake.item(), loss.item()))
        if step % 500 == 0:
            print(f"step {step}: discriminator {losses[-1][0]:.3f}, generator {losses[-1][1]:.3f}")
    with ndl.no_grad():
        made = generator(ndl.init.randn(1000, latent)).numpy()
    near = (np.abs(np.linalg.norm(made, axis=1) - 2) < 0.4).mean()
    print(f"{near:.0%} of the points are near the circle")
    return losses, made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    main(parser.parse_args().steps)
