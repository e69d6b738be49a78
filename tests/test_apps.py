"""The programs under apps/ do what they promise."""

import gzip
import math
import runpy
import struct

import numpy as np
import pytest

import needle as ndl
from needle import nn


@pytest.fixture(scope="module")
def demo(repository):
    return runpy.run_path(str(repository / "apps" / "ndarray_demo.py"))


def test_demo_learns_the_spirals(demo, capsys):
    weights, biases, x, y, accuracy = demo["train"](steps=300, seed=0, hidden=32)
    assert accuracy > 0.99
    assert capsys.readouterr().out.count("accuracy") == 8
    drawn = demo["picture"](weights, biases, x, y, columns=40, rows=20).splitlines()
    assert [len(line) for line in drawn] == [40] * 20
    assert set("".join(drawn)) == set(" .xo")


def test_demo_repeats_itself_bit_by_bit(demo):
    first, second = (demo["train"](steps=20, seed=3, hidden=8)[0] for _ in range(2))
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(first, second, strict=True))


def test_demo_gradients_are_those_of_the_loss(demo):
    """Central differences of the loss by every weight, in the precision float32 allows."""
    from needle import backend_ndarray as nd

    rng = np.random.default_rng(1)
    x, y = demo["spirals"](rng)
    weights, biases = demo["init"](rng, 3)
    points, targets = nd.array(x), nd.array(np.eye(2)[y])

    def loss():
        found = demo["gradients"](weights, demo["forward"](weights, biases, points), targets)[0]
        return float(found.numpy().reshape(-1)[0])

    _, grads = demo["gradients"](weights, demo["forward"](weights, biases, points), targets)
    for param, grad in zip([*weights, *biases], grads, strict=True):
        for index in np.ndindex(param.shape):
            kept, differences = param.numpy(), []
            for step in (1e-2, -1e-2):
                moved = kept.copy()
                moved[index] += step
                param[...] = nd.array(moved)
                differences.append(loss())
            param[...] = nd.array(kept)
            assert abs((differences[0] - differences[1]) / 2e-2 - grad.numpy()[index]) < 2e-4


# ---- The course's programs --------------------------------------------------------------------------


class Descent:
    """theta -= lr (g + wd theta), the interface of an optimizer"""

    def __init__(self, params, lr, weight_decay):
        self.params, self.lr, self.weight_decay, self.clipped = params, lr, weight_decay, []
        type(self).last = self

    def reset_grad(self):
        for p in self.params:
            p.grad = None

    def clip_grad_norm(self, max_norm):
        self.clipped.append(max_norm)

    def step(self):
        for p in self.params:
            p.data = p.data - self.lr * (p.grad.data + self.weight_decay * p.data)


@pytest.fixture(scope="module")
def course(repository):
    """{name: what is in it} of the course's programs"""
    return {
        name: runpy.run_path(str(repository / "apps" / f"{name}.py")) for name in ("simple_ml", "mlp_resnet", "models")
    }


@pytest.fixture
def mnist(tmp_path):
    """Four files like MNIST's: 60 and 20 images of 4 x 4, whose brightest row tells the label."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 60), ("t10k", 20)):
        labels = rng.integers(0, 4, n).astype("uint8")
        images = rng.integers(0, 100, (n, 4, 4)).astype("uint8")
        images[np.arange(n), labels] += 150
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with gzip.open(tmp_path / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
    return tmp_path


def test_course_names_are_there(course):
    """Each program says in __all__ what the course's notebooks and tests import."""
    expected = {
        "simple_ml": "parse_mnist softmax_loss nn_epoch loss_err epoch_general_cifar10 train_cifar10 evaluate_cifar10"
        " epoch_general_ptb train_ptb evaluate_ptb",
        "mlp_resnet": "ResidualBlock MLPResNet epoch train_mnist",
        "models": "ResNet9 LanguageModel",
    }
    for name, names in expected.items():
        assert set(names.split()) <= set(course[name]["__all__"])
        assert all(callable(course[name][public]) for public in course[name]["__all__"])


def test_softmax_loss_and_error(course):
    logits = ndl.Tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    loss, error = course["simple_ml"]["loss_err"](logits, np.array([1, 1, 0]))
    expected = (math.log1p(math.e**-1) + math.log1p(math.e**2) + math.log(2)) / 3
    assert loss == pytest.approx(expected, rel=1e-6) and error == pytest.approx(1 / 3)


def test_nn_epoch_is_gradient_descent(course):
    """Two batches, the second one short, against the gradients worked out by hand."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3)).astype("float32"), np.array([0, 1, 1, 0, 1])
    w1, w2 = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    tensors = [ndl.Tensor(w, dtype="float32") for w in (w1, w2)]
    found = course["simple_ml"]["nn_epoch"](x, y, *tensors, lr=0.2, batch=3)
    np.testing.assert_allclose(tensors[0].numpy(), w1, rtol=1e-6)
    for rows in (slice(0, 3), slice(3, 5)):
        hidden = np.maximum(x[rows] @ w1, 0)
        e = np.exp(hidden @ w2)
        dz = (e / e.sum(1, keepdims=True) - np.eye(2)[y[rows]]) / len(e)
        w1, w2 = w1 - 0.2 * x[rows].T @ ((dz @ w2.T) * (hidden > 0)), w2 - 0.2 * hidden.T @ dz
    for w, expected in zip(found, (w1, w2), strict=True):
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_mlp_resnet_learns_small_files(course, mnist):
    train_mnist = course["mlp_resnet"]["train_mnist"]
    before = train_mnist(20, 1, Descent, 0.0, 0.0, 16, mnist)
    after = train_mnist(20, 15, Descent, 0.1, 0.0, 16, mnist)
    assert len(after) == 4 and after[2] < 0.3 < before[2] and after[1] < before[1] / 2
    assert train_mnist(20, 15, Descent, 0.1, 0.0, 16, mnist) == after  # seeded


def test_mlp_epoch_averages_the_batches(course):
    """Error per example, loss per batch; without an optimizer the model stays as it is."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    rng = np.random.default_rng(0)
    batches = [(ndl.Tensor(rng.normal(size=(n, 2))), ndl.Tensor(rng.integers(0, 2, n))) for n in (3, 1)]
    error, loss = course["mlp_resnet"]["epoch"](batches, model)
    assert not model.training
    outputs = [(model(x), y) for x, y in batches]
    assert loss == pytest.approx(np.mean([nn.SoftmaxLoss()(z, y).item() for z, y in outputs]))
    assert error == sum((z.numpy().argmax(1) != y.numpy()).sum() for z, y in outputs) / 4
    course["mlp_resnet"]["epoch"](batches, model, Descent(model.parameters(), 0.1, 0.0))
    assert model.training


def test_cifar10_loops(course):
    """Training changes the model, evaluation does not; averages go by example."""
    ml, rng = course["simple_ml"], np.random.default_rng(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    images = [rng.normal(size=(n, 3, 2, 2)).astype("float32") for n in (4, 2)]
    batches = [(ndl.Tensor(x), ndl.Tensor((x.mean((1, 2, 3)) > 0).astype("uint8"))) for x in images]
    accuracy, loss = ml["evaluate_cifar10"](model, batches)
    assert not model.training
    outputs = [(model(x), y) for x, y in batches]
    assert loss == pytest.approx(sum(nn.SoftmaxLoss()(z, y).item() * len(z) for z, y in outputs) / 6)
    assert accuracy == sum((z.numpy().argmax(1) == y.numpy()).sum() for z, y in outputs) / 6
    trained = ml["train_cifar10"](model, batches, n_epochs=50, optimizer=Descent, lr=0.1, weight_decay=0.0)
    assert trained[0] == 1.0 and trained[1] < loss / 2 and model.training
    assert ml["evaluate_cifar10"](model, batches, nn.SoftmaxLoss)[1] < trained[1] * 1.01


@pytest.mark.parametrize("kind", ["rnn", "lstm", "transformer"])
def test_ptb_loops(course, kind):
    """A text that repeats itself is learned; the state goes from chunk to chunk, detached."""
    ml, states = course["simple_ml"], []

    class Watched(course["models"]["LanguageModel"]):
        def forward(self, x, h=None):
            states.append((x.shape[0], h))
            return super().forward(x, h)

    data = ndl.data.batchify(np.tile([0, 1, 2, 3, 4], 9), 2, ndl.cpu(), "float32")  # (22, 2)
    np.random.seed(0)  # noqa: NPY002  the course's generator
    model = Watched(6, 5, 8, 1, kind, seq_len=8)
    lr = 0.1 if kind == "transformer" else 1.0
    before = ml["evaluate_ptb"](model, data, seq_len=8)
    assert [n for n, _ in states] == [8, 8, 5]  # every word but the first is a target once
    handed = [h for _, h in states[1:]]
    assert states[0][1] is None and all(h is not None for h in handed)
    parts = [part for h in handed for part in (h if isinstance(h, tuple) else (h,))]
    assert all(part.is_leaf() and not part.requires_grad for part in parts)
    after = ml["train_ptb"](model, data, 8, 30, Descent, lr, 0.0, clip=0.25)
    assert after[0] > 0.9 > before[0] and after[1] < before[1] / 3
    assert Descent.last.clipped == [0.25] * 90


def test_ptb_average_goes_by_word(course):
    data = np.arange(12).reshape(6, 2) % 5
    model = course["models"]["LanguageModel"](4, 5, 3)
    _, loss = course["simple_ml"]["evaluate_ptb"](model, data, seq_len=3)
    h, total = None, 0.0
    for a, b in ((0, 3), (3, 5)):
        logits, h = model(ndl.Tensor(data[a:b]), h)
        total += ndl.cross_entropy(logits, ndl.Tensor(data[a + 1 : b + 1].reshape(-1)), "sum").item()
    assert loss == pytest.approx(total / 10, rel=1e-5)
