"""Tables of learning rates, and when to stop."""

import math

import pytest
from optim_formulas import parameters

from needle import optim
from needle.optim import lr_scheduler


def sgd(lr=1.0):
    (w,), _ = parameters(shapes=[(2,)])
    return optim.SGD([w], lr=lr)


def cosine(start, end, share):
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


#: name: (schedule of an optimizer with lr 1, the rates of the first steps)
TABLES = {
    "step": (lambda o: optim.StepLR(o, 2, 0.5), [1, 1, 0.5, 0.5, 0.25, 0.25]),
    "step, default": (lambda o: optim.StepLR(o, 1), [1, 0.1, 0.01]),
    "lambda": (lambda o: optim.LambdaLR(o, lambda t: 1 / (1 + t)), [1, 1 / 2, 1 / 3, 1 / 4]),
    "cosine": (lambda o: optim.CosineLR(o, 4), [1, cosine(1, 0, 0.25), 0.5, cosine(1, 0, 0.75), 0, 0, 0]),
    "cosine with a floor": (lambda o: optim.CosineLR(o, 2, 0.5), [1, 0.75, 0.5, 0.5]),
    "warm-up": (lambda o: optim.WarmupLR(o, 4), [0.25, 0.5, 0.75, 1, 1, 1]),
    "warm-up of one": (lambda o: optim.LinearWarmup(o, 1), [1, 1]),
    "warm-up, cosine": (lambda o: optim.WarmupLR(o, 2, optim.CosineLR(o, 2)), [0.5, 1, 1, 0.5, 0, 0]),
    "warm-up twice": (lambda o: optim.WarmupLR(o, 2, optim.WarmupLR(o, 2)), [0.5, 1, 0.5, 1, 1]),
    "one cycle": (
        lambda o: optim.OneCycleLR(o, 2.0, 10, up=0.3, div=4, final_div=10),
        [cosine(0.5, 2, t / 2) for t in (0, 1, 2)] + [cosine(2, 0.05, t / 7) for t in range(1, 8)] + [0.05, 0.05],
    ),
    "one cycle, only down": (lambda o: optim.OneCycleLR(o, 2.0, 3, up=0, div=1, final_div=2), [2, 1.5, 1]),
    "milestones": (lambda o: lr_scheduler.MultiStepLR(o, [1, 3], 0.5), [1, 0.5, 0.5, 0.25, 0.25]),
    "exponential": (lambda o: lr_scheduler.ExponentialLR(o, 0.5), [1, 0.5, 0.25]),
    "one function for all": (lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)), [1, 1 / 2, 1 / 3]),
    "linear": (lambda o: lr_scheduler.LinearLR(o, 0.5, total_iters=2), [0.5, 0.75, 1, 1]),
    "linear, at once": (lambda o: lr_scheduler.LinearLR(o, 0.5, 0.25, 0), [0.25, 0.25]),
    "constant": (lambda o: lr_scheduler.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1]),
    "polynomial": (lambda o: lr_scheduler.PolynomialLR(o, 2, 2.0), [1, 0.25, 0, 0]),
    "cosine, up again": (lambda o: lr_scheduler.CosineAnnealingLR(o, 2), [1, 0.5, 0, 0.5, 1, 0.5]),
    "restarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 1, 2), [1, 1, 0.5, 1, cosine(1, 0, 1 / 4), 0.5]),
    "one cycle of epochs": (
        lambda o: lr_scheduler.OneCycleLR(o, 2.0, epochs=2, steps_per_epoch=5, div_factor=4, final_div_factor=10),
        [cosine(0.5, 2, t / 2) for t in (0, 1, 2)] + [cosine(2, 0.05, t / 7) for t in range(1, 8)] + [0.05, 0.05],
    ),
    "one after the other": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.5, total_iters=2), lr_scheduler.ExponentialLR(o, 0.5)], [2]
        ),
        [0.5, 0.75, 1, 0.5, 0.25],
    ),
    "one step": (lambda o: optim.OneCycleLR(o, 2.0, 1, up=1), [2, 2]),
}


@pytest.mark.parametrize("name", TABLES)
def test_table(name):
    make, expected = TABLES[name]
    optimizer = sgd()
    schedule, rates = make(optimizer), []
    for _ in expected:
        rates.append(optimizer.lr)
        assert schedule.last_lr == [optimizer.lr]
        schedule.step()
    assert rates == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("lambda", "one function for all")])
def test_go_on_in_the_middle(name):
    first, second = sgd(), sgd()
    schedule, other = TABLES[name][0](first), TABLES[name][0](second)
    for _ in range(3):
        schedule.step()
    other.load_state_dict(schedule.state_dict())
    for _ in range(4):
        assert first.lr == second.lr
        schedule.step(), other.step()


def test_each_group_has_its_base():
    (w, b), _ = parameters(shapes=[(2,), (3,)])
    optimizer = optim.SGD([{"params": w, "lr": 4.0}, {"params": b}], lr=2.0)
    schedule = optim.StepLR(optimizer, 1, 0.5)
    schedule.step()
    assert schedule.last_lr == [2.0, 1.0]


#: (numbers, metrics, rates after each)
PLATEAUS = [
    ({"patience": 1}, [5, 4, 4, 4, 4, 4], [1, 1, 1, 0.5, 0.5, 0.25]),
    ({"patience": 0}, [5, 5, 4, 4], [1, 0.5, 0.5, 0.25]),
    ({"patience": 0, "cooldown": 2}, [5, 5, 5, 5, 5], [1, 0.5, 0.5, 0.5, 0.25]),
    ({"patience": 0, "min_lr": 0.4}, [5, 5, 5], [1, 0.5, 0.4]),
    ({"patience": 0, "threshold": 0.5}, [8, 5, 3], [1, 0.5, 0.5]),
    ({"patience": 0, "mode": "max"}, [1, 2, 2, 3], [1, 1, 0.5, 0.5]),
    ({"patience": 0}, [math.nan, 1, math.nan], [0.5, 0.5, 0.25]),
]


@pytest.mark.parametrize("numbers, metrics, expected", PLATEAUS)
def test_plateau(numbers, metrics, expected):
    optimizer = sgd()
    schedule, rates = optim.ReduceOnPlateau(optimizer, factor=0.5, **numbers), []
    for metric in metrics:
        schedule.step(metric)
        rates.append(optimizer.lr)
    assert rates == expected


#: (numbers, values, after which of them to stop, the best and when)
STOPS = [
    ({"patience": 1}, [3, 2, 2], 3, (2, 2)),
    ({"patience": 2}, [3, 2, 2.5, 1, 1, 1], 6, (1, 4)),
    ({"patience": 2, "min_delta": 0.5}, [3, 2.9, 2.8], 3, (3, 1)),
    ({"patience": 2, "mode": "max"}, [1, 2, 1, 0], 4, (2, 2)),
    ({"patience": 2}, [math.nan, math.nan], 2, (math.inf, 0)),
    ({"patience": 3}, [3, 2, 1, 0], None, (0, 4)),
]


@pytest.mark.parametrize("numbers, values, stop, best", STOPS)
def test_early_stopping(numbers, values, stop, best):
    stopping = optim.EarlyStopping(**numbers)
    for i, value in enumerate(values, 1):
        other = optim.EarlyStopping(**numbers)
        other.load_state_dict(stopping.state_dict())
        assert stopping.step(value) == other.step(value) == stopping.should_stop == (i == stop)
    assert (stopping.best, stopping.best_step) == best


def test_one_cycle_moves_the_momentum_the_other_way():
    optimizer = sgd()
    schedule, momenta = lr_scheduler.OneCycleLR(optimizer, 1.0, 5, pct_start=0.6), []
    for _ in range(5):
        momenta.append(round(optimizer.momentum, 6))
        schedule.step()
    assert momenta == [0.95, 0.9, 0.85, 0.9, 0.95] and schedule.get_last_lr() == [optimizer.lr]
    adam = optim.Adam([parameters(shapes=[(2,)])[0][0]])
    lr_scheduler.OneCycleLR(adam, 1.0, 5)
    assert adam.beta1 == 0.95


def test_plateau_with_the_arguments_of_pytorch():
    optimizer = sgd()
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, "max", 0.5, 0)
    for metric in (1.0, 2.0, 1.5):
        schedule.step(metrics=metric)
    assert optimizer.lr == 0.5
