"""A plan: the calls of a recording, what they may touch, and the arrays that a replay runs them on."""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np

from needle_ndarray.backend import Backend
from needle_ndarray.capture.calls import CHECKS, Call, CaptureError, Slot, View, renumbered
from needle_ndarray.capture.epilogues import epilogues
from needle_ndarray.capture.passes import PASSES
from needle_ndarray.capture.recorder import Recorder
from needle_ndarray.capture.tape import Touched, roles
from needle_ndarray.capture.verbs import ARGUMENTS
from needle_ndarray.ndarray import NDArray
from needle_ndarray.replay import Replay, Views


class Plan:
    """What a replay does, from a recording.

    Parameters
    ----------
    recorder : the recording
    inputs : arrays that were there before, of which a replay may be given others of the same layout
    outputs : arrays made by the function, of which every replay makes new ones
    without : names of passes to leave out
    moving : those of the inputs and outputs that are elsewhere with every replay
    numbers : repeated calls whose numbers are wanted, counted from 0
    lent : outputs that as a rule nobody needs any more when the next replay begins: they lie in the plan's arena
    """

    def __init__(
        self,
        recorder: Recorder,
        inputs: list[NDArray],
        outputs: list[NDArray],
        without: Iterable[str] = (),
        moving: Iterable[NDArray] = (),
        numbers: Iterable[int] = (),
        lent: Iterable[NDArray] = (),
    ) -> None:
        self.name = "replay"  # of the function, in profiles
        self.calls = list(recorder.calls)
        self.sizes = dict(enumerate(recorder.sizes))
        self.origins = dict(enumerate(recorder.origins))
        self.input_views = [recorder.view(a) for a in inputs]
        self.output_views = [recorder.view(a) for a in outputs]
        self.outside = {number: recorder.outside[key] for key, number in recorder.outside_numbers.items()}
        self.handles = {
            number: key for key, number in recorder.outside_numbers.items()
        }  # ids of buffers, also of those let go
        self.outputs = {view.buffer for view in self.output_views if view.buffer >= 0}
        self.numbers = {number: number for number in numbers}  # and what they are counted as now
        self.constants: set[int] = set()
        self.lent = {recorder.view(a).buffer for a in lent}
        self.fleeting = {recorder.view(a).buffer for a in moving}
        self.graphs: list[tuple[int, int]] = []  # calls that a backend runs as one: first, last + 1
        self.has_epilogues = (
            False  # whether elementwise calls after a convolution are applied to its result part by part
        )
        self.once: list[Call] = []  # run when the plan is made
        self.places: dict[int, int] = {}  # temporary buffers: bytes from the start of their arena
        self.arenas: list[tuple[Backend, int]] = []
        self._touched: dict[int, Touched] = {}  # by id of a call, which it holds
        for name, change in PASSES.items():
            if name not in without:
                change(self)

    # ---- What passes ask ---------------------------------------------------------------------------------------------------

    def touched(self, call: Call) -> Touched:
        found = self._touched.get(id(call))
        if found is None:
            found = self._touched[id(call)] = Touched(call)
        return found

    def read(self, call: Call) -> set[int]:
        """Buffers that a call reads; those that it writes only in part, and so leaves in part as they are, are among them."""
        return self.touched(call).reads

    def written(self, call: Call) -> set[int]:
        return self.touched(call).writes

    def views_of(self, call: Call, buffer: int) -> list[View]:
        """How a call sees a buffer."""
        return [view for view in views(call.args) if view.buffer == buffer]

    def results_of(self, call: Call) -> list[View]:
        """What a call writes, as views."""
        return [view for name, view in named_views(call) if call.verb != "repeat" and writes(call, name)]

    def sources(self) -> list[list[int | View]]:
        """For each call what it takes, in order: a call by its index, or a view of what was there before all calls."""
        found: list[list[int | View]] = []
        writers: dict[int, list[int]] = {}  # by buffer, since it was last written as a whole
        repeated: list[int] = []
        for i, call in enumerate(self.calls):
            sources: list[int | View] = []
            for name, view in named_views(call):
                if reads(call, name):
                    sources += writers.get(view.buffer) or [view]
            sources += [repeated[slot.call] for slot in flat(call.args) if isinstance(slot, Slot)]
            found.append(list(dict.fromkeys(sources)))
            for view in self.results_of(call):
                whole = prod(view.shape) * view.dtype.itemsize == self.sizes.get(view.buffer)
                writers[view.buffer] = [i] if whole else [*writers.get(view.buffer, ()), i]
            if call.verb == "repeat":
                repeated.append(i)
        return found

    def slots(self, call: Call) -> list[int]:
        """Repeated calls whose numbers a call is given."""
        return [value.call for value in flat(call.args) if isinstance(value, Slot)]

    def count_numbers(self, stay: list[int]) -> None:
        """Count repeated calls anew, where only these stay."""
        now = {before: number for number, before in enumerate(stay)}
        if all(before == number for before, number in now.items()):
            return
        self.calls = [renumbered(call, now) if self.slots(call) else call for call in self.calls]
        self.numbers = {before: now[number] for before, number in self.numbers.items()}

    def is_temporary(self, buffer: int) -> bool:
        return buffer >= 0 and buffer not in self.outputs and buffer not in self.constants

    def is_packed(self, buffer: int) -> bool:
        """Whether a buffer may lie in an arena."""
        return self.is_temporary(buffer) or buffer in self.lent

    def first_uses(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            for buffer in self.touched(call).buffers:
                first.setdefault(buffer, i)
        return first

    def count_writes(self) -> dict[int, int]:
        """How many calls write to a buffer."""
        return Counter(buffer for call in self.calls for buffer in self.written(call))

    def last_uses(self) -> dict[int, int]:
        last = {buffer: i for i, call in enumerate(self.calls) for buffer in self.touched(call).buffers}
        return last | dict.fromkeys(self.lent & last.keys(), len(self.calls))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the plan holds between replays: arenas and constants."""
        packed = sum(size for _, size in self.arenas)
        loose = [b for b in self.first_uses() if self.is_temporary(b) and b not in self.places]
        return packed + sum(self.sizes[b] for b in [*loose, *self.constants])

    # ---- Arrays ------------------------------------------------------------------------------------------------------------

    def build(self) -> "Built":
        built = Built(self)
        self._touched.clear()
        return built

    def forget(self, inputs: Iterable[int]) -> None:
        """Let go of inputs it was recorded with, by their number: it will be pointed at others. And of what only passes ask."""
        for number in inputs:
            self.outside.pop(number, None)
        self._touched.clear()

    def __repr__(self) -> str:
        return f"<Plan of {len(self.calls)} calls, {self.nbytes:,} bytes>"

    def __str__(self) -> str:
        """The calls, a line each.

        Buffers made by the function are %0, %1, ...; what was there before is @1, @2, ...
        """
        return "\n".join(f"{i:4} {show(call)}" for i, call in enumerate(self.calls))


class Built:
    """A plan with arrays: point the inputs, renew the outputs, run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.memory: dict[int, Any] = {}  # by buffer: its handle and where it starts in there, in bytes
        arenas = {id(backend): (backend, backend.allocate(size)) for backend, size in plan.arenas}
        self.made: dict[int, list[NDArray]] = {}
        self.arrays: dict[View, NDArray] = {}
        for buffer, origin in plan.origins.items():
            if buffer in plan.places:
                self.memory[buffer] = (arenas[id(origin)][1], plan.places[buffer])
        self.calls = [self._call(call) for call in plan.calls]
        for call in plan.once:
            verb, backend, args = self._call(call)
            getattr(backend, verb)(*args)
        written = self.written()
        self.replay = Replay(self.calls, self._patches(), [self.made[buffer][0] for buffer in written], epilogues(plan))
        self.replay.plan = plan
        self.results = [self._array(view) for view in plan.output_views]
        self.arenas = [self._arena(*arenas[id(backend)]) for backend, _ in plan.arenas]
        self.inputs = [self._group(view) for view in plan.input_views]  # when all views are there
        self.outputs = {buffer: self._whole(buffer) for buffer in sorted(plan.outputs)}
        self.writes_arguments = False
        known = {view.buffer for view in plan.input_views}
        self.written_elsewhere = {id(plan.outside[buffer]._handle) for buffer in written if buffer not in known}
        if plan.graphs:
            self._use_graphs()
        self.run = self.replay.run
        self.memory.clear()  # the arrays hold it
        self.arrays.clear()

    def _use_graphs(self) -> None:
        shared: dict[str, Any] = {}
        graphs = {}
        for first, last in self.plan.graphs:
            calls = self.plan.calls[first:last]
            touched = set().union(*(self.plan.touched(call).buffers for call in calls))
            written = set().union(*(self.plan.written(call) for call in calls))
            moving = [self.made[b][0] for b in sorted(touched) if b < 0 or b in self.plan.outputs]
            moving += [views[0] for arena, lent in self.arenas if lent for views in (arena.views,) if views]
            made = [(verb, args) for verb, _, args in self.calls[first:last]]
            graph = calls[0].backend.graph(made, shared, moving, [self.made[b][0] for b in sorted(written)])
            if graph is not None:
                graphs[first] = (graph, last)
        self.replay.use_graphs(graphs)

    def _arena(self, backend: Backend, handle: Any) -> tuple[Views, list[int]]:
        """All views of temporary buffers in an arena, and the outputs that lie there as well."""
        inside = [b for b in self.plan.places if self.plan.origins[b] is backend]
        views = [view for b in inside if b not in self.plan.lent for view in self.made.get(b, ())]
        base = NDArray.make((handle.nbytes,), None, backend.device, handle, 0, "uint8")
        return Views(base, views), [b for b in inside if b in self.plan.lent]

    def _handle(self, buffer: int) -> tuple[Any, int]:
        """The memory of a buffer and its place in there."""
        if buffer < 0:
            return self.plan.outside[buffer]._handle, 0
        if buffer not in self.memory:
            self.memory[buffer] = (self.plan.origins[buffer].allocate(self.plan.sizes[buffer]), 0)
        return self.memory[buffer]

    def _array(self, view: View) -> NDArray:
        handle, start = self._handle(view.buffer)
        made = self.arrays.get(view)
        if made is not None:
            return made
        device = self.plan.outside[view.buffer].device if view.buffer < 0 else self.plan.origins[view.buffer].device
        offset = start // view.dtype.itemsize + view.offset
        made = self.arrays[view] = NDArray.make(view.shape, view.strides, device, handle, offset, view.dtype)
        self.made.setdefault(view.buffer, []).append(made)
        return made

    def _call(self, call: Call) -> tuple[str, Any, tuple[Any, ...]]:
        if call.verb == "from_host":
            data, view = call.args
            out = self._array(view)
            values = np.frombuffer(bytearray(data), view.dtype.storage).reshape(view.shape)
            return "from_host", call.backend, (values, out)
        return call.verb, call.function or call.backend, tuple(self._argument(arg) for arg in call.args)

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, View):
            return self._array(arg)
        if isinstance(arg, Slot):
            return 0.0
        if isinstance(arg, (list, tuple)):
            return type(arg)(map(self._argument, arg))
        return arg

    def _patches(self) -> dict[int, list[tuple[tuple[int, ...], int, int]]]:
        """Where numbers of repeated functions go."""
        found: dict[int, list[tuple[tuple[int, ...], int, int]]] = {}
        for i, call in enumerate(self.plan.calls):
            for j, arg in enumerate(call.args):
                if isinstance(arg, Slot):
                    found.setdefault(i, []).append(((j,), *arg))
                elif isinstance(arg, (list, tuple)) and not isinstance(arg, View):
                    found.setdefault(i, []).extend(((j, k), *s) for k, s in enumerate(arg) if isinstance(s, Slot))
            if sum(isinstance(value, Slot) for value in flat(call.args)) != len(found.get(i, ())):
                raise CaptureError(
                    f"{call.line[0]}:{call.line[1]}: {call.verb} is given a number too deep in its arguments"
                )
        return {i: paths for i, paths in found.items() if paths}

    def _group(self, view: View) -> Views:
        """All views of an input's buffer."""
        base = self._array(view)
        return Views(base, self.made[view.buffer])

    def _whole(self, buffer: int) -> Views:
        """All views of an output's buffer, with an array of the whole buffer as their base."""
        handle, start = self._handle(buffer)
        base = NDArray.make((self.plan.sizes[buffer],), None, self.plan.origins[buffer].device, handle, start, "uint8")
        return Views(base, self.made.get(buffer, []))

    def written(self) -> list[int]:
        """Buffers that were there before, and that a replay writes to."""
        return sorted({buffer for call in self.plan.calls for buffer in self.plan.written(call) if buffer < 0})


# ---- Calls ---------------------------------------------------------------------------------------------------------------


def flat(args: Iterable[Any]) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, (list, tuple)) and not isinstance(arg, (View, Slot)):
            yield from flat(arg)
        else:
            yield arg


def views(args: Iterable[Any]) -> Iterator[View]:
    return (arg for arg in flat(args) if isinstance(arg, View))


def named_views(call: Call) -> Iterator[tuple[str, View]]:
    names = ARGUMENTS.get(call.verb) or [f"argument {i}" for i in range(len(call.args))]
    for name, arg in zip(names, call.args, strict=True):
        for view in views([arg]):
            yield name, view


def writes(call: Call, name: str) -> bool:
    return roles(call)[name][1] if call.verb != "repeat" else call.function not in CHECKS  # any other may do either


def reads(call: Call, name: str) -> bool:
    return call.verb == "repeat" or roles(call)[name][0]


def show(call: Call) -> str:
    """A call as a line of text: what it writes, the verb and its op, what it takes."""
    if call.verb == "repeat":
        name = getattr(call.function, "__qualname__", repr(call.function))
        return f"repeat {name}({', '.join(map(_show, call.args))})"
    args = dict(zip(ARGUMENTS[call.verb], call.args, strict=True))
    op = args.pop("op", None)
    if call.verb == "from_host":
        args["values"] = f"{len(args['values'])} bytes"
    results = [name for name in args if writes(call, name) and args[name] is not None]
    taken = [f"{name}={_show(value)}" for name, value in args.items() if reads(call, name) and value is not None]
    verb = f"{call.verb} {op.name}" if op is not None else call.verb
    return f"{', '.join(_show(args[name]) for name in results)} = {verb}({', '.join(taken)})"


def _show(value: Any) -> str:
    if isinstance(value, View):
        name = f"%{value.buffer}" if value.buffer >= 0 else f"@{-value.buffer}"
        return f"{name}{'x'.join(map(str, value.shape)) and ':' + 'x'.join(map(str, value.shape))}"
    if isinstance(value, Slot):
        return f"number {value.call}.{value.entry}" if value.entry >= 0 else f"number {value.call}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(_show, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__
