"""capture(function): record a call, check that the next one does the same, then replay."""

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from needle.autograd import Tensor, TensorTuple
from needle.autograd.replaying import Replayer, Unseen, flatten, modes_key
from needle.capturing.guards import Watch, short, uncollected
from needle.capturing.origins import line_of_function
from needle.capturing.plans import CapturedPlan
from needle.capturing.recordings import Before, Recording
from needle_ndarray.extension import CaptureError, active_recorder, is_listened_to

TRIES = 5  # calls that may differ from the one before, until it is clear that they always will
KEYS = 64  # kinds of arguments that are remembered, and may come once each until it is clear that they always differ
_recording = Lock()  # one function at a time is recorded


class CaptureWarning(UserWarning):
    """A captured function that stays eager; the message says where and why."""


class Entry:
    """What is known for one kind of arguments."""

    def __init__(self) -> None:
        self.plans: list[CapturedPlan] = []
        self.last: Before | None = None
        self.differing = 0
        self.refused: str | None = None


class Captured(Replayer):
    """A function that replays what it did before; see `needle.capture`."""

    def __init__(self, function: Callable, strict: bool = False, limit: int = 16, without: Iterable[str] = ()) -> None:
        functools.update_wrapper(self, function)
        self.function, self.strict, self.limit, self.without = function, strict, limit, tuple(without)
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._watch = Watch(function)
        self._lock = Lock()
        self._once = 0  # kinds of arguments that were forgotten without having come twice
        self._unseen: str | None = None  # why some arguments cannot be captured

    @property
    def plans(self) -> list[CapturedPlan]:
        """The plans that there are, the one used last at the end."""
        return [plan for entry in self._entries.values() for plan in entry.plans]

    @property
    def refusals(self) -> list[str]:
        """Why calls stay eager, for each kind of arguments that does."""
        found = [entry.refused for entry in self._entries.values() if entry.refused]
        return found + ([self._unseen] if self._unseen else [])

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        return self if owner is None else functools.partial(self.__call__, owner)

    def slow(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Find a plan for these arguments and what Python looks like now; else record, or just call the function."""
        modes = modes_key()
        if (
            modes is None
            or active_recorder() is not None
            or self._once >= KEYS
            or not self._lock.acquire(blocking=False)
        ):
            return self.function(*args, **kwargs)
        try:
            return self._find(args, kwargs, modes)
        finally:
            self._lock.release()

    def _find(self, args: tuple, kwargs: dict[str, Any], modes: Any) -> Any:
        leaves: list[Any] = []
        try:
            key = (flatten(args, leaves), flatten(kwargs, leaves) if kwargs else None, modes, *map(layout, leaves))
        except Unseen as error:
            if self._unseen is None:
                self._unseen = self._at(f"an argument is {error}")
                self._tell(self._unseen)
            return self.function(*args, **kwargs)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry()
            self._forget_kinds()
        else:
            self._entries.move_to_end(key)
            for plan in entry.plans:
                if plan.tensor_plan.fits(leaves):
                    if plan.tensor_plan.replays >= plan.tensor_plan.next_check and not is_listened_to():
                        return self._recording(self._check, entry, plan, leaves, args, kwargs)
                    self.latest = plan.tensor_plan
                    result = self.exclusively(plan.tensor_plan, leaves)
                    return self.function(*args, **kwargs) if result is NotImplemented else result
        if entry.refused is not None:
            return self.function(*args, **kwargs)
        return self._recording(self._record, entry, None, leaves, args, kwargs)

    # ---- Recording ----------------------------------------------------------------------------------------------------------

    def _recording(self, method: Callable, entry: Entry, plan: Any, leaves: list, args: tuple, kwargs: dict) -> Any:
        """Record, unless another function is being recorded in another thread, or profiled."""
        if not _recording.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            if is_listened_to():
                return self.function(*args, **kwargs)
            with uncollected():
                return method(entry, plan, leaves, args, kwargs)
        finally:
            _recording.release()

    def _record(self, entry: Entry, _plan: None, leaves: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        recording = Recording(self.function, self._watch, leaves, args, kwargs, self.strict)
        if recording.refused is None:
            changed = self._changed(entry.last, recording) if entry.last is not None else None
            if entry.last is None or not recording.complete:
                entry.last = recording.before()
            elif changed is None:
                self._plan(entry, recording)
            else:
                entry.last, entry.differing = recording.before(), entry.differing + 1
                if entry.differing >= TRIES:
                    self._refuse(entry, changed)
        if recording.refused is not None:
            self._refuse(entry, recording.refused)
        return returned(recording)

    def _plan(self, entry: Entry, recording: Recording) -> None:
        try:
            entry.plans.append(CapturedPlan(recording, self.without))
            entry.plans[-1].plan.name = self._name()
        except (CaptureError, ValueError) as error:  # views that do not lie in what they seem to be views of
            recording.recorder.refused = self._at(str(error))
            return
        entry.last, entry.differing = None, 0
        self._forget_plans(entry)

    def _changed(self, before: Before, now: Recording) -> str | None:
        """Why the plan of the second of two calls would not be right for the next one."""
        if now.changed is not None:
            return self._at(now.changed)
        for guard in before.guards:
            if not guard.holds():
                return self._at(f"{guard.what} changed from {short(guard.expected)} to {short(guard.found())}")
        differs = before.trace.differs(now.trace)
        return differs and self._at(*differs)

    def _check(self, entry: Entry, plan: CapturedPlan, leaves: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run and record the function once more, and compare with the plan."""
        plan.tensor_plan.next_check *= 16
        recording = Recording(self.function, self._watch, leaves, args, kwargs, self.strict)
        differs = plan.trace.differs(recording.trace)
        why = recording.refused or (self._at(*differs) if differs else None)
        if why:
            entry.plans.remove(plan)
            self.latest = None
            self._refuse(entry, why)
        return returned(recording)

    def _refuse(self, entry: Entry, why: str) -> None:
        entry.refused, entry.last = why, None
        if self.strict:
            raise CaptureError(f"capture: {self._name()}: {why}")
        self._tell(why)

    def _tell(self, why: str) -> None:
        if self.strict:
            raise CaptureError(f"capture: {self._name()}: {why}")
        warnings.warn(f"capture: {self._name()} stays eager: {why}", CaptureWarning, stacklevel=2)

    # ---- Forgetting ---------------------------------------------------------------------------------------------------------

    def _forget_plans(self, entry: Entry) -> None:
        """At most `limit` plans: those of the arguments that have not come for the longest time go."""
        while len(self.plans) > self.limit:
            other = next(
                other
                for other in self._entries.values()
                if other.plans and (other is not entry or len(entry.plans) > 1)
            )
            other.plans.pop(0)
            self.latest = None

    def _forget_kinds(self) -> None:
        """At most KEYS kinds of arguments; if they never come again, there is nothing to be gained."""
        while len(self._entries) > KEYS:
            _, entry = self._entries.popitem(last=False)
            if any(self.latest is plan.tensor_plan for plan in entry.plans):
                self.latest = None
            self._once = 0 if self.plans else self._once + 1
            if self._once == KEYS:
                self._unseen = self._at("its arguments are others with each call (numbers or objects; pass tensors)")
                self._entries.clear()
                self._tell(self._unseen)

    def _at(self, why: str, line: tuple[str, int] | None = None) -> str:
        """A reason with its line, or that of the function."""
        file, number = line or line_of_function(self.function)
        return f"{file}:{number}: {why}"

    def _name(self) -> str:
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    def __repr__(self) -> str:
        return f"<captured {self._name()}: {len(self.plans)} plans{', stays eager' if self.refusals else ''}>"


def layout(leaf: Any) -> tuple[Any, ...]:
    """What a plan takes for granted of an argument."""
    array = leaf.realize_cached_data() if isinstance(leaf, Tensor) else leaf
    wanted = leaf.requires_grad if isinstance(leaf, Tensor) else None
    return array.shape, array.strides, array.dtype, array.device, wanted


def returned(recording: Recording) -> Any:
    """What a recorded call gives: results without a graph where it went backward, as a replay gives them."""
    return detached(recording.result, recording.leaves) if recording.walked else recording.result


def detached(result: Any, leaves: list[Any]) -> Any:
    if isinstance(result, (Tensor, TensorTuple)):
        return result.detach() if result.op is not None and not any(result is leaf for leaf in leaves) else result
    if type(result) in (tuple, list):
        return type(result)([detached(each, leaves) for each in result])
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*[detached(each, leaves) for each in result])
    if type(result) is dict:
        return {key: detached(value, leaves) for key, value in result.items()}
    return result


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
