"""Pictures of plans: a box for each call, an arrow for each array that one call makes and another takes."""

import os
from typing import Any

from needle_ndarray.extension import Plan, show_call

Box = tuple[str, str, str, str]  # the fields of a drawing.Node


def plan_boxes(plan: Plan, names: dict[str, Any], max_nodes: int) -> tuple[list[Box], list[tuple[int, int]]]:
    """Boxes in the order of the calls, what they take before them, and edges sorted by their ends."""
    labels = {id(value.realize_cached_data()._handle): str(name) for name, value in names.items()}
    first = max(0, len(plan.calls) - max_nodes)
    boxes: list[Box] = [("more", f"… {first} more calls", "", "raise max_nodes to see them")] if first else []
    edges: list[tuple[int, int]] = []
    calls: dict[int, int] = dict.fromkeys(range(first), 0)  # place of its box
    arrays: dict[int, int] = {}
    for i, (call, sources) in enumerate(zip(plan.calls, plan.sources(), strict=True)):
        if i < first:
            continue
        starts = []
        for source in sources:
            if isinstance(source, int):
                starts.append(calls[source])
                continue
            if source.buffer not in arrays:
                arrays[source.buffer] = len(boxes)
                boxes.append(_array_box(plan, source, labels))
            starts.append(arrays[source.buffer])
        calls[i] = len(boxes)
        edges += [(a, len(boxes)) for k, a in enumerate(starts) if a or not first or a not in starts[:k]]
        boxes.append(_call_box(plan, call))
    return boxes, edges


def _array_box(plan: Plan, view: Any, labels: dict[int, str]) -> Box:
    """What was there before the calls: an array of the user's, or one that was computed when the plan was made."""
    if view.buffer < 0:
        label = labels.get(plan.handles[view.buffer])
        title, detail = label or _name(view), _layout(view)
        return "array", title, detail, f"{title}: {detail}, there before the call"
    title, detail = _name(view), _layout(view)
    return "constant", title, detail, f"{title}: {detail}, computed once, when the plan was made"


def _call_box(plan: Plan, call: Any) -> Box:
    op = call.args[0].name if call.args and hasattr(call.args[0], "formula") else ""
    title = f"{call.verb} {op}" if op and op != call.verb else call.verb
    if call.verb == "repeat":
        title = getattr(call.function, "__qualname__", "repeat")
    results = plan.results_of(call)
    detail = ", ".join([f"{_name(view)}: {_layout(view)}" for view in results[:1]])
    if len(results) > 1:
        detail = f"{len(results)} arrays, {detail}"
    elif results and results[0].buffer in plan.places:
        detail += f" · arena {plan.places[results[0].buffer]}"
    elif results and results[0].buffer in plan.outputs:
        detail += " · result"
    line = f"{os.path.basename(call.line[0])}:{call.line[1]}"
    return "op", title, detail, f"{show_call(call)}; {call.op or 'asked for'} at {line}"


def _name(view: Any) -> str:
    return f"%{view.buffer}" if view.buffer >= 0 else f"@{-view.buffer}"


def _layout(view: Any) -> str:
    return f"{tuple(view.shape)} {view.dtype}"
