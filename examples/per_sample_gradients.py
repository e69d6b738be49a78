"""Training with differential privacy (Abadi et al. 2016): the gradient of every example is clipped, and noise is added."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
import needle.nn.functional as F
from needle.data import DataLoader, DigitsDataset
from needle.func import functional_call, grad, vmap


def main(steps: int = 200, most: float = 1.0, noise: float = 0.5, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights, noise and the order are drawn from
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    params = dict(model.named_parameters())
    optimizer = ndl.optim.SGD(model.parameters(), lr=0.5)

    def loss_of(params: dict[str, ndl.Tensor], x: ndl.Tensor, y: ndl.Tensor) -> ndl.Tensor:
        logits = functional_call(model, params, x.reshape((1, 64)))
        return F.cross_entropy(logits, y.reshape((1,)))

    gradients_of_each = vmap(grad(loss_of), in_dims=(None, 0, 0))
    loader = DataLoader(DigitsDataset(), 64, shuffle=True, drop_last=True)
    losses: list[float] = []
    while len(losses) < steps:
        for x, y in loader:
            each = gradients_of_each(params, x, y)  # {name: (64, *shape)}
            norms = ndl.sqrt(ndl.stack([(g * g).reshape((64, -1)).sum(1) for g in each.values()]).sum(0))
            factors = ndl.minimum(most / (norms + 1e-6), 1.0)
            for name, p in params.items():
                g = (each[name] * factors.reshape((64, *(1,) * p.ndim))).sum(0)
                p.grad = (g + ndl.init.randn(*p.shape) * (noise * most)) / 64
            optimizer.step()
            with ndl.no_grad():
                losses.append(F.cross_entropy(model(x), y).item())
            if len(losses) == steps:
                break
    test = DigitsDataset(train=False)
    with ndl.no_grad():
        accuracy = (model(ndl.Tensor(test.X)).numpy().argmax(1) == test.y).mean()
    print(f"loss {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}; {accuracy:.1%} of the test digits are right")
    return losses, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    main(parser.parse_args().steps)
