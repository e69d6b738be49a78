"""Passes over a plan: each takes a Plan and changes its calls, never what they compute.

They run in the order of PASSES; `needle.capture(..., without=("in_place",))` leaves some out.
"""

from math import prod
from typing import TYPE_CHECKING, Any

from needle_ndarray.capture.calls import READS, Call, View, renamed
from needle_ndarray.capture.epilogues import fuse_epilogues
from needle_ndarray.capture.graphs import graphs
from needle_ndarray.capture.verbs import CHECKING, ELEMENTWISE

if TYPE_CHECKING:
    from needle_ndarray.capture.plan import Plan

SMALL = 65536  # bytes of a constant that is worth keeping
FEW = 300  # buffers are large if fewer than as many of their size make up all
LARGE = 16384  # bytes from which computing in place pays: the cache holds one operand less


def drop_dead(plan: "Plan") -> None:
    """Leave out calls whose results nobody reads: what backward computes for inputs that need no gradient, sums of no use.

    Those that check their values stay: an index that is out of bounds is an error, whoever reads what is found there. So do
    repeated functions, but for those that only read a number that nobody uses.
    """
    wanted, numbers = set(plan.outputs), set(plan.numbers)
    kept = []
    stay = []
    number = sum(call.verb == "repeat" for call in plan.calls)
    for call in reversed(plan.calls):
        number -= call.verb == "repeat"
        if call.verb == "repeat":
            used = call.function not in READS or number in numbers
        else:
            used = call.verb in CHECKING or any(buffer < 0 or buffer in wanted for buffer in plan.written(call))
        if used:
            wanted |= plan.read(call)
            numbers.update(plan.slots(call))
            kept.append(call)
            stay += [number] if call.verb == "repeat" else []
    plan.calls = kept[::-1]
    plan.count_numbers(stay[::-1])


def hoist_constants(plan: "Plan") -> None:
    """Compute once, when the plan is made, what depends on nothing that changes: numbers in arrays, masks, positions."""
    writes = plan.count_writes()
    kept = []
    for call in plan.calls:
        written = plan.written(call)
        if (
            call.verb not in ("repeat", "random")
            and not plan.slots(call)
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


def drop_copies(plan: "Plan") -> None:
    """Leave out copies of what could be used as it is.

    What is copied into a result, and is no result itself, is computed there. A copy of a view, transposed for example, that one
    elementwise call reads, and nobody else, is read where it was copied from.
    """
    writes = plan.count_writes()
    last_writes: dict[int, int] = {}
    reads: dict[int, list[int]] = {}
    for i, call in enumerate(plan.calls):
        last_writes.update(dict.fromkeys(plan.written(call), i))
        for buffer in plan.read(call):
            reads.setdefault(buffer, []).append(i)
    calls: list[Any] = list(plan.calls)
    now: dict[int, int] = {}  # what a buffer has become
    for i, call in enumerate(plan.calls):
        if call.verb != "copy" or writes[call.args[1].buffer] != 1:
            continue
        a, out = calls[i].args
        readers = reads.get(out.buffer, [])
        stays = last_writes.get(a.buffer, -1) < i < min(readers, default=len(calls))
        if out.buffer in plan.outputs:
            alone = (
                plan.is_temporary(a.buffer) and a.buffer not in now and plan.sizes[a.buffer] == plan.sizes[out.buffer]
            )
            if alone and stays and copied(call) is not None:
                now[a.buffer], calls[i] = out.buffer, None
        elif out.buffer >= 0 and a.dtype is out.dtype and stays and len(readers) == 1:
            reader = calls[readers[0]]
            if reader.verb in ("unary", "binary") and all(v == out for v in plan.views_of(reader, out.buffer)):
                calls[readers[0]] = reader._replace(args=tuple(a if arg == out else arg for arg in reader.args))
                calls[i] = None
    plan.calls = [renamed(call, now) for call in calls if call is not None]


def keep_layouts(plan: "Plan") -> None:
    """Let an elementwise call leave its result in the memory order of what it reads, where only such calls read it that see it so.

    Images come out of a convolution channel by channel last. Eager code puts the result of a relu after it in the order of its
    axes, and the next convolution puts it back.
    """
    writes, begins = plan.count_writes(), plan.first_uses()
    readers: dict[int, list[int]] = {}
    for i, call in enumerate(plan.calls):
        for buffer in plan.read(call):
            readers.setdefault(buffer, []).append(i)
    for i, call in enumerate(plan.calls):
        if call.verb not in ("unary", "binary", "where"):
            continue
        out = call.args[-1]
        order = _order_of_inputs(call)
        if order is None or not plan.is_temporary(out.buffer) or writes[out.buffer] != 1 or begins[out.buffer] != i:
            continue
        if out != _compact(out) or prod(out.shape) * out.dtype.itemsize != plan.sizes[out.buffer]:
            continue
        strides = _compact(out, order).strides
        now = {}
        for j in readers.get(out.buffer, ()):
            seen = [_seen_in(view, out, strides) for view in plan.views_of(plan.calls[j], out.buffer)]
            if plan.calls[j].verb not in KEEPING or None in seen:
                break
            now[j] = dict(zip(plan.views_of(plan.calls[j], out.buffer), seen, strict=True))
        else:
            for j, views in now.items():
                args = tuple(views.get(arg, arg) if isinstance(arg, View) else arg for arg in plan.calls[j].args)
                plan.calls[j] = plan.calls[j]._replace(args=args)
            given = (*call.args[:-1], out._replace(strides=strides))
            args = tuple(_turned(arg, order, strides) if isinstance(arg, View) else arg for arg in given)
            plan.calls[i] = call._replace(args=args)


KEEPING = {
    "copy",
    "unary",
    "binary",
    "where",
    "conv2d",
    "pool2d",
    "pool2d_grad",
}  # the order of elements in memory is nothing to them


def _order_of_inputs(call: Call) -> tuple[int, ...] | None:
    """The axes of all inputs that are not broadcast, from the longest stride to the shortest; None where that is not one order, or
    that of the result."""
    out = call.args[-1]
    inputs = [a for a in call.args[:-1] if isinstance(a, View)]
    wide = [k for k, n in enumerate(out.shape) if n > 1]  # along the others, strides mean nothing
    found = {tuple(a.strides[k] for k in wide) for a in inputs if all(a.strides[k] for k in wide)}
    if len(found) != 1 or any(a.shape != out.shape for a in inputs) or prod(out.shape) == 0:
        return None
    steps = dict(zip(wide, found.pop(), strict=True))
    turned = sorted(wide, key=lambda k: -steps[k])
    order = tuple(k for k in range(len(out.shape)) if k not in steps) + tuple(turned)
    dense = all(_compact(out, order).strides[k] == steps[k] for k in wide)
    return order if dense and turned != wide else None


def _compact(view: View, order: tuple[int, ...] | None = None) -> View:
    """A view of the same shape from the start of its buffer, without gaps, with its axes in this order in memory."""
    strides, step = [0] * len(view.shape), 1
    for k in reversed(order if order is not None else range(len(view.shape))):
        strides[k] = step
        step *= view.shape[k]
    return view._replace(strides=tuple(strides), offset=0)


def _seen_in(view: View, whole: View, strides: tuple[int, ...]) -> View | None:
    """What shows the same elements when the whole has other strides; None where that is not some of its axes from their start."""
    left = {step: (n, new) for n, step, new in zip(whole.shape, whole.strides, strides, strict=True) if n > 1}
    found = []
    for n, step in zip(view.shape, view.strides, strict=True):
        if n == 1:
            found.append(1)
        elif step in left and left[step][0] >= n:
            found.append(left.pop(step)[1])
        else:
            return None
    return view._replace(strides=tuple(found)) if view.dtype is whole.dtype and view.offset == 0 else None


def _turned(view: View, order: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """The same elements with their axes in another order; axes of one entry have these strides."""
    steps = tuple(strides[k] if view.shape[k] == 1 else view.strides[k] for k in order)
    return view._replace(shape=tuple(view.shape[k] for k in order), strides=steps)


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


def pack_memory(plan: "Plan") -> None:
    """Give buffers that are never in use at the same time the same memory: an arena for each backend.

    Large ones first, the largest at the start: each takes the lowest place that is free for as long as it is used. Then the small
    ones in the order of the calls, as an allocator would: each takes the smallest gap that holds it.
    """
    begins, ends = plan.first_uses(), plan.last_uses()
    for origin in {id(origin): origin for origin in plan.origins.values()}.values():
        mine = [b for b in begins if plan.is_packed(b) and plan.origins[b] is origin]
        least = sum(plan.sizes[b] for b in mine) // FEW
        large = sorted((b for b in mine if plan.sizes[b] > least), key=lambda b: (-plan.sizes[b], begins[b]))
        taken: list[tuple[int, int, int]] = []  # start, stop, buffer: those that have a place, by start
        for buffer in large:
            during = begins[buffer], ends[buffer]
            start, size = 0, Arena.rounded(plan.sizes[buffer])
            for first, stop, other in taken:
                if begins[other] <= during[1] and during[0] <= ends[other]:
                    if first >= start + size:
                        break
                    start = max(start, stop)
            plan.places[buffer] = start
            taken.append((start, start + size, buffer))
            taken.sort()
        bottom = max((stop for _, stop, _ in taken), default=0)
        top = _pack_in_order(plan, [b for b in mine if plan.sizes[b] <= least], bottom)
        if mine:
            plan.arenas.append((origin, top))


def _pack_in_order(plan: "Plan", buffers: list[int], bottom: int) -> int:
    """Places from `bottom` on for buffers, call by call; where they end."""
    begins, ends = plan.first_uses(), plan.last_uses()
    arena = Arena()
    ending: dict[int, list[int]] = {}
    now = -1
    for buffer in sorted(buffers, key=lambda b: begins[b]):
        for i in range(now, begins[buffer]):
            for done in ending.pop(i, ()):
                arena.give_back(plan.places[done] - bottom, plan.sizes[done])
        now = begins[buffer]
        plan.places[buffer] = bottom + arena.take(plan.sizes[buffer])
        ending.setdefault(ends[buffer], []).append(buffer)
    return bottom + arena.size


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
        size = self.rounded(nbytes)
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
        stop = start + self.rounded(nbytes)
        i = sum(gap[0] < start for gap in self.gaps)
        if i < len(self.gaps) and self.gaps[i][0] == stop:
            stop = self.gaps.pop(i)[1]
        if i > 0 and self.gaps[i - 1][1] == start:
            i -= 1
            start = self.gaps.pop(i)[0]
        self.gaps.insert(i, (start, stop))

    @staticmethod
    def rounded(nbytes: int) -> int:
        return -(-max(nbytes, 1) // 64) * 64  # whole cache lines


#: By name, in the order in which they run.
PASSES = {
    "drop_dead": drop_dead,
    "reuse_results": reuse_results,
    "hoist_constants": hoist_constants,
    "drop_copies": drop_copies,
    "keep_layouts": keep_layouts,
    "fuse_epilogues": fuse_epilogues,
    "in_place": in_place,
    "graphs": graphs,
    "pack_memory": pack_memory,
}
