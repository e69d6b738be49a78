"""Distributions: moments and densities of samples, derivatives of rsample, divergences; and PyTorch's numbers."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what samples are drawn from)

import doctest
import importlib

import numpy as np
import pytest

import needle as ndl
from needle import distributions as d

LOC, SCALE = np.array([0.5, -1.0, 2.0]), np.array([0.5, 2.0, 1.0])
P = np.array([0.1, 0.5, 0.75])
TABLE = np.array([[0.1, 0.2, 0.7], [0.25, 0.5, 0.25]])

#: name: (parameters, values to ask for)
CASES = {
    "Normal": ((LOC, SCALE), LOC + 0.3),
    "Laplace": ((LOC, SCALE), LOC - 0.3),
    "Uniform": ((LOC, LOC + SCALE), LOC + 0.3),
    "Exponential": ((SCALE,), np.array([0.1, 2.0, 0.5])),
    "Bernoulli": ((P,), np.array([1.0, 0.0, 1.0])),
    "Categorical": ((TABLE,), np.array([2, 0])),
}
CONTINUOUS = [name for name in CASES if name not in ("Bernoulli", "Categorical")]


def tensor(x, grad=True):
    return ndl.Tensor(x, dtype=str(x.dtype), requires_grad=grad and x.dtype.kind == "f")


def made(name, *others):
    return getattr(d, name)(*[tensor(x) for x in (others or CASES[name][0])])


@pytest.mark.parametrize("name", [name for name in CASES if name != "Categorical"])
def test_moments_of_samples(name):
    np.random.seed(0)
    p = made(name)
    x = p.sample((40000,))
    assert x.shape == (40000, 3) and not x.requires_grad
    np.testing.assert_allclose(x.numpy().mean(0), p.mean.numpy(), atol=0.05)
    np.testing.assert_allclose(x.numpy().var(0), p.variance.numpy(), rtol=0.1, atol=0.01)
    np.testing.assert_allclose(p.stddev.numpy() ** 2, p.variance.numpy(), rtol=1e-6)
    np.testing.assert_allclose(-p.log_prob(x).numpy().mean(0), p.entropy().numpy(), atol=0.05)


def test_categorical_counts():
    np.random.seed(0)
    p = made("Categorical")
    x = p.sample((20000,)).numpy()
    assert x.shape == (20000, 2) and x.dtype == np.int64
    np.testing.assert_allclose([(x == i).mean(0) for i in range(3)], TABLE.T, atol=0.02)
    np.testing.assert_allclose(-p.log_prob(x).numpy().mean(0), p.entropy().numpy(), atol=0.02)
    np.testing.assert_allclose(d.Categorical(logits=tensor(np.log(TABLE))).probs.numpy(), TABLE)
    never = d.Categorical(tensor(np.array([0.0, 1.0, 0.0])))
    assert set(never.sample((200,)).tolist()) == {1}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_derivatives_of_samples(name):
    """Those of the mean by the first parameter, from samples of the same random numbers."""
    parameters = [tensor(x) for x in CASES[name][0]]
    np.random.seed(1)
    getattr(d, name)(*parameters).rsample((5,)).sum().backward()
    shifted = [x + (1e-6 if i == 0 else 0) for i, x in enumerate(CASES[name][0])]
    sums = []
    for values in (shifted, CASES[name][0]):
        np.random.seed(1)
        sums.append(made(name, *values).sample((5,)).numpy().sum(0))
    np.testing.assert_allclose(parameters[0].grad.numpy(), (sums[0] - sums[1]) / 1e-6, rtol=1e-4, atol=1e-6)


def test_samples_without_derivative_say_so():
    with pytest.raises(NotImplementedError, match=r"Bernoulli.rsample: its samples have no derivative"):
        made("Bernoulli").rsample()


def test_independent_sums():
    p = d.Independent(made("Normal"), 1)
    assert (p.batch_shape, p.event_shape) == ((), (3,)) and p.sample((2,)).shape == (2, 3)
    x = tensor(LOC, False)
    np.testing.assert_allclose(p.log_prob(x).item(), made("Normal").log_prob(x).numpy().sum())
    np.testing.assert_allclose(p.entropy().item(), made("Normal").entropy().numpy().sum())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: d.Normal(0.0, -1.0), "Normal: scale is np.float32(-1.0) somewhere: expected numbers above 0"),
        (lambda: d.Normal(np.zeros(2), np.ones(3)), "Normal: parameters of shapes (2,), (3,) do not broadcast"),
        (lambda: d.Uniform(1.0, 1.0), "Uniform: high - low is np.float32(0.0) somewhere"),
        (lambda: d.Bernoulli(1.5), "Bernoulli: probs from 1.5 to 1.5: expected probabilities"),
        (lambda: d.Bernoulli(), "Bernoulli: expected either probs or logits"),
        (lambda: d.Categorical(0.5), "Categorical: expected probabilities along an axis"),
        (lambda: d.Normal(0.0, 1.0).sample((-1,)), "Normal: sample_shape (-1,): expected sizes from 0 on"),
        (lambda: d.Independent(d.Normal(0.0, 1.0), 1), "Independent: 1 of the axes (): there are 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value)


def test_divergences_of_one_kind_only():
    with pytest.raises(NotImplementedError, match="kl_divergence: Normal and Laplace: expected two of one kind"):
        d.kl_divergence(made("Normal"), made("Laplace"))


@pytest.mark.parametrize("name", ["base", "continuous", "discrete", "divergences"])
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"needle_nn.distributions.{name}"))
    assert tried > 0 and failed == 0


# ---- PyTorch ------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_like_pytorch(name):
    torch = pytest.importorskip("torch")
    parameters, value = CASES[name]
    ours, theirs = [tensor(x) for x in parameters], [torch.tensor(x, requires_grad=True) for x in parameters]
    for what in ("log_prob", "entropy"):
        p, q = getattr(d, name)(*ours), getattr(torch.distributions, name)(*theirs)
        args = ([tensor(value, False)], [torch.tensor(value)]) if what == "log_prob" else ([], [])
        y, wanted = getattr(p, what)(*args[0]), getattr(q, what)(*args[1])
        np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-6)
        y.sum().backward()
        wanted.sum().backward()
        for x, other in zip(ours, theirs, strict=True):
            if other.grad is not None and x.grad is not None:
                np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-5, atol=1e-7)
            other.grad = x.grad = None


@pytest.mark.parity
@pytest.mark.parametrize("name", ["Normal", "Exponential", "Bernoulli", "Categorical"])
def test_divergences_like_pytorch(name):
    torch = pytest.importorskip("torch")
    first = CASES[name][0]
    second = [x[::-1].copy() for x in first]
    kinds = torch.distributions
    wanted = kinds.kl_divergence(*[getattr(kinds, name)(*map(torch.tensor, values)) for values in (first, second)])
    found = d.kl_divergence(made(name, *first), made(name, *second))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)
