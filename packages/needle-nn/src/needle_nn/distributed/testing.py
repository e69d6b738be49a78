"""What every communicator must do: the contract, as calls with known answers. Run it as ranks to try one:

needle launch -n 2 -m needle_nn.distributed.testing NAME

or, with arrays of a device, ... testing NAME cuda: each rank brings them on `world.device`, where the communicator has one.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle_ndarray import NDArray
from needle_nn.distributed.communicator import MAX_OBJECT, MAX_TAG, Communicator, as_sent

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
SHAPES = ((), (1,), (5,), (0,), (3, 0, 2), (4, 3), (2, 1, 3, 2), (70001,))  # the last one is cut in slices
VIEWS: dict[str, Callable[[NDArray], NDArray]] = {
    "compact": lambda a: a,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1] if a.ndim else a,
    "broadcast": lambda a: nd.broadcast_to(a, (2, *a.shape)),
}
COMBINED = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def values(rank: int, shape: tuple[int, ...], dtype: str) -> NDArray:
    """What a rank brings: other numbers on every rank, known to all."""
    drawn = np.random.default_rng([rank, len(shape), sum(shape)]).standard_normal(shape) * 100
    return nd.array((drawn > 0) if dtype == "bool" else np.abs(drawn) if dtype == "uint8" else drawn, dtype)


def combined(arrays: list[np.ndarray], op: str) -> np.ndarray:
    """The tree over ranks, by NumPy."""
    while len(arrays) > 1:
        pairs = [COMBINED[op](a, b) for a, b in zip(arrays[::2], arrays[1::2], strict=False)]
        arrays = pairs + arrays[2 * len(pairs) :]
    return arrays[0]


def same(name: str, found: NDArray, expected: np.ndarray) -> None:
    """The same dtype, shape and bits."""
    got = found.numpy()
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        raise AssertionError(f"{name}: {got.dtype} {got.shape}, expected {expected.dtype} {expected.shape}")
    if got.tobytes() != expected.tobytes():
        raise AssertionError(f"{name}: {int((got != expected).sum())} of {got.size} elements differ")


def arrays(world: Communicator) -> Iterator[tuple[str, list[NDArray]]]:
    """(name, what each rank brings) for every dtype, shape and kind of view."""
    for dtype in DTYPES:
        for shape in SHAPES:
            for kind, view in VIEWS.items():
                if kind == "compact" or (dtype in ("float32", "bool") and len(shape) in (1, 2)):
                    yield f"{dtype} {shape} {kind}", [view(values(rank, shape, dtype)) for rank in range(world.size)]


def check_values(world: Communicator) -> None:
    """Each verb gives what NumPy makes of the arrays of all ranks, and leaves its argument alone."""
    for name, given in arrays(world):
        host, mine = [a.numpy() for a in given], given[world.rank]
        for op in COMBINED:
            if (op, mine.dtype) != ("sum", "bool"):
                same(f"all_reduce {op} {name}", world.all_reduce(mine, op), combined(host, op))
        root = world.size - 1
        same(f"broadcast {name}", world.broadcast(mine, root), host[root])
        same(f"all_gather {name}", world.all_gather(mine), np.stack(host))
        same(f"argument of {name}", mine, host[world.rank])


def check_rows(world: Communicator) -> None:
    """reduce_scatter and all_to_all: of what all ranks bring, the rows that are this rank's."""
    size, rank = world.size, world.rank
    for dtype in DTYPES:
        for rest in ((), (3,), (2, 2), (0,), (20001,)):
            given = [values(r, (2 * size, *rest), dtype) for r in range(size)]
            host = [a.numpy() for a in given]
            for op in COMBINED:
                if (op, dtype) != ("sum", "bool"):
                    expected = combined(host, op)[2 * rank : 2 * rank + 2]
                    same(f"reduce_scatter {op} {dtype} {rest}", world.reduce_scatter(given[rank], op), expected)
            rows = np.stack([a[rank] for a in host])
            same(f"all_to_all {dtype} {rest}", world.all_to_all(given[rank][:size]), rows)


def check_messages(world: Communicator) -> None:
    """send and recv: in the order of sending, by tag, of any size, to itself as well, without waiting for the receiver."""
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for shape in ((), (3,), (0, 2), (300_000,)):
        for dtype in DTYPES:
            a = values(world.rank, shape, dtype)
            world.send(a, after, tag=3)
            if a.size and dtype != "bool":
                a.fill(0)  # what was sent is a copy
            same(f"recv {dtype} {shape}", world.recv(shape, dtype, before, tag=3), values(before, shape, dtype).numpy())
    for tag in (5, MAX_TAG, 0):
        for i in range(3):
            world.send(nd.array([tag, i], "int64"), after, tag)
    for tag in (0, 5, MAX_TAG):
        for i in range(3):
            same(f"tag {tag}", world.recv((2,), "int64", before, tag), np.array([tag, i]))
    for axes in ((0, 2, 1), (2, 0, 1), (1, 0, 2)):  # dense in another order: it arrives as it lay there
        turned = [values(rank, (2, 3, 4), "float32").permute(axes) for rank in (world.rank, before)]
        world.send(turned[0], after)
        found = world.recv(turned[1].shape, "float32", before)
        same(f"axes {axes}", found, turned[1].numpy())
        if found.strides != turned[1].strides:
            raise AssertionError(f"recv: strides {found.strides}, expected {turned[1].strides} as sent")
    for kind in ("reversed", "broadcast"):
        views = [VIEWS[kind](values(rank, (2, 3), "float32")) for rank in (world.rank, before)]
        world.send(views[0], after)
        same(f"recv {kind}", world.recv(views[1].shape, "float32", before), views[1].numpy())
    world.send(values(world.rank, (4,), "float32"), world.rank, 7)
    same("to itself", world.recv((4,), "float32", world.rank, 7), values(world.rank, (4,), "float32").numpy())


def check_objects(world: Communicator) -> None:
    """gather_objects and broadcast_object bring what JSON holds, to the last bit of a float."""
    texts = ["x" * (rank * 1000) + "\u00e9\U0001f600" for rank in range(world.size)]
    everything = [
        {"rank": rank, "floats": [0.1, -0.0, 1e-308], "text": texts[rank], "none": None} for rank in range(world.size)
    ]
    for expected in (everything, list(range(world.size)), [[True, []]] * world.size):
        found = world.gather_objects(expected[world.rank])
        if repr(found) != repr(expected):
            raise AssertionError(f"gather_objects: {found!r:.200}, expected {expected!r:.200}")
    for root in range(world.size):
        if world.broadcast_object(everything[world.rank], root) != everything[root]:
            raise AssertionError(f"broadcast_object from {root}")
    if world.broadcast_object(None if world.rank else "y" * (MAX_OBJECT - 2)) != "y" * (MAX_OBJECT - 2):
        raise AssertionError("broadcast_object of the longest text")


def check_refusals(world: Communicator) -> None:
    """Wrong arguments are refused before anything is sent, so that the ranks are still together afterwards."""
    a, size = nd.ones((2 * world.size + 1,)), world.size
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, lambda: world.all_reduce(np.ones(3))),  # type: ignore[arg-type]
        (TypeError, lambda: world.all_reduce(a > 0)),
        (ValueError, lambda: world.all_reduce(a, "mean")),
        (ValueError, lambda: world.broadcast(a, size)),
        (ValueError, lambda: world.broadcast(a, -1)),
        (ValueError, lambda: world.all_to_all(a)),
        (ValueError, lambda: world.all_to_all(nd.array(1.0))),
        (ValueError, lambda: world.send(a, size)),
        (ValueError, lambda: world.send(a, 0, MAX_TAG + 1)),
        (ValueError, lambda: world.recv((2,), "float32", size)),
        (ValueError, lambda: world.recv((-2,), "float32", 0)),
        (TypeError, lambda: world.gather_objects({1: 2})),
        (TypeError, lambda: world.gather_objects(object())),
        (ValueError, lambda: world.gather_objects("x" * MAX_OBJECT)),
    ]
    if size > 1:
        wrong.append((ValueError, lambda: world.reduce_scatter(a)))
    for i, (kind, call) in enumerate(wrong):
        try:
            call()
        except kind as error:
            if "\n" in str(error) or not str(error):
                raise AssertionError(f"refusal {i}: expected one line, got {str(error)!r}") from None
        else:
            raise AssertionError(f"refusal {i}: expected a {kind.__name__}")
    world.barrier()


class Moved(Communicator):
    """Another communicator, to which arrays come on a device, and whose results must be there."""

    def __init__(self, world: Communicator, device: Any) -> None:
        self.inner, self.device, self.rank, self.size = world, device, world.rank, world.size

    def _back(self, y: NDArray) -> NDArray:
        if y.device != self.device:
            raise AssertionError(f"a result on {y.device}, expected {self.device}")
        return y.to(nd.cpu())

    def _all_reduce(self, a, op):
        return self._back(self.inner.all_reduce(a.to(self.device), op))

    def _broadcast(self, a, root):
        return self._back(self.inner.broadcast(a.to(self.device), root))

    def _all_gather(self, a):
        return self._back(self.inner.all_gather(a.to(self.device)))

    def _reduce_scatter(self, a, op):
        return self._back(self.inner.reduce_scatter(a.to(self.device), op))

    def _all_to_all(self, a):
        return self._back(self.inner.all_to_all(a.to(self.device)))

    def _send(self, a, axes, to, tag):
        self.inner.send(as_sent(a.to(self.device), axes), to, tag)

    def _recv(self, wanted, source, tag):
        return self.inner.recv(wanted.shape, wanted.dtype, source, tag)

    def _barrier(self):
        self.inner.barrier()


CHECKS = (check_values, check_rows, check_messages, check_objects, check_refusals)


def check_communicator(world: Communicator) -> None:
    """Run the whole contract; every rank calls this. AssertionError names the first call whose answer is wrong.

    >>> from needle_nn.distributed import Alone
    >>> check_communicator(Alone())
    """
    if not 0 <= world.rank < world.size:
        raise AssertionError(f"rank {world.rank} of {world.size}")
    for check in CHECKS:
        check(world)


if __name__ == "__main__":
    from needle_nn.distributed import init

    found = init(*sys.argv[1:2])
    if sys.argv[2:3]:
        check_communicator(Moved(found, getattr(found, "device", getattr(nd, sys.argv[2])())))
    check_communicator(found)
    print(f"{found}: keeps the contract")
