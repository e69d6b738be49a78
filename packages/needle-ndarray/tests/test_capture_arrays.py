"""Recordings, plans and their passes on arrays: what is written down, what passes may change, and that nothing crashes."""

import inspect
import itertools
import re

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.backend import BINARY, REDUCE, SCATTER, STEP, UNARY, Backend
from needle_ndarray.capture import PASSES, CaptureError, Plan, Recorder, Watched, active_recorder, reading, repeat
from needle_ndarray.capture.calls import Call, Slot, View
from needle_ndarray.capture.passes import Arena
from needle_ndarray.capture.verbs import ARGUMENTS, CHECKING, ELEMENTWISE, UPDATES, WRITES
from needle_ndarray.listening import VERBS, listening
from needle_ndarray.replay import Layout, Replay, Runner, Views, like

CPU = nd.zeros((1,), device=nd.cpu()).backend


def array(*shape, seed=0, dtype="float32"):
    return nd.array(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def recorded(function, *inputs, outputs=None, without=()):
    """The built plan of a function, and what it returned while it was recorded."""
    with Recorder().recording() as found:
        results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    plan = Plan(found, list(inputs), list(results), without)
    return plan, plan.build(), results


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes()


# ---- The table of verbs ---------------------------------------------------------------------------------------------------------


def test_table_and_interface_agree():
    """Every verb of Backend is in the table with its arguments in their order, and nothing else is."""
    assert set(ARGUMENTS) == set(VERBS)
    for verb, names in ARGUMENTS.items():
        text = getattr(Backend, verb).__doc__.splitlines()[0] if not hasattr(Backend, "__signature__") else ""
        try:
            declared = tuple(inspect.signature(getattr(Backend, verb)).parameters)[1:]
        except ValueError:
            declared = tuple(re.findall(r"(\w+)(?:=[^,)]*)?[,)]", text.partition("(")[2].replace("self, ", "")))
        assert declared == names, verb
    for table in (WRITES, UPDATES):
        for verb, names in table.items():
            assert names <= set(ARGUMENTS["conv2d" if verb.startswith("conv2d") else verb]), verb
    assert set(ARGUMENTS) >= CHECKING | ELEMENTWISE


# ---- Recording ------------------------------------------------------------------------------------------------------------------


def test_what_is_written_down():
    a, b = array(2, 3), array(3)
    with Recorder().recording() as found:
        assert active_recorder() is found
        c = (a + b).sum(axis=0)
        del c
        a.T * 2.0
    assert active_recorder() is None and CPU.listener is None
    add, total, *product = found.calls
    assert add[:3] == ("binary", CPU, (BINARY["add"], View(-1, a.dtype, (2, 3), (3, 1), 0), View(-2, b.dtype, (2, 3), (0, 1), 0),
                                       View(0, a.dtype, (2, 3), (3, 1), 0)))  # fmt: skip
    assert total.verb == "reduce" and total.args[1].buffer == 0 and total.args[2].buffer == 1
    assert product[-1].verb == "binary" and product[-1].args[1] == View(-1, a.dtype, (3, 2), (1, 3), 0)
    assert {call.line for call in found.calls} <= {(__file__, n) for n in range(50, 80)}


def test_memory_used_again_has_a_new_number():
    """Buffers go back to the allocator and come again under the same address: to a recording they are others."""
    a = array(64)
    with Recorder().recording() as found:
        for _ in range(5):
            a + 1.0
    written = [call.args[-1].buffer for call in found.calls if call.verb == "binary"]
    assert len(set(written)) == 5


def test_memory_inside_a_verb_is_none_of_ours():
    """Products, convolutions and softmax take scratch memory: no number, and what was ours under that address is ours no more."""
    x, w = array(1, 8, 8, 3), array(3, 3, 3, 4)
    with Recorder().recording() as found:
        for _ in range(4):
            y = nd.conv2d(x, w, stride=1, padding=1)
            z = y + 1.0
    assert len(found.sizes) == len(
        {view.buffer for call in found.calls for view in call.args if isinstance(view, View)} - {-1, -2}
    )
    _plan, built, (result,) = recorded(lambda x: nd.conv2d(x, w, stride=1, padding=1) + 1.0, x)
    built.run()
    assert same(built.results[0], result) and same(z, result)


def test_one_listener_at_a_time():
    with Recorder().recording(), pytest.raises(RuntimeError, match="already"), Recorder().recording():
        pass
    assert CPU.listener is None
    with pytest.raises(ValueError, match="out"), listening(lambda backend: None):
        raise ValueError("out")
    assert CPU.listener is None


@pytest.mark.parametrize("use", [
    lambda n: n + 1, lambda n: 1 - n, lambda n: n > 1, lambda n: bool(n), lambda n: float(n), lambda n: int(n),
    lambda n: f"{n:.2f}",
    lambda n: str(n), lambda n: round(n), lambda n: divmod(n, 2), lambda n: max(n, 1.0), lambda n: np.sqrt(n),
    lambda n: np.add(1, n),
    lambda n: np.asarray(n), lambda n: np.float32(n) * 2, lambda n: -n, lambda n: abs(n), lambda n: {n: 1},
])  # fmt: skip
def test_numbers_that_python_must_not_use(use):
    """A number read from arrays may be handed on, not used: what is decided by it would stay decided."""
    with Recorder().recording() as found:
        number = Watched.of(repeat(lambda: 2.5))
        assert found.refused is None and isinstance(number, float)
        got = use(number)
    assert "uses a number" in found.refused
    assert np.array_equal(got, use(2.5)) if not isinstance(got, dict) else len(got) == 1


def test_numbers_of_repeated_functions():
    """A float that `repeat` returns is known where it enters a verb, alone or in a tuple; an int is as good."""
    numbers = iter([2.0, 3, 4.0, 5.0, 6, 7.0])
    a, p, g = array(4), array(4), array(4, seed=1)
    expected = p.copy()

    def f(a):
        factor = repeat(lambda: next(numbers))
        (rate,) = repeat(lambda: (next(numbers),))
        nd.sgd_step(
            [p],
            [g],
            None,
            lr=rate,
            momentum=0.0,
            dampening=0.0,
            weight_decay=0.0,
            l1=0.0,
            nesterov=False,
            correction=1.0,
        )
        return a * factor

    plan, built, (result,) = recorded(f, a)
    assert same(result, a * 2.0)
    for factor, rate in ((4.0, 5.0), (6.0, 7.0)):
        built.run()
        assert same(built.results[0], a * factor)
        assert (built.replay.number(0, -1), built.replay.number(1, 0)) == (factor, rate)
    for rate in (3.0, 5.0, 7.0):
        nd.sgd_step(
            [expected],
            [g],
            None,
            lr=rate,
            momentum=0.0,
            dampening=0.0,
            weight_decay=0.0,
            l1=0.0,
            nesterov=False,
            correction=1.0,
        )
    assert same(p, expected)
    assert re.search(r"repeat .*lambda", str(plan)) and "number 0" in str(plan)


def test_number_too_deep():
    with Recorder().recording() as found:
        number = repeat(lambda: 2.0)
        repeat(lambda tree: None, ([[number]],))
    with pytest.raises(CaptureError, match="too deep"):
        Plan(found, [], []).build()


# ---- Passes ---------------------------------------------------------------------------------------------------------------------


def chain(a):
    """Dead verbs, constants, temporaries that die, a view that is written in part."""
    dead = (a * 3.0).exp()
    b = a + 1.0
    c = (b * b).tanh()
    d = nd.zeros((64, 80))
    d[:32] = c[32:]
    d[32:] = c[:32] * 2.0
    e = d.T.compact() @ nd.ones((64, 64))
    del dead
    return (e + 1.0) * e, c.sum(axis=0)


FUNCTIONS = {
    "chain": chain,
    "in place": lambda a: ((a + 1.0) * 2.0).exp().sqrt() - 1.0,
    "diamond": lambda a: (lambda b: (b * 2.0) + (b * 3.0) * b)(a + 1.0),
    "itself": lambda a: (lambda b: b * b + b)(a * 2.0),
    "views": lambda a: (lambda b: (b[1:] + b[:-1], b.T + b.T, b))(a * 2.0),
    "overlap": lambda a: (lambda b: overlapping(b))(a * 2.0),
    "reversed": lambda a: (lambda b: b[::-1] + b)(a * 2.0),
    "where": lambda a: (lambda b: (b > 0).where(b, b * 0.1))(a * 2.0),
    "cast": lambda a: (a * 2.0).astype("float64").astype("float32") + 1.0,
    "output read later": lambda a: (lambda b: (b, (b * 2.0).exp() + b))(a + 1.0),
    "input returned": lambda a: (a, a.T, a[3:]),
    "written input": lambda a: (lambda b: (b.fill(2.0), b * 2.0)[1])(a + 0.0),
    "one element": lambda a: (lambda b: (b.__setitem__((0, 0), 3.0), b * 2.0)[1])(a + 0.0),
    "copied into a result": lambda a: (lambda b: (b.copy(), b.sum()))(a * 2.0),
    "copied into two results": lambda a: (lambda b: (b.copy(), b.copy(), b))(a * 2.0),
    "copied, then the source written": lambda a: (lambda b: (b.copy(), b.fill(1.0), b.sum())[::2])(a * 2.0),
    "transposed copy": lambda a: (lambda b: b.T.compact() * 2.0)(a + 1.0),
    "transposed copy of an input": lambda a: a.T.compact() + a.T,
    "transposed copy, then the source written": lambda a: (lambda b, c: (b.fill(1.0), b.T + c)[1])(*with_copy(a + 1.0)),
    "transposed copy, read as another shape": lambda a: (a + 1.0).T.compact().reshape((64, 80)) * a,
    "transposed copy in place": lambda a: (lambda b: (b.__setitem__(..., b.T.compact() * 2.0), b + 1.0)[1])(
        a[:, :64] + 1.0
    ),
    "copied, then written": lambda a: (lambda b: copied_then_written(b))(a + 1.0),
    "one sum, twice in a list": lambda a: stepped(a * 2.0),
    "empty": lambda a: (a[:0] + 1.0, a[:0].sum(), a[:, :0].sum(axis=1)),
}


def copied_then_written(b):
    c = b.copy()
    b[...] = c * 3.0
    return b + c


def with_copy(b):
    return b, b.T.compact()


def stepped(a):
    """Two gradients that are computed alike: the list of the step then has one of them twice."""
    w, v = a + 1.0, a + 2.0
    nd.sgd_step([w, v], [a.sum(axis=0) + w, a.sum(axis=0) + w], None, lr=0.5)
    return w, v


def overlapping(b):
    b[1:] = b[:-1] * 2.0
    b[...] = b[::-1]
    return b + 1.0


@pytest.mark.parametrize(
    "without", [(), *[(name,) for name in PASSES], tuple(PASSES)], ids=lambda names: "+".join(names) or "all passes"
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_passes_keep_the_bits(name, without):
    """With other inputs each time, and with memory that is full of something else before."""
    function, a = FUNCTIONS[name], array(64, 80)
    plan, built, _ = recorded(function, a, without=without)
    for seed in range(1, 4):
        x = array(64, 80, seed=seed)
        expected = function(x.copy())
        for views in built.inputs:
            views.point(x)
        for views in built.outputs.values():
            views.renew()
        built.run()
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert all(same(got, e) for got, e in zip(built.results, expected, strict=True)), str(plan)
        poison(built)


def poison(built):
    """NaN in the arenas, where nothing has to stay from one replay to the next."""
    for _, _, args in built.calls:
        for arg in args:
            if isinstance(arg, nd.NDArray) and arg._handle.nbytes in {size for _, size in built.plan.arenas}:
                nd.NDArray.make((arg._handle.nbytes,), None, arg.device, arg._handle, 0, "uint8")[...] = 255


def test_drop_dead():
    plan, _, _ = recorded(chain, array(64, 80))
    text = str(plan)
    assert "unary exp" not in text and "unary tanh" in text
    assert "unary exp" in str(recorded(chain, array(64, 80), without=("drop_dead",))[0])


@pytest.mark.parametrize("wanted", [(), (0,), (2,), (0, 2)])
def test_numbers_that_nobody_uses_are_not_read(wanted):
    """Those that are used keep their meaning, whatever else goes."""

    def f(a):
        reading(nd.NDArray.item, a.sum())
        number = reading(nd.NDArray.item, a.max())
        reading(nd.NDArray.item, a.min())
        return a * number

    x = array(4)
    with Recorder().recording() as found:
        result = f(x)
    plan = Plan(found, [x], [result], numbers=wanted)
    assert sum(call.verb == "repeat" for call in plan.calls) == 1 + len(wanted)
    assert sum(call.verb == "reduce" for call in plan.calls) == 1 + len(wanted)
    built = plan.build()
    built.run()
    assert same(built.results[0], result)
    numbers = {0: x.sum(), 2: x.min()}
    for number in wanted:
        assert built.replay.number(plan.numbers[number], -1) == numbers[number].item()


@pytest.mark.parametrize("name, calls", [
    ("copied into a result", ["multiply", "sum"]),
    ("copied into two results", ["multiply", "copy", "copy"]),
    ("copied, then the source written", ["multiply", "copy", "fill", "sum"]),
    ("transposed copy", ["add", "multiply"]),
    ("transposed copy of an input", ["add"]),
    ("transposed copy, then the source written", ["add", "copy", "fill", "add"]),
    ("transposed copy, read as another shape", ["add", "copy", "multiply"]),
])  # fmt: skip
def test_drop_copies(name, calls):
    """Only where the source stays as it is, and is no result itself."""
    plan, _, _ = recorded(FUNCTIONS[name], array(64, 80))
    assert [getattr(call.args[0], "name", call.verb) for call in plan.calls] == calls, str(plan)
    assert "= copy" in str(recorded(FUNCTIONS[name], array(64, 80), without=("drop_copies",))[0])


def test_hoist_constants():
    """Numbers and masks are computed once; what is written twice, returned or large is not."""

    def f(a):
        mask = nd.ones((4,)) * 2.0
        twice = nd.zeros((4,))
        twice[1:] = 3.0
        large = nd.full((300, 300), 2.0)
        return a * mask + twice, large.sum(), nd.ones((2,))

    plan, built, results = recorded(f, array(4))
    assert len(plan.once) == 3 and all(size <= 65536 for b, size in plan.sizes.items() if b in plan.constants)
    for _ in range(3):
        built.run()
        assert all(same(a, b) for a, b in zip(built.results, results, strict=True))


def test_in_place_only_where_the_input_dies():
    def f(a):
        b = a + 1.0
        c = b * 2.0  # b is read again
        d = c.exp()  # c dies here
        return d + b

    plan, _, _ = recorded(f, array(64, 80))
    add, double, exp, last = [call.args for call in plan.calls]
    assert double[1].buffer == add[3].buffer != double[3].buffer  # b * 2 leaves b alone
    assert exp[1].buffer == exp[2].buffer == double[3].buffer  # exp(c) takes the place of c
    assert last[3].buffer in (last[1].buffer, last[2].buffer)


def test_memory_is_packed():
    def f(a):
        for _ in range(20):
            a = (a @ a) * 0.1
        return a

    plan, _, _ = recorded(f, array(100, 100))
    loose, _, _ = recorded(f, array(100, 100), without=("pack_memory",))
    assert plan.nbytes < 4 * 40_064 and loose.nbytes > 15 * 40_000
    alive: dict[int, tuple[int, int]] = {}
    begins, ends = plan.first_uses(), plan.last_uses()
    for a, start in plan.places.items():
        for b, other in alive.items():
            apart = start + plan.sizes[a] <= other[0] or other[1] <= start
            assert apart or ends[a] < begins[b] or ends[b] < begins[a], (a, b)
        alive[a] = start, start + plan.sizes[a]


@pytest.mark.parametrize("seed", range(10))
def test_no_two_buffers_are_in_one_place_at_one_time(seed):
    """Large and small ones, which begin and end at any call."""
    rng = np.random.default_rng(seed)
    begins = {b: int(rng.integers(0, 60)) for b in range(400)}
    plan = Buffers(begins, {b: i + int(rng.integers(0, 8)) for b, i in begins.items()},
                   {b: int(rng.integers(0, 200) if b % 10 else rng.integers(0, 20_000)) for b in begins})  # fmt: skip
    PASSES["pack_memory"](plan)
    for a, b in itertools.combinations(begins, 2):
        if begins[a] <= plan.ends[b] and begins[b] <= plan.ends[a]:
            first, second = sorted((a, b), key=lambda x: plan.places[x])
            assert plan.places[first] + max(plan.sizes[first], 1) <= plan.places[second]
    ((_, size),) = plan.arenas
    at_once = max(sum(plan.sizes[b] for b in begins if begins[b] <= i <= plan.ends[b]) for i in range(70))
    assert at_once <= size < 1.5 * at_once + 64 * 400 and all(place % 64 == 0 for place in plan.places.values())
    assert max(plan.places[b] + plan.sizes[b] for b in begins) <= size


class Buffers:
    """What the pass asks of a plan."""

    def __init__(self, begins, ends, sizes):
        self.first_uses, self.last_uses, self.ends, self.sizes = lambda: begins, lambda: ends, ends, sizes
        self.origins, self.places, self.arenas = dict.fromkeys(begins, CPU), {}, []

    def is_packed(self, buffer):
        return True


def test_what_a_verb_updates_is_read():
    """scatter_add reads what it adds to, and a step the parameters and states that it changes."""
    table, index, rows = array(5, 3), nd.array([1, 2], dtype="int64"), array(2, 3)

    def f(table, rows):
        total = table + 0.0
        CPU.scatter(SCATTER["scatter_add"], rows, index, total)
        return total

    plan, _, _ = recorded(f, table, rows, without=tuple(PASSES))
    scatter = plan.calls[-1]
    assert scatter.verb == "scatter" and plan.written(scatter) <= plan.read(scatter)


def test_arena():
    """Random sizes come and go: what is in use never overlaps, gaps are joined, and the arena ends where it has to."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        arena, used = Arena(), {}
        for step in range(200):
            if used and rng.random() < 0.5:
                start = list(used)[rng.integers(len(used))]
                arena.give_back(start, used.pop(start))
            else:
                size = int(rng.integers(0, 300))
                start = arena.take(size)
                assert start % 64 == 0 and start + size <= arena.size and start not in used
                used[start] = size
            places = sorted((start, start + max(size, 1)) for start, size in used.items())
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(places)), step
            assert all(a[1] < b[0] for a, b in zip(arena.gaps, arena.gaps[1:], strict=False))
        for start, size in used.items():
            arena.give_back(start, size)
        assert arena.gaps == [(0, arena.size)]


# ---- Replays --------------------------------------------------------------------------------------------------------------------

A, B = array(2, 3), array(2, 3, seed=1)
ADD = BINARY["add"]


@pytest.mark.parametrize("calls, patches, written", [
    ([("add", CPU, (A, B))], {}, []),
    ([("binary", None, (ADD, A, B, A))], {}, []),
    ([("binary", CPU, (A, B))], {}, []),
    ([("binary", CPU, (None, A, B, A))], {}, []),
    ([("unary", CPU, ("exp", A, A))], {}, []),
    ([("reduce", CPU, (REDUCE["sum"], A, B, [0]))], {}, []),
    ([("step", CPU, (STEP["sgd"], A, [B], None, None, (0.1,)))], {}, []),
    ([("step", CPU, (STEP["sgd"], [A], [B], None, None, [0.1]))], {}, []),
    ([("step", CPU, (STEP["sgd"], [A], [B], 3, None, (0.1,)))], {}, []),
    ([("repeat", lambda: 1.0, ()), ("binary", CPU, (ADD, A, B, A))], {1: [((0,), 0, -1)]}, []),
    ([("repeat", lambda: 1.0, ()), ("binary", CPU, (ADD, A, B, A))], {1: [((9,), 0, -1)]}, []),
    ([("repeat", lambda: 1.0, ()), ("binary", CPU, (ADD, A, B, A))], {1: [((1,), 0, -1)]}, []),
    ([("repeat", lambda: 1.0, ()), ("reduce", CPU, (REDUCE["sum"], A, B, (0,)))], {1: [((3, 0), 0, -1)]}, []),
    ([("repeat", lambda: 1.0, ()), ("fill", CPU, (A, 1.0))], {1: [((1,), -1, -1)]}, []),
    ([("repeat", lambda: 1.0, ()), ("fill", CPU, (A, 1.0))], {1: [((1, 2, 3), 0, -1)]}, []),
    ([("repeat", lambda: 1.0, ()), ("fill", CPU, (A, 1.0))], {1: [((), 0, -1)]}, []),
    ([("fill", CPU, (A, 1.0))], {}, [None]),
    ([("fill", CPU, (A, 1.0))], {}, ["A"]),
    ([()], {}, []),
    ([None], {}, []),
    (None, {}, []),
])  # fmt: skip
def test_hostile_plans_are_refused(calls, patches, written):
    with pytest.raises((TypeError, ValueError)):
        Replay(calls, patches, written)


@pytest.mark.parametrize("verb, args", [
    ("binary", (ADD, A, None, B)),
    ("binary", (UNARY["exp"], A, A, B)),
    ("unary", (UNARY["exp"], A, array(5))),
    ("unary", (UNARY["exp"], A.numpy(), A)),
    ("copy", (A, array(7))),
    ("copy", (3, A)),
    ("matmul", (A, A, A)),
    ("linear", (A, A, A, A)),
    ("reduce", (REDUCE["sum"], A, A, (0, 1, 2, 3))),
    ("reduce", (REDUCE["sum"], A, A, ("a",))),
    ("where", (A, A, A, 3)),
    ("rows", (ADD, A, A)),
    ("cross_entropy", (A, A, A)),
    ("take", (A, A, A)),
    ("fill", (A, "x")),
    ("fill", (None, 1.0)),
    ("step", (STEP["sgd"], [A], [], None, None, (0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0))),
    ("step", (STEP["sgd"], [A], [B], None, None, ("a",))),
    ("step", (STEP["sgd"], [None], [B], None, None, (0.1,))),
])  # fmt: skip
def test_hostile_calls_raise(verb, args):
    replay = Replay([(verb, CPU, args)], {}, [])
    with pytest.raises(Exception):  # noqa: B017
        replay.run()


def test_error_in_the_middle():
    """Calls before it are done, arrays that are written to are marked, and the number of the call is known."""
    a, out = array(3), nd.zeros((3,))
    version = out.version
    replay = Replay([("fill", CPU, (out, 2.0)), ("copy", CPU, (array(4), out)), ("fill", CPU, (a, 0.0))], {}, [out])
    with pytest.raises((ValueError, TypeError)):
        replay.run()
    assert out.tolist() == [2.0] * 3 and a.tolist() != [0.0] * 3 and replay.position == 1 and out.version > version


def test_repeated_function_that_changes_its_mind():
    """It returns something that is no number, or a shorter tuple: an error, no crash."""
    for wrong in (None, "x", (1.0,), (1.0, "x")):
        given = iter([(1.0, 2.0), wrong])
        _plan, built, _ = recorded(lambda a, given=given: a * repeat(given.__next__)[1], array(3))
        with pytest.raises((TypeError, ValueError, IndexError)):
            built.run()


def test_views():
    base = array(4, 6)
    views = [base[1:], base.T, base[::-1, ::2], base[:0]]
    other = array(4, 6, seed=3)
    mine = [like(view) for view in views]
    group = Views(base, mine)
    group.point(other)
    assert all(same(a, b) for a, b in zip(mine, [other[1:], other.T, other[::-1, ::2], other[:0]], strict=True))
    for wrong in (
        array(6, 4),
        array(4, 6, dtype="float64"),
        array(6, 4).T,
        array(4, 6).numpy(),
        None,
        nd.array(np.zeros((4, 6)), device=nd.cpu_numpy()),
    ):
        with pytest.raises((TypeError, ValueError)):
            group.point(wrong)
    inside = array(10, 6)
    group.point(inside[2:6])  # other memory before it
    assert same(mine[0], inside[3:6])


@pytest.mark.parametrize(
    "view", [lambda b: b, lambda b: b[3:], lambda b: b[::-1][:2], lambda b: b.T], ids="all after before columns".split()
)
def test_views_outside_of_the_base_are_refused(view):
    """An array that reaches further than the base would be pointed at somebody else's memory."""
    whole = array(4, 6)
    with pytest.raises(ValueError, match="outside"):
        Views(whole[1:3], [like(view(whole))])
    with pytest.raises(ValueError, match="another buffer"):
        Views(whole, [array(4, 6)])
    views = []
    group = Views(whole, views)
    views.append(array(1))  # the list is its own
    group.point(array(4, 6))


def test_renew():
    """New memory, unless nobody looks at the old one."""
    base = nd.NDArray.make((64,), dtype="uint8")
    view = nd.NDArray.make((16,), None, None, base._handle, 0, "float32")
    group = Views(base, [view])
    del base
    first = view._handle.ptr()
    group.renew()
    assert view._handle.ptr() == first
    held = like(view)
    group.renew()
    assert view._handle.ptr() != first
    del held
    exported = memoryview(like(view))
    now = view._handle.ptr()
    group.renew()
    assert view._handle.ptr() != now and len(exported) == 16
    run = Runner(Replay([], {}, []), [group], [view], 1)
    assert run(bytearray(1))[0]._handle is view._handle
    with pytest.raises(ValueError):
        run(bytearray(2))
    for wrong in (([None], [], 0), ([], [None], 0), ([group], [view], 2)):
        with pytest.raises((TypeError, ValueError)):
            Runner(Replay([], {}, []), *wrong)


def test_layout():
    a = array(4, 6)
    layout = Layout(a)
    assert layout.fits(array(4, 6, seed=2)) and layout.fits(array(8, 6)[2:6])
    for other in (
        a.T,
        a[:3],
        a.astype("float64"),
        array(4, 6, 1),
        array(4, 12)[:, ::2],
        array(4, 6).to(nd.cpu_numpy()),
    ):
        assert not layout.fits(other)
    for wrong in (None, 3, a.numpy()):
        with pytest.raises(TypeError):
            layout.fits(wrong)
    with pytest.raises(TypeError):
        Layout(None)
    with pytest.raises(TypeError):
        like(None)


def test_calls_are_shown():
    plan, _, _ = recorded(lambda a: (a @ a.T).sum(), array(2, 3))
    assert str(plan) == "   0 %0:2x2 = matmul(a=@1:2x3, b=@1:3x2)\n   1 %1 = reduce sum(a=%0:2x2, axes=(0, 1))"
    assert repr(plan) == "<Plan of 2 calls, 64 bytes>"
    assert Call("fill", CPU, (View(0, nd.float32, (2,), (1,), 0), Slot(0, -1)), ("f", 1)).function is None
