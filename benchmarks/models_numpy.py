"""The tiny MLP by hand in NumPy: forward, backward and update written out, without automatic differentiation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads import LR, batch_of, draw, kind_of


def train(name: str, batch: int) -> Callable[[], Any]:
    """A function that does a step and returns the loss."""
    if name != "mlp":
        raise ValueError(f"{name}: not written by hand")
    rng = np.random.default_rng(0)
    shapes = [(2, 16), (1, 16), (16, 16), (1, 16), (16, 1), (1, 1)]
    kinds = [kind_of("weight" if i % 2 == 0 else "bias", 2) for i in range(6)]
    w1, b1, w2, b2, w3, b3 = params = [draw(rng, kind, shape) for kind, shape in zip(kinds, shapes, strict=True)]
    x, y = batch_of(name, batch)

    def step() -> Any:
        h1 = np.tanh(x @ w1 + b1)
        h2 = np.tanh(h1 @ w2 + b2)
        error = h2 @ w3 + b3 - y
        loss = (error * error).mean()
        d3 = error * (2 / error.size)
        d2 = d3 @ w3.T * (1 - h2 * h2)
        d1 = d2 @ w2.T * (1 - h1 * h1)
        grads = (x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0))
        for p, g in zip(params, grads, strict=True):
            p -= LR[name] * g
        return loss

    return step
