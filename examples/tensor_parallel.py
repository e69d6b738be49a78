"""A transformer cut within its layers: `needle launch -n 2 examples/tensor_parallel.py` learns the bits that `python` does."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.distributed as dist
import needle.nn as nn
import needle.nn.functional as F
from needle.data import CharCorpus, stdlib_docstrings


class Model(nn.Module):
    """Each rank keeps some rows of the table of characters, some heads of each layer and some of its hidden units."""

    def __init__(
        self, vocabulary: int, width: int = 32, heads: int = 4, layers: int = 2, context: int = 32, shards: int = 4
    ) -> None:
        super().__init__()
        rows = -(-vocabulary // shards) * shards  # as many for every shard
        self.tokens = dist.RowEmbedding(nn.Embedding(rows, width), shards)
        self.positions = nn.Embedding(context, width)
        self.layers = [
            dist.ShardedLayer(nn.TransformerLayer(width, heads, width // heads, 4 * width), shards)
            for _ in range(layers)
        ]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids: ndl.Tensor) -> Any:  # (B, T) -> (B, T, vocabulary)
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main(steps: int = 100, batch: int = 8, context: int = 32, seed: int = 0) -> Any:
    world = dist.init()
    np.random.seed(seed)  # noqa: NPY002  what weights are drawn from: every rank draws all of them, and keeps its own
    rng = np.random.default_rng(seed)  # all ranks take the same text
    corpus = CharCorpus(stdlib_docstrings()[:200_000])
    model = Model(len(corpus), context=context)
    optimizer = ndl.optim.Adam(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for step in range(steps):
        starts = rng.integers(0, len(corpus.train) - context - 1, batch)
        text = np.stack([corpus.train[i : i + context + 1] for i in starts])
        logits = model(ndl.Tensor(text[:, :-1]))
        loss = F.cross_entropy(logits.reshape((-1, len(corpus))), ndl.Tensor(text[:, 1:].reshape(-1)))
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0 and world.rank == 0:
            print(
                f"step {step}: loss {losses[-1]!r}, {model.tokens.weights[0].shape[0]} rows in each shard", flush=True
            )
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
