"""Gradients that lie in a plan's arena: whoever holds on to one keeps its values, and the memory of a plan stays what it is."""

import gc
import weakref

import numpy as np
import pytest

import needle as ndl
import needle_ndarray as nd

SHAPE = (64, 80)  # 20 KB: enough for a place in the arena


def tensor(seed, **options):
    return ndl.Tensor(np.random.default_rng(seed).standard_normal(SHAPE).astype("float32"), **options)


def training(wrap, reset=True):
    """A step of two parameters, which are returned as well."""
    w, v = tensor(0), tensor(1)

    def step(x):
        if reset:
            w.grad = v.grad = None
        h = (x * w).tanh()
        loss = ((h * v).exp() * h).sum()
        loss.backward()
        with ndl.no_grad():
            w.data = w - w.grad.detach() * 0.01
        return loss

    return wrap(step), w, v


#: What is kept of a gradient after each call, as something that numpy() or NumPy can read.
HOLDS = {
    "nothing": lambda p: None,
    "the gradient": lambda p: p.grad,
    "its array": lambda p: p.grad.realize_cached_data(),
    "a view": lambda p: p.grad.realize_cached_data()[3:],
    "an export": lambda p: np.from_dlpack(p.grad.realize_cached_data()),
}


def numbers(held):
    return None if held is None else np.array(held if isinstance(held, np.ndarray) else held.numpy())


@pytest.mark.parametrize("every", [1, 3], ids=["after each call", "after each third"])
@pytest.mark.parametrize("reset", [True, False], ids=["dropped inside", "dropped outside"])
@pytest.mark.parametrize("name", HOLDS)
def test_what_is_held_stays(name, reset, every):
    runs = []
    for wrap in (lambda f: f, ndl.capture(strict=True)):
        step, w, v = training(wrap, reset)
        held, found = [], []
        for i in range(12):
            if not reset:
                w.grad = v.grad = None
            loss = step(tensor(10 + i, requires_grad=False))
            if i % every == every - 1:
                kept = HOLDS[name](v)
                held.append((kept, numbers(kept)))
            found += [loss.numpy().tobytes(), w.grad.numpy().tobytes(), v.grad.numpy().tobytes(), w.numpy().tobytes()]
        for kept, before in held:
            np.testing.assert_array_equal(numbers(kept), before)
        runs.append(found)
    assert runs[0] == runs[1] and step.plans[0].replays >= 9
    built = step.plans[0].tensor_plan.built
    assert (v.grad.realize_cached_data()._handle is arena(built)) == (name == "nothing")


def arena(built):
    ((views, _),) = built.arenas
    return views.views[0]._handle


def test_gradients_take_no_memory_of_their_own():
    """The plan's temporary arrays are where a gradient will be, before it is there."""
    step, w, v = training(ndl.capture(strict=True))
    for i in range(4):
        step(tensor(i, requires_grad=False))
    plan = step.plans[0].plan
    assert len(plan.lent) == 2 and all(plan.sizes[b] == 20480 for b in plan.lent)
    assert plan.nbytes < 5 * 20480
    assert (
        v.grad.realize_cached_data()._handle
        is w.grad.realize_cached_data()._handle
        is arena(step.plans[0].tensor_plan.built)
    )


def test_a_gradient_that_is_held_once_costs_one_arena():
    """After that, gradients have memory of their own, and what is held of later ones is theirs alone."""
    step, _, v = training(ndl.capture(strict=True))
    held, arenas = [], set()
    for i in range(10):
        step(tensor(i, requires_grad=False))
        held.append(v.grad)
        if step.plans:
            arenas.add(id(arena(step.plans[0].tensor_plan.built)))
    assert len(arenas) == 2
    assert all(g.realize_cached_data()._handle.nbytes == 20480 for g in held[4:])


PUT = {"none": lambda v: None, "zeros": ndl.zeros_like, "a view": lambda v: v.grad.detach()}


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_a_gradient_that_was_put_there(put):
    runs = []
    for wrap in (lambda f: f, ndl.capture(strict=True)):
        step, _, v = training(wrap)
        found = []
        for i in range(10):
            found += [step(tensor(i, requires_grad=False)).numpy().tobytes(), v.grad.numpy().tobytes()]
            v.grad = put(v)
        runs.append(found)
    assert runs[0] == runs[1]


def test_an_error_leaves_no_gradient_that_is_written_over():
    """As in eager code, where it was dropped before."""
    table = tensor(0)

    def step(x, index):
        table.grad = None
        loss = (table[index] * x).exp().sum()
        loss.backward()
        return loss

    index = ndl.Tensor(np.arange(64), dtype="int64", requires_grad=False)
    wrong = ndl.Tensor(np.arange(64) + 10, dtype="int64", requires_grad=False)
    captured = ndl.capture(step, strict=True)
    for i in range(4):
        captured(tensor(i, requires_grad=False), index)
    before = table.grad.numpy()
    assert table.grad is not None and captured.plans[0].replays == 2
    with pytest.raises(IndexError):
        captured(tensor(9, requires_grad=False), wrong)
    assert table.grad is None
    captured(tensor(3, requires_grad=False), index)
    np.testing.assert_array_equal(table.grad.numpy(), before)


def test_a_recording_lets_go_of_what_it_was_given():
    """Of the argument, and of the gradients that were there before it."""
    step, _, v = training(ndl.capture)
    x = tensor(0, requires_grad=False)
    step(x)
    gone = [weakref.ref(x), weakref.ref(v.grad)]
    del x
    step(tensor(1, requires_grad=False))
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_memory_stays_what_it_is():
    step, _, _ = training(ndl.capture(strict=True))
    x = tensor(0, requires_grad=False)
    for _ in range(5):
        step(x)
    before = nd.memory_stats()["live_bytes"]
    for _ in range(50):
        step(x)
    assert nd.memory_stats()["live_bytes"] == before
