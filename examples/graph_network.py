"""A graph convolutional network (Kipf & Welling 2017) finds communities from a few labelled members."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
import needle.nn.functional as F


def communities(
    rng: np.random.Generator, members: int = 40, groups: int = 4, inside: float = 0.25, outside: float = 0.01
) -> Any:
    """Adjacency, with more edges inside of the groups, and the group of each node."""
    labels = np.repeat(np.arange(groups), members)
    p = np.where(labels[:, None] == labels, inside, outside)
    edges = np.triu(rng.random(p.shape) < p, 1)
    return (edges | edges.T).astype("float32"), labels


class GraphConvolution(nn.Module):
    """y = A x W + b"""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(ndl.zeros(in_features, out_features))
        self.bias = nn.Parameter(ndl.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: ndl.Tensor, adjacency: ndl.Tensor) -> ndl.Tensor:
        return adjacency @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GraphConvolution(features, hidden), GraphConvolution(hidden, classes)

    def forward(self, x: ndl.Tensor, adjacency: ndl.Tensor) -> ndl.Tensor:
        x = F.dropout(F.relu(self.first(x, adjacency)), 0.3, training=self.training)
        return F.log_softmax(self.second(x, adjacency), dim=1)


def main(steps: int = 100, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights are drawn from
    rng = np.random.default_rng(seed)
    edges, labels = communities(rng)
    edges = edges + np.eye(len(edges), dtype="float32")
    degree = edges.sum(1)
    adjacency = ndl.Tensor(edges / np.sqrt(degree[:, None] * degree), requires_grad=False)
    known = np.full(len(labels), -100)  # labels that the loss leaves out
    for group in range(labels.max() + 1):
        chosen = rng.choice(np.flatnonzero(labels == group), 3, replace=False)
        known[chosen] = group
    x, target = ndl.Tensor(np.eye(len(labels), dtype="float32")), ndl.Tensor(known)
    model = GCN(len(labels), 16, labels.max() + 1)
    optimizer = ndl.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses: list[float] = []
    for _ in range(steps):
        loss = F.nll_loss(model(x, adjacency), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with ndl.no_grad():
        found = model.eval()(x, adjacency).numpy().argmax(1)
    accuracy = (found == labels)[known < 0].mean()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; {accuracy:.1%} of the others are in the right community")
    return losses, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
