"""Calls that a plan has prepared do what their verbs do, replay after replay, wherever their arrays lie by then."""

import threading

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.backend import BINARY, CONV2D, POOL2D, REDUCE, UNARY
from needle_ndarray.cpu_backend import CPUBackend
from needle_ndarray.listening import listening
from needle_ndarray.replay import Replay, Views, like

CPU = nd.zeros((1,), device=nd.cpu()).backend
ADD, EXP, SUM, MAX = BINARY["add"], UNARY["exp"], REDUCE["sum"], REDUCE["max"]


def convolved(op="conv2d", stride=1, padding=1, dilation=1, groups=1):
    numbers = (stride, stride), ((padding, padding),) * 2, (dilation, dilation), groups
    return lambda x, w, y: ("conv2d", (CONV2D[op], x, w, y, *numbers))


def pooled(op, size, stride=2, padding=0):
    numbers = (size, size), (stride, stride), ((padding, padding),) * 2
    return lambda x, y: ("pool2d", (POOL2D[op], x, y, *numbers))


def whole(*shape, seed=0, dtype="float32"):
    return nd.array(np.random.default_rng(seed).integers(-9, 9, shape), dtype=dtype)


#: name: (the arrays that inputs and the result are views of, the call of these views)
CALLS = {
    "binary": ([(6, 8), (6, 8), (6, 8)], lambda a, b, c: ("binary", (ADD, a, b, c))),
    "binary, one operand twice": ([(6, 8), (6, 8)], lambda a, c: ("binary", (ADD, a, a, c))),
    "binary of a row": ([(6, 8), (8,), (6, 8)], lambda a, b, c: ("binary", (ADD, a, b.broadcast_to((6, 8)), c))),
    "binary of a scalar": ([(6, 8), (), (6, 8)], lambda a, b, c: ("binary", (ADD, b.broadcast_to((6, 8)), a, c))),
    "binary, transposed": ([(6, 8), (8, 6), (6, 8)], lambda a, b, c: ("binary", (ADD, a, b.T, c))),
    "binary, backwards": ([(6, 8), (6, 8), (6, 8)], lambda a, b, c: ("binary", (ADD, a[::-1], b, c[:, ::-1]))),
    "binary, in place": ([(6, 8), (6, 8)], lambda a, c: ("binary", (ADD, a, c, c))),
    "binary, large": ([(300, 80), (300, 80), (300, 80)], lambda a, b, c: ("binary", (ADD, a, b[::-1], c))),
    "binary of nothing": ([(0, 8), (0, 8), (0, 8)], lambda a, b, c: ("binary", (ADD, a, b, c))),
    "unary": ([(6, 8), (6, 8)], lambda a, c: ("unary", (EXP, a, c))),
    "unary, backwards": ([(6, 8), (6, 8)], lambda a, c: ("unary", (EXP, a, c[::-1, ::-1]))),
    "unary, large": ([(200, 80), (200, 80)], lambda a, c: ("unary", (EXP, a, c))),
    "copy": ([(6, 8), (6, 8)], lambda a, c: ("copy", (a, c))),
    "copy, transposed": ([(6, 8), (8, 6)], lambda a, c: ("copy", (a.T, c))),
    "copy, backwards": ([(6, 8), (6, 8)], lambda a, c: ("copy", (a, c[::-1]))),
    "fill": ([(6, 8)], lambda c: ("fill", (c[:, 1::2], 3.5))),
    "fill, backwards": ([(6, 8)], lambda c: ("fill", (c[::-1], -1.0))),
    "reduce": ([(6, 8), ()], lambda a, c: ("reduce", (SUM, a, c, (0, 1)))),
    "reduce of rows": ([(6, 8), (8,)], lambda a, c: ("reduce", (SUM, a, c, (0,)))),
    "reduce, kept": ([(6, 8), (6, 1)], lambda a, c: ("reduce", (MAX, a, c, (1,)))),
    "reduce, backwards": ([(6, 8), (6,)], lambda a, c: ("reduce", (MAX, a[:, ::-2], c[::-1], (1,)))),
    "reduce of nothing": ([(0, 8), (8,)], lambda a, c: ("reduce", (SUM, a, c, (0,)))),
    "reduce, large": ([(400, 80), (80,)], lambda a, c: ("reduce", (SUM, a, c, (0,)))),
    "matmul": ([(6, 8), (8, 5), (6, 5)], lambda a, b, c: ("matmul", (a, b, c))),
    "matmul, transposed": ([(8, 6), (5, 8), (6, 5)], lambda a, b, c: ("matmul", (a.T, b.T, c))),
    "matmul, batched": ([(3, 6, 8), (3, 8, 5), (3, 6, 5)], lambda a, b, c: ("matmul", (a, b, c[::-1]))),
    "matmul into columns": ([(6, 8), (8, 5), (5, 6)], lambda a, b, c: ("matmul", (a, b, c.T))),
    "matmul of nothing": ([(6, 0), (0, 5), (6, 5)], lambda a, b, c: ("matmul", (a, b, c))),
    "linear": ([(6, 8), (8, 5), (5,), (6, 5)], lambda x, w, b, c: ("linear", (x, w, b, c))),
    "linear, strided bias": ([(6, 8), (8, 5), (10,), (6, 5)], lambda x, w, b, c: ("linear", (x, w, b[::2], c))),
    "conv2d": ([(2, 6, 6, 4), (3, 3, 4, 5), (2, 6, 6, 5)], convolved()),
    "conv2d, a tile of filters": ([(2, 6, 6, 4), (3, 3, 4, 16), (2, 6, 6, 16)], convolved()),
    "conv2d, tiles of filters": ([(1, 4, 4, 4), (3, 3, 4, 32), (1, 4, 4, 32)], convolved()),
    "conv2d, tiles of filters, many places": ([(1, 14, 14, 4), (3, 3, 4, 32), (1, 14, 14, 32)], convolved()),
    "conv2d, tiles in groups": ([(1, 4, 4, 4), (3, 3, 2, 64), (1, 4, 4, 64)], convolved(groups=2)),
    "conv2d of many images": ([(25, 6, 6, 4), (3, 3, 4, 16), (25, 3, 3, 16)], convolved(stride=2)),
    "conv2d of many images, six filters": ([(25, 6, 6, 4), (5, 5, 4, 6), (25, 2, 2, 6)], convolved(padding=0)),
    "conv2d, the middle of the kernel": ([(2, 1, 1, 4), (3, 3, 4, 16), (2, 1, 1, 16)], convolved()),
    "conv2d, rows of the kernel": ([(2, 1, 5, 4), (3, 3, 4, 16), (2, 1, 5, 16)], convolved()),
    "conv2d, a corner of the kernel": ([(2, 2, 2, 4), (3, 3, 4, 16), (2, 1, 1, 16)], convolved(stride=2)),
    "conv2d of the whole image": ([(2, 3, 3, 4), (3, 3, 4, 5), (2, 1, 1, 5)], convolved(padding=0)),
    "conv2d of places": ([(2, 6, 6, 4), (1, 1, 4, 5), (2, 6, 6, 5)], convolved(padding=0)),
    "conv2d, one filter a channel": ([(2, 6, 6, 4), (3, 3, 1, 4), (2, 6, 6, 4)], convolved(groups=4)),
    "conv2d, dilated": ([(2, 6, 6, 4), (3, 3, 4, 5), (2, 4, 4, 5)], convolved(dilation=2)),
    "conv2d of colours": (
        [(2, 3, 9, 37), (3, 3, 3, 7), (2, 9, 37, 7)],
        lambda x, w, y: convolved()(x.permute((0, 2, 3, 1)), w, y),
    ),
    "conv2d of many images in colour": (
        [(25, 3, 7, 18), (3, 3, 3, 20), (25, 4, 9, 20)],
        lambda x, w, y: convolved(stride=2)(x.permute((0, 2, 3, 1)), w, y),
    ),
    "conv2d, a corner of the kernel, whole tiles": ([(1, 2, 2, 4), (3, 3, 4, 64), (1, 1, 1, 64)], convolved(stride=2)),
    "conv2d, a corner of the kernel, many images": (
        [(30, 2, 2, 4), (3, 3, 4, 64), (30, 1, 1, 64)],
        convolved(stride=2),
    ),
    "conv2d of nothing": ([(0, 6, 6, 4), (3, 3, 4, 5), (0, 6, 6, 5)], convolved()),
    "conv2d, large": ([(4, 28, 28, 16), (3, 3, 16, 32), (4, 28, 28, 32)], convolved()),
    "conv2d_input_grad": ([(2, 6, 6, 8), (3, 3, 8, 5), (2, 6, 6, 5)], convolved("conv2d_input_grad")),
    "conv2d_weight_grad": ([(2, 6, 6, 8), (3, 3, 8, 5), (2, 6, 6, 5)], convolved("conv2d_weight_grad")),
    "conv2d_weight_grad, cut": ([(2, 1, 1, 8), (3, 3, 8, 5), (2, 1, 1, 5)], convolved("conv2d_weight_grad")),
    "conv2d, strided image": (
        [(2, 6, 12, 4), (3, 3, 4, 5), (2, 6, 6, 5)],
        lambda x, w, y: convolved()(x[:, :, ::2], w, y),
    ),
    "max_pool2d": ([(2, 8, 30, 6), (2, 4, 15, 6)], pooled("max_pool2d", 2)),
    "max_pool2d, padded": ([(2, 7, 8, 16), (2, 4, 4, 16)], pooled("max_pool2d", 3, padding=1)),
    "max_pool2d, strided": (
        [(2, 6, 8, 30), (2, 4, 15, 6)],
        lambda x, y: pooled("max_pool2d", 2)(x.permute((0, 2, 3, 1)), y),
    ),
    "max_pool2d of nothing": ([(0, 8, 30, 6), (0, 4, 15, 6)], pooled("max_pool2d", 2)),
    "max_pool2d, large": ([(8, 60, 60, 6), (8, 30, 30, 6)], pooled("max_pool2d", 2)),
    "avg_pool2d": ([(2, 8, 30, 6), (2, 4, 15, 6)], pooled("avg_pool2d", 2)),
    "conv2d of one channel": ([(2, 9, 37, 1), (5, 5, 1, 6), (2, 9, 37, 6)], convolved(padding=2)),
    "linear, large": ([(64, 90), (90, 70), (70,), (64, 70)], lambda x, w, b, c: ("linear", (x, w, b, c))),
}


@pytest.mark.parametrize("name", CALLS)
def test_prepared_calls_are_those_of_the_verb(name):
    """Three replays, each with other values and in other memory."""
    shapes, call = CALLS[name]
    arrays = [whole(*shape, seed=i) for i, shape in enumerate(shapes)]
    verb, args = call(*arrays)
    replay = Replay([(verb, CPU, args), (verb, CPU, args)], {}, [])
    groups = [Views(a, [v for v in args if isinstance(v, nd.NDArray) and v._handle is a._handle]) for a in arrays]
    for seed in range(3):
        mine = [whole(*shape, seed=10 * seed + i) for i, shape in enumerate(shapes)]
        theirs = [a.copy() for a in mine]
        for group, a in zip(groups, mine, strict=True):
            group.point(a)
        replay.run()
        same, expected = call(*theirs)
        for _ in range(2):
            getattr(CPU, same)(*expected)
        assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(mine, theirs, strict=True)), seed


def test_where():
    choice, a, b, out = whole(6, 8, dtype="bool"), whole(6, 8, seed=1), whole(6, 8, seed=2), nd.zeros((6, 8))
    replay = Replay([("where", CPU, (choice, a[::-1], b, out[:, ::-1]))], {}, [])
    for _ in range(2):
        replay.run()
        expected = np.where(choice.numpy(), a.numpy()[::-1], b.numpy())
        assert (out.numpy()[:, ::-1] == expected).all()
        CPU.fill(out, 0.0)


def test_who_listens_hears_every_call():
    a, out = whole(6, 8), nd.zeros((6, 8))
    replay = Replay([("binary", CPU, (ADD, a, a, out)), ("unary", CPU, (EXP, out, out))], {}, [])
    heard = []

    class Ear:
        numbers = False

        def heard(self, verb, args):
            heard.append(verb)
            return False

        def allocated(self, buffer):
            return buffer

    with listening(lambda backend: Ear()):
        replay.run()
    assert heard == ["binary", "unary"]


def test_a_subclass_is_asked():
    """What its verbs do is its own matter."""

    class Counting(CPUBackend):
        count = 0

        def binary(self, *args):
            Counting.count += 1
            return super().binary(*args)

    backend = Counting()
    backend.device = CPU.device
    a, out = whole(6, 8), nd.zeros((6, 8))
    replay = Replay([("binary", backend, (ADD, a, a, out))] * 3, {}, [])
    replay.run()
    assert Counting.count == 3 and (out.numpy() == 2 * a.numpy()).all()


def test_arrays_live_as_long_as_the_calls():
    a, out = whole(6, 8), nd.zeros((6, 8))
    replay = Replay([("binary", CPU, (ADD, a, like(a), like(out)))], {}, [])
    expected = 2 * a.numpy()
    del a
    for _ in range(3):
        replay.run()
        nd.zeros((6, 8))
    assert (out.numpy() == expected).all()


def test_other_threads_run_meanwhile():
    """A long run of calls lets them."""
    a, out = whole(300, 300), nd.zeros((300, 300))
    replay = Replay([("matmul", CPU, (a, a, out))] * 60, {}, [])
    turns = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            turns.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    replay.run()
    before = len(turns)
    replay.run()
    stop.set()
    thread.join()
    assert len(turns) > before


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_are_those_of_the_replay_and_change_no_bit(threads):
    before = nd.get_num_threads()
    a, b, out = whole(500, 300, seed=1), whole(500, 300, seed=2), nd.zeros((500, 300))
    total = nd.zeros((300,))
    replay = Replay([("binary", CPU, (ADD, a, b, out)), ("unary", CPU, (EXP, out, out)),
                     ("reduce", CPU, (SUM, out, total, (0,)))], {}, [])  # fmt: skip
    replay.run()
    expected = total.numpy().tobytes()
    try:
        nd.set_num_threads(threads)
        replay.run()
    finally:
        nd.set_num_threads(before)
    assert total.numpy().tobytes() == expected
