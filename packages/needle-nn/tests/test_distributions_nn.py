"""Distributions: moments and densities of samples, derivatives of rsample, divergences; and PyTorch's numbers."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what samples are drawn from)

import doctest
import importlib

import numpy as np
import pytest

import needle as ndl
from needle import distributions as d
from needle.testing import check_gradients
from needle_nn.distributions import multivariate as multivariate_module

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


@pytest.mark.parametrize("name", ["base", "continuous", "discrete", "divergences", "multivariate"])
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"needle_nn.distributions.{name}"))
    assert tried > 0 and failed == 0


# ---- Several numbers at once ------------------------------------------------------------


RNG = np.random.default_rng(3)
LOCS = RNG.normal(size=(2, 3))
FACTORS = np.tril(RNG.normal(size=(2, 3, 3))) + 2 * np.eye(3)
COVARIANCES = FACTORS @ FACTORS.swapaxes(-1, -2)
#: The same normal numbers by each of the three matrices.
MATRICES = {
    "covariance_matrix": COVARIANCES,
    "precision_matrix": np.linalg.inv(COVARIANCES),
    "scale_tril": FACTORS * np.where(np.diagonal(FACTORS, axis1=-2, axis2=-1) < 0, -1, 1)[:, None],
}


def multivariate(kinds, make, name):
    parameters = [make(LOCS), make(MATRICES[name])]
    return kinds.MultivariateNormal(parameters[0], **{name: parameters[1]}), parameters


@pytest.mark.parametrize("name", MATRICES)
def test_moments_of_several_numbers(name):
    np.random.seed(0)
    p, _ = multivariate(d, tensor, name)
    x = p.sample((60000,))
    assert (x.shape, p.batch_shape, p.event_shape) == ((60000, 2, 3), (2,), (3,)) and not x.requires_grad
    np.testing.assert_allclose(x.numpy().mean(0), p.mean.numpy(), atol=0.05)
    off = x.numpy() - LOCS
    np.testing.assert_allclose(np.einsum("nbi,nbj->bij", off, off) / 60000, COVARIANCES, atol=0.25)
    np.testing.assert_allclose(p.covariance_matrix.numpy(), COVARIANCES, rtol=1e-9)
    np.testing.assert_allclose(p.precision_matrix.numpy(), np.linalg.inv(COVARIANCES), rtol=1e-8)
    np.testing.assert_allclose(p.variance.numpy(), np.diagonal(COVARIANCES, axis1=1, axis2=2), rtol=1e-9)
    np.testing.assert_allclose(-p.log_prob(x).numpy().mean(0), p.entropy().numpy(), atol=0.05)


def test_derivatives_of_the_factor():
    """Of a covariance's factor and of log_prob, of the second order too; the matrix is symmetric, whatever changes."""

    def symmetric(half):
        return half @ half.swapaxes(-1, -2) + ndl.Tensor(np.eye(3), dtype="float64", requires_grad=False)

    def log_prob(loc, half):
        return d.MultivariateNormal(loc, symmetric(half)).log_prob(np.array([0.5, 1.0, -1.0]))

    half = tensor(FACTORS[0])
    check_gradients(lambda h: multivariate_module.cholesky(symmetric(h)), half, order=2)
    check_gradients(log_prob, tensor(LOCS[0]), half, order=2)


def test_mistakes_of_several_numbers():
    eye = np.eye(2)
    for wrong, message in {
        (
            lambda: d.MultivariateNormal(np.zeros(2))
        ): "expected one of covariance_matrix, precision_matrix and scale_tril, got 0",
        (lambda: d.MultivariateNormal(np.zeros(3), eye)): r"loc \(3,\) and a matrix \(2, 2\): expected \(..., n\)",
        (lambda: d.MultivariateNormal(np.zeros(2), -eye)): "the matrix is not positive definite: pivot 0 is -1",
    }.items():
        with pytest.raises(ValueError, match=message):
            wrong()


@pytest.mark.parity
@pytest.mark.parametrize("name", MATRICES)
def test_several_numbers_like_pytorch(name):
    torch = pytest.importorskip("torch")
    kinds = torch.distributions
    (p, ours), (q, theirs) = (
        multivariate(d, tensor, name),
        multivariate(kinds, lambda x: torch.tensor(x, requires_grad=True), name),
    )
    x = LOCS[:, None] * 0.5
    others = [
        kind.MultivariateNormal(make(LOCS[::-1].copy()), make(COVARIANCES[::-1].copy()))
        for kind, make in ((d, tensor), (kinds, torch.tensor))
    ]
    calls = [
        (p.log_prob(tensor(x[:, 0], False)), q.log_prob(torch.tensor(x[:, 0]))),
        (p.entropy(), q.entropy()),
        (p.precision_matrix, q.precision_matrix),
        (d.kl_divergence(p, others[0]), kinds.kl_divergence(q, others[1])),
    ]
    for y, wanted in calls:
        np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-7)
        y.sum().backward()
        wanted.sum().backward(retain_graph=True)
        for a, b in zip(ours, theirs, strict=True):
            if b.grad is not None:
                mine, their = a.grad.numpy(), b.grad.numpy()
                if mine.ndim == 3 and name != "scale_tril":  # PyTorch's is the symmetric half of ours
                    mine, their = mine + mine.swapaxes(-1, -2), their + their.swapaxes(-1, -2)
                np.testing.assert_allclose(np.tril(mine), np.tril(their), rtol=1e-6, atol=1e-8)
            a.grad = b.grad = None


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
