"""What a profile hears: each verb with its times, its costs and where it comes from.

Nothing that a verb was given is kept: an array that lives longer would change what is computed in place, and how much memory is
used.
"""

import threading
from threading import get_ident
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from needle.origins import Line, origin
from needle_ndarray import Backend, NDArray, Op, memory_stats
from needle_ndarray.extension import flops, traffic


class Kind(NamedTuple):
    """What calls with the same layout of their arguments have in common."""

    verb: str  # with its op: "binary add"
    device: str
    shapes: str
    nbytes: int
    flops: int


class Event(NamedTuple):
    """A call of a verb: nanoseconds of `time.perf_counter_ns`, what it was, and what asked for it."""

    start: int
    end: int
    kind: Kind
    op: str
    line: Line


class Replay(NamedTuple):
    """A replay of a captured function."""

    start: int
    end: int
    calls: int
    name: str


class Track:
    """What one thread did."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[tuple[int, int, Kind, str, Line]] = []  # as Event: a plain tuple is made in half the time
        self.replays: list[Replay] = []
        self.own = 0  # nanoseconds that profiling took
        self.inside: tuple[str, Line] | None = None  # where the verb under way comes from
        self.replaying: list[tuple[Any, int]] = []  # replays under way, and when they began


class Tracks:
    """Tracks by thread, and the memory in use over time."""

    def __init__(self) -> None:
        self.threads: dict[int, Track] = {}
        self.memory: list[tuple[int, int]] = []  # (nanoseconds, bytes of the CPU's arrays)
        self.peak = 0
        self.peak_at: tuple[str, Line] = ("", ("", 0))

    def here(self) -> Track:
        thread = get_ident()
        track = self.threads.get(thread)
        if track is None:
            track = self.threads[thread] = Track(threading.current_thread().name)
        return track

    # ---- Told by replays; see needle_ndarray.replay.observe ---------------------------------------------------------------

    def begins(self, replay: Any) -> None:
        self.here().replaying.append((replay, clock()))

    def ends(self, replay: Any) -> None:
        track = self.here()
        while track.replaying:  # one that began before this profile is not among them
            began, start = track.replaying.pop()
            if began is replay:
                name = "replay" if replay.plan is None else replay.plan.name
                track.replays.append(Replay(start, clock(), replay.count, name))
                return

    # ---- Asked by listeners ------------------------------------------------------------------------------------------------

    def origin(self, track: Track) -> tuple[str, Line]:
        """What asks for the verb that is called now: in a replay, what asked for it when it was recorded."""
        if track.replaying:
            replay, _ = track.replaying[-1]
            if replay.plan is not None:
                call = replay.plan.calls[replay.position]
                return call.op, call.line
        return origin()

    def note_memory(self, now: int, track: Track) -> None:
        live = memory_stats()["live_bytes"]
        if not self.memory or self.memory[-1][1] != live:
            self.memory.append((now, live))
            if live > self.peak:
                self.peak, self.peak_at = live, track.inside or self.origin(track)


class Listener:
    """Hears of the verbs of one backend."""

    numbers = False  # they take no time worth a row

    def __init__(self, tracks: Tracks, backend: Backend) -> None:
        self.tracks, self.backend = tracks, backend
        self.device = str(backend.device)
        self.kinds: dict[Any, Kind] = {}
        asynchronous = getattr(type(backend), "synchronize", None) is not Backend.synchronize
        self.synchronize = backend.synchronize if asynchronous else None

    def heard(self, verb: str, args: tuple[Any, ...]) -> Any:
        """Run a verb and time it; verbs that it calls are part of it."""
        tracks = self.tracks
        track = tracks.threads.get(get_ident()) or tracks.here()
        if track.inside is not None or verb == "share":
            return False
        began = start = clock()
        kind = self.kind(verb, args)
        op, line = tracks.origin(track)
        try:
            track.inside = op, line
            if self.synchronize is not None:
                self.synchronize()
            start = clock()
            result = getattr(self.backend, verb)(*args)
            if self.synchronize is not None:
                self.synchronize()
        finally:
            end = clock()
            track.inside = None
            track.events.append((start, end, kind, op or kind.verb, line))
            tracks.note_memory(end, track)
            track.own += clock() - end + start - began
        return True if result is None else result

    def allocated(self, buffer: Any) -> Any:
        track = self.tracks.here()
        began = clock()
        self.tracks.note_memory(began, track)
        if track.inside is None:  # else it is part of that verb's time
            track.own += clock() - began
        return buffer

    def kind(self, verb: str, args: tuple[Any, ...]) -> Kind:
        key = (verb, *[described(arg) for arg in args])
        kind = self.kinds.get(key)
        if kind is None:
            op = args[0] if args and isinstance(args[0], Op) else None
            shapes = ", ".join(shown(arg) for arg in args if isinstance(arg, (NDArray, list)))
            name = verb if op is None or op.name == verb else f"{verb} {op.name}"
            kind = Kind(name, self.device, shapes, traffic(verb, args), flops(verb, args))
            self.kinds[key] = kind
        return kind


def described(arg: Any) -> Any:
    """All of an argument that costs depend on, as a key: layouts, ops, sizes; no values."""
    if isinstance(arg, NDArray):
        return arg.shape, arg.strides, arg.dtype
    if isinstance(arg, list):
        return tuple([described(each) for each in arg])
    if isinstance(arg, tuple):  # hyperparameters are numbers that change; whether they are 0 counts
        return tuple([value != 0 if isinstance(value, float) else value for value in arg])
    if isinstance(arg, (Op, bool)):
        return arg
    return getattr(arg, "shape", arg is None)


def shown(arg: Any) -> str:
    if isinstance(arg, list):
        return f"{len(arg)} arrays"
    return f"{arg.dtype}({', '.join(map(str, arg.shape))})"
