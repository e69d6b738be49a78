"""needle.profile: calls, times, costs, lines and ops of known programs; traces; nothing left behind, nothing changed."""

import itertools
import json
import os
import threading

import numpy as np
import pytest

import needle as ndl
from needle.profiling.tables import BETWEEN, Row, amount, cells, duration, text_of
from needle_ndarray import devices
from needle_ndarray.extension import is_listened_to
from needle_ndarray.numpy_backend import NumPyBackend

DEVICES = ["cpu", "cpu_numpy"]


@pytest.fixture(params=DEVICES)
def device(request):
    return devices.device(request.param)


def tensor(*shape, device=None, seed=0, requires_grad=True):
    values = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return ndl.Tensor(values, device=device, dtype="float32", requires_grad=requires_grad)


def counts(profile, by="op"):
    return {row.name: (row.calls, row.flops) for row in profile.rows(by)[:-1]}


# ---- Known programs ------------------------------------------------------------------------------------------------------


def product(device):
    a, b = tensor(20, 30, device=device), tensor(30, 40, device=device)
    return lambda: (a @ b).sum().backward()


def image(device):
    x, w = tensor(2, 8, 8, 3, device=device, requires_grad=False), tensor(3, 3, 3, 5, device=device)
    return lambda: ndl.relu(ndl.conv(x, w, padding=1)).sum()


def elementwise(device):
    a = tensor(10, device=device)
    return lambda: ndl.exp(a) * a + a


N, MATMUL, CONV = 20 * 40, 2 * 20 * 30 * 40, 2 * (2 * 8 * 8 * 5) * 27
BY_OP = {
    "product": (product, {
        "MatMul": (1, MATMUL), "Summation": (1, N), "MatMul backward": (2, 2 * MATMUL),
    }),
    "image": (image, {"Conv": (1, CONV), "ReLU": (1, 640), "Summation": (1, 640)}),
    "elementwise": (elementwise, {"Exp": (1, 10), "EWiseMul": (1, 10), "EWiseAdd": (1, 10)}),
}  # fmt: skip
BY_VERB = {
    "product": {"matmul": (3, 3 * MATMUL), "reduce sum": (1, N)},
    "image": {"conv2d": (1, CONV), "unary relu": (1, 640), "reduce sum": (1, 640)},
    "elementwise": {"unary exp": (1, 10), "binary multiply": (1, 10), "binary add": (1, 10)},
}
#: What backward begins with and broadcasts: no floating-point operations.
MOVES = {"fill", "copy"}


@pytest.mark.parametrize("name", BY_OP)
def test_calls_and_flops(name, device):
    make, by_op = BY_OP[name]
    program = make(device)
    with ndl.profile() as p:
        program()
    found = {row.name: (row.calls, row.flops) for row in p.rows("verb")[:-1] if row.name not in MOVES}
    assert found == BY_VERB[name]
    sums = {}
    for event in p.events:
        if event.kind.verb not in MOVES:
            calls, flops = sums.get(event.op, (0, 0))
            sums[event.op] = (calls + 1, flops + event.kind.flops)
    assert sums == by_op
    assert {event.kind.device for event in p.events} == {str(device)}


def test_lines(device):
    a = tensor(5, device=device)
    with ndl.profile() as p:
        b = ndl.exp(a)
        c = b * a
        for _ in range(3):
            ndl.log(c.detach())
    names = {row.name.split("  ")[-1]: row.calls for row in p.rows("line")}
    assert names == {"b = ndl.exp(a)": 1, "c = b * a": 1, "ndl.log(c.detach())": 3, BETWEEN: 0}
    assert all(row.name.startswith("test_profiling.py:") for row in p.rows("line")[:-1])


def test_outside_of_ops_the_function_is_named():
    with ndl.profile() as p:
        made = ndl.init.randn(4, 5)
        made.numpy()
    assert [event.op for event in p.events][-1] == "to_host"
    assert {event.op for event in p.events} == {"randn", "to_host"}


@ndl.operator
def doubled(x):
    return x + x


@doubled.defgradient
def _(out_grad, node):
    return out_grad * 2


class Twice(ndl.TensorOp):
    """y = 2 x;  dx = 2 dy"""

    def compute(self, x):
        return x * 2

    def gradient(self, out_grad, node):
        return out_grad * 2


@pytest.mark.parametrize("op", [doubled, Twice()], ids=["doubled", "Twice"])
def test_ops_of_users_have_their_names(op):
    x = tensor(3)
    with ndl.profile() as p:
        op(x).sum().backward()
    name = "doubled" if op is doubled else "Twice"
    assert {name, f"{name} backward"} <= set(counts(p))


def test_lazy_values_belong_to_their_op():
    x = tensor(3)
    with ndl.profile() as p:
        with ndl.lazy_mode():
            y = ndl.exp(ndl.sin(x))
        y.numpy()
    assert counts(p) == {"Sin": (1, 3), "Exp": (1, 3), "to_host": (1, 0)}


def test_second_derivatives_are_backward():
    x = tensor(3)
    with ndl.profile() as p:
        (g,) = ndl.autograd.gradients([ndl.exp(ndl.sin(x))], [x])
        g.sum().backward()
    assert {"Exp", "Sin", "Exp backward", "Sin backward", "EWiseMul backward"} <= set(counts(p))


# ---- Times -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["op", "verb", "line"])
def test_times_and_shares_add_up(by, device):
    program = product(device)
    with ndl.profile() as p:
        for _ in range(5):
            program()
    rows = p.rows(by)
    assert rows[-1].name == BETWEEN and rows[-1].seconds >= 0
    assert sum(row.seconds for row in rows) == pytest.approx(p.seconds)
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert [row.seconds for row in rows[:-1]] == sorted([row.seconds for row in rows[:-1]], reverse=True)
    assert sum(row.calls for row in rows) == len(p.events)
    spans = [(event.start, event.end) for event in p.events]
    assert all(start <= end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert p.overhead > 0


def test_asynchronous_backends_are_waited_for(monkeypatch):
    class Queue(NumPyBackend):
        name = "queue"
        waits = 0

        def synchronize(self):
            type(self).waits += 1

    monkeypatch.setattr(devices, "_registered", dict(devices._registered))
    slow = devices.register("queue", Queue)
    try:
        x = tensor(3, device=slow)
        Queue.waits = 0
        with ndl.profile() as p:
            ndl.exp(x)
        assert Queue.waits == 2 * len(p.events) == 2
    finally:
        devices._devices.pop("queue")


def test_a_profile_goes_on_where_it_was():
    x, p = tensor(3), ndl.profile()
    for n in (1, 2, 3):
        with p:
            ndl.exp(x)
        assert counts(p) == {"Exp": (n, 3 * n)}
        assert sum(row.share for row in p.rows()) == pytest.approx(1)


def test_decorator():
    x = tensor(3)

    @ndl.profile
    def factorial_of_calls(n):
        """Says what it does."""
        ndl.exp(x)
        return 1 if n < 2 else n * factorial_of_calls(n - 1)

    assert factorial_of_calls(3) == 6 and factorial_of_calls(1) == 1
    assert factorial_of_calls.__doc__ == "Says what it does."
    assert counts(factorial_of_calls.profile) == {"Exp": (4, 12)}


# ---- Nothing changes, nothing is left ---------------------------------------------------------------------------------------


@pytest.fixture
def own_generator():
    yield
    ndl.random.seed(None)  # back to NumPy's, for the tests that come after


def results(device):
    ndl.random.seed(3)
    w, x = tensor(6, 4, device=device), tensor(5, 6, device=device, seed=1, requires_grad=False)
    for _ in range(3):
        h = ndl.tanh(x @ w) * ndl.init.rand(5, 4, device=device, requires_grad=False)
        loss = (ndl.softmax(h, 1) * h / 3).sum()
        loss.backward()
        w.data = w.data - 0.1 * w.grad.data
    return [loss.numpy().tobytes(), w.numpy().tobytes(), w.grad.numpy().tobytes()]


def test_the_same_bits(device, own_generator):
    expected = results(device)
    with ndl.profile():
        assert results(device) == expected
    assert results(device) == expected


def test_arrays_are_not_held():
    with ndl.profile() as p:
        x = ndl.ones(1000)
        held = ndl.backend_ndarray.memory_stats()["live_bytes"]
        for _ in range(10):
            x = x + 1
        assert ndl.backend_ndarray.memory_stats()["live_bytes"] == held
    assert len(p.events) >= 10


def backends():
    return [device._backend for device in devices._devices.values() if device._backend is not None]


def test_an_exception_keeps_the_profile_and_leaves_no_listener():
    x = tensor(3)
    with pytest.raises(ZeroDivisionError), ndl.profile() as p:
        ndl.exp(x)
        1 / 0  # noqa: B018
    assert counts(p) == {"Exp": (1, 3)}
    assert not is_listened_to()
    assert all(backend.listener is None for backend in backends())
    assert all("unary" not in getattr(backend, "__dict__", {}) for backend in backends())
    ndl.exp(x)
    assert len(p.events) == 1
    with ndl.profile() as p:  # and another one works
        ndl.exp(x)
    assert len(p.events) == 1


def test_a_verb_that_fails_is_heard_once():
    a, b = tensor(3).realize_cached_data(), tensor(4).realize_cached_data()
    with ndl.profile() as p:
        with pytest.raises(ValueError):
            a.device.backend.copy(a, b)
        ndl.exp(tensor(3))
    assert [event.kind.verb for event in p.events].count("copy") == 1
    assert p.events[-1].op == "Exp"


def test_profiles_do_not_nest():
    with ndl.profile() as outer:
        with pytest.raises(RuntimeError, match="under way in this thread: there is one at a time"), ndl.profile():
            pass
        ndl.exp(tensor(3))
    assert "Exp" in counts(outer)


def test_a_profile_in_a_captured_function_is_refused():
    @ndl.capture
    def function(x):
        with ndl.profile():
            return x + 1

    with pytest.raises(RuntimeError, match="a captured function is being recorded: profile it from outside"):
        function(tensor(3, requires_grad=False))
    assert not is_listened_to()


# ---- Captured functions ---------------------------------------------------------------------------------------------------


def captured_step(device):
    w, x = tensor(6, 4, device=device), tensor(5, 6, device=device, seed=1, requires_grad=False)

    @ndl.capture
    def step(x):
        loss = ndl.tanh(x @ w).sum()
        loss.backward()
        return loss

    return step, w, x


def test_replays(device):
    step, w, x = captured_step(device)
    with ndl.profile() as eager:
        step.function(x)
    for _ in range(3):
        loss = step(x)
    (plan,) = step.plans
    expected = loss.numpy().tobytes(), w.grad.numpy().tobytes()
    with ndl.profile() as p:
        for _ in range(4):
            loss = step(x)
    assert (loss.numpy().tobytes(), w.grad.numpy().tobytes()) == expected
    assert plan.replays == 5 and [replay.calls for replay in p.replays] == 4 * [len(plan.plan.calls)]
    assert p.replays[0].name.endswith("step")
    assert len(p.events) == 4 * len(plan.plan.calls)
    for event, call in zip(p.events, plan.plan.calls, strict=False):
        assert (event.op, event.line, event.kind.verb.split()[0]) == (call.op, call.line, call.verb)
    assert all(any(r.start <= e.start and e.end <= r.end for r in p.replays) for e in p.events)
    by_op = {event.op for event in p.events}
    assert {"MatMul", "Tanh", "Summation", "MatMul backward", "Tanh backward"} <= by_op <= {e.op for e in eager.events}
    lines = {row.name.split("  ")[-1] for row in p.rows("line")}
    assert {"loss = ndl.tanh(x @ w).sum()", "loss.backward()"} <= lines


def test_functions_that_are_not_captured_yet_stay_eager():
    step, _, x = captured_step(None)
    with ndl.profile() as p:
        for _ in range(5):
            step(x)
    assert step.plans == [] and step.refusals == [] and p.replays == []
    assert counts(p)["MatMul"][0] == 5
    for _ in range(3):
        step(x)
    assert len(step.plans) == 1


def test_a_check_that_is_due_waits_for_the_end_of_the_profile():
    step, _, x = captured_step(None)
    for _ in range(2):
        step(x)
    (plan,) = step.plans
    tensors = plan.tensor_plan
    tensors.replays = due = tensors.next_check
    with ndl.profile() as p:
        step(x)
    assert len(p.replays) == 1 and tensors.replays == due + 1 and tensors.next_check == due
    step(x)
    assert tensors.next_check > due and step.plans == [plan]


# ---- Threads ---------------------------------------------------------------------------------------------------------------


def test_other_threads_have_tracks_of_their_own():
    x = tensor(3)

    def work():
        for _ in range(3):
            ndl.sin(x)

    with ndl.profile() as p:
        other = threading.Thread(target=work, name="worker")
        other.start()
        other.join()
        ndl.exp(x)
    assert counts(p) == {"Exp": (1, 3)}
    assert p.threads == [threading.current_thread().name, "worker"]
    assert {row.name: row.calls for row in p.rows("op", "worker")} == {"Sin": 3, BETWEEN: 0}
    assert sum(row.share for row in p.rows("op", "worker")) == pytest.approx(1)
    assert "besides, in thread worker: 3 calls" in str(p)
    with pytest.raises(ValueError, match="thread='nobody': expected one of"):
        p.rows(thread="nobody")


def test_one_profile_for_all_threads():
    found = []

    def work():
        try:
            with ndl.profile():
                pass
        except RuntimeError as error:
            found.append(str(error))

    with ndl.profile():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert found == ["profile: a profile is under way in another thread: there is one at a time"]


# ---- Memory ----------------------------------------------------------------------------------------------------------------


def test_memory_and_its_peak():
    before = ndl.backend_ndarray.memory_stats()["live_bytes"]
    with ndl.profile() as p:
        small = ndl.ones(1000)
        large = ndl.ones(1_000_000)
        del large
        ndl.exp(small)
    peak, (file, line) = p.peak
    assert 4_000_000 <= peak - before < 6_000_000
    assert file == __file__
    with open(__file__, encoding="utf-8") as lines:
        assert lines.readlines()[line - 1].strip() == "large = ndl.ones(1_000_000)"
    times = [at for at, _ in p.memory]
    assert times == sorted(times) and times[0] >= 0
    assert max(live for _, live in p.memory) == peak > p.memory[-1][1]


# ---- Traces ----------------------------------------------------------------------------------------------------------------


def test_trace(tmp_path, device):
    step, _, x = captured_step(device)
    for _ in range(3):
        step(x)
    with ndl.profile() as p:
        step(x)
        thread = threading.Thread(target=lambda: ndl.sin(x), name="worker")
        thread.start()
        thread.join()
        ndl.exp(x)
    path = tmp_path / "trace.json"
    p.save(path)
    assert os.listdir(tmp_path) == ["trace.json"]
    trace = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X", "C"}
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert sorted(names.values()) == sorted([threading.current_thread().name, "worker"])
    complete = [event for event in events if event["ph"] == "X"]
    for event in complete:
        assert event["pid"] == os.getpid() and event["tid"] in names
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert isinstance(event["name"], str) and event["cat"] in ("forward", "backward", "replay")
    assert len(complete) == len(p.events) + 1 + 1  # of the other thread, and the replay
    (replay,) = [event for event in complete if event["cat"] == "replay"]
    after = [event for event in complete if event["ts"] >= replay["ts"] and event is not replay]
    inside = after[: replay["args"]["calls"]]
    assert all(event["ts"] + event["dur"] <= replay["ts"] + replay["dur"] + 1e-3 for event in inside)
    (sine,) = [event for event in complete if event["name"] == "Sin"]
    assert names[sine["tid"]] == "worker" and sine["args"]["verb"] == "unary sin" and sine["args"]["flops"] == 30
    assert sine["args"]["line"].startswith(__file__) and sine["args"]["arrays"] == "float32(5, 6), float32(5, 6)"
    counters = [event for event in events if event["ph"] == "C"]
    assert all(event["args"]["bytes"] >= 0 and event["ts"] >= 0 for event in counters)


def test_a_trace_that_cannot_be_written_leaves_nothing(tmp_path):
    with ndl.profile() as p:
        ndl.ones(3)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "missing" / "trace.json"):
        with pytest.raises(OSError) as caught:
            p.save(path)
        assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == ["folder"] and os.listdir(tmp_path / "folder") == []


def test_an_empty_profile(tmp_path):
    p = ndl.profile()
    assert repr(p) == "<profile of 0 calls, 0 us>" and p.threads == [""] and p.events == []
    assert [row.name for row in p.rows()] == [BETWEEN]
    assert "between operations" in str(p)
    p.save(tmp_path / "trace.json")
    json.loads((tmp_path / "trace.json").read_text())


# ---- Tables as text --------------------------------------------------------------------------------------------------------

ROWS = [
    Row("MatMul", 1000, 0.5, 0.5, 2_000_000_000, 10**10), Row("a" * 70, 1, 0.25, 0.25, 0, 0),
    Row("Exp", 2, 0.125, 0.125, 1536, 300), Row(BETWEEN, 0, 0.125, 0.125, 0, 0),
]  # fmt: skip


def test_table():
    lines = text_of(ROWS, "op", 2).splitlines()
    assert lines[0].split() == ["op", "calls", "time", "share", "per", "call", "bytes", "GFLOP/s", "GB/s"]
    assert [line.split()[0] for line in lines[1:]] == ["MatMul", "a" * 59 + "…", "1", "between", "total"]
    assert lines[1].split()[1:] == ["1,000", "500", "ms", "50.0", "%", "500", "us", "2", "GB", "20.00", "4.00"]
    assert lines[-1].split() == ["total", "1,003", "1", "s", "100.0", "%"]
    ends = [lines[i].index("%") for i in range(1, len(lines))]
    assert len(set(ends)) == 1 and lines[0].index("share") + 4 == ends[0]
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 us"), (3.21e-7, "0.321 us"), (9.999e-4, "1 ms"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (1234.5, "1234 s")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.54 kB"), (12_345_678, "12.3 MB")])
def test_amounts(nbytes, text):
    assert amount(nbytes) == text


def test_what_is_printed(device):
    program = product(device)
    with ndl.profile() as p:
        program()
    text = str(p)
    for part in ("MatMul backward", BETWEEN, "total", "memory: at most", "profiling took", "test_profiling.py:"):
        assert part in text
    assert p.table("verb", limit=1).splitlines()[2].startswith(f"{len(p.rows('verb')) - 2} more")
    with pytest.raises(ValueError, match="by='colour': expected one of op, verb, line"):
        p.table("colour")


def test_cells_of_what_moves_no_bytes():
    assert cells(Row("Exp", 1, 0.0, 0.0, 0, 0))[5:] == ("0 B", "", "")
