"""Clipped gradients and averaged parameters."""

import math

import numpy as np
import pytest
from optim_formulas import both_devices, both_dtypes, close, parameters, set_gradients

import needle as ndl
from needle import optim


@both_devices
@both_dtypes
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("share", [0.25, 0.9, 2.0])
def test_norm(share, norm_type, dtype, device):
    params, _ = parameters(dtype, device)
    grads, before = set_gradients(params, 0), [p.grad for p in params]
    norm = np.linalg.norm(np.concatenate([g.ravel() for g in grads]).astype("float64"), norm_type)
    assert optim.grad_norm(params, norm_type) == pytest.approx(norm, rel=1e-5)
    assert optim.clip_grad_norm_(params, share * norm, norm_type) == pytest.approx(norm, rel=1e-5)
    for p, g, old in zip(params, grads, before, strict=True):
        close(p.grad.numpy(), (g * min(1.0, share * norm / (norm + 1e-6))).astype(dtype), 8)
        np.testing.assert_array_equal(old.numpy(), g)
        assert (p.grad is old) == (share == 2)


@both_devices
@both_dtypes
def test_value(dtype, device):
    params, _ = parameters(dtype, device)
    grads, before = set_gradients(params, 0), [p.grad for p in params]
    optim.clip_grad_value_(params, 0.5)
    for p, g, old in zip(params, grads, before, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), np.clip(g, -0.5, 0.5))
        np.testing.assert_array_equal(old.numpy(), g)


@both_devices
def test_views_and_shared_gradients(device):
    """The gradient of a sum is one number seen many times; two parameters may share an array."""
    (w, twin), _ = parameters(device=device, shapes=[(3, 4)] * 2)
    w.sum().backward()
    twin.grad = w.grad
    optim.clip_grad_norm([w, twin], 1.0)
    np.testing.assert_allclose(w.grad.numpy(), np.full((3, 4), 24**-0.5), rtol=1e-5)
    np.testing.assert_array_equal(w.grad.numpy(), twin.grad.numpy())
    assert w.grad.is_leaf() and not w.grad.requires_grad


def test_course_method():
    params, _ = parameters()
    for optimizer in (optim.SGD(params), optim.Adam(params)):
        set_gradients(params, 0)
        assert optimizer.clip_grad_norm() > 1
        assert optim.grad_norm(params) == pytest.approx(0.25, rel=1e-4)
        optimizer.clip_grad_norm(max_norm=0.125)
        assert optim.grad_norm(params) == pytest.approx(0.125, rel=1e-4)


#: Gradients beside which squares leave the range of float32, none at all, and such as have no norm.
EXTREMES = [([3e30, 4e30], 5e30), ([3e-30, 4e-30], 5e-30), ([0.0, 0.0], 0.0), ([], 0.0), ([math.inf, 1.0], math.inf)]


@pytest.mark.parametrize("values, norm", EXTREMES, ids=str)
def test_extremes(values, norm):
    w = ndl.Tensor(np.zeros(len(values), "float32"))
    assert optim.clip_grad_norm([w], 1.0) == 0
    w.grad = ndl.Tensor(np.array(values, "float32"))
    assert optim.grad_norm(w) == pytest.approx(norm, rel=1e-6)


def test_not_a_number():
    w = ndl.Tensor([1.0, 2.0])
    w.grad = ndl.Tensor([math.nan, 1.0])
    for order in (2.0, math.inf):
        with pytest.raises(ValueError, match=r"^clip_grad_norm: the norm of the gradients is nan$"):
            optim.clip_grad_norm([w], 1.0, order, error_if_nonfinite=True)
    assert w.grad.tolist()[1] == 1
    assert math.isnan(optim.clip_grad_norm([w], 1.0))
    assert np.isnan(w.grad.numpy()).all()


# ---- Averages -----------------------------------------------------------------------------------------------------------


@both_devices
@both_dtypes
@pytest.mark.parametrize("ramp", [False, True])
def test_average(ramp, dtype, device):
    params, values = parameters(dtype, device)
    ema, optimizer, f = optim.EMA(params, 0.9, ramp), optim.SGD(params, lr=0.5), np.dtype(dtype).type
    for t in range(4):
        set_gradients(params, t)
        optimizer.step()
        ema.update()
        decay = min(0.9, (1 + t) / (10 + t)) if ramp else 0.9
        values = [f(decay) * v + f(1 - decay) * p.numpy() for v, p in zip(values, params, strict=True)]
    trained = [p.numpy() for p in params]
    with ema as entered:
        assert entered is ema
        for p, value in zip(params, values, strict=True):
            close(p.numpy(), np.asarray(value), 2)
        for refused in (ema.update, ema.state_dict, ema.copy_to_params, ema.__enter__):
            with pytest.raises(RuntimeError, match="averages"):
                refused()
    for p, value in zip(params, trained, strict=True):
        np.testing.assert_array_equal(p.numpy(), value)
    ema.copy_to_params()
    for p, value in zip(params, values, strict=True):
        close(p.numpy(), np.asarray(value), 2)


def test_average_comes_back_after_an_error():
    (w,), (value,) = parameters(shapes=[(3,)])
    ema = optim.EMA([w])
    with pytest.raises(KeyError), ema:
        raise KeyError
    np.testing.assert_array_equal(w.numpy(), value)
    ema.update()


def test_average_goes_on():
    params, _ = parameters()
    first, second = optim.EMA(params, 0.5), optim.EMA(parameters(seed=3)[0], 0.5)
    set_gradients(params, 0)
    optim.SGD(params, lr=1.0).step()
    first.update()
    second.load_state_dict(first.state_dict())
    assert second.t == 1
    for a, b in zip(first.average.values(), second.average.values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    with pytest.raises(ValueError, match=r"^EMA.load_state_dict: 0 averages for 6 parameters$"):
        second.load_state_dict({"t": 1, "average": {}})
