"""Ranks with a GPU each: collectives go from device to device by NCCL, all else by MPI. `needle.distributed.init("nccl")`."""

from typing import Any

import needle_ndarray as nd
from needle_cuda.status import find_cupy, why_disabled
from needle_ndarray import NDArray
from needle_nn.distributed import DistributedError
from needle_nn.distributed.mpi import MPI, mpi

INSTALL = "pip install nvidia-nccl-cu12 (or -cu13), or python -m cupyx.tools.install_library --library nccl"


class NCCL(MPI):
    """The ranks of MPI's world, with the GPU that has their number on their machine: `world.device`.

    Collectives of arrays on that device are NCCL's; those of other arrays, objects, `send` and `recv` are MPI's, as are the start,
    the comparison of calls and the watchdog. NCCL moves bytes only: sums are Needle's kernels in the tree over ranks, to the bits
    that they have over MPI. A `send` of NCCL would wait for its `recv`, which a `send` here does not.

    A call returns when its data are there, so that the time limit holds for what NCCL does as well.
    """

    def __init__(self) -> None:
        super().__init__()
        number = self.comm.Split_type(mpi.COMM_TYPE_SHARED).rank
        self.device, self._number = nd.cuda(number), number
        self._nccl, wrong = find_nccl(number)
        told = [f"rank {rank}: {text}" for rank, text in enumerate(self.gather_objects(wrong)) if text]
        if told:
            raise DistributedError(f"init: NCCL: {told[0]}")
        self._cupy = find_cupy()
        key = tuple(self.broadcast_object(list(self._nccl.get_unique_id()) if self.rank == 0 else None))
        with self._watching("the start of NCCL,", 0), self._here():
            self._ring = self._nccl.NcclCommunicator(self.size, key, self.rank)

    def __repr__(self) -> str:
        return f"<NCCL: rank {self.rank} of {self.size} on {self.device}, {super().__repr__()[1:-1]}>"

    def direct(self, device: Any) -> bool:
        return device == self.device or super().direct(device)

    def close(self) -> None:
        if not self._closed:
            super().close()
            self._ring.destroy()

    # ---- Collectives -----------------------------------------------------------------------------------------------------

    def _broadcast(self, a: NDArray, root: int) -> NDArray:
        if a.device != self.device:
            return super()._broadcast(a, root)
        out = nd.empty(a.shape, a.dtype, a.device)
        self._run(a, out, lambda src, dst, queue: self._ring.broadcast(src, dst, a.nbytes, self._bytes, root, queue))
        return out

    def _all_gather(self, a: NDArray) -> NDArray:
        if a.device != self.device:
            return super()._all_gather(a)
        out = nd.empty((self.size, *a.shape), a.dtype, a.device)
        self._run(a, out, lambda src, dst, queue: self._ring.allGather(src, dst, a.nbytes, self._bytes, queue))
        return out

    def _all_to_all(self, a: NDArray) -> NDArray:
        if a.device != self.device:
            return super()._all_to_all(a)
        out, n = nd.empty(a.shape, a.dtype, a.device), a.nbytes // self.size

        def exchange(src: int, dst: int, queue: int) -> None:
            self._nccl.groupStart()  # all of these at once: one after the other they would wait in a circle
            for rank in range(self.size):
                self._ring.send(src + rank * n, n, self._bytes, rank, queue)
                self._ring.recv(dst + rank * n, n, self._bytes, rank, queue)
            self._nccl.groupEnd()

        self._run(a, out, exchange)
        return out

    # ---- Below -----------------------------------------------------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        return int(self._nccl.NCCL_UINT8)

    def _here(self) -> Any:
        return self._cupy.cuda.Device(self._number)

    def _run(self, a: NDArray, out: NDArray, call: Any) -> None:
        """call(address of a, address of out, stream) on this rank's device, to its end."""
        if not a.nbytes:
            return
        with self._here():
            stream = self._cupy.cuda.get_current_stream()
            try:
                call(address(a), address(out), stream.ptr)
                stream.synchronize()
            except self._nccl.NcclError as error:
                raise DistributedError(f"rank {self.rank}: NCCL says: {error}") from error
        out._handle.mark_written()


def address(a: NDArray) -> int:
    """Where a compact array begins."""
    return int(a._handle.ptr()) + a.offset * a.itemsize


def find_nccl(number: int) -> tuple[Any, str | None]:
    """(cupy.cuda.nccl, None), or (None, what is missing for device `number`)."""
    why = why_disabled(number)
    if why is not None:
        return None, f"cuda({number}): {why}"
    try:
        nccl = find_cupy().cuda.nccl
        nccl.get_version()
    except (ImportError, AttributeError, RuntimeError) as error:
        return None, f"cupy finds no NCCL ({str(error).splitlines()[0]}): {INSTALL}"
    return nccl, None
