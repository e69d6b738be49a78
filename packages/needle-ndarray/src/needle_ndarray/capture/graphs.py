"""The pass for backends that run many calls as one graph, whose addresses and numbers stay."""

from math import prod
from typing import TYPE_CHECKING

from needle_ndarray.capture.calls import Call, View, renamed

if TYPE_CHECKING:
    from needle_ndarray.capture.plan import Plan

LEAST = 2  # calls of a graph


def graphs(plan: "Plan") -> None:
    """Find runs of calls without numbers that change, for backends that have graphs. What comes from elsewhere with every replay
    is copied into memory of the plan before the first call, and results out of it after the last: what is between stays."""
    if not any(backend.has_graphs for backend in plan.origins.values()):
        return
    before, found = plan.calls, segments(plan)
    first: list[Call] = []  # copies in
    last: list[Call] = []  # and out
    now: dict[int, int] = {}  # what a buffer has become
    shifts: dict[int, int] = {}  # by copy: where what is copied began
    for buffer in sorted(plan.fleeting):
        at = _argument(plan, buffer) if buffer < 0 else _result(plan, buffer)
        calls = [call for call in before if buffer in plan.touched(call).buffers and call.verb != "repeat"]
        if at is None or not calls or not calls[0].backend.has_graphs:
            continue
        block = max(plan.sizes, default=-1) + 1
        plan.sizes[block], plan.origins[block] = prod(at.shape) * at.dtype.itemsize, calls[0].backend
        now[buffer], shifts[block] = block, at.offset
        inside = at._replace(buffer=block, offset=0)
        copy = (at, inside) if buffer < 0 else (inside, at)
        (first if buffer < 0 else last).append(Call("copy", calls[0].backend, copy, calls[0].line, None, calls[0].op))
    inner = [call if call.verb == "repeat" else _shifted(renamed(call, now), shifts) for call in before]
    plan.calls = [*first, *inner, *last]
    moved = segments(plan)
    if saved(moved) - len(first) - len(last) < saved(found):
        for block in shifts:
            del plan.sizes[block], plan.origins[block]
        plan.calls, moved = before, found
    plan.graphs = moved


def segments(plan: "Plan") -> list[tuple[int, int]]:
    """(first, last + 1) of the longest runs of calls that a graph can hold."""
    found, start = [], 0
    for i, call in enumerate(plan.calls):
        if not fits(plan, call):
            found.append((start, i))
            start = i + 1
        elif plan.calls[start].backend is not call.backend:
            found.append((start, i))
            start = i
    found.append((start, len(plan.calls)))
    return [(first, last) for first, last in found if last - first >= LEAST]


def fits(plan: "Plan", call: Call) -> bool:
    """Whether a graph can hold a call: one of the backend's, with numbers, addresses and values that stay."""
    return (
        call.verb != "from_host"
        and call.backend is not None
        and call.backend.has_graphs
        and not plan.slots(call)
        and not plan.touched(call).buffers & plan.fleeting
    )


def saved(found: list[tuple[int, int]]) -> int:
    """Calls that need not be made one by one."""
    return sum(last - first - 1 for first, last in found)


def _argument(plan: "Plan", buffer: int) -> View | None:
    """What is to be copied of an argument: the array itself, if it lies in one piece and nobody writes to it."""
    at = next(view for view in plan.input_views if view.buffer == buffer)
    used = [call for call in plan.calls if buffer in plan.touched(call).buffers]
    inside = all(_lies_in(view, at) for call in used for view in plan.views_of(call, buffer))
    written = any(buffer in plan.written(call) for call in used)
    return at if _is_compact(at) and inside and not written else None


def _result(plan: "Plan", buffer: int) -> View | None:
    """The whole of a result's memory, if no function is given it."""
    view = next(view for view in plan.output_views if view.buffer == buffer)
    count, rest = divmod(plan.sizes[buffer], view.dtype.itemsize)
    used = [call for call in plan.calls if buffer in plan.touched(call).buffers]
    if rest or not count or any(call.verb == "repeat" or call.backend is not plan.origins[buffer] for call in used):
        return None
    return View(buffer, view.dtype, (count,), (1,), 0)


def _is_compact(at: View) -> bool:
    step = 1
    for n, stride in zip(reversed(at.shape), reversed(at.strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return step > 0


def _lies_in(view: View, at: View) -> bool:
    low = view.offset + sum(min(0, (n - 1) * stride) for n, stride in zip(view.shape, view.strides, strict=True))
    high = view.offset + sum(max(0, (n - 1) * stride) for n, stride in zip(view.shape, view.strides, strict=True))
    return view.dtype is at.dtype and (0 in view.shape or (at.offset <= low and high < at.offset + prod(at.shape)))


def _shifted(call: Call, shifts: dict[int, int]) -> Call:
    """The call with views of copies where these begin."""
    return call._replace(args=tuple(_shifted_view(arg, shifts) for arg in call.args))


def _shifted_view(arg: object, shifts: dict[int, int]) -> object:
    if isinstance(arg, View):
        return arg._replace(offset=arg.offset - shifts.get(arg.buffer, 0))
    if isinstance(arg, (list, tuple)) and not hasattr(arg, "_fields"):
        return type(arg)(_shifted_view(each, shifts) for each in arg)
    return arg
