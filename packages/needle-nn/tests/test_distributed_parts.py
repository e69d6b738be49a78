"""Sums over the parts of a step: the same bits however the parts are shared out."""

import gc
import threading
import time

import numpy as np
import pytest
from distributed_threads import together

import needle as ndl
import needle.distributed as dist
from needle_nn import nn
from needle_nn.data import DataLoader, NDArrayDataset, random_source
from needle_nn.distributed import overlap, parallel
from needle_nn.distributed.gathering import gather_states
from needle_nn.distributed.parallel import GradientTree, agree
from needle_nn.distributed.parts import Node, fold, nodes_of, push, run_of
from needle_nn.distributed.trees import tree_reduce

SHAPES = {"w": ((3, 5), "float32"), "wide": ((7,), "float64"), "b": ((2, 1), "float32"), "none": ((0, 4), "float32")}


def params():
    return [ndl.Tensor(np.zeros(shape), dtype=dtype) for shape, dtype in SHAPES.values()]


def gradient(part, p, missing):
    """The gradient of parameter p in a part; some have none, some are -0."""
    if (part, p) in missing:
        return None
    shape, dtype = list(SHAPES.values())[p]
    values = np.random.default_rng([part, p]).standard_normal(shape)
    return ndl.Tensor(np.where(values < -1, -0.0, values), dtype=dtype, requires_grad=False)


def summed(world, count, parts, missing=(), early=False):
    """Bits of all gradients of a step of `parts` parts, of `count` a full one has; `early`: sent when backward has them."""
    held = params()
    tree = GradientTree(held, count, world, world.twin() if early else None)
    for part in tree.mine:
        if part < parts:
            with tree.computing(parts):
                for i in np.random.default_rng([part, tree.mine.start]).permutation(len(held)):
                    grad = gradient(part, i, missing)
                    if grad is not None:  # of the sum it is what p is multiplied by
                        (held[i] * grad).sum().backward()
            tree.add()
    tree.finish(parts)
    return [None if p.grad is None else p.grad.numpy().tobytes() for p in held]


@pytest.mark.parametrize("count", range(1, 18))
def test_the_tree_over_parts_is_that_of_tree_reduce(count):
    """Also where parts were summed to nodes beforehand, in runs of any length."""

    def add(a, b, level):
        return f"({a}{b})"

    def reduced(level):
        while len(level) > 1:
            level = [f"({level[i]}{level[i + 1]})" if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
        return level[0]

    names = [f"{i}." for i in range(count)]
    for size in range(1, count + 2):
        nodes = []
        for rank in range(size):
            own = []
            for part in run_of(rank, size, count):
                push(own, Node(part, 0, names[part]), add)
            assert [(node.first, node.level) for node in own] == nodes_of(run_of(rank, size, count))
            nodes += own
        assert fold(nodes, add) == reduced(names)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("slices", [False, True])
@pytest.mark.parametrize("parts", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("count", [4, 6, 8])
def test_any_number_of_ranks_gives_the_same_bits(monkeypatch, count, parts, slices, early):
    """Small gradients travel whole, large ones in slices, all of them after backward or in buckets during it."""
    monkeypatch.setattr(overlap, "BUCKET", 60)  # the first parameter's bytes
    if slices:
        monkeypatch.setattr(parallel, "GATHERED_WHOLE", 0)
    parts = min(parts, count)
    missing = {(0, 0), (1, 0), (2, 1), *((part, 2) for part in range(8) if count == 6)}
    alone = summed(None, count, parts, missing)
    assert alone[2] is None if count == 6 else alone[2] is not None
    for size in (2, 3, 4):
        assert together(size, lambda world: summed(world, count, parts, missing, early)) == [alone] * size


def test_buckets_leave_during_backward():
    """The last parameter's gradient has arrived everywhere before backward comes to the first one's; mistakes are told."""

    def of(world):
        first, last = ndl.Tensor(np.ones(30_000)), ndl.Tensor(np.ones(300_000), dtype="float32")
        tree = GradientTree([first, last], world.size, world, world.twin())
        with tree.computing(world.size):
            (last * (world.rank + 1)).sum().backward()
            there = tree._buckets.sums[0].result(20)[0].numpy()
            assert len(tree._buckets.sums) == 1 and (there == 3).all()
            with pytest.raises(RuntimeError, match="one part went backward twice"):
                (last * 2).sum().backward()
        tree.add()
        with pytest.raises(RuntimeError, match="the step before was not finished"), tree.computing(world.size):
            pass
        tree.finish(world.size)
        return first.grad, last.grad.numpy()[0]

    assert together(2, of) == [(None, 3.0)] * 2


def test_the_thread_that_sends_ends_with_the_training():
    def of(world):
        p = ndl.Tensor(np.ones(3))
        tree = GradientTree([p], 2, world, world.twin())
        with tree.computing(2):
            p.sum().backward()
        tree.add()
        tree.finish(2)

    together(2, of)
    gc.collect()
    deadline = time.monotonic() + 10
    while (left := [t for t in threading.enumerate() if t.name == "needle.distributed gradients"]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.01)
    assert left == []


def test_the_order_is_the_trees():
    bits = summed(None, 7, 7)
    arrays = [gradient(part, 0, ()).realize_cached_data() for part in range(7)]
    assert bits[0] == tree_reduce(arrays).numpy().tobytes()
    in_a_row = sum(a.numpy() for a in arrays[1:]) + arrays[0].numpy()
    assert bits[0] != in_a_row.tobytes()  # else these tests would see nothing


def test_gradients_that_share_memory_are_not_added_twice():
    """The same broadcast array is the gradient of both parameters."""
    p, q = ndl.Tensor(np.ones(3)), ndl.Tensor(np.ones(3))
    tree = GradientTree([p, q], 4)
    for _ in range(4):
        (p + q).sum().backward()
        tree.add()
    tree.finish(4)
    assert p.grad.tolist() == q.grad.tolist() == [4.0] * 3 and p.tolist() == [1.0] * 3


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sum_gradients_is_a_mean_over_targets(size):
    x = np.random.RandomState(0).randn(12, 4)
    loads = np.split(x, [2, 9]) if size == 3 else np.split(x, [5] if size == 2 else [])

    def of(world):
        w = ndl.Tensor(np.ones((4, 1)), dtype="float64")
        mine = ndl.Tensor(loads[world.rank], dtype="float64", requires_grad=False)
        ((mine @ w) ** 2).sum().backward()
        return dist.sum_gradients([w], weight=len(mine.numpy()), world=world), w.grad.numpy()

    w = ndl.Tensor(np.ones((4, 1)), dtype="float64")
    ((ndl.Tensor(x, dtype="float64", requires_grad=False) @ w) ** 2).mean().backward()
    for total, grad in [of(dist.Alone())] if size == 1 else together(size, of):
        assert total == 12
        np.testing.assert_allclose(grad, w.grad.numpy(), rtol=1e-12)


def test_replicas_have_the_numbers_of_rank_0():
    def of(world):
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        for i, t in enumerate([*model.parameters(), *model.buffers()]):
            t.realize_cached_data()[...] = world.rank * 10 + i
        assert dist.replicate(model, world) is model
        return [t.tolist() for t in model.state_dict().values()]

    results = together(3, of)
    assert results[0] == results[1] == results[2] and results[0][0][0][0] == 0


DIFFERENT = {
    "shape": (
        lambda rank: nn.Linear(3, 2 + rank),
        "rank 0 has weight float32 (3, 2), rank 1 has weight float32 (3, 3)",
    ),
    "dtype": (
        lambda rank: nn.Linear(3, 2, dtype="float64" if rank else "float32"),
        "rank 0 has weight float32 (3, 2), rank 1 has weight float64 (3, 2)",
    ),
    "missing": (
        lambda rank: nn.Linear(3, 2, bias=not rank),
        "rank 0 has bias float32 (1, 2), rank 1 has nothing (1 in all)",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_models_that_differ_are_refused_with_both_sides(case):
    make, told = DIFFERENT[case]
    np.random.seed(0)  # noqa: NPY002
    models = [make(rank) for rank in range(2)]

    def of(world):
        with pytest.raises(dist.DistributedError) as error:
            dist.replicate(models[world.rank], world)
        return str(error.value)

    assert together(2, of) == [f"replicate: ranks differ: {told}"] * 2


def test_ranks_agree_or_say_who_does_not():
    together(2, lambda world: agree(world, "x", ["a", "b"]))
    with pytest.raises(dist.DistributedError, match=r"^x: ranks differ: rank 0 has b 0, rank 2 has b 2$"):
        together(3, lambda world: agree(world, "x", ["a", f"b {world.rank // 2 * 2}"]))


def test_states_of_all_ranks_come_to_rank_0():
    def of(world):
        state = {"u": np.arange(world.rank * 3.0), "n": world.rank, "t": (ndl.ones(2, 1), None), "empty": {}}
        return gather_states(state, world)

    first, *others = together(3, of)
    assert others == [None, None] and [state["n"] for state in first] == [0, 1, 2]
    assert [state["u"].tolist() for state in first] == [[], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    assert all(state["t"][0].shape == (2, 1) and state["t"][1] is None for state in first)


# ---- Loaders ---------------------------------------------------------------------------------------------------------------


class Noisy(NDArrayDataset):
    takes_arrays = False
    asked: list

    def __getitem__(self, i):
        self.asked.append(int(i))
        return (super().__getitem__(i)[0] + random_source().rand(),)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seed", [None, 3])
def test_a_loader_loads_what_is_wanted(workers, seed):
    """Each rank its batches, with the numbers they have in a pass over all of them."""

    def loader():
        np.random.seed(0)  # noqa: NPY002
        data = Noisy(np.arange(11.0))
        data.asked = []
        return data, DataLoader(data, 3, shuffle=True, seed=seed, num_workers=workers)

    whole = [x.tolist() for (x,) in loader()[1].batches_where(lambda number: True)]
    for rank in range(2):
        data, some = loader()
        found = list(some.batches_where(lambda number, rank=rank: number % 2 == rank))
        assert [batch is None for batch in found] == [number % 2 != rank for number in range(4)]
        assert [batch[0].tolist() for batch in found if batch is not None] == whole[rank::2]
        assert len(data.asked) == sum(map(len, whole[rank::2]))
        assert some.state_dict()["epoch"] == 1


def test_shared_leaves_out_a_group_that_is_not_whole():
    def of(world):
        return [x.tolist() for (x,) in dist.shared(DataLoader(NDArrayDataset(np.arange(10)), 2), world)]

    assert together(3, of) == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert together(2, lambda world: list(dist.shared("abcde", world))) == [["a", "c"], ["b", "d"]]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_gradients_are_compact_whoever_sums_them(parts):
    """Sums over a gradient, for its norm, may follow its memory."""

    def of(world):
        p = ndl.Tensor(np.zeros((3, 5)))
        tree = GradientTree([p], 4, world)
        for part in tree.mine:
            if part < parts:
                values = np.random.default_rng(part).standard_normal((5, 3)).astype("float32")
                p.grad = ndl.Tensor(values, requires_grad=False).transpose()
                tree.add()
        tree.finish(parts)
        return p.grad.realize_cached_data().strides, p.grad.numpy().tobytes()

    alone = of(None)
    assert alone[0] == (5, 1) and together(2, of) == [alone] * 2
