"""optim.swa_utils: averages of weights, their schedule, and batch norms of an average, beside PyTorch's."""

import importlib

import numpy as np
import pytest

import needle as ndl
from needle import nn, optim
from needle.optim.swa_utils import SWALR, AveragedModel, get_ema_avg_fn, update_bn

#: What is averaged how: arguments of AveragedModel, of either swa_utils.
KINDS = {
    "mean": lambda module: {},
    "ema": lambda module: {"multi_avg_fn": module.get_ema_multi_avg_fn(0.9)},
    "ema, buffers too": lambda module: {"avg_fn": module.get_ema_avg_fn(0.9), "use_buffers": True},
}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(32, 3)).astype("float32"), RNG.normal(size=(32, 1)).astype("float32")
WEIGHTS = [RNG.normal(size=shape).astype("float32") for shape in [(4, 3), (4,), (4,), (4,), (1, 4), (1,)]]


def train(t, kind, strategy):
    """Losses, rates, and what the average says of the data in the end."""
    model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4, momentum=None), t.nn.ReLU(), t.nn.Linear(4, 1))
    with t.no_grad():
        for p, value in zip(model.parameters(), WEIGHTS, strict=True):
            p.copy_(t.tensor(value))
    x, y = t.tensor(X), t.tensor(Y)
    optimizer, module = t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), t.optim.swa_utils
    average = module.AveragedModel(model, **KINDS[kind](module))
    first = t.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    then, trace = module.SWALR(optimizer, swa_lr=0.05, anneal_epochs=3, anneal_strategy=strategy), []
    for step in range(8):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= 3:
            average.update_parameters(model)
        (then if step >= 3 else first).step()
        trace += [loss.item(), optimizer.param_groups[0]["lr"]]
    module.update_bn([(x[:20], y[:20]), (x[20:], y[20:])], average)
    average.eval()
    statistics = average.module[1].running_var
    return np.array([*trace, *average(x).detach().numpy().ravel(), *statistics.numpy()]), sorted(average.state_dict())


@pytest.mark.parity
@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_like_pytorch(kind, strategy):
    torch = pytest.importorskip("torch")
    importlib.import_module("torch.optim.swa_utils")
    theirs, names = train(torch, kind, strategy)
    with ndl.compat("torch"):
        ours, own = train(ndl, kind, strategy)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert own == names


def test_an_average_goes_on_from_its_state():
    model = nn.Linear(2, 3)
    averages = [AveragedModel(model, avg_fn=get_ema_avg_fn(0.5)) for _ in range(2)]
    averages[0].update_parameters(model)
    averages[1].load_state_dict(averages[0].state_dict())
    nn.init.constant_(model.weight, 7.0)
    for average in averages:
        average.update_parameters(model)
    np.testing.assert_array_equal(averages[0].module.weight.numpy(), averages[1].module.weight.numpy())
    assert int(averages[1].n_averaged) == 2 and all(p.is_leaf() for p in averages[1].parameters())


@pytest.mark.filterwarnings("ignore:capture:needle.CaptureWarning")
def test_a_captured_step_averages_too():
    """A captured step does what the step does, replayed or not."""
    found = []
    for wrap in (lambda step: step, ndl.capture):
        np.random.seed(0)  # noqa: NPY002 (what weights are drawn from)
        model, x = nn.Linear(2, 3), ndl.ones(4, 2)
        optimizer, average = optim.ASGD(model.parameters(), lr=0.1), AveragedModel(model)

        def step(model=model, optimizer=optimizer, average=average, x=x):
            optimizer.reset_grad()
            (model(x) ** 2).sum().backward()
            optimizer.step()
            average.update_parameters(model)

        step = wrap(step)
        for _ in range(6):
            step()
        found.append((average.module.weight.numpy(), int(average.n_averaged)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1] == 6


def test_batch_norms_of_the_data():
    norm = nn.BatchNorm1d(3)
    norm(ndl.tensor(X))
    update_bn([ndl.tensor(X[:16]), ndl.tensor(X[16:])], norm)
    np.testing.assert_allclose(norm.running_mean.numpy(), X.mean(0), rtol=1e-5, atol=1e-6)
    assert norm.momentum == 0.1 and norm.training
    norm.reset_running_stats()
    assert norm.running_mean.tolist() == [0, 0, 0] and norm.running_var.tolist() == [1, 1, 1]


def test_mistakes_are_named():
    model = nn.Linear(2, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for wrong, message in {
        (lambda: SWALR(optimizer, 0.1, anneal_strategy="exp")): "anneal_strategy 'exp': expected 'cos' or 'linear'",
        (lambda: SWALR(optimizer, [0.1, 0.2])): "swa_lr has 2 rates for 1 groups",
        (lambda: AveragedModel(model).update_parameters(nn.Linear(3, 2))): "the model's weights have other shapes",
        (lambda: nn.BatchNorm1d(2, momentum=None)): "momentum None: batches are counted within",
    }.items():
        with pytest.raises(ValueError, match=message):
            wrong()
