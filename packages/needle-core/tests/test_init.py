"""needle.init: the course's numbers, bounds, and messages."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import doctest
import math

import numpy as np
import pytest

import needle
from needle import init
from needle.autograd import Tensor

DEVICES = [needle.cpu(), needle.cpu_numpy()]


def f32(x):
    return np.asarray(x).astype(np.float32)


# What the course computes, in NumPy: float32 first, then scaled by float32 numbers
EXPECTED = {
    "rand": (lambda d: init.rand(3, 4, device=d), lambda: f32(np.random.rand(3, 4))),
    "rand low high": (
        lambda d: init.rand(3, 4, low=-0.3, high=0.7, device=d),
        lambda: f32(np.random.rand(3, 4)) * np.float32(0.7 - -0.3) + np.float32(-0.3),
    ),
    "randn": (lambda d: init.randn(5, device=d), lambda: f32(np.random.randn(5))),
    "randn mean std": (
        lambda d: init.randn(5, mean=0.1, std=2.3, device=d),
        lambda: f32(np.random.randn(5)) * np.float32(2.3) + np.float32(0.1),
    ),
    "rand scalar": (lambda d: init.rand(device=d), lambda: f32(np.random.rand())),
    "rand float64": (lambda d: init.rand(4, dtype="float64", device=d), lambda: np.random.rand(4)),
    "randb": (lambda d: init.randb(50, p=0.3, device=d), lambda: f32(np.random.rand(50)) <= np.float32(0.3)),
    "randb float32": (
        lambda d: init.randb(50, dtype="float32", device=d),
        lambda: (f32(np.random.rand(50)) <= np.float32(0.5)).astype("float32"),
    ),
    "xavier_uniform": (
        lambda d: init.xavier_uniform(3, 5, gain=1.5, device=d),
        lambda: f32(np.random.rand(3, 5)) * np.float32(3 * math.sqrt(6 / 8)) - np.float32(1.5 * math.sqrt(6 / 8)),
    ),
    "xavier_normal": (
        lambda d: init.xavier_normal(3, 5, gain=0.33, device=d),
        lambda: f32(np.random.randn(3, 5)) * np.float32(0.33 * math.sqrt(2 / 8)) + np.float32(0),
    ),
    "kaiming_uniform": (
        lambda d: init.kaiming_uniform(3, 5, device=d),
        lambda: f32(np.random.rand(3, 5)) * np.float32(2 * math.sqrt(2)) - np.float32(math.sqrt(2)),
    ),
    "kaiming_uniform shape": (
        lambda d: init.kaiming_uniform(12, 16, shape=(2, 2, 3, 4), device=d),
        lambda: f32(np.random.rand(2, 2, 3, 4)) * np.float32(2 * math.sqrt(2) * 0.5) - np.float32(math.sqrt(2) * 0.5),
    ),
    "kaiming_normal": (
        lambda d: init.kaiming_normal(3, 5, device=d),
        lambda: f32(np.random.randn(3, 5)) * np.float32(math.sqrt(2) / math.sqrt(3)) + np.float32(0),
    ),
    "constant": (lambda d: init.constant(2, 3, c=1.7, device=d), lambda: np.full((2, 3), 1.7, np.float32)),
    "constant int32": (lambda d: init.constant(2, c=3, dtype="int32", device=d), lambda: np.full(2, 3, np.int32)),
    "ones": (lambda d: init.ones(2, 0, 3, device=d), lambda: np.ones((2, 0, 3), np.float32)),
    "zeros": (lambda d: init.zeros(2, dtype="bool", device=d), lambda: np.zeros(2, bool)),
    "one_hot": (lambda d: init.one_hot(4, [[1, 3], [0, 2]], device=d), lambda: np.eye(4, dtype=np.float32)[[[1, 3], [0, 2]]]),
    "one_hot number": (lambda d: init.one_hot(3, 1, dtype="int64", device=d), lambda: np.array([0, 1, 0])),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("case", EXPECTED)
def test_numbers(case, device):
    make, expected = EXPECTED[case]
    np.random.seed(13)
    got = make(device)
    np.random.seed(13)
    want = expected()
    assert isinstance(got, Tensor)
    assert got.device == device
    assert not got.requires_grad
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want, strict=True)


def test_published_numbers():
    """Numbers of the course's own tests."""
    np.random.seed(42)
    np.testing.assert_allclose(
        init.kaiming_uniform(3, 5).numpy(),
        [
            [-0.35485414, 1.2748126, 0.65617794, 0.27904832, -0.9729262],
            [-0.97299445, -1.2499284, 1.0357026, 0.28599644, 0.58851814],
            [-1.3559918, 1.3291057, 0.9402898, -0.81362784, -0.8999349],
        ],
        rtol=1e-4,
    )
    np.random.seed(42)
    np.testing.assert_allclose(
        init.xavier_normal(3, 5, gain=0.33).numpy(),
        [
            [0.08195783, -0.022813609, 0.10686861, 0.25129992, -0.038635306],
            [-0.03863259, 0.2605701, 0.12662673, -0.07746328, 0.08952241],
            [-0.07646392, -0.07684558, 0.039924778, -0.31569123, -0.28460002],
        ],
        rtol=1e-4,
    )


def test_order_of_creation():
    """One stream: what is made first gets the first numbers."""
    np.random.seed(3)
    first, second, third = init.rand(2), init.randn(3), init.randb(4)
    np.random.seed(3)
    np.testing.assert_array_equal(first.numpy(), f32(np.random.rand(2)))
    np.testing.assert_array_equal(second.numpy(), f32(np.random.randn(3)))
    np.testing.assert_array_equal(third.numpy(), np.random.rand(4) <= 0.5)


@pytest.mark.parametrize("make", [init.rand, init.randn, init.randb, init.constant, init.ones, init.zeros])
def test_shape_as_numbers_or_tuple(make):
    made = [make(2, 3), make((2, 3)), make([2, 3]), make(np.int64(2), 3)]
    assert [t.shape for t in made] == [(2, 3)] * 4
    assert make(()).shape == make().shape == ()


@pytest.mark.parametrize("make", [init.rand, init.randn, init.constant, init.ones, init.zeros])
def test_requires_grad(make):
    made = make(2, requires_grad=True)
    assert made.requires_grad
    assert made.is_leaf()
    made.sum().backward()
    assert made.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("make", "value"), [(init.zeros_like, 0), (init.ones_like, 1)])
def test_like(make, value):
    x = Tensor(np.arange(6).reshape(2, 3), device=needle.cpu_numpy(), dtype="float64")
    made = make(x)
    assert (made.shape, made.dtype, made.device, made.requires_grad) == ((2, 3), "float64", needle.cpu_numpy(), False)
    assert (made.numpy() == value).all()
    other = make(x, device=needle.cpu(), dtype="float32", requires_grad=True)
    assert (other.dtype, other.device, other.requires_grad) == ("float32", needle.cpu(), True)


@pytest.mark.parametrize("index", [Tensor(np.array([2, 0])), Tensor(np.array([2.0, 0.0], "float32")), np.array([2, 0])])
def test_one_hot_index_kinds(index):
    assert init.one_hot(3, index).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_one_hot_is_where_the_index_is():
    index = Tensor(np.array([1]), device=needle.cpu_numpy())
    assert init.one_hot(3, index).device == needle.cpu_numpy()
    assert init.one_hot(3, index, device=needle.cpu()).device == needle.cpu()


MISTAKES = {
    "negative size": (lambda: init.rand(2, -1), ValueError, "rand: shape (2, -1): sizes are 0 or more"),
    "float size": (lambda: init.zeros(2.5), TypeError, "zeros: shape (2.5,): expected ints"),
    "std": (lambda: init.randn(2, std=-1), ValueError, "randn: std -1: expected 0 or more"),
    "std nan": (lambda: init.randn(2, std=math.nan), ValueError, "randn: std nan: expected 0 or more"),
    "p above": (lambda: init.randb(2, p=1.5), ValueError, "randb: p 1.5: expected 0 to 1"),
    "p below": (lambda: init.randb(2, p=-0.1), ValueError, "randb: p -0.1: expected 0 to 1"),
    "nonlinearity": (
        lambda: init.kaiming_uniform(2, 3, nonlinearity="gelu"),
        ValueError,
        "kaiming_uniform: nonlinearity 'gelu': expected one of relu, linear, tanh",
    ),
    "fan_in": (lambda: init.kaiming_normal(0, 3), ValueError, "kaiming_normal: fan_in 0, fan_out 3: expected 1 or more"),
    "fan_out": (lambda: init.xavier_normal(3, -2), ValueError, "xavier_normal: fan_in 3, fan_out -2: expected 1 or more"),
    "one_hot above": (lambda: init.one_hot(3, [0, 3]), IndexError, "one_hot: entries from 0 to 3 do not fit 3 classes"),
    "one_hot below": (lambda: init.one_hot(3, [-1]), IndexError, "one_hot: entries from -1 to -1 do not fit 3 classes"),
    "one_hot half": (lambda: init.one_hot(3, [1.5]), ValueError, "one_hot: 1.5 is no position"),
    "dtype": (lambda: init.rand(2, dtype="float8"), TypeError, "dtype: 'float8' is not one of"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case):
    make, error, message = MISTAKES[case]
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make", [lambda: init.rand(2, -1), lambda: init.randb(2, p=2), lambda: init.kaiming_uniform(0, 1)]
)
def test_mistakes_draw_nothing(make):
    np.random.seed(5)
    with pytest.raises(ValueError, match=r"expected|sizes"):
        make()
    after = np.random.rand()
    np.random.seed(5)
    assert after == np.random.rand()


@pytest.mark.parametrize("make", [init.rand, init.randn])
def test_without_draws(make):
    np.random.seed(5)
    with init.without_draws():
        made = make(2, 3, dtype="float64", requires_grad=True), init.kaiming_uniform(3, 2), make(())
    assert [(x.shape, str(x.dtype), x.numpy().any()) for x in made] == [
        ((2, 3), "float64", False),
        ((3, 2), "float32", False),
        ((), "float32", False),
    ]
    assert made[0].requires_grad
    after = make(2).numpy()
    np.random.seed(5)
    np.testing.assert_array_equal(after, make(2).numpy())


def test_examples():
    failed, tried = doctest.testmod(init)
    assert failed == 0
    assert tried >= 5
