"""Every communicator keeps the contract, for one process and over MPI; the gradients of collectives."""

import re
from collections import deque

import numpy as np
import pytest
from distributed_helpers import launch, lines_of, needs_mpi, run

import needle as ndl
import needle.distributed as dist
import needle_ndarray as nd
from needle import nn
from needle_nn.distributed import testing
from needle_nn.distributed.trees import tree_reduce


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_alone(check):
    check(dist.Alone())


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_mpi(ranks):
    done = launch(ranks, "-m", "needle_nn.distributed.testing", "mpi")
    assert done.code == 0, done.out + done.err
    assert len(lines_of(done, "keeps the contract")) == ranks and done.left == []


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_gradients(ranks):
    done = launch(ranks, "distributed_gradients.py")
    assert done.code == 0, done.out + done.err
    assert len(lines_of(done, "gradients are right")) == ranks


def test_gradients_alone():
    done = run(["distributed_gradients.py"])
    assert (done.code, done.out) == (0, "gradients are right\n"), done.err


class Wrong(dist.Alone):
    """Forgets the order of all_to_all."""

    def _all_to_all(self, a):
        return a.flip(-1) if a.ndim > 1 else a.copy()


class Aliased(dist.Alone):
    """Gives back its argument."""

    def _send(self, a, axes, to, tag):
        self._sent.setdefault(tag, deque()).append((a, axes))


@pytest.mark.parametrize(("wrong", "told"), [(Wrong, "all_to_all"), (Aliased, "recv")])
def test_the_contract_finds_what_is_wrong(wrong, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_communicator(wrong())


@pytest.mark.parametrize("count", range(1, 10))
def test_tree_reduce_is_made_of_subtrees(count):
    """Whoever has 2^k neighbours may sum them beforehand."""
    arrays = [nd.array(np.random.default_rng(i).standard_normal(50), "float32") for i in range(count)]
    whole = tree_reduce(arrays).numpy().tobytes()
    for length in (2, 4, 8):
        parts = [tree_reduce(arrays[i : i + length]) for i in range(0, count, length)]
        assert tree_reduce(parts).numpy().tobytes() == whole


stage = dist.Pipeline([nn.Linear(2, 2)], world=dist.Alone())
MISTAKES = [
    (
        lambda: dist.all_reduce(nd.ones(3)),
        "all_reduce: expected a Tensor, got a NDArray; for NDArrays, world.all_reduce",
    ),
    (lambda: dist.all_reduce(ndl.Tensor([1.0]), "mean"), "all_reduce: op 'mean': expected one of sum, max, min"),
    (lambda: dist.all_reduce(ndl.Tensor([1.0]), world=2), "world: expected a Communicator, as init() gives, got int"),
    (lambda: dist.recv((3,), 0), "recv: like: expected a Tensor of the shape and dtype that come, got a tuple"),
    (lambda: dist.recv(ndl.Tensor([1.0]), 0, after=3), "recv: after: expected what send gave, got a int"),
    (lambda: dist.Alone().all_reduce([1.0]), "all_reduce: expected an NDArray, got a list"),
    (
        lambda: dist.Alone().all_to_all(nd.ones((2, 3))),
        "all_to_all: shape (2, 3): expected one row for each of 1 ranks",
    ),
    (
        lambda: dist.Pipeline([nn.ReLU()], [1]),
        "Pipeline: cuts [1] of 1 layers: expected 0 that rise, a layer at least on each of 1 ranks",
    ),
    (
        lambda: stage.step(ndl.ones(4, 2), ndl.ones(4), nn.MSELoss(), 3),
        "Pipeline.step: 3 parts of a batch of 4: expected a divisor of it",
    ),
    (
        lambda: stage.step(ndl.ones(4, 2), ndl.ones(4), nn.MSELoss(), 0),
        "Pipeline.step: parts must be an int of at least 1, got 0",
    ),
    (lambda: dist.Alone().broadcast(nd.ones(2), 1), "broadcast: root 1: expected a rank from 0 to 0"),
]


@pytest.mark.parametrize(("call", "told"), MISTAKES)
def test_mistakes_are_one_line(call, told):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(told)}$"):
        call()


def test_a_message_that_does_not_fit_is_refused():
    world = dist.Alone()
    with pytest.raises(dist.DistributedError, match="nothing was sent with tag 0, and nobody else is there"):
        world.recv((3,), "float32", 0)
    world.send(nd.ones((2, 3)), 0)
    with pytest.raises(
        dist.DistributedError,
        match=r"expected float32 \(3, 2\) from rank 0 with tag 0, but rank 0 sent float32 \(2, 3\)",
    ):
        world.recv((3, 2), "float32", 0)


def test_an_op_communicates_once():
    from needle_nn.distributed.ops import AllReduce

    op = AllReduce(dist.Alone())
    op(ndl.Tensor([1.0]))
    with pytest.raises(RuntimeError, match="used once"):
        op(ndl.Tensor([1.0]))
