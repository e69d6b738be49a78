"""A thread that sees calls of other ranks that never come, says which rank is missing, and ends the job instead of waiting."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from needle_nn.distributed.agreement import disagreement

POLL = 0.05  # seconds between two looks
PATIENCE = 0.5  # seconds until a call that does not end is told to the other ranks
START = 60.0  # seconds that the start may take at least: ranks import at their own speed


def seconds_from_environment() -> float:
    """NEEDLE_DISTRIBUTED_TIMEOUT: how long a call may wait for other ranks, 300 s unless told."""
    text = os.environ.get("NEEDLE_DISTRIBUTED_TIMEOUT", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e9:
        raise ValueError(f"NEEDLE_DISTRIBUTED_TIMEOUT={text}: expected seconds above 0")
    return seconds


@contextmanager
def limited(what: str) -> Iterator[None]:
    """End the process when this block takes longer than the time limit: for the start, when there is no watchdog yet."""
    seconds = max(START, seconds_from_environment())

    def give_up() -> None:
        message = f"needle.distributed: process {os.getpid()}: {what} took more than {seconds:g} s: a rank did not come"
        print(message, file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Watchdog:
    """Watches the calls of one rank. What it knows of the others comes in messages on a communicator of its own.

    A call that waits is told to the other ranks after half a second; their watchdogs answer where they are. So a rank that left, or
    that waits in another call, ends the job with one line at once, and one that computes, sleeps or was stopped does so after
    the time limit.
    """

    def __init__(self, world: Any, control: Any, seconds: float) -> None:
        self.world, self.control, self.seconds = world, control, seconds
        self.waiting: dict[int, tuple[str, int, float]] = {}  # thread: what, number of the call, since when
        self.left: dict[int, tuple[int, float]] = {}  # rank: calls after which it left, and when that was heard
        self.heard: dict[int, tuple[float, dict[str, Any]]] = {}  # rank: when, and where it said it was
        self._told: tuple[str, int, float] | None = None
        self._leaving = False
        self._asked = 0.0
        self._requests: list[tuple[Any, bytes]] = []
        self._main = threading.main_thread().ident
        self._stop, self._sending = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="needle.distributed watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watch(self, what: str, number: int) -> Iterator[None]:
        thread = threading.get_ident()
        self.waiting[thread] = (what, number, time.monotonic())
        try:
            yield
        finally:
            del self.waiting[thread]

    def close(self) -> None:
        """Tell the others that this rank makes no more calls, and stay until they do the same: the end of MPI waits for all."""
        self._leaving, began = True, time.monotonic()
        self._tell({"left": self.world.calls})
        while len(self.left) < self.world.size - 1:
            time.sleep(POLL)
            silent = [
                r for r in self._others() if time.monotonic() - max(began, self.heard.get(r, (0.0,))[0]) > self.seconds
            ]
            if silent and all(r not in self.left for r in silent):
                self.world.abort(f"at the end: no sign of life from rank {comma(silent)} for {self.seconds:g} s")
        self._stop.set()
        self._thread.join()
        for request, _text in self._requests:
            request.Wait()

    # ---- The thread --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop.wait(POLL):
                self._listen()
                self._look()
        except Exception as error:  # of MPI, in a job that is about to end
            self.world.abort(f"the watchdog failed: {error}")

    def _listen(self) -> None:
        """Take what the other watchdogs have sent, and answer."""
        while (found := self.world.probe(self.control)) is not None:
            rank, text = found
            said = json.loads(text)
            self.heard[rank] = (time.monotonic(), said)
            if "left" in said:
                self.left.setdefault(rank, (said["left"], time.monotonic()))
            if said.get("asks"):
                self._tell(self._place(), [rank])

    def _look(self) -> None:
        now = time.monotonic()
        call = self._oldest()
        if self._leaving and now - self._asked > 1:
            self._ask({"left": self.world.calls})
        if call is None:
            return
        what, number, since = call
        waited = now - since - min(0.05 * self.world.rank, 0.5)  # the first ranks speak first: one line is enough
        if waited > min(PATIENCE, self.seconds / 2):
            if self._told != call or now - self._asked > max(1.0, self.seconds / 8):
                self._told = call
                self._ask(self._place())
            self._compare(what, number)
        if waited > self.seconds:
            self.world.abort(f"{self._named(what, number)} has waited {now - since:.1f} s; {self._whereabouts(since)}")

    def _compare(self, what: str, number: int) -> None:
        """End the job where it is clear that another rank will never make this call."""
        for rank, (calls, when) in self.left.items():
            # Not collective: what it sent before it left may still be on the way.
            concerned = what.startswith(f"recv from {rank} ") or (number == 0 and len(self.left) == self.world.size - 1)
            if number > calls or (concerned and time.monotonic() - when > 2 * PATIENCE):
                gone = f"rank {rank} has left, after {calls} calls"
                self.world.abort(f"{self._named(what, number)} waits in vain: {gone}")
        here = {rank: said["what"] for rank, (_when, said) in self.heard.items() if said.get("number") == number > 0}
        if any(other != what for other in here.values()):
            self.world.abort(disagreement(number, {self.world.rank: what, **here}))

    # ---- Messages ----------------------------------------------------------------------------------------------------------

    def _place(self) -> dict[str, Any]:
        """Where this rank is: in a call, or at a line of the program."""
        call = self._oldest()
        if call is not None:
            return {"what": call[0], "number": call[1], "step": self.world.step}
        said: dict[str, Any] = {"calls": self.world.calls, "step": self.world.step, "line": self._line()}
        return {**said, "left": self.world.calls} if self._leaving else said

    def _oldest(self) -> tuple[str, int, float] | None:
        """The call that has waited longest; taken in one go, as threads of the program begin and end calls meanwhile."""
        return min(tuple(self.waiting.values()), key=lambda call: call[2], default=None)

    def _line(self) -> str:
        """The line of the program that the main thread is at: the innermost one outside this package."""
        frame = sys._current_frames().get(self._main or 0)
        while frame is not None and frame.f_back is not None and "needle_nn" in frame.f_code.co_filename:
            frame = frame.f_back
        return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""

    def _ask(self, said: dict[str, Any]) -> None:
        self._asked = time.monotonic()
        self._tell({**said, "asks": True})

    def _tell(self, said: dict[str, Any], ranks: list[int] | None = None) -> None:
        text = json.dumps(said).encode()
        with self._sending:  # the program's thread tells that it leaves
            self._requests = [kept for kept in self._requests if not kept[0].Test()]
            for rank in self._others() if ranks is None else ranks:
                self._requests.append((self.control.Isend(text, rank), text))

    def _others(self) -> list[int]:
        return [rank for rank in range(self.world.size) if rank != self.world.rank]

    def _named(self, what: str, number: int) -> str:
        step = f", step {self.world.step}" if self.world.step is not None else ""
        return f"{what} ({f'call {number}{step}' if number else step.strip(', ') or 'no collective call'})"

    def _whereabouts(self, since: float) -> str:
        """What the other ranks said since this call began."""
        told = []
        for rank in self._others():
            when, said = self.heard.get(rank, (0.0, {}))
            if when < max(since, time.monotonic() - max(2.0, self.seconds / 2)):
                told.append(f"rank {rank} does not answer")
            elif "what" in said:
                told.append(f"rank {rank} is in {said['what']} (call {said['number']})")
            else:
                told.append(f"rank {rank} is at {said['line']}, after {said['calls']} calls")
        return "; ".join(told)


def comma(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
