"""needle.profile: a context manager and decorator, and the Profile it gives."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from time import perf_counter_ns as clock
from typing import Any

from needle.autograd import name_ops
from needle.profiling.listener import Event, Listener, Replay, Track, Tracks
from needle.profiling.tables import Row, amount, duration, name_of_line, rows_of, text_of
from needle.profiling.trace import save_trace
from needle_ndarray.extension import listening, observe

_active: "Profile | None" = None


class Profile:
    """What was computed while a block ran, and how long it took; see `needle.profile`.

    It may be entered again, and then goes on where it was. Results are the same with and without it.
    """

    def __init__(self) -> None:
        self._tracks = Tracks()
        self._thread = 0  # whose track the tables show
        self._first = 0  # when it was first entered
        self._elapsed = 0  # nanoseconds of blocks that are over
        self._since: int | None = None  # when the block under way began
        self._stack = ExitStack()

    # ---- Listening -----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Profile":
        global _active
        if _active is not None:
            where = "this thread" if _active._thread == get_ident() else "another thread"
            raise RuntimeError(f"profile: a profile is under way in {where}: there is one at a time")
        with ExitStack() as stack:
            try:
                stack.enter_context(listening(lambda backend: Listener(self._tracks, backend)))
            except RuntimeError:
                raise RuntimeError("profile: a captured function is being recorded: profile it from outside") from None
            observe(self._tracks)
            stack.callback(observe, None)
            name_ops(True)
            stack.callback(name_ops, False)
            self._stack = stack.pop_all()
        _active, self._thread = self, get_ident()
        self._first = self._first or clock()
        self._tracks.note_memory(clock(), self._tracks.here())
        self._since = clock()
        return self

    def __exit__(self, *exception: Any) -> None:
        global _active
        self._elapsed, self._since = self._elapsed_now(), None
        _active = None
        self._stack.close()
        self._tracks.note_memory(clock(), self._tracks.here())

    def _elapsed_now(self) -> int:
        return self._elapsed + (0 if self._since is None else clock() - self._since)

    def __call__(self, function: Callable) -> Callable:
        """The function, every call of which goes into this profile; it is the function's attribute `profile`."""

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            if _active is self:  # recursion
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        profiled.profile = self  # type: ignore[attr-defined]
        return profiled

    # ---- What was heard --------------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Time of the block without what profiling itself took."""
        return self._nanoseconds(self._track()) / 1e9

    @property
    def overhead(self) -> float:
        """Seconds that profiling took in this thread, which are not in the tables."""
        return self._track().own / 1e9

    @property
    def events(self) -> list[Event]:
        """Every call of a verb in the thread that was profiled, in order."""
        return list(map(Event._make, self._track().events))

    @property
    def replays(self) -> list[Replay]:
        """Every replay of a captured function in that thread."""
        return list(self._track().replays)

    @property
    def threads(self) -> list[str]:
        """Names of the threads that computed, the one that was profiled first."""
        return [track.name for track in self._ordered()]

    @property
    def memory(self) -> list[tuple[float, int]]:
        """(seconds since the beginning, bytes of all arrays on the CPU), wherever that changed."""
        return [((at - self._first) / 1e9, live) for at, live in self._tracks.memory]

    @property
    def peak(self) -> tuple[int, tuple[str, int]]:
        """The most bytes that arrays on the CPU held, and the line that asked for the last of them."""
        return self._tracks.peak, self._tracks.peak_at[1]

    def _ordered(self) -> list[Track]:
        first = self._track()
        return [first, *[track for track in self._tracks.threads.values() if track is not first and track.events]]

    def _track(self, name: str | None = None) -> Track:
        if name is None:
            return self._tracks.threads.get(self._thread) or Track("")
        for track in self._ordered():
            if track.name == name:
                return track
        raise ValueError(f"thread={name!r}: expected one of {', '.join(self.threads)}")

    def _nanoseconds(self, track: Track) -> int:
        return max(self._elapsed_now() - track.own, busy(track))

    # ---- Tables ------------------------------------------------------------------------------------------------------------------

    def rows(self, by: str = "op", thread: str | None = None) -> list[Row]:
        """Rows by "op", "verb" or "line", the longest time first; the last is the time between operations.

        `thread`: one of `threads`; by default the thread that was profiled. Shares add up to 1.
        """
        track = self._track(thread)
        return rows_of(track, by, self._nanoseconds(track))

    def table(self, by: str = "op", limit: int = 20, thread: str | None = None) -> str:
        """`rows` as text, all but the first `limit` in one line."""
        return text_of(self.rows(by, thread), by, limit)

    def __str__(self) -> str:
        track = self._track()
        peak, line = self.peak
        notes = [f"memory: at most {amount(peak)} of arrays on the CPU, at {name_of_line(line)}"]
        if track.replays:
            notes.append(f"replays of captured functions: {len(track.replays):,}")
        for other in self._ordered()[1:]:
            notes.append(f"besides, in thread {other.name}: {len(other.events):,} calls, {duration(busy(other) / 1e9)}")
        if track.events:
            each = duration(self.overhead / len(track.events))
            notes.append(f"profiling took {duration(self.overhead)} more, {each} per call")
        return "\n\n".join([self.table("op", 15), self.table("line", 10), "\n".join(notes)])

    def __repr__(self) -> str:
        return f"<profile of {len(self._track().events):,} calls, {duration(self.seconds)}>"

    def save(self, path: Any) -> None:
        """Write a trace, in JSON, for ui.perfetto.dev or chrome://tracing: verbs and replays by thread, memory over time."""
        save_trace(path, self._tracks, self._first)


def busy(track: Track) -> int:
    """Nanoseconds in verbs."""
    return sum(end - start for start, end, *_ in track.events)


def profile(function: Callable | None = None) -> Any:
    """Measure what is computed in a block: `with needle.profile() as p:`, or in the calls of a function: `@needle.profile`.

    Every verb of the backends is timed, with the op that asked for it, the user's line, its floating-point operations and bytes.
    `print(p)` shows tables, `p.rows(by=...)` gives them as data, `p.save(path)` writes a trace for Perfetto. Replays of captured
    functions are measured verb by verb; a function that is not captured yet stays eager meanwhile. One profile at a time; what
    other threads compute is kept by thread.

    >>> import needle as ndl
    >>> a, b = ndl.ones(20, 30), ndl.ones(30, 40)
    >>> with ndl.profile() as p:
    ...     c = (a @ b + 1).sum()
    >>> [(row.name, row.calls, row.flops) for row in sorted(p.rows())]
    [('AddScalar', 1, 800), ('MatMul', 1, 48000), ('Summation', 1, 800), ('between operations', 0, 0)]
    """
    made = Profile()
    return made if function is None else made(function)
