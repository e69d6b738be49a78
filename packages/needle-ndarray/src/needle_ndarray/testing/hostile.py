"""Objects that lie: what no caller would pass by mistake twice, but which must not end the process either.

`liars(rng)` makes one of them at a time. They answer differently the second time they are asked, never end, call back into the
array that is asking, or are NumPy scalars and arrays of every type. `attempt` calls something with them.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

import needle_ndarray as nd

#: One of every NumPy scalar type that there is on this machine.
SCALARS = [
    kind(1) for kind in (*np.sctypeDict.values(), np.bool_) if issubclass(kind, (np.number, np.bool_))
] + [np.str_("a"), np.bytes_(b"a"), np.datetime64("2020"), np.timedelta64(1, "s"), np.void(b"12")]  # fmt: skip
SCALARS = list({type(scalar): scalar for scalar in SCALARS}.values())
SIZES = [0, 1, 2, 3, -1, 7, 31, 32, 33, 2**44, 2**62, 2**63 - 1, 2**63, -(2**63), 2**70]


class Twice:
    """Answers one thing when it is asked for the first time, and another from then on."""

    def __init__(self, first: Any, then: Any):
        self.answers = itertools.chain([first], itertools.repeat(then))

    def answer(self, *_: Any, **__: Any) -> Any:
        return next(self.answers)

    __index__ = __len__ = __int__ = __float__ = __bool__ = __array__ = __getitem__ = __dlpack__ = answer
    __add__ = __radd__ = __mul__ = __rmul__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = answer
    shape = dtype = strides = T = ndim = size = nbytes = itemsize = device = property(answer)
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[Any]:
        found = next(self.answers)
        return iter(found if isinstance(found, (list, tuple)) else [found])


class Lie(nd.NDArray):
    """An array whose attributes and methods say something else."""

    lies: ClassVar[dict[str, Any]] = {}

    def __getattribute__(self, name: str) -> Any:
        lies = type(self).lies
        return lies[name] if name in lies else super().__getattribute__(name)


class HostLie(np.ndarray):
    """The same of NumPy's arrays."""

    shape = property(lambda self: (1000, 1000))
    strides = property(lambda self: (1 << 40, 8))
    __array_interface__ = property(lambda self: {"data": (64, False), "shape": (9,), "typestr": "<f4", "version": 3})


class Restarting:
    """Initialises the array that it was given while somebody makes an array of it."""

    def __init__(self, target: Any):
        self.target = target

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        attempt(self.target.__init__, np.ones((2,) * random.randrange(9), "float32"))
        return np.ones(3, "float32")

    def __index__(self) -> int:
        self.__array__()
        return 0


def lying(rng: random.Random, values: Any) -> nd.NDArray:
    """An NDArray of a class of its own, some of whose members lie."""
    answers = [
        5,
        None,
        (1 << 40,),
        (3, -4),
        "float64",
        "bool",
        1 << 50,
        np.ones(3),
        lambda *_, **__: 7,
        lambda *_, **__: nd.ones(2),
    ]
    names = ["T", "shape", "strides", "dtype", "device", "nbytes", "itemsize", "size", "ndim", "reshape", "permute", "copy",
             "astype", "_handle", "offset", "compact", "numpy", "item", "backend", "version"]  # fmt: skip
    kind = type("Lie", (Lie,), {"lies": {rng.choice(names): rng.choice(answers) for _ in range(rng.randint(1, 3))}})
    return kind(values)


def restarting(rng: random.Random) -> Restarting:
    return Restarting(nd.NDArray.__new__(nd.NDArray))


def liars(rng: random.Random) -> Any:
    """A hostile object, made anew."""
    kind = rng.randrange(13)
    if kind == 0:
        return rng.choice(SCALARS)
    if kind == 1:
        return Twice(rng.choice(SIZES[:8]), rng.choice(SIZES))
    if kind == 2:
        return Twice([nd.ones(3)], rng.choice([[12345678901], [None], nd.ones(2), 3]))
    if kind == 3:
        return tuple(Twice(rng.choice(SIZES[:6]), rng.choice(SIZES)) for _ in range(rng.randint(1, 3)))
    if kind == 4:
        return rng.choice([itertools.count(), itertools.repeat(nd.ones(2)), itertools.repeat(0)])
    if kind == 5:
        return lying(rng, np.arange(12.0).reshape(3, 4))
    if kind == 6:
        return np.ones(6, rng.choice(["float32", "int64", "bool"])).view(HostLie)
    if kind == 7:
        return restarting(rng)
    if kind == 8:
        return slice(restarting(rng), Twice(1, 1 << 62), None)
    if kind == 9:
        return rng.choice(SIZES)
    if kind == 10:
        return rng.choice([(), [], {}, (None,), ((),), "", b"", ..., None, [[]], ((1, 2), (3,))])
    if kind == 11:
        return nd.ones(rng.choice([(), (3,), (0,), (3, 4), (1,) * 9]), rng.choice(list(nd.dtypes.DTYPES)))
    return rng.choice(
        [nd.NDArray.__new__(nd.NDArray), nd.arange(3), nd.ones((4, 4)).T, np.ones((2, 3)), type, len, 1.5, 1j]
    )


def attempt(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The name of the exception, or ok; an error of the interpreter's own stays one."""
    try:
        call(*args, **kwargs)
    except (SystemError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        return type(error).__name__
    return "ok"
