"""Captured functions on cuda(): replayed verb by verb, with the bits and the errors of the function itself."""

import numpy as np
import pytest

import needle_ndarray as nd

ndl = pytest.importorskip("needle")
nn = pytest.importorskip("needle.nn")


def tensor(values, dtype="float32"):
    return ndl.Tensor(np.asarray(values), device=ndl.cuda(), dtype=dtype, requires_grad=False)


def training(optimizer, wrap):
    """Six steps with dropout and a new batch for each; losses and parameters as bytes."""
    np.random.seed(0)  # noqa: NPY002
    ndl.random.seed(0)
    device = ndl.cuda()
    model = nn.Sequential(
        nn.Linear(4, 8, device=device),
        nn.BatchNorm1d(8, device=device),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(8, 3, device=device),
    )
    rule, loss_of = optimizer(model.parameters()), nn.SoftmaxLoss()

    def step(x, y):
        rule.reset_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        rule.step()
        return loss

    step, found = wrap(step), []
    for i in range(6):
        rng = np.random.default_rng(i)
        rule.lr = 0.1 / (1 + i)
        found.append(step(tensor(rng.normal(size=(5, 4))), tensor(rng.integers(0, 3, 5), "int64")).numpy().tobytes())
    return found + [p.numpy().tobytes() for p in model.parameters()], step


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_training(name):
    """Random numbers, learning rates, corrections and labels are those of each step."""
    optimizer = lambda params: getattr(ndl.optim, name)(params, lr=0.1)  # noqa: E731
    eager, _ = training(optimizer, lambda f: f)
    captured, step = training(optimizer, ndl.capture(strict=True))
    assert captured == eager
    assert sum(plan.replays for plan in step.plans) >= 3


@pytest.mark.parametrize("computed", [False, True], ids=["from the host", "computed"])
def test_indices_are_checked_in_every_replay(computed):
    """No kernel reads beside its array: a label or an index that is out of range is the error it is eagerly."""
    logits, table = tensor(np.eye(3)), tensor(np.arange(6).reshape(3, 2))

    def given(*values):
        found = tensor(values, "int64").realize_cached_data()
        return found + 0 if computed else found

    cases = {
        "label 3 is out of range for 3 classes": lambda i: nd.cross_entropy(logits.realize_cached_data(), i),
        "index 3 is out of bounds": lambda i: table.realize_cached_data()[i],
    }
    for message, function in cases.items():
        captured = ndl.capture(function, strict=True)
        for values in ([0, 1, 2], [2, 2, 1], [1, 0, 2], [0, 0, 2]):
            assert captured(given(*values)).numpy().tobytes() == function(given(*values)).numpy().tobytes()
        assert captured.plans[0].replays == 2
        with pytest.raises(IndexError, match=message):
            captured(given(0, 3, 1))


def test_known_bounds_are_forgotten_within_a_replay():
    """The largest of integers that came from the host is known, until the replay itself has written to them."""

    def function(a):
        a += 1
        return a.max()

    captured = ndl.capture(function, strict=True)
    assert [captured(nd.array([i, 5], dtype="int64", device=nd.cuda())).item() for i in range(5)] == [6] * 5
    assert captured.plans[0].replays == 3
