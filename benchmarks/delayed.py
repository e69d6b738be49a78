"""Ranks on a network that is made slow: `needle launch -n 4 benchmarks/delayed.py` compares it with the formulas of scaling.py.

Every message says when a network of this latency and bandwidth would have brought it; the messages themselves are MPI's. Each rank
has a clock that goes on by waiting for messages alone, so results do not depend on the machine. With `--wall` the clock is the
wall's, and a message is kept back until its time: with latencies of many milliseconds, for computing to count for little beside;
then it also compares a training whose gradients travel during backward with one in which they travel after it.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mpi4py import MPI as mpi  # noqa: E402

import needle_ndarray as nd  # noqa: E402
from benchmarks import scaling  # noqa: E402
from needle import TensorOp  # noqa: E402
from needle_nn import distributed as dist  # noqa: E402
from needle_nn import nn, optim  # noqa: E402
from needle_nn.data import DataLoader, NDArrayDataset  # noqa: E402
from needle_nn.distributed import overlap  # noqa: E402
from needle_nn.distributed.mpi import MPI  # noqa: E402
from needle_nn.distributed.trees import tree_reduce  # noqa: E402
from needle_nn.training import Callback, Trainer  # noqa: E402

WALL = "--wall" in sys.argv
SLOW = (scaling.Network("20 ms, 10 MB/s", 20e-3, 10e6),)
NETWORKS = SLOW if WALL else scaling.NETWORKS
#: Of the training whose backward takes a while: as many layers, each as long.
NARROW, LAYERS, PAUSE = scaling.Network("1 ms, 5 MB/s", 1e-3, 5e6), 6, 0.05
SIZES = (1_000, 400_000)  # elements of float32
ROUNDS = 12 if WALL else 1


class Delayed(MPI):
    """MPI by messages from one rank to another, each as late as `network` would be; as many ranks as a power of two."""

    network: scaling.Network | None = None
    free = 0.0  # when the way out of this rank is free again
    waited = 0.0  # a clock that messages alone move

    def now(self) -> float:
        return time.monotonic() if WALL else self.waited

    def wait_until(self, moment: float) -> None:
        self.waited = max(self.waited, moment)
        if WALL:
            time.sleep(max(0.0, moment - time.monotonic()))

    def _ship(self, content: np.ndarray, to: int) -> list[Any]:
        """Send bytes, and when they arrive; what has to be kept until then."""
        now = self.now()
        if self.network is not None:
            self.free = max(now, self.free) + content.nbytes / self.network.bandwidth
            now = self.free + self.network.latency
        head = np.array([now])
        return [(self.comm.Isend(part, to, tag), part) for tag, part in ((1, head), (2, np.ascontiguousarray(content)))]

    def _take(self, content: np.ndarray, source: int) -> None:
        """Receive bytes, not before they arrive."""
        head = np.empty(1)
        self.comm.Recv(head, source, 1)
        self.comm.Recv(content, source, 2)
        self.wait_until(head[0])

    def _swap(self, sent: np.ndarray, got: np.ndarray, to: int, source: int) -> None:
        begun = self._ship(sent, to)
        self._take(got, source)
        mpi.Request.Waitall([request for request, _ in begun])

    def _all_gather(self, a):
        rows = np.empty((self.size, a.nbytes), "u1")
        rows[self.rank] = np.ascontiguousarray(a.numpy()).reshape(-1).view("u1")
        if a.nbytes * self.size <= scaling.SMALL:
            for i in range(scaling.rounds(self.size)):
                width, other = 1 << i, self.rank ^ (1 << i)
                mine, theirs = (rank & -width for rank in (self.rank, other))
                got = np.empty((width, a.nbytes), "u1")
                self._swap(rows[mine : mine + width], got, other, other)
                rows[theirs : theirs + width] = got
        else:
            after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            for i in range(self.size - 1):
                self._swap(rows[(self.rank - i) % self.size], rows[(before - i) % self.size], after, before)
        return nd.array(rows.reshape(-1).view(a.dtype.numpy).reshape(self.size, *a.shape), a.dtype)

    def _all_to_all(self, a):
        given = np.ascontiguousarray(a.numpy())
        out = given.copy()
        for i in range(1, self.size):
            to, source = (self.rank + i) % self.size, (self.rank - i) % self.size
            got = np.empty(given[source].nbytes, "u1")
            self._swap(given[to].reshape(-1).view("u1"), got, to, source)
            out[source] = got.view(given.dtype).reshape(given.shape[1:])
        return nd.array(out, a.dtype)

    def halved(self, a: nd.NDArray) -> nd.NDArray:
        """The sum over ranks in 2 log2 p rounds, to the bits of `all_reduce`; p divides the size of a."""
        held, kept = a.numpy().reshape(-1), []
        for i in range(scaling.rounds(self.size)):
            other, upper = self.rank ^ (1 << i), bool(self.rank >> i & 1)
            halves = held.reshape(2, -1)
            got = np.empty_like(halves[0])
            self._swap(halves[1 - upper].view("u1"), got.view("u1"), other, other)
            pair = [halves[int(upper)], got]
            held = tree_reduce([nd.array(each, a.dtype) for each in (pair[::-1] if upper else pair)]).numpy()
            kept.append((other, upper))
        for other, upper in reversed(kept):
            got = np.empty_like(held)
            self._swap(held.view("u1"), got.view("u1"), other, other)
            held = np.concatenate([got, held] if upper else [held, got])
        return nd.array(held.reshape(a.shape), a.dtype)

    def twin(self):
        twin = super().twin()
        twin.network = self.network
        return twin


class Slow(TensorOp):
    """y = x;  dx = dy, after a pause in which another thread may send: a layer that a GPU computes"""

    needs = ""

    def compute(self, x):
        return x.copy()

    def gradient(self, out_grad, node):
        time.sleep(PAUSE)
        return out_grad


class SlowLinear(nn.Linear):
    def forward(self, x):
        return Slow()(super().forward(x))


class Clock(Callback):
    """Seconds of each step, of the clock of rank 0."""

    def __init__(self):
        self.steps, self.last = [], None

    def on_step_end(self, trainer):
        now = world.now()
        self.steps += [] if self.last is None else [now - self.last]
        self.last = now


def best(call: Any) -> float:
    """Seconds of the fastest of some calls, which all ranks begin together."""
    found = []
    for _ in range(ROUNDS):
        network, world.network = world.network, None
        world.barrier()
        world.network, world.free, world.waited = network, 0.0, 0.0
        begin = world.now()
        call()
        longest = world.now() - begin
        world.network = None
        found.append(float(world.all_reduce(nd.array([longest], "float64"), "max").item()))
        world.network = network
    return min(found)


def steps(network: scaling.Network | None, model: Any, **options: Any) -> float:
    """Seconds of the fastest step of a Trainer, a part on each rank."""
    rng = np.random.default_rng(0)
    count = 4 * world.size * max(ROUNDS, 6)
    x, y = rng.standard_normal((count, 20)).astype("float32"), np.arange(count) % 3
    clock = Clock()
    trained = {"callbacks": [clock], "accumulate": world.size, "world": world, **options}
    trainer = Trainer(model, optim.SGD(model.parameters()), nn.SoftmaxLoss(), **trained)
    world.network = network
    trainer.fit(DataLoader(NDArrayDataset(x, y), 4), 1)
    world.network = None
    world.step = None
    told = world.broadcast_object(min(clock.steps) if world.rank == 0 else None)
    return float(told)


def perceptron() -> nn.Module:
    """One with batch norm."""
    return nn.Sequential(nn.Linear(20, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 3))


def slow_layers() -> nn.Module:
    layers = [SlowLinear(200, 200, bias=False) for _ in range(LAYERS)]
    return nn.Sequential(nn.Linear(20, 200, bias=False), *layers, nn.Linear(200, 3, bias=False))


def overlapped() -> list[tuple[str, float, float]]:
    """Steps whose gradients travel after backward, and during it, a layer's in each bucket: (name, formula, measured)."""
    overlap.BUCKET = 4 * 200 * 200
    small = 2 * scaling.all_gather(8, world.size, NARROW)
    whole = 4 * (LAYERS * 200 * 200 + 20 * 200 + 200 * 3)
    after = LAYERS * PAUSE + scaling.gradients(whole, world.size, NARROW) + small
    head, layer, last = (scaling.gradients(n, world.size, NARROW) for n in (4 * 600, 4 * 200 * 200, 4 * 20 * 200))
    end = head
    for i in range(
        LAYERS
    ):  # a layer's bucket leaves when the one before has arrived, and when backward has gone through it
        end = max(end, (i + 1) * PAUSE) + layer
    during = max(end, LAYERS * PAUSE) + last + small
    return [
        (f"{NARROW.name}: a step, gradients {when} backward", wanted, steps(NARROW, slow_layers(), overlap=how))
        for when, wanted, how in (("after", after, False), ("during", during, True))
    ]


#: The model of `steps`.
PERCEPTRON = scaling.Model("perceptron", 20 * 300 + 300 + 600 + 300 * 300 + 300 + 900 + 3, 8, (2, 600), 0.0)


def main() -> None:
    rows = []
    for network in NETWORKS:
        for size in SIZES:
            a = nd.array(np.random.default_rng(world.rank).standard_normal(size), "float32")
            expected = world.all_reduce(a).numpy().tobytes()
            assert world.halved(a).numpy().tobytes() == expected, "halving gives other bits"
            world.network = network
            for name, call, formula in (
                ("slices", world.all_reduce, scaling.gradients),
                ("halving", world.halved, scaling.halving),
            ):
                wanted = formula(a.nbytes, world.size, network)
                rows.append((f"{network.name}: {a.nbytes:,} bytes by {name}", wanted, best(lambda: call(a))))  # noqa: B023
            world.network = None
        wanted = scaling.exchange(PERCEPTRON, world.size, network) + steps(None, perceptron())
        rows.append((f"{network.name}: a step of training", wanted, steps(network, perceptron())))
    if WALL:
        rows += overlapped()
    if world.rank == 0:
        print(f"| {world.size} ranks, µs | formula | measured | ratio |\n|---|--:|--:|--:|")
        for name, wanted, found in rows:
            print(f"| {name} | {wanted * 1e6:,.1f} | {found * 1e6:,.1f} | {found / wanted:.2f} |", flush=True)


if __name__ == "__main__":
    world = Delayed()
    dist.starting._world, dist.starting._name = world, "delayed"
    main()
