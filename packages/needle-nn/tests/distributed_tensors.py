"""Run as ranks: a small transformer cut within its layers; prints a sha256 of what it learns, the same on any number of ranks."""

import hashlib

import numpy as np

import needle as ndl
import needle.distributed as dist
from needle import nn, optim

SHARDS, WORDS, WIDTH = 4, 24, 16
world = dist.init()


class Model(nn.Module):
    def __init__(self, dtype, cut):
        super().__init__()
        np.random.seed(3)  # noqa: NPY002 - what layers draw from
        table, head = nn.Embedding(WORDS, WIDTH, dtype=dtype), nn.Linear(WIDTH, WORDS, dtype=dtype)
        layers = [nn.TransformerLayer(WIDTH, 4, 8, 32, dtype=dtype) for _ in range(2)]
        self.embedding = dist.RowEmbedding(table, SHARDS) if cut else table
        self.layers = [dist.ShardedLayer(layer, SHARDS) for layer in layers] if cut else layers
        self.norm, self.head = nn.LayerNorm1d(WIDTH, dtype=dtype), head

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def trained(dtype, cut, steps=3):
    model, loss_of = Model(dtype, cut), nn.SoftmaxLoss()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    rng, losses = np.random.default_rng(0), []
    for _ in range(steps):
        ids = ndl.Tensor(rng.integers(0, WORDS, (3, 7)), dtype="int64", requires_grad=False)
        optimizer.reset_grad()
        loss = loss_of(model(ids[:, :-1]).reshape((18, WORDS)), ids[:, 1:].reshape((18,)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def parts_of(model, cut):
    """All parameters, put together where they were cut, in one order."""
    found = [model.embedding.whole() if cut else model.embedding.weight]
    for layer in model.layers:
        if cut:
            columns = [*layer.attention.projections, layer.up]
            rows = [layer.attention.out_projection, layer.down]
            found += [p for each in (*columns, *rows) for p in each.whole() if p is not None]
            found += [p for norm in (*layer.attention.norms, layer.norm) for p in norm.parameters()]
        else:
            heads = layer.attention
            columns = [heads.q_projection, heads.k_projection, heads.v_projection, layer.mlp.modules[1]]
            rows = [heads.out_projection, layer.mlp.modules[4]]
            norms = [heads.prenorm_q, heads.prenorm_k, heads.prenorm_v, layer.mlp.modules[0]]
            found += [p for each in (*columns, *rows, *norms) for p in each.parameters()]
    return [p.numpy() for p in [*found, *model.norm.parameters(), *model.head.parameters()]]


def check_beside_the_whole_model():
    """In float64 the cut model follows the one that is not cut: sums are rounded in another order only."""
    (cut, losses), (whole, expected) = trained("float64", True), trained("float64", False)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for found, wanted in zip(parts_of(cut, True), parts_of(whole, False), strict=True):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=0, atol=1e-9)
    assert sum(p.size for p in cut.parameters()) < sum(p.size for p in whole.parameters()) or world.size == 1


check_beside_the_whole_model()
model, losses = trained("float32", True)
digest = hashlib.sha256(repr(losses).encode())
for array in parts_of(model, True):
    digest.update(array.tobytes())
if world.rank == 0:
    print("sha", digest.hexdigest(), flush=True)
