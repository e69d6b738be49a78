"""One recorded call of a function: what it asked of the backends, what it used, what it returned."""

from collections.abc import Callable
from typing import Any, NamedTuple

from needle.autograd import Tensor, TensorTuple, name_ops
from needle.autograd.guards import first_difference, same
from needle.autograd.replaying import data_and_gradient, flags, start_noting, stop_noting, was_there
from needle.capturing.guards import Walk, Watch
from needle.capturing.origins import line_of_function
from needle.origins import origin
from needle_ndarray import NDArray
from needle_ndarray.extension import Recorder


class Used(NamedTuple):
    """A tensor that was there before, as it was when it was first used."""

    value: Any
    array: NDArray
    gradient: NDArray | None
    flags: int


class Trace(NamedTuple):
    """What two calls have to agree in, for a replay of one to be right for the other."""

    calls: list[Any]
    outside: list[Any]  # what arrays of before stand for: an argument, a tensor's data or gradient, or just themselves
    template: Any

    def differs(self, other: "Trace") -> tuple[str, tuple[str, int] | None] | None:
        """Where another call did something else, and its line if one is known; None where it did the same."""
        i = first_difference(self.calls, other.calls)
        if i is not None:
            return f"{other.calls[i].verb} did something else than in the call before", other.calls[i].line
        if len(self.calls) != len(other.calls):
            longer = max(self.calls, other.calls, key=len)
            line = longer[min(len(self.calls), len(other.calls))].line
            return f"it asked for {len(other.calls)} operations, {len(self.calls)} in the call before", line
        if self.outside != other.outside:
            return "it used other arrays than in the call before", None
        if self.template != other.template:
            return "it returned something else than in the call before", None
        return None


class Before(NamedTuple):
    """What is kept of a call until the next one; `held` are objects that the trace knows by their ids."""

    trace: Trace
    guards: list[Any]
    held: list[Any]


class Recording:
    """A call under way, and then what is known of it.

    Parameters
    ----------
    function : what is called, with `args` and `kwargs`
    watch : what is known of the code it runs
    leaves : the tensors and arrays among the arguments
    strict : raise CaptureError where a replay would not be right
    """

    def __init__(
        self, function: Callable, watch: Watch, leaves: list[Any], args: tuple, kwargs: dict[str, Any], strict: bool
    ) -> None:
        self.function = function
        self.recorder = Recorder(strict, origin)
        self.leaves = leaves
        self.used: dict[int, Any] = {}
        self.plain = not kwargs and len(args) == len(leaves) and all(type(x) is Tensor for x in args)
        walk = Walk(watch, self.recorder, args, kwargs)
        known = len(watch.codes)
        self.flags = [flags(x) if isinstance(x, Tensor) else None for x in leaves]
        with self.recorder.recording():
            walks = start_noting(self.used)
            name_ops(True)
            try:
                with watch.watching(self.recorder):
                    self.result = function(*args, **kwargs)
            finally:
                name_ops(False)
                self.walked = stop_noting() > walks
        self.used = {key: Used(*entry) for key, entry in self.used.items() if isinstance(entry[1], NDArray)}
        self.guards = [*walk.guards.values(), *watch.depend(self.recorder.dependencies)]
        self.recorder.check_random(line_of_function(function))
        self.complete = len(watch.codes) == known  # nothing ran whose names were not known before
        self.changed = walk.changed()
        self.found = walk.arrays
        self._describe_results()
        if self.refused is None:
            self._check_tensors()
        self.trace = Trace(self._calls(), self._outside(), self.template)

    @property
    def refused(self) -> str | None:
        return self.recorder.refused

    def _refuse(self, why: str) -> None:
        self.recorder.refuse(why, line_of_function(self.function))

    def before(self) -> Before:
        """What the next call is compared with: neither its arguments nor the gradients that it found."""
        roles = self.roles()
        held: list[Any] = [used.value for used in self.used.values()]
        held += [array for key, array in self.recorder.outside.items() if key not in roles]
        return Before(self.trace, self.guards, held)

    # ---- Results ------------------------------------------------------------------------------------------------------------

    def _describe_results(self) -> None:
        """Tensors and arrays that are returned, and the form they are returned in."""
        self.outputs: list[Any] = []
        kinds: list[Any] = []
        self.template = template(self.result, self, kinds)
        for out in self.outputs:
            self.recorder.view(array_of(out))  # it may be a view of an argument that no verb was asked about
            if isinstance(out, Tensor) and out.requires_grad and not self.walked and not out.is_leaf():
                self._refuse("the result requires a gradient: call backward() inside, or capture under no_grad()")

    # ---- Tensors ------------------------------------------------------------------------------------------------------------

    def _check_tensors(self) -> None:
        """Refuse what binding results to tensors cannot repeat."""
        made = self.recorder.made
        outside = self.recorder.outside
        for value, array, gradient, before in self.used.values():
            data, now = data_and_gradient(value)
            if (flags(value) ^ before) & ~8:
                self._refuse("changes requires_grad, hooks or the graph of a tensor that was there before")
            if data is not array and not (isinstance(data, NDArray) and id(data._handle) in made):
                self._refuse("gives a tensor the memory of another one that was there before")
            if now is not None and now is not gradient and id(now._handle) not in made:
                self._refuse("makes an array that was there before the gradient of a tensor")
        for leaf in self.leaves:
            used = self.used.get(id(leaf))
            if used is not None and used.gradient is not None and id(used.gradient._handle) in outside:
                self._refuse("uses the gradient that an argument has already")
        self._check_sharing()

    def owners(self) -> dict[int, set[int]]:
        """{id of a buffer: the tensors and arrays known to lie in it, by id, and by -id those whose gradient does}"""
        found = {key: set(ids) for key, ids in self.found.items()}
        for leaf in self.leaves:
            found.setdefault(id(array_of(leaf)._handle), set()).add(id(leaf))
        gradients = {id(used.gradient) for used in self.used.values() if used.gradient is not None}
        for value, array, gradient, _ in self.used.values():
            if id(array) not in gradients:  # else the gradient of a tensor, itself used as one
                found.setdefault(id(array._handle), set()).add(id(value))
            if gradient is not None:
                found.setdefault(id(gradient._handle), set()).add(-id(value))
        return found

    def _check_sharing(self) -> None:
        """Refuse arguments, and gradients that are read, in memory that something else is known to lie in."""
        owners = self.owners()
        for leaf in self.leaves:
            handle = id(array_of(leaf)._handle)
            if len(owners[handle]) > 1 or handle in self.found:
                self._refuse("two arguments, or one and something else that it uses, share memory")
        first: dict[int, NDArray] = {}
        for used in self.used.values():
            a = used.gradient
            if a is None or id(a._handle) not in self.recorder.outside:
                continue
            b = first.setdefault(id(a._handle), a)
            others = {key for key in owners[id(a._handle)] if key > 0}
            if others or (a.shape, a.strides, a.offset) != (b.shape, b.strides, b.offset):
                self._refuse("reads a gradient that shares memory with something else")

    def _calls(self) -> list[Any]:
        """The calls, with views of arguments and tensors where they are in these, not in the memory that these are views of."""
        numbers = self.recorder.outside_numbers
        shifts = {
            numbers[key]: a.offset * a.dtype.itemsize
            for key, (*_, a) in self.roles().items()
            if key in numbers and a.offset
        }
        if not shifts:
            return self.recorder.calls
        return [call._replace(args=tuple(shifted(arg, shifts) for arg in call.args)) for call in self.recorder.calls]

    def _outside(self) -> list[Any]:
        roles = self.roles()
        return [roles[key][:2] if key in roles else key for key in self.recorder.outside]

    def roles(self) -> dict[int, Any]:
        """{id of a buffer: (what it is, of which argument or tensor, the array)}"""
        found: dict[int, Any] = {}
        for key, used in self.used.items():
            found.setdefault(id(used.array._handle), ("data", key, used.array))
        for key, used in self.used.items():
            if used.gradient is not None:
                found[id(used.gradient._handle)] = ("gradient", key, used.gradient)
        for i, leaf in enumerate(self.leaves):
            array = self.used[id(leaf)].array if id(leaf) in self.used else array_of(leaf)
            found[id(array._handle)] = ("argument", i, array)
        return found


def shifted(arg: Any, shifts: dict[int, int]) -> Any:
    """An argument of a call with the offsets of views less that of what they are views of."""
    if hasattr(arg, "buffer"):
        shift = shifts.get(arg.buffer, 0)
        return arg._replace(offset=arg.offset - shift // arg.dtype.itemsize) if shift else arg
    return type(arg)([shifted(each, shifts) for each in arg]) if type(arg) in (list, tuple) and arg else arg


def array_of(leaf: Any) -> NDArray:
    return data_and_gradient(leaf)[0] if isinstance(leaf, Tensor) else leaf


# ---- The form of a result --------------------------------------------------------------------------------------------------

TENSOR, ARRAY, ARGUMENT, OBJECT, NUMBER = "tensor", "array", "argument", "object", "number"


def template(tree: Any, recording: Recording, kinds: list[Any]) -> Any:
    """How to make a result again: nested tuples of a kind and what belongs to it. New tensors are added to the outputs."""
    for i, leaf in enumerate(recording.leaves):
        if leaf is tree:
            return ARGUMENT, i
    if isinstance(tree, (Tensor, NDArray)):
        if isinstance(tree, Tensor) and was_there(tree):
            return OBJECT, Kept(tree)
        for i, out in enumerate(recording.outputs):
            if out is tree:
                return TENSOR if isinstance(tree, Tensor) else ARRAY, i, *kinds[i]
        recording.outputs.append(tree)
        kinds.append((type(tree), tree.requires_grad and tree.is_leaf()) if isinstance(tree, Tensor) else ())
        return TENSOR if isinstance(tree, Tensor) else ARRAY, len(recording.outputs) - 1, *kinds[-1]
    if isinstance(tree, TensorTuple):
        arrays = tree.realize_cached_data()
        return TensorTuple, *[template(each, recording, kinds) for each in arrays]
    if type(tree) in (tuple, list) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return type(tree), *[template(each, recording, kinds) for each in tree]
    if type(tree) is dict:
        keys = tuple(template(key, recording, kinds) for key in tree)
        return dict, keys, *[template(each, recording, kinds) for each in tree.values()]
    if id(tree) in recording.recorder.slots:
        return NUMBER, recording.recorder.slots[id(tree)]
    return OBJECT, Kept(tree)


def flatten_object(tree: Any) -> "Kept":
    return Kept(tree)


class Kept:
    """An object that every call returns: equal to itself, or where it is a number or a text to what cannot be told from it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and same(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]
