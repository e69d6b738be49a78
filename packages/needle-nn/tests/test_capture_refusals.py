"""What a replay could not repeat is refused, with file and line, and the function stays right; `strict` raises instead."""
# ruff: noqa: NPY002 (NumPy's global generator is one of the things that are refused)

import collections
import contextlib
import contextvars
import datetime
import itertools
import logging
import math
import queue
import random
import re
import secrets
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import needle as ndl
import needle_ndarray as nd
from needle_ndarray.extension import repeat

CALLS = 9
HOST = "reads values of an array on the host"
MADE = "makes an array out of values on the host"
SHARES = "shares the memory of an array"
CHANGES = "a replay would not change it"


def x_of(call, *shape):
    shape = shape or (2, 3)
    return ndl.Tensor(np.random.default_rng(call).standard_normal(shape).astype("float32"), requires_grad=False)


# Each row makes a function anew, so that a captured and an eager one have a state of their own.

REFUSED = {}


def refused(reason):
    def add(make):
        REFUSED[make.__name__] = make, reason
        return make

    return add


@refused(HOST)
def item():
    return lambda x: x * x.sum().item()


@refused(HOST)
def numpy():
    return lambda x: x * float(x.numpy().max())


@refused(HOST)
def truth():
    return lambda x: x * 2 if (x > 0).all() else x * 3


@refused(HOST)
def tolist():
    return lambda x: x * x.tolist()[0][0]


@refused(HOST)
def to_float():
    return lambda x: x + float(x.sum())


@refused(SHARES)
def asarray():
    return lambda x: x * float(np.asarray(x.realize_cached_data())[0, 0])


@refused(SHARES)
def dlpack_out():
    return lambda x: x * float(np.from_dlpack(x.realize_cached_data())[0, 0])


@refused(MADE)
def tensor_made():
    return lambda x: x * ndl.Tensor(np.full((2, 3), 2.0, "float32"))


@refused(MADE)
def array_made():
    return lambda x: ndl.Tensor(x.realize_cached_data() * nd.array([1.0, 2.0, 3.0]), requires_grad=False)


@refused(SHARES)
def shared_in():
    numbers = np.ones(3, "float32")

    def f(x):
        return x * ndl.Tensor(nd.from_numpy(numbers), requires_grad=False)

    return f


@refused("draws NumPy's random numbers")
def numpy_random():
    np.random.seed(0)
    return lambda x: x * float(np.random.rand())


@refused("draws NumPy's random numbers")
def numpy_random_between_draws():
    np.random.seed(0)

    def f(x):
        y = ndl.ops.dropout(x, 0.5) if hasattr(ndl.ops, "dropout") else x + ndl.init.rand(2, 3, requires_grad=False)
        return y * float(np.random.rand()) + ndl.init.rand(2, 3, requires_grad=False)

    return f


@refused("draws random numbers of")
def numpy_generator():
    rng = np.random.default_rng(0)
    return lambda x: x * rng.random()


@refused("draws random numbers of")
def numpy_random_state():
    rng = np.random.RandomState(0)
    return lambda x: x * rng.rand()


@refused("draws random numbers of Python's `random`")
def python_random():
    rng = random.Random(0)
    return lambda x: x * rng.random()


@refused("draws random numbers of Python's `random`")
def python_choice():
    random.seed(0)
    return lambda x: x * random.choice([1.0, 2.0])


@refused("operating system")
def system_random():
    return lambda x: x * 0 if secrets.token_bytes(1) is None else x * 2


@refused("reads the clock")
def clock():
    return lambda x: x * 0 if time.time() < 0 else x * 2


@refused("reads the clock")
def date():
    return lambda x: x * 0 if datetime.datetime.now().year < 2000 else x * 2


@refused("prints")
def printing():
    def f(x):
        print("step")
        return x * 2

    return f


@refused("logs")
def logs():
    def f(x):
        logging.getLogger("needle.test").info("step")
        return x * 2

    return f


@refused("warns")
def warns():
    def f(x):
        warnings.warn("step", stacklevel=1)
        return x * 2

    return f


@refused("reads or writes a file")
def file():
    def f(x):
        with open(__file__) as text:
            return x * len(text.readline())

    return f


@refused("starts a thread")
def thread():
    def f(x):
        worker = threading.Thread(target=lambda: None)
        worker.start()
        worker.join()
        return x * 2

    return f


@refused("hook")
def hook():
    w = ndl.Tensor(np.ones((2, 3), "float32"))
    seen = []
    w.register_hook(seen.append)

    def f(x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    return f


@refused("the result requires a gradient")
def requires_grad():
    w = ndl.Tensor(np.ones((2, 3), "float32"))
    return lambda x: x * w


@refused("graph was recorded before the call")
def old_graph():
    w = ndl.Tensor(np.ones((2, 3), "float32"))
    y = w * 2

    def f(x):
        loss = (y * x).sum()
        loss.backward()
        return loss

    return f


@refused(CHANGES)
def counter():
    state = SimpleNamespace(n=0)

    def f(x):
        state.n += 1
        return x * state.n

    return f


@refused(CHANGES)
def nonlocal_counter():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * 2 if n < 6 else x * 3

    return f


@refused(CHANGES)
def write_only():
    state = SimpleNamespace(last=None)

    def f(x):
        state.last = x * 2
        return state.last * 2

    return f


@refused(CHANGES)
def append():
    losses = []

    def f(x):
        losses.append(1)
        return x * len(losses)

    return f


@refused(CHANGES)
def dictionary():
    seen = {}

    def f(x):
        seen["n"] = seen.get("n", 0) + 1
        return x * seen["n"]

    return f


@refused(CHANGES)
def growing_set():
    seen = set()

    def f(x):
        seen.add(len(seen))
        return x * len(seen)

    return f


@refused(CHANGES)
def growing_deque():
    seen = collections.deque(maxlen=100)

    def f(x):
        seen.append(1)
        return x * len(seen)

    return f


@refused(CHANGES)
def host_memory():
    counts = np.zeros(1)

    def f(x):
        counts[0] += 1
        return x * float(counts[0])

    return f


@refused(CHANGES)
def slots():
    class State:
        __slots__ = ("n",)

    state = State()
    state.n = 0

    def f(x):
        state.n += 1
        return x * state.n

    return f


@refused(CHANGES)
def class_attribute():
    class State:
        n = 0

    def f(x):
        State.n += 1
        return x * State.n

    return f


@refused(CHANGES)
def function_attribute():
    def f(x):
        f.n += 1
        return x * f.n

    f.n = 0
    return f


@refused(CHANGES)
def default_argument():
    def f(x, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)

    return f


@refused(CHANGES)
def by_name():
    state = SimpleNamespace(n=0)

    def f(x):
        setattr(state, "n", getattr(state, "n") + 1)  # noqa: B009, B010
        return x * state.n

    return f


@refused(CHANGES)
def by_built_name():
    class State:
        pass

    state = State()
    state.number = 0

    def f(x):
        name = "num" + "ber"[: len(x.shape) + 1]
        vars(state)[name] += 1
        return x * vars(state)[name]

    return f


@refused("goes on from call to call")
def iterator():
    numbers = itertools.count(1)
    return lambda x: x * next(numbers)


@refused("goes on from call to call")
def generator():
    numbers = (n for n in range(1, 100))
    return lambda x: x * next(numbers)


@refused("context")
def context_variable():
    variable = contextvars.ContextVar("variable", default=2.0)
    return lambda x: x * variable.get()


@refused("so that what it reads cannot be seen")
def evaluates():
    return lambda x: x * eval("2")


@refused(CHANGES)
def queue_put():
    kept = queue.Queue()

    def f(x):
        kept.put(1)
        return x * kept.qsize()

    return f


@refused("gives a tensor the memory of another one")
def swap():
    a, b = x_of(0), x_of(1)

    def f(x):
        a.data, b.data = b.data, a.data
        return x + a

    return f


@refused("requires_grad")
def toggles():
    w = ndl.Tensor(np.ones((2, 3), "float32"))

    def f(x):
        w.requires_grad = not w.requires_grad
        return (w.detach() * x).sum()

    return f


@refused("in Python")
def norm_in_python():
    w = ndl.Tensor(np.ones((2, 3), "float32"))

    def f(x):
        (w * x).sum().backward()
        norm = ndl.optim.clip_grad_norm([w], 1.0)
        return x * 2 if norm > 1.5 else x * 3

    return f


@refused("in Python")
def norm_in_mathematics():
    w = ndl.Tensor(np.ones((2, 3), "float32"))

    def f(x):
        (w * x).sum().backward()
        return x * math.sqrt(ndl.optim.clip_grad_norm([w], 1.0))

    return f


@refused("in Python")
def norm_in_numpy():
    w = ndl.Tensor(np.ones((2, 3), "float32"))

    def f(x):
        (w * x).sum().backward()
        return x * float(np.sqrt(ndl.optim.clip_grad_norm([w], 1.0)))

    return f


@refused("a number that NumPy made")
def numpy_number():
    numbers = iter(range(1, 100))
    return lambda x: x * repeat(lambda: np.float64(next(numbers)))


@refused("share memory")
def argument_of_outside():
    x = x_of(0)

    def f(y):
        return x * y

    f.x = x
    return f


@refused("returned something else")
def new_object():
    return lambda x: SimpleNamespace(y=x * 2)


@refused("returned something else")
def makes_a_generator():
    def f(x):
        yield x * 2

    return f


@refused("entries")
def huge_list():
    table = [float(i) for i in range(30_000)]
    return lambda x: x * table[3]


@refused("too large to be compared")
def huge_array():
    table = np.arange(30_000.0)
    return lambda x: x * float(table[3])


def value_of(result):
    if isinstance(result, SimpleNamespace):
        result = result.y
    return next(result) if hasattr(result, "__next__") else result


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, reason = REFUSED[name]
    with quiet():
        f = make()
        expected = [value_of(f(getattr(f, "x", None) or x_of(i))).numpy() for i in range(CALLS)]
        f = make()
        captured = ndl.capture(f)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = [value_of(captured(getattr(f, "x", None) or x_of(i))).numpy() for i in range(CALLS)]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, expected, strict=True))
    told = [w for w in caught if issubclass(w.category, ndl.CaptureWarning)]
    assert len(told) == len(captured.refusals) == 1 and not captured.plans
    assert reason in captured.refusals[0], captured.refusals
    assert re.search(r"\.py:\d+: ", captured.refusals[0]) and captured.refusals[0] in str(told[0].message)
    if "share memory" not in reason:
        assert captured.refusals[0].startswith(__file__), captured.refusals


@pytest.mark.parametrize("name", REFUSED)
def test_strict(name):
    make, reason = REFUSED[name]
    with quiet():
        f = make()
        captured = ndl.capture(f, strict=True)
        with pytest.raises(ndl.CaptureError, match=re.escape(reason)):
            for i in range(CALLS):
                captured(getattr(f, "x", None) or x_of(i))
    assert sys.getprofile() is None and all(d._backend.listener is None for d in [ndl.cpu()])


def test_numpy_argument():
    """NumPy arrays may change without being seen: such calls are eager, others are not."""
    captured = ndl.capture(lambda x, y=2.0: x * float(np.sum(y)))
    numbers = np.ones(2)
    with pytest.warns(ndl.CaptureWarning, match="a NumPy array"):
        first = captured(x_of(0), numbers)
    numbers[0] = 5
    assert captured(x_of(0), numbers).numpy().tobytes() == (x_of(0) * 6).numpy().tobytes() != first.numpy().tobytes()
    for i in range(4):
        captured(x_of(i))
    assert captured.plans[0].replays == 2


def test_numbers_that_always_differ():
    """A plan for each number is no gain: after some, the function stays eager, says so once, and holds on to nothing."""
    captured = ndl.capture(lambda x, number: x * number)
    with pytest.warns(ndl.CaptureWarning, match="others with each call") as told:
        for i in range(200):
            assert captured(x_of(0), 0.5 * i).numpy().tobytes() == (x_of(0) * (0.5 * i)).numpy().tobytes()
    assert len(told) == 1 and not captured.plans and not captured._entries
