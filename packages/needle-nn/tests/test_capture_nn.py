"""Layers, optimizers, schedules and whole networks: a captured step has the bits of the step, whatever comes in between."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import numpy as np
import pytest
from layer_table import ROWS
from optim_formulas import CASES
from test_layers import leaves, tree
from test_models import MODELS
from test_optim_schedules import TABLES

import needle as ndl
import needle_ndarray as nd
from needle import nn, optim
from needle_nn.models import GPT, LanguageModel, MLPResNet

DEVICES = {"cpu": ndl.cpu, "cpu_numpy": ndl.cpu_numpy} | ({"cuda": ndl.cuda} if ndl.cuda().enabled() else {})


def bits(tensors):
    return [None if t is None else (t.shape, str(t.dtype), t.numpy().tobytes()) for t in tensors]


def state_of(*parts):
    """All numbers of models and optimizers, by name."""
    found = {}
    for i, part in enumerate(parts):
        for name, value in part.state_dict().items():
            found[i, name] = value.numpy().tobytes() if hasattr(value, "numpy") else repr(value)
    return found


def both(make, calls, count):
    """Run a step that make() gives, eagerly and captured; what calls(i, parts) gives are its arguments.

    Results, gradients and states have the same bits; returns the captured function.
    """
    found = []
    for wrap in (lambda f: f, ndl.capture):
        np.random.seed(3)
        ndl.random.seed(None)
        step, *parts = make()
        step = wrap(step)
        trace = []
        for i in range(count):
            result = step(*calls(i, parts))
            params = [p for part in parts if isinstance(part, nn.Module) for p in part.parameters()]
            grads = [p.grad for p in params]
            trace.append((bits(leaves(result)), bits(grads), state_of(*[p for p in parts if hasattr(p, "state_dict")])))
        found.append(trace)
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        for what, x, y in zip(("results", "gradients", "states"), a, b, strict=True):
            assert x == y, f"{what} differ in call {i}"
    return step


# ---- Layers ------------------------------------------------------------


def tensors_of(row, call, device, dtype):
    """The inputs of a row, other numbers with each call; integers stay."""
    return tree(lambda a: ndl.Tensor(a, device=device, dtype=str(a.dtype)), tuple(row.arrays(dtype, seed=call + 1)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_layers(row, device):
    """Four steps in training, then evaluation, then training again: forward, backward, running statistics, random masks."""
    device, dtype = DEVICES[device](), "float32" if device == "cpu" else "float64"

    def make():
        layer = row.build(device, dtype)

        def step(*inputs):
            outputs = layer(*inputs)
            if any(y.requires_grad for y in leaves(outputs)):
                sum((y * y).sum() for y in leaves(outputs) if y.requires_grad).backward()
            return outputs

        return step, layer

    def calls(i, parts):
        parts[0].train(i // 4 % 2 == 0)
        for p in parts[0].parameters():
            p.grad = None
        return tensors_of(row, i, device, dtype)

    captured = both(make, calls, 12)
    assert sum(plan.replays for plan in captured.plans) >= 4 and not captured.refusals, captured.refusals


# ---- Optimizers ------------------------------------------------------------


def network(seed=0, dropout=0.0):
    np.random.seed(seed)
    return nn.Sequential(nn.Linear(6, 70), nn.BatchNorm1d(70), nn.ReLU(), nn.Dropout(dropout), nn.Linear(70, 3))


def batch(i):
    rng = np.random.default_rng(i)
    x, y = rng.standard_normal((5, 6)).astype("float32"), rng.integers(0, 3, 5)
    return ndl.Tensor(x, requires_grad=False), ndl.Tensor(y, requires_grad=False)


def training(optimizer, schedule=None, clip=None, ema=None, dropout=0.0):
    """make() for `both`: a network, its optimizer, and what else there is."""

    def make():
        model = network(dropout=dropout)
        opt = optimizer(model.parameters())
        rate = schedule(opt) if schedule else None
        average = optim.EMA(model.parameters(), 0.9, **ema) if ema is not None else None
        loss = nn.SoftmaxLoss()

        def step(x, y):
            opt.reset_grad()
            value = loss(model(x), y)
            value.backward()
            if clip is not None:
                clip(model.parameters())
            opt.step()
            if rate is not None:
                rate.step()
            if average is not None:
                average.update()
            return value

        return (step, model, opt, *[part for part in (rate, average) if part is not None])

    return make


@pytest.mark.parametrize("name", CASES)
def test_optimizers(name):
    """Ten steps; the learning rate is set by hand, then the state is loaded, then a gradient is dropped."""
    kind, _, numbers = CASES[name]

    def calls(i, parts):
        model, opt = parts[0], parts[1]
        if i == 5:
            opt.lr = 0.5 * opt.lr
        if i == 7:
            opt.param_groups[0]["lr"] = 1  # an int
        if i == 8:
            opt.load_state_dict(opt.state_dict())
            model.load_state_dict({key: value.numpy() * 0.5 for key, value in model.state_dict().items()})
        return batch(i)

    captured = both(training(lambda params: kind(params, **numbers)), calls, 12)
    assert sum(plan.replays for plan in captured.plans) >= 7 and not captured.refusals, captured.refusals


@pytest.mark.parametrize("name", TABLES)
def test_schedules(name):
    captured = both(training(lambda p: optim.Adam(p, lr=1.0), TABLES[name][0]), lambda i, parts: batch(i), 9)
    assert captured.plans[0].replays >= 6  # the first call makes the states of the optimizer


CLIPS = {
    "norm": lambda params: optim.clip_grad_norm(params, 0.5),
    "norm that is small": lambda params: optim.clip_grad_norm(params, 1e6),
    "norm, inf": lambda params: optim.clip_grad_norm(params, 0.1, norm_type=float("inf")),
    "value": lambda params: optim.clip_grad_value(params, 0.01),
    "grad_norm": optim.grad_norm if hasattr(optim, "grad_norm") else None,
}


@pytest.mark.parametrize("name", [name for name in CLIPS if CLIPS[name] is not None])
def test_clipping(name):
    """The norm that is returned is that of each call, too."""

    def make():
        model = network()
        opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss = nn.SoftmaxLoss()

        def step(x, y):
            opt.reset_grad()
            value = loss(model(x), y)
            value.backward()
            norm = CLIPS[name](model.parameters())
            opt.step()
            return value, norm

        return step, model, opt

    norms = []
    for wrap in (lambda f: f, ndl.capture):
        step, model, _ = make()
        step = wrap(step)
        norms.append([(value.numpy().tobytes(), norm) for value, norm in (step(*batch(i)) for i in range(8))])
        norms[-1].append(state_of(model))
    assert norms[0] == norms[1] and step.plans[0].replays >= 5


@pytest.mark.parametrize("seed", [None, 5], ids=["NumPy's generator", "Philox"])
def test_everything_at_once(seed):
    """Dropout, Adam, warm-up and cosine, clipping and an average, with both sources of random numbers."""

    def calls(i, parts):
        if i == 0:
            ndl.random.seed(seed)
            np.random.seed(1)
        return batch(i)

    make = training(
        lambda params: optim.AdamW(params, lr=0.01),
        lambda opt: optim.WarmupLR(opt, 3, optim.CosineLR(opt, 20)),
        lambda params: optim.clip_grad_norm(params, 0.5),
        ema={},
        dropout=0.5,
    )
    try:
        captured = both(make, calls, 12)
    finally:
        ndl.random.seed(None)
    assert captured.plans[0].replays >= 9


def test_a_step_turns_round():
    """`maximize` of a group, set after the step was recorded."""

    def calls(i, parts):
        if i == 5:
            parts[1].param_groups[0]["maximize"] = True
        return batch(i)

    captured = both(training(lambda params: optim.SGD(params, lr=0.1)), calls, 10)
    assert sum(plan.replays for plan in captured.plans) >= 4 and not captured.refusals


def test_weights_of_an_average_that_change():
    """With ramp a replay takes other weights than the recording; the average of ASGD begins after it."""
    captured = both(
        training(lambda params: optim.SGD(params, lr=0.1), ema={"ramp": True}), lambda i, parts: batch(i), 9
    )
    assert captured.plans[0].replays >= 6 and not captured.refusals
    late = both(training(lambda params: optim.ASGD(params, lr=0.1, t0=4)), lambda i, parts: batch(i), 9)
    assert late.plans[0].replays >= 6 and not late.refusals


# ---- Networks ------------------------------------------------------------

#: The networks of the zoo with dropout, where they have it.
DROPOUT = {
    "MLPResNet": lambda **d: MLPResNet(6, hidden_dim=8, num_blocks=2, num_classes=3, drop_prob=0.3, **d),
    "GPT": lambda **d: GPT(11, context=6, embedding_size=8, num_layers=2, num_head=2, dropout=0.3, **d),
    "LanguageModel/transformer": lambda **d: LanguageModel(
        5, 11, 6, 2, "transformer", 7, num_head=2, dim_head=3, dropout=0.3, **d
    ),
}


def train(name, steps, captures, device, seed, threads=1):
    """States and losses of a network that is trained."""
    make, x, shape = MODELS[name]
    before = nd.get_num_threads()
    nd.set_num_threads(threads)
    np.random.seed(1)
    ndl.random.seed(seed)
    try:
        model = DROPOUT.get(name, make)(device=device, dtype="float32")
        opt = optim.Adam(model.parameters(), lr=0.01)
        loss = nn.SoftmaxLoss()

        def step(x, y):
            opt.reset_grad()
            out = model(x)
            value = loss(out[0] if isinstance(out, tuple) else out, y)
            value.backward()
            opt.step()
            return value

        step = ndl.capture(step) if captures else step
        found = []
        for i in range(steps):
            rng = np.random.default_rng(i)
            values = (
                rng.standard_normal(x.shape).astype("float32") if x.dtype.kind == "f" else rng.integers(0, 11, x.shape)
            )
            labels = rng.integers(0, shape[-1], shape[:-1])
            found.append(
                step(*[ndl.Tensor(a, device=device, requires_grad=False) for a in (values, labels)]).numpy().tobytes()
            )
        return found, state_of(model, opt), step
    finally:
        ndl.random.seed(None)
        nd.set_num_threads(before)


@pytest.mark.parametrize("seed", [None, 5], ids=["NumPy's generator", "Philox"])
@pytest.mark.parametrize("name", MODELS)
def test_networks(name, seed):
    """50 steps for the small ones, fewer for the others; also on the NumPy backend."""
    steps = 4 if name in ("ResNet9", "LeNet/28") else 50
    losses, state, _ = train(name, steps, False, ndl.cpu(), seed)
    got, after, step = train(name, steps, True, ndl.cpu(), seed)
    assert got == losses and after == state
    assert step.plans[0].replays == steps - 3 and not step.refusals  # the first makes the optimizer's states
    for device in (ndl.cpu_numpy(), *([ndl.cuda()] if ndl.cuda().enabled() else [])):
        few = 4 if steps == 4 else 6
        losses, state, _ = train(name, few, False, device, seed)
        got, after, step = train(name, few, True, device, seed)
        assert got == losses and after == state and step.plans[0].replays == few - 3


@pytest.mark.parametrize("name", ["MLPResNet", "LeNet", "GPT", "LanguageModel/lstm", "LanguageModel/transformer"])
def test_threads_give_the_same_bits(name):
    found = [train(name, 5, captures, ndl.cpu(), 5, threads)[:2] for threads in (1, 2, 3) for captures in (False, True)]
    assert all(each == found[0] for each in found[1:])


def test_inference_while_parameters_change():
    """Evaluation under no_grad follows training, loading, and moving to another dtype's layout."""
    model = network()
    model.eval()
    predict = ndl.capture(model)
    with ndl.no_grad():
        for i in range(12):
            if i == 4:
                model.load_state_dict({key: value.numpy() * 2 for key, value in model.state_dict().items()})
            if i == 6:
                model.modules[0].weight = nn.Parameter(ndl.Tensor(np.ones((6, 70), "float32")))
            if i == 9:
                model.train()
            x, _ = batch(i)
            before = state_of(model)
            got = predict(x).numpy().tobytes()
            changed = state_of(model)
            model.load_state_dict(
                {
                    key: np.frombuffer(before[0, key], "float32").reshape(value.shape)
                    for key, value in model.state_dict().items()
                }
            )
            assert got == model(x).numpy().tobytes() and changed == state_of(model)
    assert sum(plan.replays for plan in predict.plans) >= 5
