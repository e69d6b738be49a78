"""States that have lost something are refused: a run does not go on from what starts at nothing."""

import copy

import numpy as np
import pytest
from optim_formulas import CASES, each_case, parameters, set_gradients
from trainer_helpers import network, points, seeded, trainer  # noqa: F401  a fixture

import needle as ndl
from needle import optim
from needle_nn.data import DataLoader
from needle_nn.training import Average, EarlyStop, accuracy


def stepped(make, numbers, frozen=()):
    """An optimizer of three parameters after two steps; the frozen ones had no gradients."""
    params, _ = parameters(shapes=[(2,), (3,), (4,)])
    optimizer = make(params, **numbers)
    for t in range(2):
        set_gradients(params, t)
        for i in frozen:
            params[i].grad = None
        optimizer.step()
    return optimizer


def without_kept(state):
    """A state as it was before it named what it keeps."""
    return {name: value for name, value in state.items() if name != "kept"}


def held(optimizer):
    return [name for name in optimizer.states if getattr(optimizer, name)]


def refused(optimizer, state, message):
    before = repr(optimizer.state_dict())
    with pytest.raises(ValueError, match=rf"^{type(optimizer).__name__}\.load_state_dict: {message}"):
        optimizer.load_state_dict(state)
    assert repr(optimizer.state_dict()) == before


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("frozen", [(), (1,)])
@each_case
def test_moments_of_one_parameter_or_of_all(name, frozen, old):
    make, _, numbers = CASES[name]
    optimizer = stepped(make, numbers, frozen)
    form = without_kept if old else copy.copy
    state = form(optimizer.state_dict())
    stepped(make, numbers).load_state_dict(state)  # whole
    for entry in held(optimizer):
        refused(optimizer, {**state, entry: {}}, f"{entry}")
        if not old or len(held(optimizer)) > 1:  # a single state of old says nothing of who should have an entry
            less = {key: value for key, value in state[entry].items() if key != "2"}
            refused(optimizer, {**state, entry: less}, f"{entry}: no entry for parameter 2: the state is incomplete$")
    everything = {entry: {} for entry in held(optimizer)}
    if everything:
        refused(optimizer, {**state, **everything}, "|".join(everything))


@each_case
def test_a_state_before_the_first_step(name):
    make, _, numbers = CASES[name]
    params, _ = parameters()
    for form in (without_kept, copy.copy):
        make(params, **numbers).load_state_dict(form(make(params, **numbers).state_dict()))


def test_momentum_that_was_switched_on_later():
    (w, b), _ = parameters(shapes=[(2,), (3,)])
    optimizer = optim.SGD([w, b])
    set_gradients([w, b], 0)
    optimizer.step()
    optimizer.momentum = 0.9
    optim.SGD([w, b]).load_state_dict(optimizer.state_dict())


def test_steps_without_any_gradient():
    (w,), _ = parameters(shapes=[(2,)])
    optimizer = optim.Adam([w])
    optimizer.step()
    optim.Adam([w]).load_state_dict(optimizer.state_dict())


def schedule_of(make):
    return make(optim.SGD(parameters(shapes=[(2,)])[0], lr=1.0))


def lbfgs():
    (w,), _ = parameters(shapes=[(2,)])
    optimizer = optim.LBFGS([w], max_iter=4)
    optimizer.step(lambda: ((w - 1) ** 4).sum())
    return optimizer


#: Everything else with a state: each of its entries is needed.
PARTS = {
    "StepLR": lambda: schedule_of(lambda o: optim.StepLR(o, 2)),
    "LambdaLR": lambda: schedule_of(lambda o: optim.LambdaLR(o, lambda t: 1.0)),
    "CosineLR": lambda: schedule_of(lambda o: optim.CosineLR(o, 5)),
    "WarmupLR": lambda: schedule_of(lambda o: optim.WarmupLR(o, 2, optim.CosineLR(o, 5))),
    "OneCycleLR": lambda: schedule_of(lambda o: optim.OneCycleLR(o, 1.0, 5)),
    "ReduceOnPlateau": lambda: schedule_of(optim.ReduceOnPlateau),
    "EMA": lambda: optim.EMA(parameters(shapes=[(2,), (3,)])[0]),
    "EarlyStopping": optim.EarlyStopping,
    "LBFGS": lbfgs,
    "DataLoader": lambda: DataLoader(points(), 4, shuffle=True),
}


@pytest.mark.parametrize("name", PARTS)
def test_no_entry_may_be_missing(name):
    part = PARTS[name]()
    state = part.state_dict()
    part.load_state_dict(state)
    for entry in state:
        less = {key: value for key, value in state.items() if key != entry}
        if (name, entry) == ("LBFGS", "kept"):
            part.load_state_dict(less)  # older states
            continue
        with pytest.raises(ValueError, match=rf"{name}.*{entry}"):
            part.load_state_dict(less)


def test_pairs_and_averages_are_counted():
    part = lbfgs()
    state = part.state_dict()
    assert state["pairs"]
    for pairs in (state["pairs"][1:], [pair[:1] for pair in state["pairs"]]):
        refused(part, {**state, "pairs": pairs}, "pairs|half")
    ema = PARTS["EMA"]()
    with pytest.raises(ValueError, match=r"^EMA\.load_state_dict: 1 averages for 2 parameters$"):
        ema.load_state_dict({"t": 1, "average": {"0": np.zeros(2)}})


# ---- As the course writes them -------------------------------------------------------------------------------------


class Momentum(ndl.optim.Optimizer):
    """Declares nothing: its state is a dict that `__init__` makes, its numbers are attributes."""

    def __init__(self, params, lr=0.1, kind="Tensor"):
        super().__init__(params)
        self.lr, self.kind, self.u, self.counts = lr, kind, {}, {}

    def step(self):
        self.t += 1
        for p in self.params:
            g = p.grad.realize_cached_data() + self._value(p) * 0.9
            self.u[p] = ndl.Tensor(g, requires_grad=False) if self.kind == "Tensor" else g
            self.counts[p] = self.counts.get(p, 0) + 1
            p.data = ndl.Tensor(p.realize_cached_data() - g * self.lr, dtype=p.dtype)

    def _value(self, p):
        if p not in self.u:
            return p.grad.realize_cached_data() * 0
        return self.u[p].realize_cached_data() if self.kind == "Tensor" else self.u[p]


@pytest.mark.parametrize("kind", ["Tensor", "NDArray"])
def test_undeclared_moments_are_part_of_the_state(kind):
    params, _ = parameters()
    whole = Momentum(params, 0.5, kind)
    for t in range(2):
        set_gradients(params, t)
        whole.step()
    values, state = [p.numpy() for p in params], whole.state_dict()
    again, _ = parameters(seed=7)
    for p, value in zip(again, values, strict=True):
        p.data = ndl.Tensor(value, dtype=p.dtype)
    second = Momentum(again, 0.1, kind)
    second.load_state_dict(state)
    assert second.lr == 0.5 and second.t == 2 and set(second.counts.values()) == {2}
    for optimizer in (whole, second):
        set_gradients(optimizer.params, 2)
        optimizer.step()
    for p, q in zip(params, again, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())
    refused(second, {**state, "u": {"0": state["u"]["0"]}}, "u: no entry for parameter 1")


SCHEDULES = {
    "StepLR": (lambda o: optim.StepLR(o, 1, 0.5), 0.25),
    "CosineLR": (lambda o: optim.CosineLR(o, 4), 0.5),
    "WarmupLR": (lambda o: optim.WarmupLR(o, 4), 0.75),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_an_optimizer_with_lr_as_attribute(name):
    make, rate = SCHEDULES[name]
    optimizer = Momentum(parameters()[0], lr=1.0)
    schedule = make(optimizer)
    schedule.step()
    schedule.step()
    assert optimizer.lr == pytest.approx(rate) and schedule.last_lr == [optimizer.lr]
    other = Momentum(parameters()[0], lr=1.0)
    again = make(other)
    again.load_state_dict(schedule.state_dict())
    assert other.lr == optimizer.lr


def test_plateau_of_an_optimizer_with_lr_as_attribute():
    optimizer = Momentum(parameters()[0], lr=1.0)
    schedule = optim.ReduceOnPlateau(optimizer, 0.5, patience=0)
    for loss in (1.0, 1.0):
        schedule.step(loss)
    assert optimizer.lr == 0.5


def test_an_optimizer_without_a_learning_rate():
    class Nothing(ndl.optim.Optimizer): ...

    with pytest.raises(TypeError, match=r"^StepLR: Nothing has no learning rate: expected an attribute lr$"):
        optim.StepLR(Nothing(parameters()[0]), 2)


# ---- Trainer ---------------------------------------------------------------------------------------------------------


def test_a_run_whose_optimizer_lost_its_moments():
    made = trainer()
    made.fit(DataLoader(points(), 16), 1)
    state = made.state_dict()
    state["optimizer"] |= {"m": {}, "v": {}}
    with pytest.raises(ValueError, match=r"^Adam\.load_state_dict: m: no entry for parameter 0, 1, 2, 3, 4, 5"):
        trainer().load_state_dict(state)


def test_a_run_whose_callbacks_lost_their_state():
    def make(**options):
        model = network()
        return trainer(model, callbacks=[Average(optim.EMA(model.parameters()))], **options)

    made = make()
    made.fit(DataLoader(points(), 16), None, steps=2)
    state = made.state_dict()
    make().load_state_dict(state)
    with pytest.raises(ValueError, match=r"^Trainer: the state has no callback Average$"):
        make().load_state_dict({**state, "callbacks": {}})
    with pytest.raises(ValueError, match=r"^Trainer: the state has no mean of accuracy in an epoch under way$"):
        make(metrics={"accuracy": accuracy}).load_state_dict(state)


def test_two_callbacks_of_one_name():
    stops = [EarlyStop(optim.EarlyStopping(), "loss"), EarlyStop(optim.EarlyStopping(), "accuracy")]
    with pytest.raises(ValueError, match=r"^Trainer: two callbacks with a state have the name EarlyStop$"):
        trainer(callbacks=stops).state_dict()
