"""The same numbers as PyTorch's optimizers, schedules and clipping.

PyTorch's momentum is u = m u + g, the course's u = m u + (1 - m) g: with a learning rate lr / (1 - m) the course's is PyTorch's,
and with dampening=0 so is ours. PyTorch's `dampening` leaves its first step undamped; ours does not.
"""

import warnings

import numpy as np
import pytest
from optim_formulas import parameters, set_gradients

import needle as ndl
from needle import optim

pytestmark = pytest.mark.parity


@pytest.fixture(autouse=True)
def needs_torch():
    global torch
    torch = pytest.importorskip("torch")


@pytest.fixture
def default_dtype():
    """Sets PyTorch's default dtype, for a test."""
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


#: (ours, our numbers, theirs, their numbers)
PAIRS = {
    "sgd": ("SGD", {"lr": 0.1}, "SGD", {"lr": 0.1}),
    "sgd, weight decay": ("SGD", {"lr": 0.1, "weight_decay": 0.1}, "SGD", {"lr": 0.1, "weight_decay": 0.1}),
    "undamped": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.0}, "SGD", {"lr": 0.1, "momentum": 0.9}),
    "mean of gradients": ("SGD", {"lr": 0.1, "momentum": 0.9}, "SGD", {"lr": 0.1 * (1 - 0.9), "momentum": 0.9}),
    "nesterov": (
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": True},
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    "adam": ("Adam", {"lr": 0.1}, "Adam", {"lr": 0.1}),
    "adam, weight decay": (
        "Adam",
        {"lr": 0.1, "beta1": 0.8, "beta2": 0.9, "eps": 1e-4, "weight_decay": 0.1},
        "Adam",
        {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1},
    ),
    "adamw": ("AdamW", {"lr": 0.1}, "AdamW", {"lr": 0.1}),
    "betas": ("Adam", {"lr": 0.1, "betas": (0.5, 0.9)}, "Adam", {"lr": 0.1, "betas": (0.5, 0.9)}),
    "rmsprop": ("RMSprop", {"lr": 0.1}, "RMSprop", {"lr": 0.1}),
    "adadelta": ("Adadelta", {"weight_decay": 0.1}, "Adadelta", {"weight_decay": 0.1}),
    "nadam": ("NAdam", {"weight_decay": 0.1}, "NAdam", {"weight_decay": 0.1}),
    "radam": ("RAdam", {"betas": (0.8, 0.9)}, "RAdam", {"betas": (0.8, 0.9)}),
    "rmsprop, all": (
        *("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True, "weight_decay": 0.1, "eps": 1e-4}),
        *("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True, "weight_decay": 0.1, "eps": 1e-4}),
    ),
    "rprop": ("Rprop", {"lr": 0.1}, "Rprop", {"lr": 0.1}),
    "rprop, all": (
        *("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.02)}),
        *("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.02)}),
    ),
    "asgd": (
        *("ASGD", {"lr": 0.1, "lambd": 0.3, "alpha": 0.5, "t0": 4, "weight_decay": 0.1}),
        *("ASGD", {"lr": 0.1, "lambd": 0.3, "alpha": 0.5, "t0": 4, "weight_decay": 0.1}),
    ),
    **{
        f"{name}, up": (name, {"maximize": True, "weight_decay": 0.1}, name, {"maximize": True, "weight_decay": 0.1})
        for name in "RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD".split()
    },
    **{
        f"{name}, up": (name, {"maximize": True, "lr": 0.1}, name, {"maximize": True, "lr": 0.1})
        for name in ("SGD", "Adam", "AdamW", "Rprop")
    },
    "adagrad": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial": 0.2},
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2},
    ),
}


def pair(dtype="float32"):
    params, values = parameters(dtype)
    return params, [torch.tensor(v, requires_grad=True) for v in values]


def same_gradients(params, theirs, seed):
    for t, g in zip(theirs, set_gradients(params, seed), strict=True):
        t.grad = torch.tensor(g)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PAIRS)
def test_steps(name, dtype, default_dtype):
    default_dtype(getattr(torch, dtype))  # of NAdam's product and ASGD's rate
    ours, our_numbers, other, their_numbers = PAIRS[name]
    params, theirs = pair(dtype)
    optimizer, twin = getattr(optim, ours)(params, **our_numbers), getattr(torch.optim, other)(theirs, **their_numbers)
    for t in range(10):
        same_gradients(params, theirs, t)
        optimizer.step(), twin.step()
    for p, q in zip(params, theirs, strict=True):
        near = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=near, atol=near)


def adam_by_hand(framework):
    """An optimizer as public programs write them: defaults as a dict, a dict of state for each parameter."""

    class Own(framework.optim.Optimizer):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999)):
            super().__init__(params, {"lr": lr, "betas": betas})

        @framework.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"], state["m"], state["v"] = 0, framework.zeros_like(p), framework.zeros_like(p)
                    state["step"] += 1
                    state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                    state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                    p.addcdiv_(state["m"], state["v"].sqrt().add_(1e-3), value=-group["lr"] / state["step"])

    return Own


def test_an_optimizer_written_for_pytorch():
    params, theirs = (some[:4] for some in pair())
    optimizer, twin = adam_by_hand(ndl)(params, lr=0.1), adam_by_hand(torch)(theirs, lr=0.1)
    for t in range(6):
        same_gradients(params, theirs, t)
        optimizer.step(), twin.step()
        if t == 3:  # its state goes through a file's forms
            state = optimizer.state_dict()
            optimizer = adam_by_hand(ndl)(params, lr=0.1)
            optimizer.load_state_dict(state)
    for p, q in zip(params, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-6)


def theirs_named(name, *args, **numbers):
    return lambda o: getattr(torch.optim.lr_scheduler, name)(o, *args, **numbers)


RATES = {
    "step": (lambda o: optim.StepLR(o, 3, 0.5), theirs_named("StepLR", 3, 0.5)),
    "cosine": (lambda o: optim.CosineLR(o, 12, 0.01), theirs_named("CosineAnnealingLR", 12, 0.01)),
    "one cycle": (
        lambda o: optim.OneCycleLR(o, 0.5, 12),
        theirs_named("OneCycleLR", 0.5, 12, cycle_momentum=False),
    ),
    "lambda": (lambda o: optim.LambdaLR(o, lambda t: 0.9**t), theirs_named("LambdaLR", lambda t: 0.9**t)),
    "warm-up": (lambda o: optim.WarmupLR(o, 5), theirs_named("LinearLR", 0.2, 1.0, 4)),
}


def same(name, *args, **numbers):
    """A schedule of lr_scheduler, there and here."""
    return lambda o: getattr(optim.lr_scheduler, name)(o, *args, **numbers), theirs_named(name, *args, **numbers)


def in_turn(module):
    def make(o):
        parts = [module.LinearLR(o, 0.1, total_iters=4), module.CosineAnnealingLR(o, 5), module.ExponentialLR(o, 0.5)]
        return module.SequentialLR(o, parts, milestones=[4, 9])

    return make


def at_once(module):
    def make(o):
        parts = [module.ConstantLR(o, 0.1, 4), module.ExponentialLR(o, 0.9), module.MultiStepLR(o, [2, 5], 0.5)]
        return module.ChainedScheduler(parts)

    return make


RATES |= {
    "MultiStepLR": same("MultiStepLR", [2, 5], 0.3),
    "ExponentialLR": same("ExponentialLR", gamma=0.8),
    "LambdaLR": same("LambdaLR", [lambda t: 0.5**t]),
    "LinearLR": same("LinearLR", start_factor=0.5, total_iters=6),
    "ConstantLR": same("ConstantLR", 0.25, 3),
    "PolynomialLR": same("PolynomialLR", 8, 2.0),
    "CosineAnnealingLR": same("CosineAnnealingLR", T_max=4, eta_min=0.01),
    "CosineAnnealingWarmRestarts": same("CosineAnnealingWarmRestarts", 2, 2, 0.01),
    "OneCycleLR": same("OneCycleLR", 0.5, epochs=3, steps_per_epoch=4, pct_start=0.4, div_factor=10.0),
    "OneCycleLR of lines": same("OneCycleLR", 0.5, 12, anneal_strategy="linear"),
    "OneCycleLR of three phases": same("OneCycleLR", 0.5, 12, three_phase=True),
    "OneCycleLR of three lines": same("OneCycleLR", 0.5, 12, pct_start=0.2, anneal_strategy="linear", three_phase=True),
    "CyclicLR": same("CyclicLR", 0.01, 0.5, 3),
    "CyclicLR, all": same("CyclicLR", 0.01, 0.5, 2, 3, "triangular2", base_momentum=0.7, max_momentum=0.8),
    "CyclicLR of a range": same("CyclicLR", 0.01, 0.5, 3, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "CyclicLR by a function": same("CyclicLR", 0.01, 0.5, 3, scale_fn=lambda n: 1 / n, scale_mode="cycle"),
    "MultiplicativeLR": same("MultiplicativeLR", lambda t: 0.9),
    "ChainedScheduler": (
        lambda o: at_once(optim.lr_scheduler)(o),
        lambda o: at_once(torch.optim.lr_scheduler)(o),
    ),
    "SequentialLR": (
        lambda o: in_turn(optim.lr_scheduler)(o),
        lambda o: in_turn(torch.optim.lr_scheduler)(o),
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_schedules(name):
    params, theirs = pair()
    optimizer, twin = optim.SGD(params, lr=0.1), torch.optim.SGD(theirs, lr=0.1)
    schedule, other = RATES[name][0](optimizer), RATES[name][1](twin)
    for t in range(12):
        assert optimizer.lr == pytest.approx(twin.param_groups[0]["lr"], abs=1e-12)
        if name.startswith(("OneCycleLR", "CyclicLR")):
            assert optimizer.momentum == pytest.approx(twin.param_groups[0]["momentum"], abs=1e-12)
        if t < 11:
            same_gradients(params, theirs, t)
            optimizer.step(), twin.step()
            schedule.step(), other.step()


#: Without CosineAnnealingWarmRestarts, whose cycles PyTorch counts anew.
RESUMED = {
    "StepLR": (3, 0.5),
    "MultiStepLR": ([2, 5], 0.3),
    "ExponentialLR": (0.8,),
    "LambdaLR": (lambda t: 0.5**t,),
    "MultiplicativeLR": (lambda t: 0.9,),
    "LinearLR": (0.5, 1.0, 6),
    "ConstantLR": (0.25, 6),
    "PolynomialLR": (8, 2.0),
    "CosineAnnealingLR": (4, 0.01),
    "CyclicLR": (0.01, 0.5, 3),
    "OneCycleLR": (0.5, 12),
}


@pytest.mark.parametrize("name", ["CosineAnnealingWarmRestarts", "StepLR", "ExponentialLR"])
def test_schedules_step_to_an_epoch(name):
    """Of a fraction, as warm restarts are used; the others at whole ones."""
    args = {"CosineAnnealingWarmRestarts": (4, 2, 0.01), "StepLR": (2, 0.5), "ExponentialLR": (0.8,)}[name]
    rates, epochs = [], [0, 0.25, 1.5, 3.75, 4.0, 9.5, 13] if "Warm" in name else [1, 2, 5, 3]
    for module, params in zip((optim, torch.optim), pair(), strict=True):
        optimizer = module.SGD(params, lr=0.1)
        schedule = getattr(module.lr_scheduler, name)(optimizer, *args)
        rates.append([])
        for epoch in epochs:
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch advises against it
                schedule.step(epoch)
            rates[-1].append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(*rates, rtol=1e-9)


@pytest.mark.parametrize("name", RESUMED)
def test_schedules_go_on_from_last_epoch(name):
    """After four steps the optimizer's state goes into a new one, and a new schedule begins where the old one was."""
    rates = []
    for module, params in zip((optim, torch.optim), pair(), strict=True):
        make = getattr(module.lr_scheduler, name)
        optimizer, again = module.SGD(params, lr=0.1), module.SGD(params, lr=0.7)
        schedule = make(optimizer, *RESUMED[name])
        for _ in range(4):
            optimizer.step(), schedule.step()
        again.load_state_dict(optimizer.state_dict())
        schedule = make(again, *RESUMED[name], last_epoch=schedule.last_epoch - 1)
        rates.append([])
        for _ in range(6):
            rates[-1].append(again.param_groups[0]["lr"])
            again.step(), schedule.step()
    np.testing.assert_allclose(*rates, rtol=1e-9)


@pytest.mark.parametrize(
    "numbers", [{"patience": 1}, {"patience": 0, "cooldown": 1}, {"patience": 2, "threshold": 0.2}]
)
def test_plateau(numbers):
    params, theirs = pair()
    optimizer, twin = optim.SGD(params, lr=1.0), torch.optim.SGD(theirs, lr=1.0)
    schedule = optim.ReduceOnPlateau(optimizer, 0.5, **numbers)
    other = theirs_named("ReduceLROnPlateau", factor=0.5, **numbers)(twin)
    for metric in np.random.default_rng(0).random(30):
        schedule.step(metric), other.step(metric)
        assert optimizer.lr == twin.param_groups[0]["lr"]


@pytest.mark.parametrize(
    "numbers", [{"threshold_mode": "abs", "threshold": 0.1}, {"threshold_mode": "rel", "mode": "max"}]
)
def test_plateau_with_pytorch_s_arguments(numbers):
    params, theirs = pair()
    optimizer, twin = optim.SGD(params, lr=1.0), torch.optim.SGD(theirs, lr=1.0)
    schedule, other = [
        make(o) for make, o in zip(same("ReduceLROnPlateau", patience=1, **numbers), (optimizer, twin), strict=True)
    ]
    for metric in np.random.default_rng(1).random(30):
        schedule.step(metric), other.step(metric)
        assert optimizer.lr == twin.param_groups[0]["lr"]


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clipping(norm_type):
    params, theirs = (some[:4] for some in pair())  # PyTorch has no largest of none
    same_gradients(params, theirs, 0)
    norm = optim.clip_grad_norm_(params, 0.5, norm_type)
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(theirs, 0.5, norm_type)), rel=1e-5)
    for p, q in zip(params, theirs, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5)
