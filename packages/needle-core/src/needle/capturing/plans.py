"""A plan that can be called: a recording, trimmed and packed, with the tensors that it reads and writes."""

from collections.abc import Iterable
from typing import Any

from needle.autograd import Tensor, TensorTuple
from needle.autograd.replaying import Bound, Known, TensorPlan, as_value, data_and_gradient
from needle.capturing.recordings import ARGUMENT, ARRAY, NUMBER, TENSOR, Recording, array_of
from needle_ndarray import NDArray, empty_cache
from needle_ndarray.extension import Layout, Plan

LARGE = 16384  # bytes of a gradient that is worth a place in the arena


class CapturedPlan:
    """Guards, inputs, calls, results. `captured.plans` lists them."""

    def __init__(self, recording: Recording, without: Iterable[str]) -> None:
        self.trace = recording.trace
        self.template = recording.template
        rec = recording.recorder
        roles = recording.roles()
        results = self._results(recording)
        inputs = {key: roles[key][2] for key in rec.outside if key in roles}
        moving = [array for key, array in inputs.items() if roles[key][0] == "argument"]
        moving += self._handed_out(recording, results)
        lent = self._lent(recording, results)
        self.plan = Plan(rec, list(inputs.values()), results, without, moving, numbers_of(self.template), lent)
        self.template = counted(self.template, self.plan.numbers)
        empty_cache()  # of blocks that eager steps leave and replays have no use for: the arena takes their place
        built = self.plan.build()
        views = dict(zip(inputs, built.inputs, strict=True))
        written = {id(self.plan.outside[buffer]._handle) for buffer in built.written()}
        built.writes_arguments = any(id(array_of(leaf)._handle) in written for leaf in recording.leaves)
        arguments = [
            (Layout(a), views.get(id(a._handle)), wanted)
            for a, wanted in zip(map(array_of, recording.leaves), recording.flags, strict=True)
        ]
        values, gradients = self._values(recording, roles, views, written)
        bound, of_bound = self._bound(recording, results)
        fresh = [v for buffer, v in built.outputs.items() if buffer not in of_bound]
        renewed = [built.outputs[buffer] for buffer in of_bound]
        places = {buffer: len(fresh) + i for i, buffer in enumerate(of_bound)}
        arenas = [(views, [places[buffer] for buffer in buffers]) for views, buffers in built.arenas]
        self.plan.forget(rec.outside_numbers[key] for key in inputs if roles[key][0] != "data")
        built.made.clear()
        self.tensor_plan = TensorPlan(
            built, recording.guards, arguments, values, gradients, fresh, bound, renewed, len(recording.outputs),
            self._cleared(recording), None if self.template == (TENSOR, 0, Tensor, False) else self._rebuild, recording.plain,
            arenas
        )  # fmt: skip

    def _values(self, recording: Recording, roles: dict, views: dict, written: set[int]) -> tuple[list, list]:
        """Tensors that were there before, and gradients of them that are read; those that share memory have to stay as they are."""
        own = {id(leaf) for leaf in recording.leaves}
        owners = recording.owners()
        values: list[Any] = []
        gradients: list[Any] = []
        for key, (value, array, gradient, before) in recording.used.items():
            if key in own:
                continue
            if gradient is not None and id(gradient._handle) in views:
                group = views[id(gradient._handle)]
                leader = next((i for i, entry in enumerate(gradients) if entry[2] is group), len(gradients))
                gradients.append((value, Layout(gradient), group, leader))
            handle = id(array._handle)
            if roles[handle][0] == "gradient":
                continue  # of another tensor, whose gradient will be another object the next time
            layout = Layout(array) if len(owners[handle]) == 1 else None
            values.append(Known(value, array, layout, views.get(handle), before, handle in written))
        return values, gradients

    def _results(self, recording: Recording) -> list[NDArray]:
        """Arrays that leave the function: what it returned, then what it left in tensors that were there before."""
        arrays = [array_of(x) for x in recording.outputs]
        self.left: list[tuple[str, Any]] = []
        made = recording.recorder.made
        for value, array, before, _ in recording.used.values():
            data, gradient = data_and_gradient(value)
            for kind, now, then in (("gradient", gradient, before), ("data", data, array)):
                if now is not then and now is not None and id(now._handle) in made:
                    self.left.append((kind, value))
                    arrays.append(now)
        return arrays

    def _handed_out(self, recording: Recording, results: list[NDArray]) -> list[NDArray]:
        """Results whose memory may be others' after each call: what is returned, and what is left in arguments."""
        own = {id(leaf) for leaf in recording.leaves}
        count, made = len(recording.outputs), recording.recorder.made
        left = [array for array, (_, value) in zip(results[count:], self.left, strict=True) if id(value) in own]
        return [array for array in [*results[:count], *left] if id(array._handle) in made]

    def _lent(self, recording: Recording, results: list[NDArray]) -> list[NDArray]:
        """Large gradients that a step drops before it computes anything, or does not find: the next replay may write over them."""
        own = {id(leaf) for leaf in recording.leaves}
        rec = recording.recorder
        buffers = [rec.made.get(id(array._handle), -1) for array in results]
        found = []
        for array, (kind, value) in zip(results[len(recording.outputs) :], self.left, strict=True):
            buffer = rec.made[id(array._handle)]
            dropped = id(value) in rec.cleared or recording.used[id(value)].gradient is None
            alone = buffers.count(buffer) == 1 and id(value) not in own
            if kind == "gradient" and dropped and alone and rec.sizes[buffer] >= LARGE:
                found.append(array)
        return found

    def _bound(self, recording: Recording, results: list[NDArray]) -> tuple[list[Bound], list[int]]:
        """Where results go, and the buffers that belong to one binding alone, in the order of these."""
        places = {id(leaf): i for i, leaf in enumerate(recording.leaves)}
        first = len(recording.outputs)
        made = recording.recorder.made
        buffers = [made.get(id(array._handle), -1) for array in results]
        uses = self.plan.first_uses()
        bound: list[Bound] = []
        own: list[int] = []
        for k, (kind, value) in enumerate(self.left):
            buffer = buffers[first + k]
            alone = kind == "gradient" and buffers.count(buffer) == 1
            if alone:
                own.append(buffer)
            lent = alone and buffer in self.plan.places
            bound.append(Bound(kind, places.get(id(value), value), first + k, alone, uses.get(buffer, 0), lent))
        for value, _, gradient, _ in recording.used.values():
            if gradient is not None and data_and_gradient(value)[1] is None:
                bound.append(Bound("none", places.get(id(value), value), 0, False, 0))
        return bound, own

    def _cleared(self, recording: Recording) -> list[Any]:
        """Tensors whose gradient is dropped before anything else is done."""
        own = {id(leaf) for leaf in recording.leaves}
        return [value for key, value in recording.recorder.cleared.items() if key not in own]

    def _rebuild(self, arrays: list[NDArray], leaves: Any) -> Any:
        return rebuilt(self.template, arrays, leaves, self.tensor_plan.built.replay, {})

    @property
    def replays(self) -> int:
        return self.tensor_plan.replays

    def __repr__(self) -> str:
        return f"<plan of {len(self.plan.calls)} calls, {self.plan.nbytes:,} bytes, {self.replays} replays>"

    def __str__(self) -> str:
        return str(self.plan)


def numbers_of(template: Any) -> list[int]:
    """Repeated calls whose numbers are part of a result."""
    if not isinstance(template, tuple) or not template:
        return []
    if template[0] == NUMBER:
        return [template[1].call]
    return [number for each in template for number in numbers_of(each)]


def counted(template: Any, numbers: dict[int, int]) -> Any:
    """The form of a result, with numbers of repeated calls as they are counted in a plan."""
    if not isinstance(template, tuple) or not template or not numbers:
        return template
    if template[0] == NUMBER:
        return NUMBER, template[1]._replace(call=numbers[template[1].call])
    return tuple(counted(each, numbers) for each in template)


def rebuilt(template: Any, arrays: list[NDArray], leaves: Any, replay: Any, made: dict[int, Any]) -> Any:
    """What the function returns, with new tensors and numbers; what it returns twice is one object."""
    kind = template[0]
    if kind == TENSOR:
        _, i, cls, wanted = template
        if i not in made:
            made[i] = as_value(cls, arrays[i], wanted)
        return made[i]
    if kind == ARRAY:
        return arrays[template[1]]
    if kind == ARGUMENT:
        return leaves[template[1]]
    if kind == NUMBER:
        return replay.number(*template[1])
    if isinstance(kind, str):
        return template[1].value
    if kind is dict:
        keys = [rebuilt(key, arrays, leaves, replay, made) for key in template[1]]
        entries = [rebuilt(each, arrays, leaves, replay, made) for each in template[2:]]
        return dict(zip(keys, entries, strict=True))
    entries = [rebuilt(each, arrays, leaves, replay, made) for each in template[1:]]
    if kind is TensorTuple:
        return as_value(TensorTuple, tuple(entries))
    return kind(*entries) if hasattr(kind, "_fields") else kind(entries)
