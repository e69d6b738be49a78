"""state_dict: a run that is interrupted goes on bit for bit, and what does not fit is refused whole."""

import copy
import json
import pickle

import numpy as np
import pytest
from optim_formulas import CASES, both_devices, both_dtypes, each_case, parameters, set_gradients

import needle as ndl
from needle import optim
from needle_ndarray import NDArray


def run(optimizer, steps, schedule=None):
    for t in steps:
        set_gradients(optimizer.params, t)
        if t % 2:
            optimizer.params[1].grad = None  # has its own history
        optimizer.step()
        if schedule is not None:
            schedule.step()


def bits(params):
    return [p.numpy().tobytes() for p in params]


#: How a state may travel: as it is, pickled, as NumPy arrays or Tensors.
TRAVEL = {
    "as it is": lambda state: state,
    "pickled": lambda state: pickle.loads(pickle.dumps(state)),
    "numpy": lambda state: convert(state, lambda a: a.numpy()),
    "tensors": lambda state: convert(state, lambda a: ndl.Tensor(a, dtype=a.dtype)),
}


def convert(state, how):
    if isinstance(state, dict):
        return {key: convert(value, how) for key, value in state.items()}
    if isinstance(state, list):
        return [convert(value, how) for value in state]
    return how(state) if isinstance(state, NDArray) else state


@each_case
def test_to(name):
    """Parameters, gradients and states go to another device, as the objects they are, and the steps go on there."""
    make, _, numbers = CASES[name]
    stays, moves = (make(parameters("float64", "cpu")[0], **numbers) for _ in range(2))
    run(stays, range(4))
    run(moves, range(2))
    params, there = list(moves.params), ndl.cpu_numpy()
    assert moves.to(there) is moves and all(p is q for p, q in zip(moves.params, params, strict=True))
    for p in params:
        assert p.device == there and (p.grad is None or p.grad.device == there)
    run(moves, range(2, 4))
    for p, q in zip(stays.params, moves.params, strict=True):
        np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=1e-12)


@pytest.mark.parametrize("travel", TRAVEL)
@both_devices
@both_dtypes
@each_case
def test_round_trip(name, dtype, device, travel):
    make, _, numbers = CASES[name]
    params, _ = parameters(dtype, device)
    whole = make(params, **numbers)
    whole_schedule = optim.CosineLR(whole, 10)
    run(whole, range(3), whole_schedule)
    kept = [p.numpy() for p in params]
    states = TRAVEL[travel](whole.state_dict()), whole_schedule.state_dict()
    run(whole, range(3, 7), whole_schedule)
    expected = bits(params)

    again, _ = parameters(dtype, device, seed=5)
    second = make(again, **{**numbers, "lr": 0.3})
    schedule = optim.CosineLR(second, 10)
    for p, value in zip(again, kept, strict=True):
        p.realize_cached_data()[...] = value
    second.load_state_dict(states[0])
    schedule.load_state_dict(states[1])
    run(second, range(3, 7), schedule)
    assert bits(again) == expected
    # in the same order, too: a checkpoint has the bytes of a run that was not cut
    assert [list(group) for group in second.param_groups] == [list(group) for group in whole.param_groups]
    assert repr(second.state_dict()["groups"]) == repr(whole.state_dict()["groups"])


@each_case
def test_state_is_a_copy_of_plain_things(name):
    make, _, numbers = CASES[name]
    params, _ = parameters()
    optimizer = make(params, **numbers)
    run(optimizer, range(2))
    state = optimizer.state_dict()
    before = convert(state, lambda a: a.numpy().tobytes().hex())
    text = json.dumps(before)
    run(optimizer, range(2, 4))
    optimizer.lr = 7
    assert json.dumps(convert(state, lambda a: a.numpy().tobytes().hex())) == text
    other = make(parameters()[0], **numbers)
    other.load_state_dict(state)
    run(other, range(2))
    assert json.dumps(convert(state, lambda a: a.numpy().tobytes().hex())) == text


def test_groups_travel():
    params, _ = parameters(shapes=[(2,), (3,), (4,)])
    optimizer = optim.SGD([{"params": params[:2], "lr": 0.5}, {"params": params[2]}], lr=0.25)
    state = optimizer.state_dict()
    assert [group["params"] for group in state["groups"]] == [[0, 1], [2]]
    other = optim.SGD([{"params": params[:2]}, {"params": params[2]}])
    other.load_state_dict(state)
    assert [group["lr"] for group in other.param_groups] == [0.5, 0.25]


def edited(**changes):
    def edit(state):
        return {**state, **changes}

    return edit


#: (what is done to the state of Adam over parameters of shapes (2,) and (3,), what is said)
MISFITS = {
    "another optimizer": (
        lambda state: {"t": 1, "groups": state["groups"], "u": {}},
        "no 'm' in it: a state of something else[?]",
    ),
    "no t": (lambda state: {"groups": []}, "no 't' in it: a state of something else[?]"),
    "fewer parameters": (
        lambda state: {**state, "groups": [{**state["groups"][0], "params": [0]}]},
        r"groups of \[1\] parameters, this optimizer has \[2\]",
    ),
    "more groups": (
        lambda state: {**state, "groups": state["groups"] * 2},
        r"groups of \[2, 2\] parameters, this optimizer has \[2\]",
    ),
    "other options": (
        lambda state: {**state, "groups": [{"params": [0, 1], "lr": 1}]},
        "options beta1, beta2, eps, weight_decay are in only one of the two",
    ),
    "bad number": (
        lambda state: {**state, "groups": [{**state["groups"][0], "lr": -1}]},
        "lr = -1: expected a number from 0 on",
    ),
    "another shape": (edited(m={"0": np.zeros(3)}), r"m: entry 0 has shape \(3,\), its parameter \(2,\)"),
    "one too many": (edited(v={"2": np.zeros(3)}), "v: entry '2', but there are 2 parameters"),
    "no number": (edited(v={"w": np.zeros(3)}), "v: entry 'w', but there are 2 parameters"),
    "no dict": (edited(v=[1]), "v: expected a dict, got list"),
    "nothing": (lambda state: None, "expected a dict, got NoneType"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_change_nothing(name):
    edit, message = MISFITS[name]
    params, _ = parameters(shapes=[(2,), (3,)])
    optimizer = optim.Adam(params, lr=0.5)
    run(optimizer, range(2))
    before = convert(optimizer.state_dict(), lambda a: a.tolist())
    with pytest.raises((ValueError, TypeError), match=f"^Adam.load_state_dict: {message}$"):
        optimizer.load_state_dict(edit(copy.copy(optimizer.state_dict())))
    assert convert(optimizer.state_dict(), lambda a: a.tolist()) == before


def test_state_of_a_plateau():
    (w,), _ = parameters(shapes=[(2,)])
    first = optim.ReduceOnPlateau(optim.SGD([w], lr=1.0), 0.5, patience=1)
    for loss in (3.0, 3.0):
        first.step(loss)
    second = optim.ReduceOnPlateau(optim.SGD([w], lr=1.0), 0.5, patience=1)
    second.load_state_dict(first.state_dict())
    second.step(3.0)
    assert second.last_lr == [0.5] and second.t == 3


def test_schedule_of_other_groups():
    (w, b), _ = parameters(shapes=[(2,), (3,)])
    state = optim.StepLR(optim.SGD([{"params": w}, {"params": b}]), 2).state_dict()
    with pytest.raises(ValueError, match=r"^StepLR.load_state_dict: 2 groups, the optimizer has 1$"):
        optim.StepLR(optim.SGD([w]), 2).load_state_dict(state)


def test_states_of_something_else():
    (w,), _ = parameters(shapes=[(2,)])
    optimizer = optim.SGD([w])
    parts = (
        optimizer,
        optim.StepLR(optimizer, 2),
        optim.ReduceOnPlateau(optimizer),
        optim.EMA([w]),
        optim.EarlyStopping(2),
    )
    for part in (*parts, optim.LBFGS([w])):
        for state in ({"what": 3}, None, [1]):
            with pytest.raises((ValueError, TypeError), match=rf"^{type(part).__name__}.load_state_dict: "):
                part.load_state_dict(state)
