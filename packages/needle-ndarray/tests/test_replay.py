"""A verb is an instruction: a list of calls, run again on the same arrays with the same or with other numbers, computes again."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.backend import RANDOM, REQUIRED, STEP, Backend
from needle_ndarray.ndarray import NDArray
from needle_ndarray.numpy_backend import NumPyBackend

HOST = {"allocate", "from_host", "to_host", "synchronize", "matmul_tiled"}
HOOKS = {"why_disabled", "from_device", "ahead", "dlpack_device", "to_dlpack", "from_dlpack"}
VERBS = [name for name in vars(Backend) if name[0] != "_" and callable(getattr(Backend, name))]
INSTRUCTIONS = [name for name in VERBS if name not in HOST | HOOKS]


class Recorder(NumPyBackend):
    """Every call with the shapes it saw; calls that a default makes are part of it."""

    name = "recorder"

    def __init__(self):
        self.calls, self.depth = [], 0


def recorded(verb):
    def run(self, *args):
        self.depth += 1
        try:
            assert getattr(super(Recorder, self), verb)(*args) is None
        finally:
            self.depth -= 1
        if self.depth == 0:
            self.calls.append((verb, args, shapes(args)))

    return run


for name in INSTRUCTIONS:
    setattr(Recorder, name, recorded(name))


def shapes(args):
    return [(a.shape, a.strides, a.offset) for a in arrays(args)]


def arrays(args):
    for a in args:
        if isinstance(a, NDArray):
            yield a
        elif isinstance(a, list):
            yield from a


def program(device):
    """A little of everything; the results."""
    x = nd.array(np.linspace(-2, 2, 60).reshape(1, 5, 6, 2), device=device)
    w = nd.array(np.linspace(-1, 1, 36).reshape(3, 3, 2, 2), device=device)
    y = nd.conv2d(x, w, padding=1)
    pooled = nd.max_pool2d(y, 2)
    rows = pooled.reshape((-1, 2))
    normal = nd.layer_norm(rows) + nd.batch_norm(rows)[0]
    centred = normal - normal.mean(1, keepdims=True)
    h, c, gates = nd.lstm(nd.ones((3, 2, 8), device=device), nd.tile(w[0, 0], (1, 4)), None, rows[:2], rows[2:4])
    out = nd.attention(centred, centred, centred, causal=True)
    taken = out[nd.array([0, 0, 1], "int64", device=device)]
    taken[nd.array([1], "int64", device=device)] = 3
    return [
        y,
        pooled,
        normal,
        centred,
        h,
        c,
        gates,
        out,
        taken,
        out.softmax(),
        out.argmax(1),
        out.cumsum(0),
        out.prod(0),
    ]


@pytest.fixture
def recorder():
    return nd.register("recorder", Recorder)


def test_replay(recorder):
    """The same bits, although the results were overwritten in between; no view changed after its call."""
    results = program(recorder)
    calls, before = list(recorder.backend.calls), [a.numpy() for a in results]
    assert {verb for verb, _, _ in calls} >= {"conv2d", "norm", "reduce", "sequence", "attention", "rows", "scatter"}
    for verb, args, seen in calls:
        assert shapes(args) == seen, f"{verb}: an array changed after the call"
    for a in results:
        a.fill(7)
    for verb, args, _ in calls:
        getattr(recorder.backend, verb)(*args)
    for a, expected in zip(results, before, strict=True):
        assert a.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("device", ["cpu", "cpu_numpy"])
def test_other_numbers(device):
    """What changes between two steps is an argument: the learning rate, the corrections, the counter of random numbers."""
    backend = nd.device(device).backend
    p, g, m, v = (nd.full((5,), value, device=device) for value in (1.0, 2.0, 0.0, 0.0))
    arrays = ([p], [g], [m], [v])
    for t in (1, 2, 3):
        backend.step(STEP["adam"], *arrays, (0.1 / t, 0.9, 0.999, 1e-8, 0.0, 1 - 0.9**t, 1 - 0.999**t))
    twin = [nd.full((5,), value, device=device) for value in (1.0, 2.0, 0.0, 0.0)]
    for t in (1, 2, 3):
        numbers = {"correction1": 1 - 0.9**t, "correction2": 1 - 0.999**t}
        nd.adam_step([twin[0]], [twin[1]], [twin[2]], [twin[3]], lr=0.1 / t, **numbers)
    assert p.tolist() == twin[0].tolist()
    backend.random(RANDOM["uniform"], p, 1, 0)
    first = p.tolist()
    backend.random(RANDOM["uniform"], p, 1, 5)
    assert p.tolist() != first
    backend.random(RANDOM["uniform"], p, 1, 0)
    assert p.tolist() == first


def test_every_member_is_told_apart():
    """So that a new verb is recorded too."""
    assert set(REQUIRED) <= set(INSTRUCTIONS) | HOST
    assert set(VERBS) >= HOST | HOOKS
