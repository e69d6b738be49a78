"""Optimizers as formulas in NumPy, in the parameter's dtype, and the cases that tests of optimizers share."""

import numpy as np
import pytest

import needle as ndl
from needle import optim

DEVICES = ["cpu", "cpu_numpy"] + ["cuda"] * ndl.cuda().enabled()  # by a GPU, or by needle-cuda's emulation
both_devices = pytest.mark.parametrize("device", DEVICES)
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
SHAPES = [(3, 4), (), (5,), (2, 1, 3), (0, 2), (1300,)]


def sgd(p, g, s, t, lr=0.01, momentum=0.0, weight_decay=0.0, nesterov=False, unbiased=False, l1=0.0, dampening=None):
    f = p.dtype.type
    g = g + f(weight_decay) * p if weight_decay else g
    g = g + f(l1) * np.sign(p) if l1 else g
    if not momentum:
        return p - f(lr) * g
    rest = f(1 - (momentum if dampening is None else dampening))
    u = s["u"] = f(momentum) * s.get("u", f(0)) + rest * g
    along = f(momentum) * u + rest * g if nesterov else u
    return p - f(lr) * (along / f(1 - momentum ** (t + nesterov)) if unbiased else along)


def adam(p, g, s, t, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    f = p.dtype.type
    g = g + f(weight_decay) * p if weight_decay else g
    s["m"] = f(beta1) * s.get("m", f(0)) + f(1 - beta1) * g
    s["v"] = f(beta2) * s.get("v", f(0)) + f(1 - beta2) * g * g
    m, v = s["m"] / f(1 - beta1**t), s["v"] / f(1 - beta2**t)
    return p - f(lr) * m / (np.sqrt(v) + f(eps))


def adamw(p, g, s, t, lr=0.01, weight_decay=0.01, **rest):
    return adam(p - p.dtype.type(lr * weight_decay) * p, g, s, t, lr, **rest)


def rmsprop(p, g, s, t, lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    f = p.dtype.type
    g = g + f(weight_decay) * p
    v = s["v"] = f(alpha) * s.get("v", f(0)) + f(1 - alpha) * g * g
    mean = s["mean"] = f(alpha) * s.get("mean", f(0)) + f(1 - alpha) * g
    step = g / (np.sqrt(v - mean * mean if centered else v) + f(eps))
    if momentum:
        step = s["u"] = f(momentum) * s.get("u", f(0)) + step
    return p - f(lr) * step


def adagrad(p, g, s, t, lr=0.01, lr_decay=0.0, weight_decay=0.0, initial=0.0, eps=1e-10):
    f = p.dtype.type
    g = g + f(weight_decay) * p
    s["s"] = s.get("s", f(initial)) + g * g
    return p - f(lr / (1 + (t - 1) * lr_decay)) * (g / (np.sqrt(s["s"]) + f(eps)))


def adadelta(p, g, s, t, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    f = p.dtype.type
    g = g + f(weight_decay) * p
    v = s["v"] = f(rho) * s.get("v", f(0)) + f(1 - rho) * g * g
    d = np.sqrt(s.get("a", f(0)) + f(eps)) / np.sqrt(v + f(eps)) * g
    s["a"] = f(rho) * s.get("a", f(0)) + f(1 - rho) * d * d
    return p - f(lr) * d


def moments(p, g, s, beta1, beta2, weight_decay):
    f = p.dtype.type
    g = g + f(weight_decay) * p
    s["m"] = f(beta1) * s.get("m", f(0)) + f(1 - beta1) * g
    s["v"] = f(beta2) * s.get("v", f(0)) + f(1 - beta2) * g * g
    return g, s["m"], s["v"]


def nadam(p, g, s, t, lr=0.002, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, momentum_decay=0.004):
    f = p.dtype.type
    g, m, v = moments(p, g, s, beta1, beta2, weight_decay)
    c = [beta1 * (1 - 0.96 ** (i * momentum_decay) / 2) for i in range(1, t + 2)]
    step = f((1 - c[t - 1]) / (1 - np.prod(c[:t]))) * g + f(c[t] / (1 - np.prod(c))) * m
    return p - f(lr) * step / (np.sqrt(v / f(1 - beta2**t)) + f(eps))


def radam(p, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    f = p.dtype.type
    _, m, v = moments(p, g, s, beta1, beta2, weight_decay)
    n = 2 / (1 - beta2) - 1
    rho = n - 2 * t * beta2**t / (1 - beta2**t)
    step = m / f(1 - beta1**t)
    if rho > 5:
        r = np.sqrt((rho - 4) * (rho - 2) * n / ((n - 4) * (n - 2) * rho))
        step = step * f(r * np.sqrt(1 - beta2**t)) / (np.sqrt(v) + f(eps))
    return p - f(lr) * step


def lion(p, g, s, t, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
    f = p.dtype.type
    m = s.get("m", f(0))
    s["m"] = f(beta2) * m + f(1 - beta2) * g
    return p * f(1 - lr * weight_decay) - f(lr) * np.sign(f(beta1) * m + f(1 - beta1) * g)


def rprop(p, g, s, t, lr=0.01, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)):
    f = p.dtype.type
    turn = np.sign(g * s.get("before", f(0)))
    size = s.get("size", np.full_like(p, lr))
    size = np.where(turn < 0, size * f(etas[0]), np.where(turn > 0, size * f(etas[1]), size))
    size = s["size"] = np.clip(size, f(step_sizes[0]), f(step_sizes[1])).astype(p.dtype)
    s["before"] = np.where(turn < 0, f(0), g)
    return p - np.sign(s["before"]) * size


def asgd(p, g, s, t, lr=0.01, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0.0):
    f, eta = p.dtype.type, lr / (1 + lambd * lr * (t - 1)) ** alpha
    g = g + f(weight_decay) * p
    p = p * f(1 - lambd * eta) - f(eta) * g
    s["ax"] = s.get("ax", f(0)) + f(1 / max(1, t - 1 - t0)) * (p - s.get("ax", f(0)))
    return p


def up(formula):
    """The same with the gradient's other sign."""
    return lambda p, g, s, t, maximize, **numbers: formula(p, -g, s, t, **numbers)


#: name: (optimizer, its formula, the numbers that are not the defaults)
CASES = {
    "sgd": (optim.SGD, sgd, {}),
    "sgd, weight decay": (optim.SGD, sgd, {"lr": 0.1, "weight_decay": 0.1}),
    "sgd, l1": (optim.SGD, sgd, {"lr": 0.1, "l1": 0.3, "weight_decay": 0.1}),
    "momentum": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "unbiased": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "unbiased": True}),
    "unbiased nesterov": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "unbiased": True, "nesterov": True}),
    "undamped": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.7, "dampening": 0.0}),
    "adam": (optim.Adam, adam, {}),
    "adam, weight decay": (optim.Adam, adam, {"lr": 0.1, "beta1": 0.8, "beta2": 0.9, "eps": 1e-3, "weight_decay": 0.1}),
    "adamw": (optim.AdamW, adamw, {"lr": 0.1, "weight_decay": 0.2}),
    "rmsprop": (optim.RMSprop, rmsprop, {}),
    "rmsprop, all": (
        optim.RMSprop,
        rmsprop,
        {"lr": 0.05, "momentum": 0.9, "centered": True, "weight_decay": 0.1, "eps": 1e-3},
    ),
    "adagrad": (optim.Adagrad, adagrad, {}),
    "adadelta": (optim.Adadelta, adadelta, {"lr": 0.5, "weight_decay": 0.1}),
    "nadam": (optim.NAdam, nadam, {"lr": 0.1, "weight_decay": 0.1}),
    "radam": (optim.RAdam, radam, {"lr": 0.1, "beta2": 0.9, "weight_decay": 0.1}),
    "lion": (optim.Lion, lion, {"lr": 0.1, "weight_decay": 0.1}),
    "rprop": (optim.Rprop, rprop, {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (0.05, 0.15)}),
    "asgd": (optim.ASGD, asgd, {"lr": 0.1, "lambd": 0.1, "t0": 2.0, "weight_decay": 0.1}),
    "sgd, up": (optim.SGD, up(sgd), {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    "adam, up": (optim.Adam, up(adam), {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "rmsprop, up": (optim.RMSprop, up(rmsprop), {"maximize": True}),
    "adagrad, all": (optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial": 0.2}),
}
each_case = pytest.mark.parametrize("name", CASES)


def parameters(dtype="float32", device="cpu", shapes=SHAPES, seed=0):
    """Tensors, and their values."""
    rng = np.random.default_rng(seed)
    values = [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]
    device = getattr(ndl, device)()
    return [ndl.Tensor(value, dtype=dtype, device=device) for value in values], values


def set_gradients(params, seed):
    """Random gradients of the parameters, and their values."""
    rng = np.random.default_rng([seed, 1])
    values = [np.asarray(rng.normal(size=p.shape), str(p.dtype)) for p in params]
    for p, value in zip(params, values, strict=True):
        p.grad = ndl.Tensor(value, dtype=p.dtype, device=p.device)
    return values


def close(got, expected, ulps=0):
    """Equal, or some units in the last place of the largest apart."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    room = ulps * np.finfo(got.dtype).eps * (1 + np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=room)
