"""Epilogues: elementwise calls on parts of a convolution's result give the bits that one call after another gives."""

import inspect
import types

import numpy as np
import pytest
from test_capture_arrays import array, recorded
from test_capture_mutants import is_right

import needle_ndarray as nd
from needle_ndarray.backend import BINARY, CONV2D, UNARY
from needle_ndarray.capture import epilogues as epilogue_pass
from needle_ndarray.capture import passes
from needle_ndarray.capture import plan as plans
from needle_ndarray.replay import Replay, Views

CPU = nd.zeros((1,), device=nd.cpu()).backend
NCHW = (0, 3, 1, 2)


# ---- The kernel ---------------------------------------------------------------------------------------------------------


def floats(rng, shape, dtype):
    return nd.array(rng.standard_normal(shape).round(2), dtype=dtype)


def random_convolution(rng, dtype):
    """A call of conv2d on random sizes: every algorithm, many images and few, bands of rows, corners of kernels."""
    while True:
        n, h, w, c = (int(rng.choice(k)) for k in ((1, 2, 3, 26), (1, 2, 4, 9, 40), (1, 2, 5, 17), (1, 2, 3, 4, 6, 20)))
        kh, kw, f, groups = (
            int(rng.choice(k)) for k in ((1, 2, 3, 5), (1, 2, 3, 5), (1, 4, 6, 12, 16, 32, 130), (1, 1, 2, c))
        )
        stride, dilation = (tuple(map(int, rng.integers(1, 4, 2))) for _ in range(2))
        padding = tuple(tuple(map(int, rng.integers(0, 4, 2))) for _ in range(2))
        f = c if groups == c else f
        tall, wide = h + sum(padding[0]) - (kh - 1) * dilation[0], w + sum(padding[1]) - (kw - 1) * dilation[1]
        if c % groups or f % groups or tall < 1 or wide < 1:
            continue
        y = (n, (tall - 1) // stride[0] + 1, (wide - 1) // stride[1] + 1, f)
        x, weight = floats(rng, (n, h, w, c), dtype), floats(rng, (kh, kw, c // groups, f), dtype)
        return x, weight, y, (stride, padding, dilation, groups)


def random_step(rng, y, dtype):
    """A call that writes over y, seen with its channels last or first; it takes another array for each element or channel."""
    seen = y if rng.random() < 0.7 else y.permute(NCHW)
    op = str(rng.choice(["relu", "add", "multiply", "subtract"]))
    if op == "relu":
        return "unary", (UNARY[op], seen, seen)
    other = floats(rng, y.shape if rng.random() < 0.4 else y.shape[3:], dtype).broadcast_to(y.shape)
    operands = [seen, other if seen is y else other.permute(NCHW)]
    if rng.random() < 0.5:
        operands.reverse()
    return "binary", (BINARY[op], *operands, seen)


@pytest.mark.parametrize("seed", range(8))
def test_random_epilogues_have_the_bits_of_one_call_after_another(seed):
    rng, before = np.random.default_rng(seed), nd.get_num_threads()
    joined = []
    for _ in range(60):
        dtype = str(rng.choice(["float32", "float64"]))
        x, weight, shape, numbers = random_convolution(rng, dtype)
        y = nd.zeros(shape, dtype=dtype)
        steps = [random_step(rng, y, dtype) for _ in range(rng.integers(0, 10))]
        calls = [("conv2d", (CONV2D["conv2d"], x, weight, y, *numbers)), *steps]
        for verb, args in calls:
            getattr(CPU, verb)(*args)
        expected = y.numpy().tobytes()
        replay = Replay([(verb, CPU, args) for verb, args in calls], {}, [], {0: len(calls)})
        try:
            for threads in (1, 2, 3):
                nd.set_num_threads(threads)
                CPU.fill(y, float("nan"))
                replay.run()
                assert y.numpy().tobytes() == expected, (x.shape, weight.shape, numbers, [a[0].name for _, a in steps])
        finally:
            nd.set_num_threads(before)
        joined.append(replay.length_of(0) - min(len(steps), 8) == 1)
    assert np.mean(joined) > 0.9  # some have weights that must be copied


def test_operands_are_where_they_are_by_then():
    rng = np.random.default_rng(0)
    x, weight, bias, y = (floats(rng, shape, "float32") for shape in ((2, 4, 4, 3), (3, 3, 3, 8), (8,), (2, 4, 4, 8)))
    conv = ("conv2d", CPU, (CONV2D["conv2d"], x, weight, y, (1, 1), ((1, 1), (1, 1)), (1, 1), 1))
    wide = bias.broadcast_to(y.shape)
    replay = Replay([conv, ("binary", CPU, (BINARY["add"], y, wide, y))], {}, [], {0: 2})
    assert replay.length_of(0) == 2
    biases, results = Views(bias, [wide]), Views(y, [y])
    for seed in range(3):
        there, other = floats(np.random.default_rng(seed), (8,), "float32"), nd.zeros(y.shape)
        biases.point(there)
        results.point(other)
        replay.run()
        assert other.numpy().tobytes() == (nd.conv2d(x, weight, 1, 1) + there).numpy().tobytes()


#: What no epilogue does: it stays a call of its own.
APART = {
    "another op": lambda y, a: ("binary", (BINARY["maximum"], y, a, y)),
    "one number for all": lambda y, a: ("binary", (BINARY["add"], y, a[0, 0, 0, 0].broadcast_to(y.shape), y)),
    "one image for all": lambda y, a: ("binary", (BINARY["add"], y, a[:1].broadcast_to(y.shape), y)),
    "a row for all": lambda y, a: ("binary", (BINARY["add"], y, a[:1, :1].broadcast_to(y.shape), y)),
    "itself": lambda y, a: ("binary", (BINARY["add"], y, y, y)),
    "itself, turned": lambda y, a: ("binary", (BINARY["add"], y.permute((0, 2, 1, 3)), y, y)),
    "its first channels": lambda y, a: ("binary", (BINARY["add"], y, y[0, 0, 0].broadcast_to(y.shape), y)),
    "backwards": lambda y, a: ("binary", (BINARY["add"], y, a[::-1], y)),
    "channels of a step": lambda y, a: (
        "binary",
        (BINARY["add"], y, a.reshape((-1,))[0:16:2].broadcast_to(y.shape), y),
    ),
    "a part": lambda y, a: ("binary", (BINARY["add"], y[:1], a[:1], y[:1])),
    "elsewhere": lambda y, a: ("binary", (BINARY["add"], y, y, a)),
    "of something else": lambda y, a: ("unary", (UNARY["relu"], a, y)),
    "a reduction": lambda y, a: ("reduce", (nd.backend.REDUCE["sum"], y, a[0, 0, 0, 0], (0, 1, 2, 3))),
    "rows of places": lambda y, a: (
        "binary",
        (
            BINARY["add"],
            y.reshape((2, 4, 32)),
            a.reshape((2, 4, 32))[:1, :1].broadcast_to((2, 4, 32)),
            y.reshape((2, 4, 32)),
        ),
    ),
}


@pytest.mark.parametrize("name", APART)
def test_other_calls_stay_calls(name):
    rng = np.random.default_rng(1)
    x, weight, a, y = (
        floats(rng, shape, "float32") for shape in ((2, 4, 4, 3), (3, 3, 3, 8), (2, 4, 4, 8), (2, 4, 4, 8))
    )
    conv = ("conv2d", (CONV2D["conv2d"], x, weight, y, (1, 1), ((1, 1), (1, 1)), (1, 1), 1))
    calls = [conv, ("unary", (UNARY["relu"], y, y)), APART[name](y, a), ("unary", (UNARY["relu"], y, y))]
    kept = a.copy()
    for verb, args in calls:
        getattr(CPU, verb)(*args)
    expected = y.numpy().tobytes(), a.numpy().tobytes()
    replay = Replay([(verb, CPU, args) for verb, args in calls], {}, [], {0: len(calls)})
    a[...] = kept
    replay.run()
    assert replay.length_of(0) == 2
    assert (y.numpy().tobytes(), a.numpy().tobytes()) == expected


# ---- The pass -----------------------------------------------------------------------------------------------------------

WEIGHT = nd.array(np.random.default_rng(5).standard_normal((3, 3, 36, 12)), dtype="float32")
SQUARE = nd.array(np.random.default_rng(7).standard_normal((3, 3, 36, 36)), dtype="float32")
POINT = SQUARE[1:2, 1:2].copy()
KEPT = nd.zeros((8, 4, 4, 36))
SHARED = np.zeros((8, 4, 4, 36), "float32")
ONE, OTHER = nd.from_dlpack(SHARED), nd.from_dlpack(SHARED)
SAME = nd.array(np.random.default_rng(6).standard_normal((3, 3, 12, 12)), dtype="float32")


def images(a):
    return a[:, :72].reshape((8, 4, 4, 36)) * 1.0


def convolved(a):
    return nd.conv2d(images(a), WEIGHT, 1, 1)


def layer(a):
    return ((convolved(a) + a[0, :12]) * a[1, :12] - a[2, :12]).relu()


def norm_between(a):
    y = convolved(a) + a[0, :12]
    scale = 1.0 / (a[1, :12] * a[1, :12] + 1.0).sqrt()
    return (y * scale + (a[2, :12] - a[3, :12] * scale)).relu() * 2.0


def residual(a):
    y = layer(a)
    return nd.conv2d(y, SAME, 1, 1).relu() + y


def two_branches(a):
    return convolved(a).relu() + nd.conv2d(images(a) * 2.0, WEIGHT, 1, 1) * a[0, :12]


def read_twice(a):
    y = convolved(a)
    return (y + a[0, :12]).relu() * 2.0, y * 2.0


def returned_and_read(a):
    y = convolved(a)
    return y, (y + a[0, :12]).relu()


def a_part_of_it(a):
    y = convolved(a)
    return (y[:4] + a[0, :12]).relu() * 2.0


def square_of_it(a):
    y = convolved(a)
    return (y * y + a[0, :12]).relu()


def turned(a):
    """The same shape and memory, but other elements."""
    y = convolved(a)
    return (y.permute((0, 2, 1, 3)) + a[0, :12]).relu() * 2.0


def added_to_itself_turned(a):
    y = convolved(a)
    return (y + y.permute((0, 2, 1, 3))) * 2.0


def added_in_place(a):
    x = images(a)
    x += nd.conv2d(x, SQUARE, 1, 1)
    return x * 2.0


def added_to_what_was_there(a):
    KEPT[...] = a[:, 8:].reshape((8, 4, 4, 36))
    CPU.binary(BINARY["add"], nd.conv2d(images(a), SQUARE, 1, 1), KEPT, KEPT)
    return KEPT * 2.0


def input_written_later(a):
    """What was convolved is written before the result is used."""
    x = images(a)
    y = nd.conv2d(x, WEIGHT, 1, 1)
    x[...] = a[:, 8:].reshape((8, 4, 4, 36))
    return (y + x[0, 0, 0, :12]).relu(), x.sum()


def operand_written_later(a):
    bias = a[0, :12] * 1.0
    y = convolved(a) + bias
    bias[...] = a[1, :12]
    return (y * bias).relu(), bias * 2.0


def result_written_again(a):
    y = convolved(a)
    z = y.relu()
    z[:4] = a[:32, :72].reshape((4, 4, 4, 36))[..., :12]
    return (z + a[0, :12]) * 2.0


def result_added_to(a):
    y = convolved(a)
    y[:2] = y[2:4] * 2.0
    return (y + a[0, :12]).relu()


def many_steps(a):
    y = convolved(a)
    for i in range(12):
        y = (y + a[i, :12]).relu()
        y = y * a[i, 12:24]
    return y


def one_memory_in_two_arrays(a):
    ONE[...] = a[:, :72].reshape((8, 4, 4, 36))
    CPU.unary(UNARY["relu"], nd.conv2d(ONE, POINT), OTHER)
    return OTHER * 2.0


FUNCTIONS = {f.__name__: f for f in (layer, norm_between, residual, two_branches, read_twice, returned_and_read, a_part_of_it,
                                     square_of_it, turned, input_written_later, operand_written_later, result_written_again,
                                     result_added_to, added_to_itself_turned, added_in_place,
                                     added_to_what_was_there, one_memory_in_two_arrays, many_steps)}  # fmt: skip


def all_are_right():
    return all(is_right(f, array(64, 80)) for f in FUNCTIONS.values())


def test_the_pass_changes_no_bit():
    assert all_are_right()


@pytest.mark.parametrize(
    "name, joined",
    [("layer", [5]), ("norm_between", [5]), ("residual", [5, 3]), ("two_branches", [2, 3]), ("many_steps", [9])],
)
def test_what_is_joined(name, joined):
    plan, built, _ = recorded(FUNCTIONS[name], array(64, 80))
    convolutions = [i for i, call in enumerate(plan.calls) if call.verb == "conv2d"]
    assert [built.replay.length_of(i) for i in convolutions] == joined
    _, built, _ = recorded(FUNCTIONS[name], array(64, 80), without=["fuse_epilogues"])
    assert all(built.replay.length_of(i) == 1 for i in range(built.replay.count))


#: What is wrong: in the text of the pass, what is replaced by what.
MUTANTS = {
    "a result that two read": ("len(readers.get(y.buffer, [])) != 1 or ", ""),
    "a result that is handed out": (" and plan.is_temporary(y.buffer)", ""),
    "a result that is used before": (" or begins[out.buffer] != j", ""),
    "a result outside of the plan": ("out.buffer < 0 or ", ""),
    "a step of two convolutions": ("j in taken or ", ""),
    "inputs that are written meanwhile": ("or plan.written(call) & used", ""),
    "inputs are forgotten": ("used |= plan.touched(call).buffers", "used.clear()"),
    "a convolution that comes after its steps": ("places[j] = chain[-1]", "places[j] = chain[0]"),
    "steps before their operands": ("key=lambda i: (places[i], i)", "key=lambda i: (i in now, places[i], i)"),
    "two views of the result": ("len(seen) == 1 and", ""),
    "axes that change places": ("_axes(seen[0]) == _axes(out) and", ""),
    "a result laid out otherwise": ("and _memory(out) == _memory(y)", ""),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    old, new = MUTANTS[name]
    text = inspect.getsource(epilogue_pass)
    assert text.count(old) == 1, old
    module = types.ModuleType("mutant")
    exec(compile(text.replace(old, new), "mutant", "exec"), vars(module))
    monkeypatch.setitem(passes.PASSES, "fuse_epilogues", module.fuse_epilogues)
    monkeypatch.setattr(plans, "epilogues", module.epilogues)
    assert not all_are_right()
