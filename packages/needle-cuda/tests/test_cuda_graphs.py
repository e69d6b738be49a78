"""Captured functions on cuda() as CUDA graphs: the bits of eager code and of a plan without graphs, in fewer launches."""

import gc
import inspect
import types

import numpy as np
import pytest

import needle_cuda
import needle_ndarray as nd
from needle_cuda import cublas, graphs
from needle_cuda.testing import count_launches, settings
from needle_cuda.testing.emulator import LaunchError
from needle_ndarray.capture import graphs as graphs_pass
from needle_ndarray.capture import passes
from needle_ndarray.capture.calls import Slot, View
from needle_ndarray.extension import repeat

ndl = pytest.importorskip("needle")
nn = pytest.importorskip("needle.nn")
models = pytest.importorskip("needle_nn.models")

pytestmark = pytest.mark.filterwarnings("error")  # a plan that falls back says so


def tensor(values, dtype="float32"):
    return ndl.Tensor(np.asarray(values), device=ndl.cuda(), dtype=dtype, requires_grad=False)


def array(values, dtype="float32"):
    return nd.array(np.asarray(values), dtype=dtype, device=nd.cuda())


# ---- Models ---------------------------------------------------------------------------------------------------------


class Words(nn.Module):
    """A language model without its state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)[0]


IMAGES = ((2, 1, 8, 8), 10)
#: name: (the model, shape of a batch and number of classes, the optimizer)
MODELS = {
    "MLP, SGD": (
        lambda d: nn.Sequential(nn.Linear(4, 8, device=d), nn.Tanh(), nn.Linear(8, 3, device=d)),
        ((5, 4), 3),
        "SGD",
    ),
    "MLPResNet, Adam": (lambda d: models.MLPResNet(4, 6, 2, 3, device=d), ((5, 4), 3), "Adam"),
    "LeNet, Adam": (lambda d: models.LeNet(8, device=d), IMAGES, "Adam"),
    "ResNet9, SGD": (lambda d: models.ResNet9(device=d), ((1, 3, 32, 32), 10), "SGD"),
    "LSTM, Adam": (lambda d: Words(models.LanguageModel(6, 7, 5, 1, "lstm", device=d)), ((2, 4), 7), "Adam"),
    "GPT, AdamW": (
        lambda d: models.GPT(7, context=4, embedding_size=8, num_layers=1, num_head=2, dropout=0.1, device=d),
        ((2, 4), 7),
        "AdamW",
    ),
}
#: launches of an eager step, of a replay without and with graphs, and how many of these are graphs: docs/capture.md has them
LAUNCHES = {
    "MLP, SGD": (17, 16, 7, 3),
    "MLPResNet, Adam": (109, 108, 11, 5),
    "LeNet, Adam": (47, 46, 7, 3),
    "ResNet9, SGD": (178, 175, 12, 3),
    "LSTM, Adam": (37, 37, 8, 3),
    "GPT, AdamW": (118, 104, 16, 8),
}


def batches(shape, classes, count=7):
    for i in range(count):
        rng = np.random.default_rng(i)
        if shape == (2, 4):  # words, and the next ones
            yield tensor(rng.integers(0, classes, shape), "int64"), tensor(rng.integers(0, classes, shape), "int64")
        else:
            yield tensor(rng.normal(size=shape)), tensor(rng.integers(0, classes, shape[0]), "int64")


def training(name, wrap):
    """Losses and parameters as bytes, launches of the last step, and the wrapped function."""
    make, (shape, classes), optimizer = MODELS[name]
    np.random.seed(0)  # noqa: NPY002
    ndl.random.seed(0)
    model = make(ndl.cuda())
    rule, loss_of = getattr(ndl.optim, optimizer)(model.parameters(), lr=0.1), nn.SoftmaxLoss()

    def step(x, y):
        rule.reset_grad()
        logits = model(x)
        loss = loss_of(logits.reshape((-1, classes)), y.reshape((-1,)))
        loss.backward()
        rule.step()
        return loss

    step, found = wrap(step), []
    for i, (x, y) in enumerate(batches(shape, classes)):
        rule.lr = 0.1 / (1 + i)
        with count_launches() as launches:
            loss = step(x, y)
        found.append(loss.numpy().tobytes())
    return found + [p.numpy().tobytes() for p in model.parameters()], launches, step


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    eager, launched, _ = training(name, lambda f: f)
    plain, single, _ = training(name, ndl.capture(strict=True, without=["graphs"]))
    captured, replayed, step = training(name, ndl.capture(strict=True))
    assert plain == eager
    assert captured == eager
    assert step.plans[0].replays >= 4
    assert (launched.total(), single.total(), replayed.total(), replayed["graph"]) == LAUNCHES[name]


# ---- What changes from replay to replay ----------------------------------------------------------------------------


def scaled(x, y):
    return (x * y + x).exp().sum()


def in_place(x, y):
    x += y
    x *= y
    return (x - y) * 2 + y


def parts(x, y):
    return (x[1:] * y[:-1]).sum(), x.sum(axis=0), (y - x).max()


def largest(x, y):
    return (x + 1).max() + y.max() * 2 - y


WEIGHT = array([[2.0, 1.0], [0.5, 3.0]])
#: name: (function of two arrays, their dtype)
FUNCTIONS = {
    "results": (scaled, "float32"),
    "an argument that is written": (in_place, "float32"),
    "views": (parts, "float64"),
    "bounds of integers": (largest, "int64"),
    "a weight": (lambda x, y: ((x @ WEIGHT + y) @ WEIGHT * y, x), "float32"),
}


def results(function, dtype, given):
    """All results and arguments of many calls, all held, as bytes; the arguments move from call to call."""
    held = []
    for i in range(8):
        values = [np.random.default_rng(i + k).integers(0, 9, (3, 2)) for k in (0, 100)]
        x, y = [given(each, dtype) for each in values]
        made = function(x, y)
        held += [x, y, *(made if isinstance(made, tuple) else (made,))]
    return [each.numpy().tobytes() for each in held]


def sliced(values, dtype):
    """An array that begins within its memory."""
    return array(np.concatenate([values, values]), dtype)[3:]


def turned(values, dtype):
    return array(values.T, dtype).T


@pytest.mark.parametrize("given", [array, sliced, turned])
@pytest.mark.parametrize("streams", ["immediate", "deferred"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_move_and_results_stay(name, streams, given, monkeypatch):
    own = graphs_pass.saved
    monkeypatch.setattr(graphs_pass, "saved", lambda found: 100 * own(found))  # copies cost nothing here
    function, dtype = FUNCTIONS[name]
    captured = ndl.capture(function, strict=True)
    with settings.changed(streams=streams), count_launches() as found:
        assert results(captured, dtype, given) == results(function, dtype, given)
    assert found["graph"] == 5 or given is turned  # of eight calls, two are recorded and one learns
    assert captured.plans[0].replays >= 5


def test_a_parameter_that_moves_is_captured_again():
    w = tensor(np.ones((2, 2)))
    step = ndl.capture(lambda x: (x @ w).tanh() @ w + x, strict=True)
    x, launched = tensor([[1.0, 2.0]]), []
    for value in (1, 1, 1, 1, 1, 2, 2, 2):
        if w.numpy()[0, 0] != value:
            w.data = tensor(np.full((2, 2), float(value)))
        with ndl.no_grad(), count_launches() as found:
            out = step(x)
        launched.append(found["graph"])
        assert out.numpy().tobytes() == ((x @ w).tanh() @ w + x).numpy().tobytes()
    assert launched == [0, 0, 0, 1, 1, 0, 1, 1]  # two recorded, one to learn; then again one


def counted():
    """A function that is given another number by Python in each call."""
    following = map(float, range(1, 100)).__next__

    def function(x, y):
        begin = ((x + y) * 2 + y) * x
        return ((begin + repeat(following)) * 3 - x) * y + x

    return function


def test_numbers_of_every_replay_are_new():
    """A number that goes into a call is no part of a graph, and neither is one that only a buffer remembers."""
    captured = ndl.capture(counted(), strict=True)
    assert results(captured, "float32", array) == results(counted(), "float32", array)
    first, second = captured.plans[0].plan.graphs
    assert first[1] < second[0]


def test_gradients_that_are_kept():
    """Who keeps the gradients of a step has them: the next ones are elsewhere, and no graph writes to these."""

    def train(wrap):
        w = ndl.Tensor(np.ones((3, 2)), device=ndl.cuda())

        def step(x):
            w.grad = None
            loss = ((x @ w).tanh() * 2).sum()
            loss.backward()
            return loss

        step, kept = wrap(step), []
        for i in range(8):
            step(tensor(np.full((4, 3), i / 10)))
            kept += [w.grad] if i % 4 < 2 else []
        return [each.numpy().tobytes() for each in kept]

    assert train(ndl.capture(strict=True)) == train(lambda f: f)


def test_an_error_between_graphs_leaves_arrays_as_eager_code_does():
    def run(wrap):
        mean, table = array([0.0, 0.0]), array([[1.0, 2.0], [3.0, 4.0]])

        def function(x, i):
            mean[...] = mean * 0.5 + x
            return table[i] * x + mean

        function, x = wrap(function), array([1.0, 2.0])
        for _ in range(6):
            function(x, array([0, 1], "int64"))
        with count_launches() as found, pytest.raises(IndexError, match="index 2 is out of bounds"):
            function(x, array([0, 2], "int64"))
        return mean.numpy().tolist(), found["graph"]

    eager, captured = run(lambda f: f), run(ndl.capture(strict=True))
    assert captured[0] == eager[0]
    assert captured[1] >= 1  # the one before the check


def test_a_second_device():
    there = lambda values, dtype: nd.array(np.asarray(values), dtype=dtype, device=nd.cuda(1))  # noqa: E731
    captured = ndl.capture(counted(), strict=True)
    with count_launches() as found:
        replayed = results(captured, "float32", there)
    assert replayed == results(counted(), "float32", array)
    assert found["graph"] == 2 * 5  # of eight calls, two are recorded and one learns


# ---- Memory ---------------------------------------------------------------------------------------------------------


def test_memory_goes_with_the_plan():
    """Scratch lives as long as its graphs; no replay takes memory that it does not give back."""

    def function(x):
        return (x.T @ x + 1).sum(axis=0) * 2

    x = array(np.ones((1200, 8)))
    live = lambda: (gc.collect(), needle_cuda.memory_stats()["live_bytes"])[1]  # noqa: E731
    before, captured = live(), ndl.capture(function, strict=True)
    held = []
    for _ in range(12):
        captured(x)
        held.append(live())
    assert len(set(held[4:])) == 1 and held[-1] > before + 2 * 8 * 8 * 4  # parts of the product
    del captured
    assert live() == before


# ---- Refusals -------------------------------------------------------------------------------------------------------


def test_cublas_stays_between_graphs(monkeypatch):
    """cupy captures no call of cuBLAS: those products are queued between two graphs, by the same library as eagerly."""
    own = cublas.matmul

    def product(launcher, a, b, out):
        launcher.foreign = True
        assert not launcher.cupy.cuda.get_current_stream().is_capturing()
        return own(launcher, a, b, out)

    monkeypatch.setattr(cublas, "matmul", product)
    function = lambda x, y: (((x + y) * 2) @ WEIGHT - y) * x + y  # noqa: E731
    captured = ndl.capture(function, strict=True)
    assert results(captured, "float32", array) == results(function, "float32", array)
    with count_launches() as found:
        captured(array(np.ones((3, 2))), array(np.ones((3, 2))))
    assert found["graph"] == 2


@pytest.mark.filterwarnings("default")
def test_what_cuda_refuses_is_told_once_and_run_call_by_call(monkeypatch):
    backend = nd.cuda().backend
    own = type(backend).unary

    def waiting(self, op, a, out):
        own(self, op, a, out)
        self.cupy.cuda.get_current_stream().synchronize()

    monkeypatch.setattr(type(backend), "unary", waiting)
    captured = ndl.capture(scaled, strict=True)
    with pytest.warns(RuntimeWarning, match="run without a CUDA graph: .*StreamCaptureUnsupported") as told:
        assert results(captured, "float32", array) == results(scaled, "float32", array)
    assert len(told) == 1


# ---- Mutants: each of these has to be noticed -------------------------------------------------------------------


def never_alone(monkeypatch):
    """Numbers that change are forgotten to be a boundary."""
    own = graphs_pass.fits
    monkeypatch.setattr(graphs_pass, "fits", lambda plan, call: own(plan, renumbered(call)))


def renumbered(call):
    """A call with numbers for those that change."""
    return call._replace(args=tuple([0.0 if isinstance(arg, Slot) else arg for arg in call.args]))


def nothing_moves(monkeypatch):
    """Arguments and results are taken to stay where they are."""
    monkeypatch.setattr(graphs.Segment, "__init__", without_addresses(graphs.Segment.__init__))
    monkeypatch.setattr(graphs_pass, "fits", lambda plan, call: call.backend is not None and call.verb != "from_host")


def without_addresses(own):
    def init(self, backend, calls, shared, moving, written):
        own(self, backend, calls, shared, [], written)

    return init


def given_back(monkeypatch):
    """Scratch goes back to the pool once the graph is made."""
    own = graphs.Segment._capture

    def capture(self):
        made = own(self)
        self.held = self.scratch.block = None
        return made

    monkeypatch.setattr(graphs.Segment, "_capture", capture)


def overlapping(monkeypatch):
    """All scratch of a call begins at the same place."""
    own = graphs.Scratch.take
    monkeypatch.setattr(graphs.Scratch, "take", lambda self, n: (self.begin(), own(self, n))[1])


def big_product(x, y):
    wide = x.broadcast_to((1500, 3, 2)).compact().reshape((1500, 6))
    return ((wide.T @ wide) * 2).sum() + y, (wide * 2).sum()


#: mutant: the model, or what makes the function, whose results are wrong then, or whose kernels write where no memory is
MUTANTS = {
    never_alone: counted,
    nothing_moves: lambda: scaled,
    given_back: lambda: big_product,
    overlapping: "MLPResNet, Adam",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.filterwarnings("default")
def test_mutants_are_noticed(mutant, monkeypatch):
    what = MUTANTS[mutant]

    def agree():
        try:
            if isinstance(what, str):
                return training(what, lambda f: f)[0] == training(what, ndl.capture(strict=True))[0]
            captured = ndl.capture(what(), strict=True)
            return results(captured, "float32", array) == results(what(), "float32", array)
        except LaunchError:
            return False

    assert agree()
    mutant(monkeypatch)
    assert not agree()


# ---- Mutants of the pass: the text of one of its functions is changed -------------------------------------------


def overlaid(x, y):
    """A transposed view of an argument, and one that begins within it."""
    return ((x.T * 2.0)[:, :2] + x[1:]).exp() * y[:2].T + 1.0


def both_in_turn():
    """Calls of two devices, one after the other."""
    other = nd.array([[2.0, 3.0]] * 3, device=nd.cuda(1))

    def function(x, y):
        other[...] = other * 0.5
        first = x * 2.0
        other[...] = other + 1.0
        return (first + y) * x

    return function


def written_last():
    """What stays is written at the end, and nothing is copied out after it."""
    kept = array([[0.0, 1.0]] * 3)

    def function(x, y):
        kept[...] = (kept * 0.5 + y) * 2.0
        return x, kept

    return function


def descent():
    """A step, whose gradients are an argument."""
    w = array([[1.0, 2.0]] * 3)

    def function(x, y):
        nd.sgd_step([w], [x], lr=0.1)
        return (w + y) * 2.0 - w

    return function


def with_numbers_of_the_host(x, y):
    return (x + nd.arange(2.0, device=x.device)) * y + x


#: name: (what makes the function, the dtype of its arguments, passes that are left out)
WATCHED = {
    "results": (lambda: scaled, "float32", ()),
    "an argument that is written": (lambda: in_place, "float32", ()),
    "views": (lambda: parts, "float64", ()),
    "overlaid": (lambda: overlaid, "float32", ()),
    "numbers": (counted, "float32", ()),
    "two devices": (both_in_turn, "float32", ()),
    "written last": (written_last, "float32", ()),
    "a step": (descent, "float32", ()),
    "numbers of the host": (lambda: with_numbers_of_the_host, "float32", ("hoist_constants",)),
}
GIVEN = (array, sliced, turned)

#: what is wrong: the function of the pass, and in its text what is replaced by what
TEXTS = {
    "what moves is in a graph": ("fits", "and not plan.touched(call).buffers & plan.fleeting", ""),
    "numbers that change are in a graph": ("fits", "and not plan.slots(call)", ""),
    "numbers of the host are in a graph": ("fits", 'call.verb != "from_host"', "True"),
    "one device runs calls of another": ("segments", "plan.calls[start].backend is not call.backend", "False"),
    "a boundary is in the graph": ("segments", "start = i + 1", "start = i"),
    "the last calls are no graph": ("segments", "found.append((start, len(plan.calls)))", "pass"),
    "a graph ends before a boundary only": ("segments", "if last - first >= LEAST", "if first == 0"),
    "a copy of an argument that is written": ("_argument", "and not written", ""),
    "an argument in pieces is copied as one": ("_argument", "_is_compact(at) and", ""),
    "no argument is copied": ("_argument", "return at if", "return None if"),
    "no result is copied": ("_result", "return View(", "return None and View("),
    "a part of a result": ("_result", "(count,), (1,)", "(count - 1,), (1,)"),
    "steps of another order": ("_is_compact", "reversed(at.shape), reversed(at.strides)", "at.shape, at.strides"),
    "copies begin where the argument did": ("_shifted_view", "- shifts.get(arg.buffer, 0)", ""),
    "views in lists stay": ("_shifted_view", "isinstance(arg, (list, tuple))", "False"),
    "a copy in is one out": ("graphs", "(at, inside) if buffer < 0", "(inside, at) if buffer < 0"),
    "copies in come last": ("graphs", "(first if buffer < 0 else last)", "last"),
    "copies out come first": ("graphs", "(first if buffer < 0 else last)", "first"),
    "copies have half the memory": ("graphs", "prod(at.shape) * at.dtype.itemsize", "prod(at.shape) * 2"),
    "copies share their memory": ("graphs", "block = max(plan.sizes, default=-1) + 1", "block = 1000"),
    "calls read what was there before": ("graphs", "renamed(call, now)", "renamed(call, {})"),
    "copies that do not pay": ("graphs", "saved(moved) - len(first) - len(last) < saved(found)", "False"),
    "copies that pay are left out": ("graphs", "saved(moved) - len(first) - len(last) < saved(found)", "True"),
    "what a copy that is left out took stays": ("graphs", "del plan.sizes[block], plan.origins[block]", "pass"),
}  # fmt: skip


def watched():
    """Results of the functions by captured steps, their graphs, and how many calls and bytes their plans have."""
    found = []
    for name, (make, dtype, without) in WATCHED.items():
        for given in GIVEN:
            captured = ndl.capture(make(), strict=True, without=without)
            with count_launches() as launches:
                made = results(captured, dtype, given)
            plan = captured.plans[0].plan
            found.append((name, made, launches["graph"], len(plan.calls), sum(plan.sizes.values())))
    return found


@pytest.fixture(scope="module")
def right():
    """What the pass gives, whose numbers are those of eager code."""
    found = iter(watched())
    for make, dtype, _ in WATCHED.values():
        for given in GIVEN:
            assert next(found)[1] == results(make(), dtype, given)
    return watched()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.filterwarnings("default")
def test_mutants_of_the_pass_are_noticed(name, right, monkeypatch):
    where, old, new = TEXTS[name]
    text = inspect.getsource(getattr(graphs_pass, where))
    assert text.count(old) >= 1, f"{where} has no {old!r}"
    mutant = types.ModuleType("mutant")
    whole = inspect.getsource(graphs_pass).replace(text, text.replace(old, new))
    exec(compile(whole, "mutant", "exec"), vars(mutant))
    monkeypatch.setitem(passes.PASSES, "graphs", mutant.graphs)
    try:
        same = watched() == right
    except Exception:
        same = False
    assert not same


@pytest.mark.parametrize(
    ("shape", "strides", "compact"),
    [((), (), True), ((3, 2), (2, 1), True), ((3, 1, 2), (2, 9, 1), True), ((1,), (0,), True), ((2, 2), (1, 2), False),
     ((3, 2), (4, 1), False), ((3,), (-1,), False), ((0, 2), (2, 1), False)],
)  # fmt: skip
def test_what_one_copy_can_take(shape, strides, compact):
    assert graphs_pass._is_compact(View(0, nd.float32, shape, strides, 0)) == compact
