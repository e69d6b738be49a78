"""Every optimizer against its formula in NumPy, and what a step must leave alone."""

import gc

import numpy as np
import pytest
from optim_formulas import CASES, both_devices, both_dtypes, close, each_case, parameters, set_gradients

import needle as ndl
from needle import optim

#: SGD and Adam are one kernel, whose arithmetic is in the order of the formula; the others are composed.
EXACT = (optim.SGD, optim.Adam)


@both_devices
@both_dtypes
@each_case
def test_formula(name, dtype, device):
    make, formula, numbers = CASES[name]
    params, values = parameters(dtype, device)
    optimizer, states = make(params, **numbers), [{} for _ in params]
    for t in range(1, 6):
        grads = set_gradients(params, t)
        optimizer.step()
        values = [formula(p, g, s, t, **numbers) for p, g, s in zip(values, grads, states, strict=True)]
        for p, value in zip(params, values, strict=True):
            close(p.numpy(), np.asarray(value), 0 if issubclass(make, EXACT) else 8)
    for kept in optimizer.states:
        for p, state in getattr(optimizer, kept).items():
            assert state.dtype == dtype and state.shape == p.shape and state.device == p.device


@both_devices
@each_case
def test_step_leaves_gradients_and_graphs_alone(name, device):
    make, _, numbers = CASES[name]
    params, _ = parameters(device=device)
    optimizer = make(params, **numbers)
    for t in range(2):
        grads, before = set_gradients(params, t), [p.grad for p in params]
        addresses = [p.realize_cached_data()._handle.ptr() for p in params]
        optimizer.step()
        assert all(p.grad is g for p, g in zip(params, before, strict=True))
        for g, value in zip(before, grads, strict=True):
            np.testing.assert_array_equal(g.numpy(), value)
        assert all(p.is_leaf() and p.requires_grad for p in params)
        assert addresses == [p.realize_cached_data()._handle.ptr() for p in params]
    gc.collect()
    alive = ndl.autograd.TENSOR_COUNTER
    optimizer.step()
    assert alive == ndl.autograd.TENSOR_COUNTER


@each_case
def test_parameters_without_a_gradient_are_skipped(name):
    make, _, numbers = CASES[name]
    params, values = parameters()
    optimizer = make(params, **numbers)
    optimizer.step()
    set_gradients(params, 0)
    params[0].grad = params[2].grad = None
    optimizer.step()
    for i, (p, value) in enumerate(zip(params, values, strict=True)):
        assert np.array_equal(p.numpy(), value) == (i in (0, 2) or not value.size)
    for kept in optimizer.states:
        assert params[0] not in getattr(optimizer, kept)


@both_devices
def test_reset_grad(device):
    params, _ = parameters(device=device)
    for method in ("reset_grad", "zero_grad"):
        set_gradients(params, 0)
        getattr(optim.SGD(params), method)()
        assert all(p.grad is None for p in params)


#: name: a function of a (3, 4) tensor whose gradient is a view, is shared, or carries a graph
GRADIENTS = {
    "broadcast": lambda w: w.sum(),
    "transposed": lambda w: (w.transpose() * ndl.Tensor(np.arange(12.0).reshape(4, 3), device=w.device)).sum(),
    "with a graph": lambda w: (w * w * w).sum(),
    "its own data": lambda w: (w * w).sum() / 2,
}


@both_devices
@pytest.mark.parametrize("function", GRADIENTS)
@each_case
def test_gradients_of_every_kind(name, function, device):
    make, formula, numbers = CASES[name]
    (w, twin), (value, _) = parameters(device=device, shapes=[(3, 4)] * 2)
    optimizer, state = make([w, twin], **numbers), {}
    for t in (1, 2):
        GRADIENTS[function](w).backward()
        twin.grad = w.grad  # shared by two parameters
        g = w.grad.numpy()
        optimizer.step()
        value = formula(value, g, state, t, **numbers)
        close(w.numpy(), value, 8)
        np.testing.assert_array_equal(w.grad.numpy(), g)


@both_devices
@pytest.mark.parametrize("groups", [False, True])
@each_case
def test_gradients_in_the_memory_of_parameters(name, groups, device):
    """The gradient of a sum of products may be the other factor itself: it is read before that changes."""
    make, formula, numbers = CASES[name]
    (a, b), (x, y) = parameters(device=device, shapes=[(3, 4)] * 2)
    optimizer = make([{"params": a}, {"params": b}] if groups else [a, b], **numbers)
    a.grad, b.grad = b.detach(), a.detach()
    optimizer.step()
    close(a.numpy(), formula(x, y, {}, 1, **numbers), 8)
    close(b.numpy(), formula(y, x, {}, 1, **numbers), 8)


def test_gradient_of_another_dtype_is_cast():
    w = ndl.Tensor([1.0, 2.0])
    w.grad = ndl.Tensor(np.array([0.5, 1.0]), dtype="float64")
    for make in (optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad):
        make([w], lr=0.5).step()
        assert w.dtype == "float32"


@both_devices
@each_case
def test_lazy_mode(name, device):
    """All gradients are computed before any parameter changes: those of a product depend on the other factor."""
    results = []
    for lazy in (False, True):
        (a, b), _ = parameters(device=device, shapes=[(3, 4), (4, 2)])
        optimizer = CASES[name][0]([a, b], **CASES[name][2])
        with ndl.lazy_mode(lazy):
            for _ in range(3):
                optimizer.reset_grad()
                ((a @ b) ** 2).sum().backward()
                optimizer.step()
        results.append([a.numpy(), b.numpy()])
    for eager, lazy in zip(*results, strict=True):
        np.testing.assert_array_equal(eager, lazy)


@both_devices
def test_autograd_sees_the_writes(device):
    """A value that depends on a parameter is computed anew for the second backward, or refused; never taken for current."""
    (w,), _ = parameters(device=device, shapes=[(3,)])
    optimizer = optim.SGD([w], lr=0.5)
    (w * w).sum().backward()
    optimizer.step()
    (w * w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * w.numpy())


@both_devices
def test_a_broadcast_parameter_becomes_an_array_of_its_own(device):
    one = ndl.Tensor([[1.0, 2.0]], device=getattr(ndl, device)())
    w = ndl.Tensor(one.realize_cached_data().broadcast_to((3, 2)))
    w.cached_data = one.realize_cached_data().broadcast_to((3, 2))
    w.grad = ndl.Tensor(np.arange(6.0).reshape(3, 2), device=one.device)
    optim.SGD([w], lr=1.0).step()
    assert w.tolist() == [[1, 1], [-1, -1], [-3, -3]] and one.tolist() == [[1, 2]]


def test_gradients_accumulate():
    """Four small batches are one of four times the size."""
    results = []
    for batches in (1, 4):
        (w,), (x, y) = parameters(shapes=[(3, 1)])[0], (np.arange(24.0).reshape(8, 3), np.arange(8.0).reshape(8, 1))
        optimizer = optim.Adam([w], lr=0.1)
        for part, target in zip(np.split(x, batches), np.split(y, batches), strict=True):
            (((ndl.Tensor(part) @ w - ndl.Tensor(target)) ** 2).sum() / 8).backward(accumulate=True)
        optimizer.step()
        results.append(w.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)


@both_devices
@pytest.mark.parametrize(
    "make, numbers",
    [
        (optim.SGD, {"lr": 0.3}),
        (optim.SGD, {"lr": 0.3, "momentum": 0.9}),
        (optim.SGD, {"lr": 0.3, "momentum": 0.9, "nesterov": True}),
        (optim.Adam, {"lr": 0.1}),
        (optim.AdamW, {"lr": 0.1, "weight_decay": 0.0}),
        (optim.RMSprop, {"lr": 0.02}),
        (optim.Adagrad, {"lr": 0.5}),
    ],
)
def test_least_squares(make, numbers, device):
    """y = x w + b is found."""
    rng, where = np.random.default_rng(0), getattr(ndl, device)()
    x = rng.normal(size=(64, 3))
    y = x @ [[1.0], [-2.0], [0.5]] + 3
    x, y = (ndl.Tensor(values, device=where, requires_grad=False) for values in (x, y))
    (w, b), _ = parameters(device=device, shapes=[(3, 1), (1, 1)])
    optimizer = make([w, b], **numbers)
    for _ in range(300):
        optimizer.reset_grad()
        (((x @ w + b.broadcast_to((64, 1)) - y) ** 2).sum() / 64).backward()
        optimizer.step()
    np.testing.assert_allclose(np.concatenate([w.numpy(), b.numpy()]).ravel(), [1, -2, 0.5, 3], atol=0.02)
