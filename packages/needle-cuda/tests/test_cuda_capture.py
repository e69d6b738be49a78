"""Captured functions on cuda(): replayed verb by verb, with the bits and the errors of the function itself."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.capture.calls import View

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


CLIPS = {
    "norm": lambda params: ndl.optim.clip_grad_norm(params, 0.05),
    "norm that is small": lambda params: ndl.optim.clip_grad_norm(params, 1e6),
    "norm, inf": lambda params: ndl.optim.clip_grad_norm(params, 0.05, norm_type=float("inf")),
    "norm, 3": lambda params: ndl.optim.clip_grad_norm(params, 0.05, norm_type=3.0),
    "norm that must be finite": lambda params: ndl.optim.clip_grad_norm(params, 0.05, error_if_nonfinite=True),
    "value": lambda params: ndl.optim.clip_grad_value(params, 0.01),
    "grad_norm": ndl.optim.grad_norm,
}


@pytest.mark.parametrize("told", [False, True], ids=["the norm is not used", "the norm is returned"])
@pytest.mark.parametrize("name", CLIPS)
def test_clipping(name, told):
    """The bits of eager code, and the host waits only for a norm that it uses."""

    def run(wrap):
        ndl.random.seed(0)
        model = nn.Sequential(nn.Linear(4, 8, device=ndl.cuda()), nn.Tanh(), nn.Linear(8, 3, device=ndl.cuda()))
        rule = ndl.optim.SGD(model.parameters(), lr=0.1)

        @wrap
        def step(x, y):
            rule.reset_grad()
            loss = ((model(x) - y) ** 2).sum()
            loss.backward()
            norm = CLIPS[name](model.parameters())
            rule.step()
            return (loss, norm) if told else (loss, None)

        found = []
        for i in range(6):
            rng = np.random.default_rng(i)
            loss, norm = step(tensor(rng.normal(size=(5, 4))), tensor(rng.normal(size=(5, 3))))
            found.append((loss.numpy().tobytes(), norm))
        return found + [p.numpy().tobytes() for p in model.parameters()], step

    (eager, _), (captured, step) = run(lambda f: f), run(ndl.capture(strict=True))
    assert captured == eager and step.plans[0].replays >= 4
    read = sum(any(arg.buffer >= 0 for arg in call.args if isinstance(arg, View)) or "norm" in call.function.__name__
               for call in step.plans[0].plan.calls if call.verb == "repeat")  # fmt: skip
    assert read == ((name != "value" and told) or name == "norm that must be finite"), str(step.plans[0])


@pytest.mark.parametrize(
    "values, norm", [([3e30, 4e30], 5e30), ([3e-30, 4e-30], 5e-30), ([0.0], 0.0), ([np.inf], np.inf)]
)
def test_norms_out_of_the_range_of_squares(values, norm):
    w = tensor(np.zeros(len(values)))
    w.grad = tensor(values)
    assert ndl.optim.grad_norm(w) == pytest.approx(norm, rel=1e-6)
    assert ndl.optim.clip_grad_norm([w], 1.0) == pytest.approx(norm, rel=1e-6)


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
