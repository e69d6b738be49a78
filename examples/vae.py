"""A variational autoencoder of handwritten digits (Kingma & Welling 2013)."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
import needle.nn.functional as F
from needle.data import DataLoader, DigitsDataset


class VAE(nn.Module):
    def __init__(self, pixels: int = 64, hidden: int = 128, latent: int = 8) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def forward(self, x: ndl.Tensor) -> tuple[ndl.Tensor, ndl.Tensor, ndl.Tensor]:
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + ndl.exp(log_variance * 0.5) * ndl.init.randn(*mean.shape)
        return self.decoder(z), mean, log_variance


def loss_of(logits: ndl.Tensor, x: ndl.Tensor, mean: ndl.Tensor, log_variance: ndl.Tensor) -> ndl.Tensor:
    """The negative evidence lower bound, for one image"""
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean * mean - ndl.exp(log_variance)).sum()
    return (reconstruction + divergence) / x.shape[0]


def main(steps: int = 500, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights and samples are drawn from
    loader = DataLoader(DigitsDataset(), batch_size=64, shuffle=True, drop_last=True)
    model = VAE()
    optimizer = ndl.optim.Adam(model.parameters(), lr=1e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for x, _ in loader:
            logits, mean, log_variance = model(x)
            loss = loss_of(logits, x, mean, log_variance)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    with ndl.no_grad():
        images = ndl.sigmoid(model.decoder(ndl.init.randn(8, model.latent))).numpy().reshape(8, 8, 8)
    print(f"loss {losses[0]:.1f} -> {np.mean(losses[-20:]):.1f}; eight digits that it made up:")
    for row in images.swapaxes(0, 1):
        print("  ".join("".join(" .:*#"[min(int(p * 5), 4)] for p in part) for part in row))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    main(parser.parse_args().steps)
