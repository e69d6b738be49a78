"""Passes over a plan: each takes a Plan and changes its calls, never what they compute.

They run in the order of PASSES; `needle.capture(..., without=("in_place",))` leaves some out.
"""

from typing import TYPE_CHECKING

from needle_ndarray.capture.calls import Call, View
from needle_ndarray.capture.verbs import CHECKING, ELEMENTWISE

if TYPE_CHECKING:
    from needle_ndarray.capture.plan import Plan

SMALL = 65536  # bytes of a constant that is worth keeping
LARGE = 16384  # bytes from which computing in place pays: the cache holds one operand less


def drop_dead(plan: "Plan") -> None:
    """Leave out calls whose results nobody reads: what backward computes for inputs that need no gradient, sums of no use.

    Those that check their values stay: an index that is out of bounds is an error, whoever reads what is found there.
    """
    wanted = set(plan.outputs)
    kept = []
    for call in reversed(plan.calls):
        written = plan.written(call)
        if call.verb in ("repeat", *CHECKING) or any(buffer < 0 or buffer in wanted for buffer in written):
            wanted |= plan.read(call)
            kept.append(call)
    plan.calls = kept[::-1]


def hoist_constants(plan: "Plan") -> None:
    """Compute once, when the plan is made, what depends on nothing that changes: numbers in arrays, masks, positions."""
    writes = plan.count_writes()
    kept = []
    for call in plan.calls:
        written = plan.written(call)
        if (
            call.verb not in ("repeat", "random")
            and not plan.has_slots(call)
            and all(buffer >= 0 and writes[buffer] == 1 and buffer not in plan.outputs for buffer in written)
            and all(plan.sizes[buffer] <= SMALL for buffer in written)
            and plan.read(call) <= plan.constants
        ):
            plan.constants |= written
            plan.once.append(call)
        else:
            kept.append(call)
    plan.calls = kept


def reuse_results(plan: "Plan") -> None:
    """Compute once what is computed twice from the same values, and read a copy where it was copied from.

    Backward computes parts of forward again, and copies views for ops that want them compact. A result can stand for another
    one where both are written once and not handed out.
    """
    writes = plan.count_writes()
    done: dict[int, int] = {}  # writes so far, by buffer
    known: dict[object, Call] = {}  # calls by what they compute
    now: dict[int, int] = {}  # what a buffer has become
    kept = []
    for call in plan.calls:
        call = renamed(call, now)
        written = plan.written(call)
        movable = call.verb not in KEPT and all(plan.is_temporary(b) and writes[b] == 1 for b in written)
        source = copied(call) if movable else None
        if source is not None and writes.get(source, 0) == done.get(source, 0):  # nobody writes to it any more
            now[call.args[1].buffer] = source
            continue
        if movable:
            results = {buffer: 10**9 + i for i, buffer in enumerate(sorted(written))}  # under these names in every call
            values = [
                arg if isinstance(arg, View) else repr(arg) for arg in renamed(call, results).args
            ]  # -0.0 is not 0.0
            key = (
                call.verb,
                id(call.backend),
                *values,
                *sorted((buffer, done.get(buffer, 0)) for buffer in plan.read(call)),
            )
            before = known.setdefault(key, call)
            if before is not call:
                now |= dict(zip(sorted(written), sorted(plan.written(before)), strict=True))
                continue
        for buffer in written:
            done[buffer] = done.get(buffer, 0) + 1
        kept.append(call)
    plan.calls = kept


KEPT = {"repeat", "random", "from_host", "step", "scatter"}


def copied(call: Call) -> int | None:
    """The buffer that a call copies as it is, from end to end."""
    if call.verb != "copy" or call.args[0]._replace(buffer=0) != call.args[1]._replace(buffer=0):
        return None
    return call.args[0].buffer


def in_place(plan: "Plan") -> None:
    """Let an elementwise call write over a large input that nobody reads after it, where both are the same view."""
    begins, ends = plan.first_uses(), plan.last_uses()
    now: dict[int, int] = {}  # what a buffer has become
    for i, call in enumerate(plan.calls):
        if call.verb not in ELEMENTWISE:
            continue
        out = call.args[-1]
        if out.buffer < 0 or begins[out.buffer] != i or plan.sizes[out.buffer] < LARGE:
            continue
        inputs = [a for a in call.args[:-1] if isinstance(a, View)]
        for a in inputs:
            if (
                plan.is_temporary(a.buffer)
                and ends[a.buffer] == i
                and a._replace(buffer=out.buffer) == out
                and plan.sizes[a.buffer] == plan.sizes[out.buffer]
                and not any(b.buffer == a.buffer and b != a for b in inputs)
            ):
                now[a.buffer] = out.buffer
                break
    for buffer in sorted(now, key=lambda b: -ends[b]):  # the last first: each then knows where it ends
        now[buffer] = now.get(now[buffer], now[buffer])
    plan.calls = [renamed(call, now) for call in plan.calls] if now else plan.calls
    plan.calls = [call for call in plan.calls if not (call.verb == "copy" and call.args[0] == call.args[1])]


def renamed(call: Call, now: dict[int, int]) -> Call:
    """The call with some buffers for others."""
    return call._replace(args=tuple(_renamed(arg, now) for arg in call.args))


def _renamed(arg: object, now: dict[int, int]) -> object:
    if isinstance(arg, View):
        return arg._replace(buffer=now[arg.buffer]) if arg.buffer in now else arg
    if isinstance(arg, (list, tuple)) and not hasattr(arg, "_fields"):
        return type(arg)(_renamed(each, now) for each in arg)
    return arg


def pack_memory(plan: "Plan") -> None:
    """Give buffers that are never in use at the same time the same memory: an arena for each backend.

    Call by call, as an allocator would: a buffer takes the smallest gap that holds it, and leaves one after its last use.
    """
    begins, ends = plan.first_uses(), plan.last_uses()
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for buffer, i in begins.items():
        if plan.is_temporary(buffer):
            starting.setdefault(i, []).append(buffer)
            ending.setdefault(ends[buffer], []).append(buffer)
    arenas: dict[int, Arena] = {}
    for i in range(len(plan.calls)):
        for buffer in starting.get(i, ()):
            backend = plan.origins[buffer]
            arena = arenas.setdefault(id(backend), Arena())
            plan.places[buffer] = arena.take(plan.sizes[buffer])
        for buffer in ending.get(i, ()):
            arenas[id(plan.origins[buffer])].give_back(plan.places[buffer], plan.sizes[buffer])
    backends = {id(backend): backend for backend in plan.origins.values()}
    plan.arenas = [(backends[key], arena.size) for key, arena in arenas.items()]


class Arena:
    """Places in a block of memory that grows: gaps (start, stop) in order, none beside another.

    >>> arena = Arena()
    >>> a, b = arena.take(100), arena.take(10)
    >>> arena.give_back(a, 100)
    >>> a, b, arena.take(60), arena.size
    (0, 128, 0, 192)
    """

    def __init__(self) -> None:
        self.size = 0
        self.gaps: list[tuple[int, int]] = []

    def take(self, nbytes: int) -> int:
        size = self._rounded(nbytes)
        fitting = [gap for gap in self.gaps if gap[1] - gap[0] >= size]
        if fitting:
            start, stop = min(fitting, key=lambda gap: gap[1] - gap[0])
            self.gaps.remove((start, stop))
            if start + size < stop:
                self.gaps.append((start + size, stop))
                self.gaps.sort()
            return start
        start = self.size
        if self.gaps and self.gaps[-1][1] == self.size:  # the gap at the end grows
            start, _ = self.gaps.pop()
        self.size = start + size
        return start

    def give_back(self, start: int, nbytes: int) -> None:
        stop = start + self._rounded(nbytes)
        i = sum(gap[0] < start for gap in self.gaps)
        if i < len(self.gaps) and self.gaps[i][0] == stop:
            stop = self.gaps.pop(i)[1]
        if i > 0 and self.gaps[i - 1][1] == start:
            i -= 1
            start = self.gaps.pop(i)[0]
        self.gaps.insert(i, (start, stop))

    @staticmethod
    def _rounded(nbytes: int) -> int:
        return -(-max(nbytes, 1) // 64) * 64  # whole cache lines


#: By name, in the order in which they run.
PASSES = {
    "drop_dead": drop_dead,
    "reuse_results": reuse_results,
    "hoist_constants": hoist_constants,
    "in_place": in_place,
    "pack_memory": pack_memory,
}
