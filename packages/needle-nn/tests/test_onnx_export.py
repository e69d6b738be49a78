"""What an export leaves alone, what it refuses and says then, names, files, converters of one's own, the command."""

import doctest
import importlib
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from command_helpers import arguments, data, generators_as_before, one_thread  # noqa: F401  fixtures
from onnx_helpers import Apply, export, nodes, same

import needle as ndl
import needle.random
from needle import nn, ops
from needle_nn.command.main import main
from needle_nn.command.recipes import RECIPES
from needle_nn.models import MLPResNet
from needle_nn.onnx import ExportError, register
from needle_nn.onnx.registry import CONVERTERS

X = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")


def image(path):
    return sorted((p.name, p.read_bytes()) for p in path.iterdir())


# ---- The model stays what it is -----------------------------------------------------------------------------


class Notes(nn.Module):
    """A model that changes in every call, in every way a module can."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.count, self.calls, self.last = ndl.zeros(1), 0, None

    def forward(self, x):
        self.count = self.count + 1
        self.calls += 1
        self.last = self.inner(x)
        np.random.rand()  # noqa: NPY002
        return self.last


def test_model_is_as_before(tmp_path):
    needle.random.seed(7)
    model = Notes()
    model.inner.modules[1].eval()  # a mode of its own
    loss = model(ndl.Tensor(X)).sum()
    loss.backward()
    numpy_state = np.random.get_state()  # noqa: NPY002

    def picture():
        tensors = {name: (id(t), t.numpy().tobytes(), id(t.grad), t.requires_grad) for name, t in model._tensors()}
        parts = {name: (part.training, sorted(part.__dict__)) for name, part in model.named_modules()}
        return tensors, parts, model.calls, id(model.last), str(needle.random.get_state())

    before = picture()
    _, run = export(model, X, tmp_path)
    assert picture() == before
    assert all(np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True))  # noqa: NPY002
    same(model.eval(), run, (X,))
    needle.random.seed(None)


def test_modes_of_the_thread_do_not_matter(tmp_path):
    model = MLPResNet(6, 8)
    wanted = export(model, X, tmp_path)[0].read_bytes()
    for mode in (ndl.no_grad(), ndl.lazy_mode(), ndl.anomaly_mode()):
        with mode:
            assert export(model, X, tmp_path)[0].read_bytes() == wanted
    frozen = MLPResNet(6, 8)
    frozen.load_state_dict(model.state_dict())
    for p in frozen.parameters():
        p.requires_grad = False
    assert export(frozen, X, tmp_path)[0].read_bytes() == wanted


def test_other_threads_are_not_traced(tmp_path):
    x, stop = ndl.Tensor(X), threading.Event()
    worker = threading.Thread(target=lambda: [ops.relu(x).numpy() for _ in iter(stop.is_set, True)])
    worker.start()
    try:
        path, _ = export(nn.ReLU(), X, tmp_path)
    finally:
        stop.set()
        worker.join()
    assert nodes(path) == ["Relu"]


# ---- What is refused ----------------------------------------------------------------------------------------


class Cube(ndl.TensorOp):
    def compute(self, x):
        return x * x * x

    def gradient(self, out_grad, node):
        return 3 * out_grad * node.inputs[0] ** 2


class Square(Cube):
    def compute(self, x):
        return x * x


def draw(x):
    return x * ndl.init.rand(*x.shape)


def written(x):
    y = ops.floor(x)
    y[0] = 1.0
    return x * y


def filled(x):
    made = ndl.zeros(4, 6)
    with ndl.no_grad():
        made[:2] = x[:2]
    return made * x


#: name: function, whether the batch is dynamic, words of the message
REFUSED = {
    "no converter": (lambda x: Cube()(x), False, ["Cube has no converter", "test_onnx_export.py", "onnx.register(Cube)"]),
    "a subclass is another op": (lambda x: Square()(x), False, ["Square has no converter"]),
    "dropout": (lambda x: ops.dropout(x, 0.5), False, ["Dropout draws random numbers", "evaluation"]),
    "item": (lambda x: x * x.sum().item(), False, ["looks at the values", "Summation", "x.sum().item()"]),
    "numpy": (lambda x: x * np.abs(x.numpy()), False, ["looks at the values"]),
    "branch": (lambda x: x if (x.sum() > 0).item() else -x, False, ["looks at the values"]),
    "bool": (lambda x: x if ops.all(x > -9) else -x, False, ["looks at the values of the result of all"]),
    "array": (lambda x: ndl.Tensor(x.realize_cached_data() * 2) + x, False, ["looks at the values"]),
    "another dtype by hand": (lambda x: x + ndl.Tensor(x, dtype="float64").detach(), False, ["looks at the values"]),
    "labels to ignore": (
        lambda x: ops.cross_entropy(x, ops.argmax(x, 1), ignore_index=0), False, ["looks at the values", "not_equal"]
    ),
    "written": (written, False, ["writes into", "y[0] = 1.0"]),
    "written from the input": (filled, False, ["looks at the values", "made[:2] = x[:2]"]),
    "random": (draw, False, ["another one in every run", "random"]),
    "random, dynamic": (draw, True, ["depends on the size of the batch", "constant"]),
    "mask": (lambda x: x[x > 0], False, ["mask that depends on the input"]),
    "every second example": (lambda x: x[::2], True, ["depends on the size of the batch", "not in proportion"]),
    "other ops": (lambda x: x + 1 if x.shape[0] > 2 else x * 2, True, ["depends on the size", "other ops"]),
    "a loop over examples": (lambda x: ndl.stack([x[i] * i for i in range(x.shape[0])]), True, ["depends on the size"]),
    "a number that follows": (lambda x: x * (1 / x.shape[0]), True, ["MulScalar", "scalar is 0.5 and 0.333"]),
    "one size": (lambda x: x.reshape((4, 6)), True, ["does not take a batch of 2", "dynamic_batch=False"]),
    "time as the batch": (
        lambda x: ops.scaled_dot_product_attention(x, x, x, causal=True), True, ["causal Attention over batch positions"]
    ),
    "no tensor": (lambda x: 3, False, ["returned int"]),
    "nothing": (lambda x: None, False, ["returned no Tensor"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    function, dynamic, words = REFUSED[name]
    (tmp_path / "model.onnx").write_bytes(b"old")
    with pytest.raises(ExportError) as caught:
        export(Apply(lambda m, x: function(x)), X, tmp_path, dynamic_batch=dynamic)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert image(tmp_path) == [("model.onnx", b"old")]


def wrong(**options):
    return {"model": nn.ReLU(), "example": X, **options}


WRONG = {
    "no model": (wrong(model=3), TypeError, "model is a int"),
    "no example": (wrong(example=()), ValueError, "holds no Tensor"),
    "an example of what": (wrong(example=(X, object())), TypeError, "is a object, expected"),
    "empty": (wrong(example=X[:0]), ValueError, "empty batch"),
    "axis": (wrong(batch_axis=2), ValueError, "batch_axis 2 of x, whose shape is (4, 6)"),
    "axes": (wrong(batch_axis=(0, 0)), ValueError, "2 entries of batch_axis for 1 arguments"),
    "two batches": (
        {"model": nn.MSELoss(), "example": (X, X[:2])}, ValueError, "differ: prediction 4, target 2; batch_axis"
    ),
    "input names": (wrong(input_names=["a", "b"]), ValueError, "expected 1 different ones"),
    "output names": (wrong(output_names=[]), ValueError, "expected 1 different ones"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, tmp_path):
    options, error, message = WRONG[name]
    with pytest.raises(error) as caught:
        ndl.onnx.export(path=tmp_path / "model.onnx", **options)
    assert message in str(caught.value)
    assert not image(tmp_path)


def test_more_than_a_file_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("needle_nn.onnx.writing.MOST_BYTES", 100)
    with pytest.raises(ExportError, match="an ONNX file holds 2 GiB"):
        export(nn.Linear(6, 6), X, tmp_path)


def test_checked_before_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(CONVERTERS, ops.ReLU, (lambda graph, call: graph.op("NoSuchNode", call.inputs[0]), ()))
    with pytest.raises(ExportError, match=r"onnx refuses the graph: .*NoSuchNode"):
        export(nn.ReLU(), X, tmp_path)
    assert not image(tmp_path)


# ---- Names, files, converters -------------------------------------------------------------------------------


def test_names(tmp_path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(ndl.ones(6))  # the name of an argument, too
            self.table = ndl.ones(6) * 2

        def forward(self, x, state, *more):
            return x * self.x + self.table, state[0], more[0]

    example = (X, (X, [X]), X, None, 3)
    path, run = export(model := Model(), example, tmp_path, output_names=["y", "s", "m"])
    graph = onnx.load(path).graph
    assert [x.name for x in graph.input] == ["x", "state_0", "state_1_0", "more_0"]
    assert [x.name for x in graph.output] == ["y", "s", "m"]
    assert sorted(x.name for x in graph.initializer) == ["table", "x_1"]
    assert [d.dim_param or d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == ["batch", 6]
    same(model, lambda *a: run(X, (X, [X]), X), example)
    path, _ = export(nn.ReLU(), X, tmp_path, dynamic_batch=False, input_names=["given"])
    graph = onnx.load(path).graph
    assert graph.input[0].name == "given"
    assert [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == [4, 6]


def test_old_file_stays_where_the_disk_is_full(tmp_path, monkeypatch):
    path, _ = export(nn.ReLU(), X, tmp_path)
    before = image(tmp_path)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        export(nn.Linear(6, 6), X, tmp_path)
    assert caught.value.filename == str(path)
    assert image(tmp_path) == before


@pytest.fixture
def table():
    before = dict(CONVERTERS)
    yield
    CONVERTERS.clear()
    CONVERTERS.update(before)


def test_register(tmp_path, table):
    @register(Cube)
    def cube(graph, call):
        (x,) = call.inputs
        return graph.op("Mul", graph.op("Mul", x, x), x)

    @register(scaled)
    def _(graph, call):
        return graph.op("Mul", call.inputs[0], graph.constant(call.op.constants["by"], call.dtype))

    _, run = export(model := Apply(lambda m, x: scaled(Cube()(x), by=0.5)), X, tmp_path)
    same(model, run, (X,))
    with pytest.raises(TypeError, match="expected a class of ops"):
        register(nn.ReLU)


@pytest.mark.parametrize("name", ["export", "graph", "registry", "sizes"])
def test_examples(name, table):
    module = importlib.import_module(f"needle_nn.onnx.{name}")
    assert doctest.testmod(module).failed == 0 and doctest.testmod(module).attempted


@ndl.operator
def scaled(x, by=1.0):
    return x * by


HIDDEN = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("onnx", "onnxruntime"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import needle, needle.nn, needle.onnx
needle.onnx.register
needle.onnx.export(needle.nn.ReLU(), needle.ones(2, 3), "never.onnx")
"""


def test_without_onnx():
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: needle.onnx needs the package onnx, which is not installed: pip install 'needle-nn[onnx]'"
    )


def test_imports_nothing_of_it():
    code = "import needle, needle.onnx, needle_nn.command.main, sys; needle_nn.command.main.parser(); print('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# ---- The command --------------------------------------------------------------------------------------------

COMMANDS = {recipe: ([], recipe) for recipe in RECIPES} | {
    "digits mlp": (["--model", "mlp"], "digits"),
    "ptb gru": (["--model", "gru"], "ptb"),
    "ptb transformer": (["--model", "transformer"], "ptb"),
}
SHAPES = {"digits": "pixels (batch, 64)", "mnist": "pixels (batch, 64)", "cifar10": "pixels (batch, 3, 32, 32)"}
SHAPES |= {"ptb": "ids (10, batch)", "text": "ids (batch, 16)", "lora": "ids (batch, 16)"}


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name, data, tmp_path, capsys):  # noqa: F811
    options, recipe = COMMANDS[name]
    assert main(arguments(recipe, data, tmp_path / "run", "--steps", "2", *options)) == 0
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "model.onnx")]) == 0
    told = capsys.readouterr().out
    assert SHAPES[recipe] in told and "-> logits" in told
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "absent" / "model.onnx")]) == 1
    assert "absent" in capsys.readouterr().err


def test_command_exports_what_was_trained(data, tmp_path, capsys):  # noqa: F811
    import onnxruntime

    from needle_nn.command.runs import open_run, options, rebuild

    assert main(arguments("ptb", data, tmp_path / "run", "--steps", "2")) == 0
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "m.onnx"), "--length", "4"]) == 0
    run = open_run(str(tmp_path / "run"))
    model = rebuild(run, options(run.settings)).model
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    ids = np.random.default_rng(0).integers(0, 9, (8, 3))
    state = [np.zeros((1, 3, 8), "float32")] * 2
    wanted, _ = model(ids)
    found = []
    for part in (ids[:4], ids[4:]):  # the state goes on
        logits, *state = session.run(None, {"ids": part, "h": state[0], "c": state[1]})
        found.append(logits)
    np.testing.assert_allclose(np.concatenate(found), wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [["--length", "0"], ["--length", "3"]])
def test_wrong_commands(options, data, tmp_path, capsys):  # noqa: F811
    assert main(arguments("digits", data, tmp_path / "run", "--steps", "1")) == 0
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "m.onnx"), *options]) == 2
    assert capsys.readouterr().err.startswith("needle export: --length")
