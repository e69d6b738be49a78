"""Communicators: how ranks exchange arrays. The verbs, what they take and what they give; `Alone`, for one process."""

import json
import os
import sys
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle_ndarray import NDArray
from needle_nn.checks import check_count, described, shown
from needle_nn.distributed.trees import OPS

#: The longest object that gather_objects and broadcast_object send, in bytes of JSON.
MAX_OBJECT = 1 << 20
#: The largest tag: twice this and one is the largest that every MPI has.
MAX_TAG = 16382


class DistributedError(RuntimeError):
    """Ranks that do not agree on a call, or a call that failed; the message says on one line who wanted what."""


class Communicator:
    """`size` processes, of which this one has the number `rank`, and what they do together.

    Every verb of arrays but send and recv is collective: all ranks call the same verbs in the same order, with the same shapes and
    dtypes. Results are new arrays, on the device of what was given, with the same bits on every rank; sums follow the tree over
    rank numbers of `tree_reduce`. Arguments are checked here; a subclass sets `rank` and `size` and writes the verbs with an
    underscore, which get compact arrays and checked numbers, and which may be called within `_calling` only.

    `step` is what messages call the step of training: set it where there is one.
    """

    rank: int
    size: int
    step: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"

    # ---- The verbs ---------------------------------------------------------------------------------------------------------

    def all_reduce(self, a: NDArray, op: str = "sum") -> NDArray:
        """y = a of rank 0 + a of rank 1 + ...; op is sum, max or min."""
        given = array("all_reduce", a, op)
        with self._calling("all_reduce", given, op):
            return self._all_reduce(given, op)

    def broadcast(self, a: NDArray, root: int = 0) -> NDArray:
        """y = a of the root; the others give an array of the same shape and dtype, whose values nobody reads."""
        given, root = array("broadcast", a), self._rank("broadcast", "root", root)
        with self._calling("broadcast", given, f"from {root}"):
            return self._broadcast(given, root)

    def all_gather(self, a: NDArray) -> NDArray:
        """y[r] = a of rank r:  (...) -> (size, ...)"""
        given = array("all_gather", a)
        with self._calling("all_gather", given):
            return self._all_gather(given)

    def reduce_scatter(self, a: NDArray, op: str = "sum") -> NDArray:
        """y = this rank's n rows of the sum over ranks:  (size n, ...) -> (n, ...)"""
        given = array("reduce_scatter", a, op)
        if given.ndim == 0 or given.shape[0] % self.size:
            raise ValueError(
                f"reduce_scatter: shape {a.shape}: expected a first axis that {self.size} ranks divide evenly"
            )
        with self._calling("reduce_scatter", given, op):
            return self._reduce_scatter(given, op)

    def all_to_all(self, a: NDArray) -> NDArray:
        """y[r] = a[this rank] of rank r:  (size, ...) -> (size, ...)"""
        given = array("all_to_all", a)
        if given.ndim == 0 or given.shape[0] != self.size:
            raise ValueError(f"all_to_all: shape {a.shape}: expected one row for each of {self.size} ranks")
        with self._calling("all_to_all", given):
            return self._all_to_all(given)

    def send(self, a: NDArray, to: int, tag: int = 0) -> None:
        """Send an array to the `recv` of another rank. Does not wait; the array may change at once."""
        (given, axes), to, tag = in_memory(a), self._rank("send", "to", to), tag_of("send", tag)
        with self._calling("send", a, f"to {to} tag {tag}"):
            self._send(given, axes, to, tag)

    def recv(self, shape: Any, dtype: Any, source: int, tag: int = 0) -> NDArray:
        """The next array that rank `source` has sent or will send with this tag, which must have this shape and dtype.

        Its axes lie in memory as they did there, since sums of some kernels follow memory.
        """
        source, tag = self._rank("recv", "source", source), tag_of("recv", tag)
        wanted = nd.empty(shape, dtype)
        with self._calling("recv", wanted, f"from {source} tag {tag}"):
            return self._recv(wanted, source, tag)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        with self._calling("barrier"):
            self._barrier()

    def gather_objects(self, x: Any) -> list[Any]:
        """[x of rank 0, x of rank 1, ...] on every rank; x is what JSON holds, up to 1 MiB of it. Tuples arrive as lists."""
        text = encoded("gather_objects", x)
        with self._calling("gather_objects"):
            counts = self._all_gather(nd.array([len(text)], "int64")).numpy().ravel()
            padded = np.zeros(int(counts.max()), "uint8")
            padded[: len(text)] = np.frombuffer(text, "uint8")
            rows = self._all_gather(nd.array(padded, "uint8")).numpy()
        return [decoded(row[:n]) for row, n in zip(rows, counts, strict=True)]

    def broadcast_object(self, x: Any, root: int = 0) -> Any:
        """x of the root, which is what JSON holds, up to 1 MiB of it; what the others give is not looked at."""
        root = self._rank("broadcast_object", "root", root)
        text = encoded("broadcast_object", x) if self.rank == root else b""
        with self._calling("broadcast_object", detail=f"from {root}"):
            count = int(self._broadcast(nd.array([len(text)], "int64"), root).item())
            values = np.frombuffer(text, "uint8") if self.rank == root else np.zeros(count, "uint8")
            return decoded(self._broadcast(nd.array(values, "uint8"), root).numpy())

    def abort(self, message: str) -> None:
        """Print the message and end the processes of all ranks at once, with exit code 1."""
        print(f"needle.distributed: rank {self.rank}: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
        self._abort()

    def close(self) -> None:
        """Say that this rank leaves, after what it sent has arrived; the end of the process does it too."""

    def twin(self) -> "Communicator | None":
        """Another communicator of the same ranks, the same one each time, whose calls never meet those of this one.

        All ranks ask for it together. None where two threads cannot communicate at once.
        """
        return None

    def direct(self, device: Any) -> bool:
        """Whether arrays of this device are exchanged as they lie there; others go through the host."""
        return bool(device.name.startswith("cpu"))

    # ---- What a subclass writes --------------------------------------------------------------------------------------------

    def _calling(self, verb: str, a: NDArray | None = None, detail: str = "") -> AbstractContextManager:
        """What surrounds a call: a place to compare it with that of other ranks, and to watch how long it takes."""
        return nullcontext()

    def _all_reduce(self, a: NDArray, op: str) -> NDArray:
        raise NotImplementedError

    def _broadcast(self, a: NDArray, root: int) -> NDArray:
        raise NotImplementedError

    def _all_gather(self, a: NDArray) -> NDArray:
        raise NotImplementedError

    def _reduce_scatter(self, a: NDArray, op: str) -> NDArray:
        raise NotImplementedError

    def _all_to_all(self, a: NDArray) -> NDArray:
        raise NotImplementedError

    def _send(self, a: NDArray, axes: tuple[int, ...], to: int, tag: int) -> None:
        """Send a, and axes: axis i of a is axis axes[i] of the array that the program sent."""
        raise NotImplementedError

    def _recv(self, wanted: NDArray, source: int, tag: int) -> NDArray:
        """The array that the program sent, of the shape and dtype of `wanted`, which may be used for it."""
        raise NotImplementedError

    def _barrier(self) -> None:
        raise NotImplementedError

    def _abort(self) -> None:
        os._exit(1)

    def _rank(self, verb: str, name: str, given: Any) -> int:
        rank = check_count(verb, name, given, 0)
        if rank >= self.size:
            raise ValueError(f"{verb}: {name} {rank}: expected a rank from 0 to {self.size - 1}")
        return rank


class Alone(Communicator):
    """The communicator of one process: every verb gives back a copy of what it got.

    >>> world = Alone()
    >>> world, world.all_reduce(nd.ones(3)).tolist(), world.all_gather(nd.ones(3)).shape
    (<Alone: rank 0 of 1>, [1.0, 1.0, 1.0], (1, 3))
    >>> world.send(nd.ones(2), to=0)
    >>> world.recv((2,), "float32", source=0).tolist()
    [1.0, 1.0]
    """

    rank, size = 0, 1

    def __init__(self) -> None:
        self._sent: dict[int, deque[tuple[NDArray, tuple[int, ...]]]] = {}

    def _all_reduce(self, a: NDArray, op: str) -> NDArray:
        return a.copy()

    def _broadcast(self, a: NDArray, root: int) -> NDArray:
        return a.copy()

    def _all_gather(self, a: NDArray) -> NDArray:
        return a.copy().reshape(1, *a.shape)

    def _reduce_scatter(self, a: NDArray, op: str) -> NDArray:
        return a.copy()

    def _all_to_all(self, a: NDArray) -> NDArray:
        return a.copy()

    def _send(self, a: NDArray, axes: tuple[int, ...], to: int, tag: int) -> None:
        self._sent.setdefault(tag, deque()).append((a.copy(), axes))

    def _recv(self, wanted: NDArray, source: int, tag: int) -> NDArray:
        if not self._sent.get(tag):
            raise DistributedError(f"recv: nothing was sent with tag {tag}, and nobody else is there to send it")
        found = as_sent(*self._sent[tag].popleft())
        if layout(found) != layout(wanted):
            raise DistributedError(
                f"recv: expected {layout(wanted)} from rank 0 with tag {tag}, but rank 0 sent {layout(found)}"
            )
        return found

    def _barrier(self) -> None:
        pass


# ---- What verbs take -------------------------------------------------------------------------------------------------------


def array(verb: str, a: Any, op: str | None = None) -> NDArray:
    """The argument of a verb, compact; op: what it shall be reduced by."""
    if not isinstance(a, NDArray):
        raise TypeError(f"{verb}: expected an NDArray, got {described(a)}")
    if op is not None and op not in OPS:
        raise ValueError(f"{verb}: op {shown(op)}: expected one of {', '.join(OPS)}")
    if op == "sum" and a.dtype == "bool":
        raise TypeError(f"{verb}: a sum of bools: use max for any, min for all, or a.astype('int32') to count")
    return a.compact()


def in_memory(a: Any) -> tuple[NDArray, tuple[int, ...]]:
    """(b, axes): b is a with its axes in the order of its memory, axes[i] of a being axis i of b; b is compact.

    >>> b, axes = in_memory(nd.ones((2, 3, 4)).permute(0, 2, 1))
    >>> b.shape, axes
    ((2, 3, 4), (0, 2, 1))
    """
    given = a if isinstance(a, NDArray) else array("send", a)
    axes = tuple(sorted(range(given.ndim), key=lambda axis: -given.strides[axis]))
    turned = given.permute(axes)
    return (turned, axes) if turned.is_compact() else (given.compact(), tuple(range(given.ndim)))


def as_sent(a: NDArray, axes: tuple[int, ...]) -> NDArray:
    """The array of which `in_memory` made these two."""
    return a.permute([axes.index(axis) for axis in range(a.ndim)])


def tag_of(verb: str, given: Any) -> int:
    tag = check_count(verb, "tag", given, 0)
    if tag > MAX_TAG:
        raise ValueError(f"{verb}: tag {tag}: expected at most {MAX_TAG}")
    return tag


def layout(a: NDArray) -> str:
    """An array in a message: its dtype and shape."""
    return f"{a.dtype} {a.shape}"


def encoded(verb: str, x: Any) -> bytes:
    """x as JSON; a TypeError or ValueError for what would not come back as it went."""
    check_object(verb, x)
    text = json.dumps(x, separators=(",", ":")).encode()
    if len(text) > MAX_OBJECT:
        raise ValueError(f"{verb}: {len(text)} bytes of JSON, expected at most {MAX_OBJECT}; send arrays as arrays")
    return text


def check_object(verb: str, x: Any, depth: int = 0) -> None:
    if depth > 100:
        raise ValueError(f"{verb}: an object nested more than 100 deep")
    if isinstance(x, (list, tuple)):
        for value in x:
            check_object(verb, value, depth + 1)
    elif isinstance(x, dict):
        for key, value in x.items():
            if not isinstance(key, str):
                raise TypeError(f"{verb}: a dict with the key {shown(key)}: expected texts")
            check_object(verb, value, depth + 1)
    elif x is not None and not isinstance(x, (bool, int, float, str)):
        raise TypeError(f"{verb}: expected numbers, texts, None, and lists and dicts of them, got {described(x)}")


def decoded(values: np.ndarray) -> Any:
    return json.loads(values.tobytes())
