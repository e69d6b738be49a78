"""`cupy.cuda.nccl` over MPI: the calls that needle_cuda.nccl makes, with the rules of NCCL that a mistake would break.

Work is queued on streams, as there; `send` waits for its `recv`; a group is done at its end, all at once. It shows that calls and
addresses are right. Of NCCL's own library, of real streams and of speed it shows nothing.
"""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

from . import memory
from .streams import here, stream_of

available = True
NCCL_INT8, NCCL_UINT8 = 0, 1
KEY = 128  # bytes of a unique id


class NcclError(RuntimeError):
    def __init__(self, status: int, message: str):
        self.status = status
        super().__init__(message)


def _refuse(message: str) -> None:
    raise NcclError(4, f"NCCL_ERROR_INVALID_ARGUMENT: {message}")


def get_version() -> int:
    return 21805


def get_unique_id() -> tuple[int, ...]:
    return tuple(range(-64, 64))


# What a group holds: communicator, verb, buffer, peer, stream.
_group: list[tuple[Any, str, Any, int, int]] | None = None


def groupStart() -> None:
    global _group
    if _group is not None:
        _refuse("the stand-in has no groups within groups")
    _group = []


def groupEnd() -> None:
    global _group
    if _group is None:
        _refuse("groupEnd without groupStart")
    calls, _group = _group or [], None
    for stream in {stream for *_, stream in calls}:
        queued = [call[:-1] for call in calls if call[-1] == stream]
        stream_of(stream).ask(partial(_exchange, queued))


def _exchange(calls: list) -> None:
    """Sends and receives of a group, none of which waits for another."""
    from mpi4py import MPI

    begun = [
        (comm.Issend if verb == "send" else comm.Irecv)([view, MPI.BYTE], peer) for comm, verb, view, peer in calls
    ]
    MPI.Request.Waitall(begun)


class NcclCommunicator:
    """One rank of `ndev`, on the current device."""

    def __init__(self, ndev: int, commId: tuple[int, ...], rank: int):
        from mpi4py import MPI

        if len(commId) != KEY or commId != get_unique_id():
            _refuse(f"a unique id of {len(commId)} numbers that rank 0 did not make")
        if (ndev, rank) != (MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank):
            _refuse(f"rank {rank} of {ndev}, but MPI has rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}")
        self._comm: Any = MPI.COMM_WORLD.Dup()
        self._device = here.device
        places = self._comm.allgather((MPI.Get_processor_name(), self._device))
        if len(set(places)) < ndev:
            raise NcclError(5, f"NCCL_ERROR_INVALID_USAGE: duplicate GPU detected: {places}")

    def destroy(self) -> None:
        self._comm = None

    def rank_id(self) -> int:
        return int(self._comm.rank)

    def size(self) -> int:
        return int(self._comm.size)

    def broadcast(self, sendbuf: int, recvbuf: int, count: int, datatype: int, root: int, stream: int) -> None:
        given, out = self._view(sendbuf, count, datatype), self._view(recvbuf, count, datatype)

        def work(comm: Any) -> None:
            if comm.rank == root:
                out[:] = given
            comm.Bcast(out, root)

        self._ask(stream, work)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        given, out = self._view(sendbuf, count, datatype), self._view(recvbuf, count * self.size(), datatype)
        self._ask(stream, lambda comm: comm.Allgather(given, out))

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._lone("send", sendbuf, count, datatype, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._lone("recv", recvbuf, count, datatype, peer, stream)

    def _lone(self, verb: str, address: int, count: int, datatype: int, peer: int, stream: int) -> None:
        if not 0 <= peer < self.size():
            _refuse(f"{verb}: peer {peer} of {self.size()} ranks")
        call = (self._comm, verb, self._view(address, count, datatype), peer)
        if _group is not None:
            _group.append((*call, stream))
        else:
            stream_of(stream).ask(lambda: _exchange([call]))

    def _view(self, address: int, count: int, datatype: int) -> Any:
        """The bytes at an address of this communicator's device."""
        if self._comm is None:
            _refuse("the communicator was destroyed")
        if datatype not in (NCCL_INT8, NCCL_UINT8):
            _refuse(f"datatype {datatype}: the stand-in moves bytes")
        if here.device != self._device:
            _refuse(f"device {here.device} is current, the communicator is of device {self._device}")
        memory.check(self._device, address, count, "NCCL")
        return (ctypes.c_ubyte * count).from_address(address)

    def _ask(self, stream: int, work: Callable[[Any], None]) -> None:
        comm = self._comm
        stream_of(stream).ask(lambda: work(comm))
