"""Layers cut within: each rank has some of a layer's columns, rows or heads, and sums of all of them are made by a tree.

A layer is cut into shards, whose number belongs to the experiment as that of parts does: a rank computes a run of them, and the
results have the same bits on any number of ranks. Beside the layer that was not cut, sums are rounded in another order.
All ranks give the same inputs, and have the same outputs, losses and gradients of what is not cut.
"""

from collections.abc import Sequence
from typing import Any

import needle_ndarray as nd
from needle import Tensor, TensorTupleOp, ops, zeros_like
from needle_nn.checks import check_count, described
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.ops import Communication
from needle_nn.distributed.starting import current
from needle_nn.nn import AttentionLayer, Dropout, Embedding, Linear, Module, Parameter, TransformerLayer


class Joined(Communication):
    """y = sum of x over ranks;  dx = dy, which all ranks have"""

    verb = "all_reduce"

    def communicate(self, x: Any) -> Any:
        return self.world.all_reduce(x)

    def gradient(self, out_grad, node):
        return Spread(self.world, 1)(out_grad)[0]


class Spread(TensorTupleOp):
    """y_i = x for each of `count` shards here;  dx = sum of dy_i over the shards of all ranks"""

    needs = ""

    def __init__(self, world: Communicator, count: int) -> None:
        self.world, self.count = world, count

    def compute(self, x):
        return (x,) * self.count

    def gradient(self, out_grad, node):
        return joined(out_grad.tuple(), self.world)


def joined(xs: Sequence[Tensor], world: Communicator) -> Tensor:
    """The sum of the shards of all ranks: ((x0 + x1) + (x2 + x3)) + ..., as `tree_reduce`, whoever has which."""
    level = list(xs)
    while len(level) > 1:
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=True)]
    return Joined(world)(level[0])


class Shards:
    """Which of a layer's shards a rank has: `count` of them in all, `mine` of them here."""

    def __init__(self, what: str, count: int | None, world: Communicator | None) -> None:
        self.world = current(world)
        self.count = self.world.size if count is None else check_count(what, "shards", count, 1)
        here, rest = divmod(self.count, self.world.size)
        if rest or here & (here - 1):
            raise ValueError(
                f"{what}: {self.count} shards on {self.world.size} ranks: expected 1, 2, 4, ... of them on each"
            )
        self.mine = range(self.world.rank * here, (self.world.rank + 1) * here)

    def cut(self, what: str, size: int, unit: int = 1) -> list[slice]:
        """This rank's slices of an axis that is cut in as many equal ones as there are shards."""
        if size % (self.count * unit):
            raise ValueError(f"{what}: {size // unit} do not make {self.count} equal shards")
        n = size // self.count
        return [slice(i * n, (i + 1) * n) for i in self.mine]

    def spread(self, x: Tensor) -> tuple[Tensor, ...]:
        return Spread(self.world, len(self.mine))(x).tuple()

    def joined(self, xs: Sequence[Tensor]) -> Tensor:
        return joined(xs, self.world)

    def whole(self, pieces: Sequence[Tensor], axis: int) -> Tensor:
        """The parameter that was cut along an axis, on every rank; without a gradient."""
        mine = ops.stack([piece.detach() for piece in pieces], 0).realize_cached_data()
        every = Tensor.make_const(self.world.all_gather(mine)).reshape((self.count, *pieces[0].shape))
        return ops.concatenate([every[i] for i in range(self.count)], axis)


def piece(p: Tensor, *where: slice) -> Parameter:
    """Some elements of a parameter as one of their own."""
    return Parameter(Tensor.make_const(p.realize_cached_data()[where].compact()))


class ColumnLinear(Module):
    """y_s = x W_s + b_s for every shard s here, W_s the columns of it: (..., in) -> a list of (..., out / shards).

    Parameters
    ----------
    linear : the layer to cut; every rank makes the same
    shards : how many; by default one on each rank
    world : the communicator; that of `init()`
    """

    def __init__(self, linear: Linear, shards: int | None = None, world: Communicator | None = None) -> None:
        super().__init__()
        expect_a(self, "linear", linear, Linear)
        self.shards = Shards("ColumnLinear", shards, world)
        columns = self.shards.cut("ColumnLinear: columns", linear.out_features)
        self.weights = [piece(linear.weight, slice(None), at) for at in columns]
        self.biases = [piece(linear.bias, slice(None), at) for at in columns] if linear.bias is not None else None

    def forward(self, x: Tensor) -> list[Tensor]:
        xs = self.shards.spread(x)
        biases: list[Parameter | None] = [*self.biases] if self.biases else [None] * len(xs)
        return [ops.linear(x, w, b) for x, w, b in zip(xs, self.weights, biases, strict=True)]

    def whole(self) -> tuple[Tensor, Tensor | None]:
        """(weight, bias) of the layer that was cut, asked for by all ranks."""
        return self.shards.whole(self.weights, 1), None if self.biases is None else self.shards.whole(self.biases, 1)


class RowLinear(Module):
    """y = sum of x_s W_s over the shards of all ranks + b, W_s the rows of it: a list of (..., in / shards) -> (..., out).

    Parameters
    ----------
    linear : the layer to cut; every rank makes the same
    shards : how many; by default one on each rank
    world : the communicator; that of `init()`

    >>> from needle import init, nn
    >>> up, down = ColumnLinear(nn.Linear(6, 8)), RowLinear(nn.Linear(8, 6))
    >>> down([ops.relu(y) for y in up(init.rand(2, 6))]).shape
    (2, 6)
    """

    def __init__(self, linear: Linear, shards: int | None = None, world: Communicator | None = None) -> None:
        super().__init__()
        expect_a(self, "linear", linear, Linear)
        self.shards = Shards("RowLinear", shards, world)
        rows = self.shards.cut("RowLinear: rows", linear.in_features)
        self.weights = [piece(linear.weight, at) for at in rows]
        self.bias = linear.bias

    def forward(self, xs: Any) -> Tensor:
        y = self.shards.joined([x @ w for x, w in zip(xs, self.weights, strict=True)])
        return y if self.bias is None else y + self.bias.reshape((1,) * (len(y.shape) - 1) + (-1,))

    def whole(self) -> tuple[Tensor, Tensor | None]:
        """(weight, bias) of the layer that was cut, asked for by all ranks."""
        return self.shards.whole(self.weights, 0), None if self.bias is None else self.bias.detach()


class RowEmbedding(Module):
    """y = weight[ids], each shard having some of the rows: every id is found in one shard, the others give 0.

    Parameters
    ----------
    embedding : the table to cut; every rank makes the same
    shards : how many; by default one on each rank
    world : the communicator; that of `init()`
    """

    def __init__(self, embedding: Embedding, shards: int | None = None, world: Communicator | None = None) -> None:
        super().__init__()
        expect_a(self, "embedding", embedding, Embedding)
        self.shards = Shards("RowEmbedding", shards, world)
        self.rows = self.shards.cut("RowEmbedding: rows", embedding.num_embeddings)
        self.weights = [piece(embedding.weight, at) for at in self.rows]

    def forward(self, ids: Any) -> Tensor:
        ids = ids if isinstance(ids, Tensor) else Tensor(nd.array(ids, "int64"), requires_grad=False)
        ids, found = ids.detach().astype("int64"), []
        for at, weight in zip(self.rows, self.weights, strict=True):
            inside = ops.logical_and(ids >= at.start, ids < at.stop)
            rows = ops.embedding(ops.where(inside, ids - at.start, zeros_like(ids)), weight)
            found.append(ops.where(inside.reshape((*ids.shape, 1)), rows, zeros_like(rows)))
        return self.shards.joined(found)

    def whole(self) -> Tensor:
        """The table that was cut, asked for by all ranks."""
        return self.shards.whole(self.weights, 0)


class HeadsAttention(Module):
    """An `AttentionLayer` whose heads are cut: each shard has as many, with their columns of W_q, W_k, W_v and rows of W_out.

    Parameters
    ----------
    layer : the layer to cut, without dropout of probabilities; every rank makes the same
    shards : how many; by default one on each rank
    world : the communicator; that of `init()`
    """

    def __init__(self, layer: AttentionLayer, shards: int | None = None, world: Communicator | None = None) -> None:
        super().__init__()
        expect_a(self, "layer", layer, AttentionLayer)
        refuse_dropout(self, layer.attn.dropout)
        self.norms = [layer.prenorm_q, layer.prenorm_k, layer.prenorm_v]
        made = (shards, world)
        self.projections = [
            ColumnLinear(p, *made) for p in (layer.q_projection, layer.k_projection, layer.v_projection)
        ]
        self.out_projection = RowLinear(layer.out_projection, *made)
        self.out_projection.shards.cut("HeadsAttention: heads", layer.num_head * layer.dim_head, layer.dim_head)
        self.attn, self.dim_head = layer.attn, layer.dim_head

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        given = [q, q if k is None else k, q if v is None else v]
        heads = [
            project(norm(x)) for x, norm, project in zip(given, self.norms, self.projections, strict=True)
        ]  # for q, k and v a list over shards of (B, T, H D / shards)
        return self.out_projection([self._attended(*each) for each in zip(*heads, strict=True)])

    def _attended(self, *each):
        q, k, v = (x.reshape((*x.shape[:2], -1, self.dim_head)).swapaxes(1, 2) for x in each)  # (B, H, T, D)
        y = self.attn(q, k, v, need_probabilities=False)[0].swapaxes(1, 2)
        return y.reshape((*y.shape[:2], -1))


class ShardedLayer(Module):
    """A `TransformerLayer` whose heads and hidden units are cut: two sums over ranks forward, and two back.

    Parameters
    ----------
    layer : the layer to cut, with dropout, if any, of what is added to x only; every rank makes the same
    shards : how many; by default one on each rank
    world : the communicator; that of `init()`

    >>> from needle import init, nn
    >>> layer = nn.TransformerLayer(8, 2, 4, 16)
    >>> ShardedLayer(layer, shards=2)(init.rand(3, 5, 8)).shape
    (3, 5, 8)
    """

    def __init__(self, layer: TransformerLayer, shards: int | None = None, world: Communicator | None = None) -> None:
        super().__init__()
        expect_a(self, "layer", layer, TransformerLayer)
        self.attention = HeadsAttention(layer.attention, shards, world)
        self.dropout = layer.dropout
        self.norm, up, self.activation, inner, down, self.dropped = layer.mlp.modules
        refuse_dropout(self, inner)
        self.up, self.down = ColumnLinear(up, shards, world), RowLinear(down, shards, world)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(x))
        return x + self.dropped(self.down([self.activation(h) for h in self.up(self.norm(x))]))


def refuse_dropout(layer: Module, dropout: Dropout) -> None:
    if dropout.p:
        raise ValueError(
            f"{type(layer).__name__}: dropout {dropout.p} within what is cut: its numbers would depend on the cut"
        )


def expect_a(layer: Module, name: str, given: Any, kind: type) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{type(layer).__name__}: {name}: expected a {kind.__name__}, got {described(given)}")
