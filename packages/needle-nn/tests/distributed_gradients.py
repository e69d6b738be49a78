"""Run as ranks: the gradients of collectives by differences, and a pipeline beside one process.

The ranks together compute one function of an array that they all have: each applies the op to its row, and everybody gets all
results. Gradients are those of the sum of all ranks' losses, which counts that function once per rank: Leave divides by it.
"""

import numpy as np
from distributed_threads import together

import needle as ndl
import needle.distributed as dist
from needle import nn
from needle.testing import check_gradients

world = dist.init()


class Enter(ndl.TensorOp):
    """y = x, which all ranks have;  dx = sum of dy over ranks"""

    def compute(self, x):
        return x.copy()

    def gradient(self, out_grad, node):
        return Leave()(dist.all_reduce(out_grad))


class Leave(ndl.TensorOp):
    """y = x, which is the same on all ranks;  dx = dy / ranks"""

    def compute(self, x):
        return x.copy()

    def gradient(self, out_grad, node):
        return Enter()(out_grad) / world.size


def exchange(x):
    """To the next rank, and from the one before."""
    sent = dist.send(x, (world.rank + 1) % world.size, tag=1)
    return dist.recv(x, (world.rank - 1) % world.size, tag=1, after=sent)


OPS = {
    "all_reduce": dist.all_reduce,
    "max": lambda x: dist.all_reduce(x, "max"),
    "min": lambda x: dist.all_reduce(x, "min"),
    "all_gather": dist.all_gather,
    "reduce_scatter": dist.reduce_scatter,
    "all_to_all": dist.all_to_all,
    "broadcast first": dist.broadcast,
    "broadcast last": lambda x: dist.broadcast(x, world.size - 1),
    "exchange": exchange,
    "two together": lambda x: dist.all_reduce(ndl.tanh(dist.all_to_all(x)) * x),
}


def check_ops():
    rng = np.random.default_rng(0)
    x = ndl.Tensor(rng.standard_normal((world.size, world.size, 2)), dtype="float64")
    for name, op in OPS.items():

        def together(x, op=op):
            mine = Enter()(x)[world.rank]
            return Leave()(dist.all_gather(op(mine * mine)))

        try:
            check_gradients(together, x)
            with ndl.lazy_mode():
                check_gradients(together, x, order=1)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def check_ties():
    """Ranks that have the same largest element share its gradient."""
    x = ndl.Tensor([1.0, float(world.rank)])
    dist.all_reduce(x, "max").sum().backward()
    # of the sum of all ranks' losses, which has each element `size` times
    assert x.grad.tolist() == [1.0, float(world.size) if world.rank == world.size - 1 else 0.0], x.grad


def check_pipeline():
    """A layer on each rank, activations forward and gradients back: the bits of one process."""
    size, rank = world.size, world.rank
    rng = np.random.default_rng(1)
    batch = ndl.Tensor(rng.standard_normal((5, 8)), dtype="float32", requires_grad=False)
    weights = [ndl.Tensor(rng.standard_normal((8, 8)), dtype="float32") for _ in range(size)]
    h = batch
    for w in weights:
        h = ndl.tanh(h @ w)
    (h * h).sum().backward()
    expected, w = weights[rank].grad, ndl.Tensor(weights[rank].numpy())
    h = ndl.tanh((dist.recv(batch, rank - 1) if rank else batch) @ w)
    (dist.send(h, rank + 1) if rank + 1 < size else (h * h).sum()).backward()
    assert w.grad.numpy().tobytes() == expected.numpy().tobytes()


def check_stages():
    """Three steps of a network cut over the ranks: loss and parameters have the bits of one process."""
    x = ndl.Tensor(np.random.default_rng(2).standard_normal((12, 1, 8, 8)), dtype="float32", requires_grad=False)
    y = ndl.Tensor(np.arange(12) % 5, dtype="int64", requires_grad=False)

    def trained(world):
        np.random.seed(3)  # noqa: NPY002 - what layers draw from
        layers = [
            nn.Conv(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 16),
            nn.Tanh(),
            nn.Linear(16, 5),
        ]
        model = dist.Pipeline(layers, world=world)
        optimizer = ndl.optim.Adam(model.stage.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            losses.append(model.step(x, y, nn.SoftmaxLoss(), parts=3))
            optimizer.step()
        return losses, [value.numpy().tobytes() for layer in model.stage for value in layer.state_dict().values()]

    expected, parameters = trained(dist.Alone())
    losses, mine = trained(world)
    assert losses == expected, (losses, expected)
    before = sum(world.gather_objects(len(mine))[: world.rank])
    assert mine == parameters[before : before + len(mine)]
    assert sum(world.gather_objects(len(mine))) == len(parameters)


def check_cut():
    """A graph with a residual, a tuple, a tied weight and labels, cut over the ranks in several ways: the bits of one process."""
    rng = np.random.default_rng(4)
    drawn = [rng.standard_normal(shape).astype("float32") for shape in ((7, 6), (6, 6), (6, 6), (6, 6))]
    ids, y = (ndl.Tensor(rng.integers(0, 7, (3, 4, 5)), dtype="int64", requires_grad=False) for _ in range(2))

    def trained(world, places):
        params = table, *weights = [ndl.Tensor(a) for a in drawn]

        def loss_of(ids, labels):
            h = ndl.embedding(ids, table)
            a = ndl.tanh(h @ weights[0])
            b = ndl.relu(a @ weights[1]) + a
            c, d = ndl.split(ndl.stack([b, b @ weights[2]], 0), 0).tuple()
            logits = (c * d + h) @ table.transpose()
            return nn.SoftmaxLoss()(logits.reshape((20, 7)), labels)

        model = dist.Cut(loss_of, {p: r % world.size for p, r in zip(params, places, strict=True)}, world)
        optimizer = ndl.optim.Adam(model.params or [ndl.zeros(1)], lr=0.05)  # a rank may have none
        parts = [(ids[i], y[i].reshape((-1,))) for i in range(3)]
        losses = []
        for _ in range(3):
            losses.append(model.step(parts))
            optimizer.step()
        bits = {i: p.numpy().tobytes() for i, p in enumerate(params) if any(p is q for q in model.params)}
        return losses, bits, model.recorded(*parts[0]).edges, model.draw(parts[0])

    expected, parameters, edges, _ = trained(dist.Alone(), (0, 0, 0, 0))
    assert edges == [] and len(parameters) == 4
    for places in ((0, 0, 1, 1), (0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 1, 0)):
        losses, mine, edges, drawn_graph = trained(world, places)
        assert losses == expected, (places, losses, expected)
        assert all(parameters[i] == bits for i, bits in mine.items()), places
        assert sum(world.gather_objects(len(mine))) == 4
        crossing = sum(drawn_graph.crosses(a, b) for a, b in drawn_graph.edges)
        assert crossing >= len(edges) and bool(edges) == (world.size > 1), (crossing, edges)
        assert drawn_graph.svg.count("stroke-dasharray") == drawn_graph.dot.count("style=dashed") == crossing


def check_batch_norm():
    """Over batches of several sizes: beside one batch norm of them together, and with ranks as threads, bit for bit."""
    rng = np.random.default_rng(5)
    sizes = [3 + r % 2 for r in range(world.size)]
    batches = [rng.standard_normal((n, 2, 3, 3)) for n in sizes]
    factors = [rng.standard_normal((n, 2, 3, 3)) for n in sizes]

    def learnt(norm, x, factor):
        x = ndl.Tensor(x, dtype="float64")
        y = norm(x)
        (ndl.tanh(y) * ndl.Tensor(factor, dtype="float64")).sum().backward()
        grads = [norm.weight.grad, norm.bias.grad]
        return (
            [y.numpy(), x.grad.numpy()],
            [g.numpy() for g in grads],
            [norm.running_mean.numpy(), norm.running_var.numpy()],
        )

    def on(world):
        norm = dist.synchronised(nn.Sequential(nn.BatchNorm2d(2, dtype="float64")), world).modules[0]
        return learnt(norm, batches[world.rank], factors[world.rank])

    mine, grads, running = on(world)
    outer, inner, statistics = learnt(
        nn.BatchNorm2d(2, dtype="float64"), np.concatenate(batches), np.concatenate(factors)
    )
    rows = slice(sum(sizes[: world.rank]), sum(sizes[: world.rank + 1]))
    summed = [world.all_reduce(ndl.Tensor(g, dtype="float64").realize_cached_data()).numpy() for g in grads]
    for found, wanted in zip([*mine, *summed, *running], [*(a[rows] for a in outer), *inner, *statistics], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    for found, wanted in zip((mine, grads, running), together(world.size, on)[world.rank], strict=True):
        assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]


def check_once():
    """One rank may look at what was freed, or go backward twice: nothing is communicated again."""
    x = ndl.Tensor([1.0, 2.0])
    y = dist.all_reduce(x)
    z = ndl.exp(y)
    z.sum().backward()
    if world.rank == 0:
        assert y.tolist() == [world.size, 2.0 * world.size]
        assert np.allclose(z.numpy(), np.exp([world.size, 2.0 * world.size]))
    world.barrier()


def check_capture():
    """A captured function that communicates stays eager, and says so; its results are right."""
    import warnings

    step = ndl.capture(lambda x: dist.all_reduce(x * 2).sum())
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = [step(ndl.Tensor([1.0 + i])).item() for i in range(5)]
    assert found == [2.0 * world.size * (1 + i) for i in range(5)], found


for check in (
    check_ops,
    check_ties,
    check_pipeline,
    check_stages,
    check_cut,
    check_batch_norm,
    check_once,
    check_capture,
):
    check()
world.barrier()
print("gradients are right")
