"""Stream capture: what is asked of a stream is written down instead of done, and a `Graph` does it as often as it is launched.

Refused is what CUDA, or cupy, refuses meanwhile; in a relaxed capture, too, what would make a graph that is not right later.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from .runtime import CUDARuntimeError

if TYPE_CHECKING:
    from .streams import Stream

UNSUPPORTED, IMPLICIT, ISOLATION = 900, 906, 905  # cudaError_t
NAMES = {
    UNSUPPORTED: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    IMPLICIT: "cudaErrorStreamCaptureImplicit: operation would make the legacy stream depend on a capturing blocking stream",
    ISOLATION: "cudaErrorStreamCaptureIsolation: dependency created on uncaptured work in another stream",
}


class Graph:
    """Work of one capture, in its order; made by `Stream.end_capture`."""

    def __init__(self, work: list[Callable[[], object]], device_id: int):
        self._work, self.device_id = work, device_id

    def launch(self, stream: "Stream | None" = None) -> None:
        from .module import launches
        from .streams import get_current_stream, here

        queue = (get_current_stream() if stream is None else stream).here()
        if queue.device_id != self.device_id or here.device != self.device_id:
            raise CUDARuntimeError(
                400, f"a graph of device {self.device_id} launched on {queue} while device {here.device} is current"
            )
        launches["graph"] += 1
        queue.ask(self._run)

    def upload(self, stream: "Stream | None" = None) -> None:
        pass

    def _run(self) -> None:
        for work in self._work:
            work()


def refuse(status: int, what: str) -> None:
    raise CUDARuntimeError(status, f"{NAMES[status]} ({what})")


def check_unsafe(what: str) -> None:
    """Refuse a call that no capture of this thread permits: memory from the device, a module loaded."""
    from .streams import capturing

    if capturing():
        refuse(UNSUPPORTED, what)
