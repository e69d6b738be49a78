"""The pass for what goes on with a convolution's result element by element: bias, batch norm in evaluation, relu, residual sums."""

from typing import TYPE_CHECKING

from needle_ndarray.capture.calls import Call, View, renamed

if TYPE_CHECKING:
    from needle_ndarray.capture.plan import Plan

STEPS = {"add", "subtract", "multiply", "relu"}
MOST = 8  # steps of an epilogue


def fuse_epilogues(plan: "Plan") -> None:
    """Put elementwise calls right behind the convolution whose result they go on with, and let them write over it.

    A backend that has epilogues then applies them to a part of the result while that is in the cache.
    """
    plan.has_epilogues = True
    calls, begins = plan.calls, plan.first_uses()
    readers: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        for buffer in plan.read(call):
            readers.setdefault(buffer, []).append(i)
    places = list(range(len(calls)))  # of each call: that of the last one of its chain
    taken: set[int] = set()  # calls of a chain
    now: dict[int, int] = {}  # what a buffer has become
    for i, call in enumerate(calls):
        if not is_convolution(call):
            continue
        chain, y = [i], call.args[3]
        while len(chain) <= MOST and plan.is_temporary(y.buffer):
            j = next(iter(readers.get(y.buffer, [])), i)
            if len(readers.get(y.buffer, [])) != 1 or j in taken or not _goes_on(plan, calls[j], y):
                break
            out = calls[j].args[-1]
            if calls[j].backend is not call.backend or out.buffer < 0 or begins[out.buffer] != j:
                break
            if not _can_wait(plan, chain, j):
                break
            chain.append(j)
            y = out
        taken.update(chain)
        for j in chain:
            places[j] = chain[-1]
        now |= {calls[j].args[-1 if j > i else 3].buffer: y.buffer for j in chain[:-1]}
    order = sorted(range(len(calls)), key=lambda i: (places[i], i))
    plan.calls = [renamed(calls[i], now) for i in order]


def is_convolution(call: Call) -> bool:
    if call.verb != "conv2d" or call.backend is None:
        return False
    return call.args[0].name == "conv2d" and call.backend.has_epilogues


def _goes_on(plan: "Plan", call: Call, y: View) -> bool:
    """Whether a call computes a result of the same layout from all of y, element by element."""
    if call.verb not in ("unary", "binary") or call.args[0].name not in STEPS:
        return False
    out, seen = call.args[-1], plan.views_of(call, y.buffer)
    return len(seen) == 1 and out.dtype is y.dtype and _axes(seen[0]) == _axes(out) and _memory(out) == _memory(y)


def _axes(view: View) -> list[tuple[int, int]]:
    return [(n, step if n > 1 else 0) for n, step in zip(view.shape, view.strides, strict=True)]


def _memory(view: View) -> tuple[int, list[tuple[int, int]]]:
    """Where elements lie, whatever the order of the axes."""
    return view.offset, sorted((step, n) for n, step in zip(view.shape, view.strides, strict=True) if n > 1)


def _can_wait(plan: "Plan", chain: list[int], last: int) -> bool:
    """Whether the calls of a chain can be made right before `last`: nothing in between writes what they read or write."""
    used: set[int] = set()
    for i in range(chain[0], last):
        call = plan.calls[i]
        if i in chain:
            used |= plan.touched(call).buffers
        elif call.verb == "repeat" or plan.written(call) & used:
            return False
    return True


def epilogues(plan: "Plan") -> dict[int, int]:
    """Convolutions and the calls after them that write over their results: {the first: the last + 1}."""
    found: dict[int, int] = {}
    for i, call in enumerate(plan.calls if plan.has_epilogues else []):
        if is_convolution(call):
            last = i + 1
            while last < len(plan.calls) and _writes_over(plan.calls[last], call.args[3]):
                last += 1
            if last > i + 1:
                found[i] = last
    return found


def _writes_over(call: Call, y: View) -> bool:
    return call.verb in ("unary", "binary") and call.args[0].name in STEPS and call.args[-1].buffer == y.buffer
