"""capture(function): record a call, check that the next one does the same, then replay."""

import functools
import warnings
from _thread import allocate_lock  # threading is not imported by NumPy
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from needle.autograd import Tensor, TensorTuple, name_ops
from needle.autograd.replaying import (
    Replayer,
    TensorPlan,
    as_tensor,
    data_and_gradient,
    flags,
    flatten,
    modes_key,
    start_noting,
    stop_noting,
)  # fmt: skip
from needle.capturing.guards import Watch
from needle.origins import origin
from needle_ndarray import NDArray
from needle_ndarray.extension import CaptureError, Plan, Recorder, active_recorder, is_listened_to

TRIES = 5  # calls that may differ from the one before, until it is clear that they always will


class CaptureWarning(UserWarning):
    """A captured function that stays eager; the message says where and why."""


class Recording:
    """One call of a function: what it asked of the backends, what it used, what it returned."""

    def __init__(self, function: Callable, leaves: list[Any], args: tuple, kwargs: dict[str, Any], strict: bool):
        self.recorder = Recorder(strict, origin)
        self.leaves = leaves
        self.plain = not kwargs and all(
            type(x) is Tensor for x in args
        )  # `Replayer` knows these without a look at the tree
        self.used: dict[int, tuple[Any, NDArray, NDArray | None]] = {}
        watch = Watch(function, self.recorder)
        with self.recorder.recording():
            walks = start_noting(self.used)
            name_ops(True)
            try:
                with watch:
                    self.result = function(*args, **kwargs)
            finally:
                name_ops(False)
                self.walked = stop_noting() > walks
        watch.add(self.recorder.dependencies)
        self.guards = list(watch.guards.values())
        self._check_results()

    def _check_results(self) -> None:
        self.outputs: list[Any] = []
        self.template = with_slots(flatten(self.result, self.outputs), self.recorder.slots)
        for out in self.outputs:
            if isinstance(out, Tensor) and out.requires_grad and not self.walked and not out.is_leaf():
                why = "the result requires a gradient: call backward() inside, or capture under no_grad()"
                self.recorder.refuse(why)

    @property
    def refused(self) -> str | None:
        return self.recorder.refused

    def differs(self, other: "Recording") -> str | None:
        """Where two calls did different things; None where they did the same."""
        mine, theirs = self.recorder, other.recorder
        for a, b in zip(mine.calls, theirs.calls, strict=False):
            if a._replace(function=None) != b._replace(function=None) or not same_function(a.function, b.function):
                return f"{b.line[0]}:{b.line[1]}: {b.verb} did something else than in the call before"
        if len(mine.calls) != len(theirs.calls):
            longer = max(mine.calls, theirs.calls, key=len)
            line = longer[min(len(mine.calls), len(theirs.calls))].line
            return f"{line[0]}:{line[1]}: it asked for {len(theirs.calls)} operations, {len(mine.calls)} in the call before"
        if self._outside() != other._outside():
            return "it used other arrays than in the call before"
        if self.template != other.template:
            return "it returned something else than in the call before"
        return None

    def _outside(self) -> list[Any]:
        """What arrays of before stand for: an argument, a tensor's data or gradient, or just themselves."""
        roles = self.roles()
        return [roles[key][:2] if key in roles else key for key in self.recorder.outside]

    def roles(self) -> dict[int, Any]:
        """{id of a buffer: (what it is, of which argument or tensor, the array)}"""
        found: dict[int, Any] = {}
        for key, (_, array, _gradient) in self.used.items():
            if isinstance(array, NDArray):
                found[id(array._handle)] = ("data", key, array)
        for key, (_, _array, gradient) in self.used.items():
            if gradient is not None:
                found[id(gradient._handle)] = ("gradient", key, gradient)
        for i, leaf in enumerate(self.leaves):
            array = data_and_gradient(leaf)[0] if isinstance(leaf, Tensor) else leaf
            found[id(array._handle)] = ("argument", i, array)
        return found

    def shared_arguments(self) -> bool:
        """Whether two arguments, or an argument and another tensor that is used, lie in the same memory."""
        handles = [id((data_and_gradient(x)[0] if isinstance(x, Tensor) else x)._handle) for x in self.leaves]
        own = {id(leaf) for leaf in self.leaves}
        others = {id(a._handle) for v, a, _ in self.used.values() if isinstance(a, NDArray) and id(v) not in own}
        return len(set(handles)) < len(handles) or not others.isdisjoint(handles)


def same_function(a: Any, b: Any) -> bool:
    """Whether two functions do the same: one object, one method, or a lambda made again with the same variables around it."""
    if a == b:
        return True
    code = getattr(a, "__code__", None)
    if code is None or code is not getattr(b, "__code__", None):
        return False
    inner = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (a, b)]
    return all(x is y for x, y in zip(*inner, strict=True))


class CapturedPlan:
    """A plan that can be called: guards, inputs, results. `captured.plans` lists them."""

    def __init__(self, recording: Recording, without: Iterable[str]):
        self.template = recording.template
        self.takes_tensors = recording.plain
        rec = recording.recorder
        roles = recording.roles()
        arguments = [
            (data_and_gradient(x)[0], x.requires_grad) if isinstance(x, Tensor) else (x, None) for x in recording.leaves
        ]
        results = self._results(recording)
        inputs = {key: roles[key][2] for key in rec.outside if key in roles}
        self.plan = Plan(rec, list(inputs.values()), results, without)
        built = self.plan.build()
        views = dict(zip(inputs, built.inputs, strict=True))
        entries = [(a, views.get(id(a._handle)), wants) for a, wants in arguments]
        own = {id(leaf) for leaf in recording.leaves}
        values, gradients = [], []
        for key, (value, array, gradient) in recording.used.items():
            if key in own or not isinstance(array, NDArray):
                continue
            if gradient is not None and id(gradient._handle) in views:
                gradients.append((value, gradient, views[id(gradient._handle)]))
            if roles[id(array._handle)][0] == "gradient":
                continue  # of another tensor, whose gradient will be another object the next time
            values.append((value, array, views.get(id(array._handle)), flags(value)))
        bound, of_bound = self._bound(recording, results, built)
        fresh = [v for buffer, v in built.outputs.items() if buffer not in of_bound]

        self.tensor_plan = TensorPlan(
            *(built, recording.guards, entries, values, gradients, fresh, bound, len(recording.outputs)),
            None if isinstance(recording.result, Tensor) else self._rebuild,
        )

    def _results(self, recording: Recording) -> list[NDArray]:
        """Arrays that leave the function: what it returned, then what it left in tensors that were there before."""
        arrays = [x.realize_cached_data() if isinstance(x, Tensor) else x for x in recording.outputs]
        self.left: list[tuple[str, Any]] = []
        made = recording.recorder.made
        for value, *_ in recording.used.values():
            data, gradient = data_and_gradient(value)
            for kind, array in (("gradient", gradient), ("data", data)):
                if isinstance(array, NDArray) and id(array._handle) in made:
                    self.left.append((kind, value))
                    arrays.append(array)
        return arrays

    def _bound(self, recording: Recording, results: list[NDArray], built: Any) -> tuple[list, set[int]]:
        """Where results go, and the buffers that belong to one binding alone."""
        places = {id(leaf): i for i, leaf in enumerate(recording.leaves)}
        first = len(recording.outputs)
        made = recording.recorder.made
        buffers = [made.get(id(array._handle), -1) for array in results]
        bound, own = [], set()
        for k, (kind, value) in enumerate(self.left):
            buffer = buffers[first + k]
            alone = kind == "gradient" and buffers.count(buffer) == 1
            if alone:
                own.add(buffer)
            bound.append((kind, places.get(id(value), value), first + k, built.outputs[buffer] if alone else None))
        return bound, own

    def _rebuild(self, arrays: list[NDArray]) -> Any:
        return rebuilt(self.template, iter(arrays), self.tensor_plan.built.replay)

    @property
    def replays(self) -> int:
        return self.tensor_plan.replays

    def __repr__(self) -> str:
        return f"<plan of {len(self.plan.calls)} calls, {self.plan.nbytes:,} bytes, {self.replays} replays>"

    def __str__(self) -> str:
        return str(self.plan)


def rebuilt(template: Any, arrays: Any, replay: Any) -> Any:
    """What the function returns, with new tensors and numbers."""
    kind = template[0] if isinstance(template, tuple) else None
    if kind is _LEAF:
        return as_tensor(next(arrays))
    if kind is tuple or kind is list:
        return kind([rebuilt(each, arrays, replay) for each in template[1:]])
    if kind is dict:
        return {key: rebuilt(each, arrays, replay) for key, each in zip(template[1], template[2:], strict=True)}
    if template is _LEAF:
        return next(arrays)
    if kind is _SLOT:
        return replay.number(*template[1])
    return template[1]


def with_slots(template: Any, slots: dict[int, Any]) -> Any:
    """The template with numbers that every replay makes anew marked as such."""
    if not isinstance(template, tuple) or template[0] is _LEAF:
        return template
    if template[0] in (tuple, list, dict):
        first = 2 if template[0] is dict else 1
        return (*template[:first], *[with_slots(each, slots) for each in template[first:]])
    return (_SLOT, slots[id(template[1])]) if id(template[1]) in slots else template


_SLOT = object()

_LEAF = flatten(Tensor([0.0]), [])[0]


class Entry:
    """What is known for one kind of arguments."""

    def __init__(self) -> None:
        self.plans: list[CapturedPlan] = []
        self.last: Recording | None = None
        self.differing = 0
        self.refused: str | None = None


class Captured(Replayer):
    """A function that replays what it did before; see `needle.capture`."""

    def __init__(self, function: Callable, strict: bool = False, limit: int = 16, without: Iterable[str] = ()):
        functools.update_wrapper(self, function)
        self.function, self.strict, self.limit, self.without = function, strict, limit, tuple(without)
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._lock = allocate_lock()

    @property
    def plans(self) -> list[CapturedPlan]:
        """The plans that there are, the one used last at the end."""
        return [plan for entry in self._entries.values() for plan in entry.plans]

    @property
    def refusals(self) -> list[str]:
        """Why calls stay eager, for each kind of arguments that does."""
        return [entry.refused for entry in self._entries.values() if entry.refused]

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        return self if owner is None else functools.partial(self.__call__, owner)

    def slow(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Find a plan for these arguments and what Python looks like now; else record, or just call the function."""
        modes = modes_key()
        if modes is None or active_recorder() is not None or not self._lock.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            leaves: list[Any] = []
            key = (flatten(args, leaves), flatten(kwargs, leaves) if kwargs else None, modes, *map(layout, leaves))
            entry = self._entries.get(key)
            busy = is_listened_to()  # profiled, or another thread records: nothing can be recorded now
            if entry is not None:
                for plan in entry.plans:
                    tensors = plan.tensor_plan
                    if tensors.fits(leaves):
                        if tensors.replays >= tensors.next_check and not busy:
                            return self._check(entry, plan, leaves, args, kwargs)
                        self.latest = tensors if plan.takes_tensors else None
                        result = self.exclusively(tensors, leaves)
                        return self.function(*args, **kwargs) if result is NotImplemented else result
                if entry.refused is None and not busy:
                    return self._record(entry, leaves, args, kwargs)
            elif not busy:
                entry = self._entries[key] = Entry()
                return self._record(entry, leaves, args, kwargs)
        finally:
            self._lock.release()
        return self.function(*args, **kwargs)

    # ---- Recording ----------------------------------------------------------------------------------------------------------

    def _record(self, entry: Entry, leaves: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        recording = Recording(self.function, leaves, args, kwargs, self.strict)
        result = recording.result
        if recording.refused is None and recording.shared_arguments():
            recording.recorder.refuse(
                "two arguments, or one and another tensor that it uses, share memory", self._line()
            )
        if recording.refused is not None:
            self._refuse(entry, recording.refused)
        elif entry.last is None:
            entry.last = recording
        else:
            changed = self._changed(entry.last, recording)
            if changed is None:
                entry.plans.append(CapturedPlan(recording, self.without))
                entry.plans[-1].plan.name = getattr(self.function, "__qualname__", repr(self.function))
                entry.last, entry.differing = None, 0
                self._forget_old(entry)
            else:
                entry.last, entry.differing = recording, entry.differing + 1
                if entry.differing >= TRIES:
                    self._refuse(entry, changed)
        return detached(result) if recording.walked else result

    def _changed(self, before: Recording, now: Recording) -> str | None:
        for guard in before.guards:
            if not guard.holds():
                return f"{self._place()}: {guard.what} changed from {_short(guard.expected)} to {_short(guard.found())}"
        return before.differs(now)

    def _check(self, entry: Entry, plan: CapturedPlan, leaves: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run and record the function once more, and compare with the plan."""
        plan.tensor_plan.next_check *= 16
        recording = Recording(self.function, leaves, args, kwargs, self.strict)
        verbs = [(call.verb, call.args) for call in recording.recorder.calls]
        if recording.refused is not None or len(verbs) != plan.plan.recorded_calls:
            entry.plans.remove(plan)
            self.latest = None
            self._refuse(entry, recording.refused or f"{self._place()}: it does not do any more what was captured")
        return detached(recording.result) if recording.walked else recording.result

    def _refuse(self, entry: Entry, why: str) -> None:
        entry.refused, entry.last = why, None
        name = getattr(self.function, "__qualname__", repr(self.function))
        if self.strict:
            raise CaptureError(f"capture: {name}: {why}")
        warnings.warn(f"capture: {name} stays eager: {why}", CaptureWarning, stacklevel=4)

    def _forget_old(self, entry: Entry) -> None:
        """At most `limit` plans: those of the arguments that came first go."""
        while len(self.plans) > self.limit:
            for key, other in self._entries.items():
                if other.plans and (other is not entry or len(entry.plans) > 1):
                    if other.plans.pop(0).tensor_plan is self.latest:
                        self.latest = None
                    if not other.plans and other is not entry:
                        del self._entries[key]
                    break
            else:
                break

    def _line(self) -> tuple[str, int]:
        code = getattr(getattr(self.function, "__func__", self.function), "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code else ("<function>", 0)

    def _place(self) -> str:
        file, number = self._line()
        return f"{file}:{number}"

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"<captured {name}: {len(self.plans)} plans{', stays eager' if self.refusals else ''}>"


def layout(leaf: Any) -> tuple[Any, ...]:
    """What a plan takes for granted of an argument."""
    array = leaf.realize_cached_data() if isinstance(leaf, Tensor) else leaf
    return array.shape, array.strides, array.dtype, array.device


def detached(result: Any) -> Any:
    """Results without a graph, as a replay gives them."""
    if isinstance(result, (Tensor, TensorTuple)):
        return result.detach() if result.op is not None else result
    if type(result) in (tuple, list):
        return type(result)(map(detached, result))
    if type(result) is dict:
        return {key: detached(value) for key, value in result.items()}
    return result


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."


def capture(function: Any = None, *, strict: bool = False, limit: int = 16, without: Iterable[str] = ()) -> Any:
    """Make a function that records what it does with arrays and replays it: the same bits, without the Python in between.

    The first call runs as usual and is recorded, the second checks that it does the same, later ones replay. Train steps
    (forward, backward, optimizer), evaluation and inference can be captured; arguments and results are tensors, arrays, numbers,
    and tuples, lists and dicts of them. There is a plan for each layout of the arguments and each state of what the function reads
    from Python (`model.training`, a global number, ...). What a replay could not repeat is noticed: the function then stays eager,
    and a CaptureWarning says why.

    Parameters
    ----------
    function : what to capture; without it a decorator is returned
    strict : raise CaptureError instead of staying eager
    limit : plans that are kept
    without : names of passes to leave out (see docs/capture.md)

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, 2.0])
    >>> optimizer = ndl.optim.SGD([w], lr=0.25)
    >>> @ndl.capture
    ... def step(x):
    ...     optimizer.reset_grad()
    ...     loss = ((w - x) ** 2).sum()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> x = ndl.Tensor([0.0, 0.0], requires_grad=False)
    >>> [step(x).item() for _ in range(4)]
    [5.0, 1.25, 0.3125, 0.078125]
    >>> step.plans
    [<plan of 8 calls, 16 bytes, 2 replays>]
    """
    if function is None:
        return functools.partial(capture, strict=strict, limit=limit, without=without)
    if not callable(function):
        raise TypeError(f"capture: expected a function, got {type(function).__name__}")
    return Captured(function, strict, limit, without)
