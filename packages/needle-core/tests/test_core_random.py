"""needle.random: Needle's own generator, its state, and the way back to NumPy's."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import doctest

import numpy as np
import pytest

import needle
import needle.random
import needle_ndarray as nd
from needle import init

DRAWS = {
    "uniform": lambda **kw: needle.random.uniform(37, 5, low=-1, high=3, **kw),
    "normal": lambda **kw: needle.random.normal(37, 5, mean=2.0, std=0.5, **kw),
    "bernoulli": lambda **kw: needle.random.bernoulli(37, 5, p=0.3, **kw),
    "rand": lambda **kw: init.rand(200, **kw),
    "kaiming_normal": lambda **kw: init.kaiming_normal(20, 30, **kw),
}
LARGE = 1 << 18  # elements, enough for several threads


@pytest.fixture(autouse=True)
def numpys_generator_after():
    yield
    needle.random.seed(None)


@pytest.mark.parametrize("draw", DRAWS)
def test_stream_is_a_function_of_seed_and_key(draw):
    """Whatever was drawn before, and nothing is drawn from what goes on outside."""
    make = DRAWS[draw]

    def of(*key, **options):
        with needle.random.stream(*key, **options):
            return make().numpy().tobytes()

    needle.random.seed(7)
    before = needle.random.get_state()
    keys = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (2**40, 3), (1, 0, 0)]
    found = [of(*key) for key in keys]
    assert len(set(found)) == len(keys) and needle.random.get_state() == before
    make()
    assert [of(*key) for key in reversed(keys)] == found[::-1]
    needle.random.seed(8)
    assert of(1, 0) != found[5]
    needle.random.seed(None)
    assert of(1, 0, otherwise=7) == found[5] and needle.random.get_state() is None


@pytest.mark.parametrize("draw", DRAWS)
def test_seed_reproduces(draw):
    make = DRAWS[draw]
    needle.random.seed(7)
    first, second = make().numpy(), make().numpy()
    needle.random.seed(7)
    np.testing.assert_array_equal(make().numpy(), first)
    np.testing.assert_array_equal(make().numpy(), second)
    assert (first != second).any()
    needle.random.seed(8)
    assert (make().numpy() != first).any()


@pytest.mark.parametrize("draw", DRAWS)
def test_same_on_every_backend(draw):
    made = []
    for device in (needle.cpu(), needle.cpu_numpy()):
        needle.random.seed(7)
        made.append(DRAWS[draw](device=device))
        assert made[-1].device == device
    np.testing.assert_array_equal(made[0].numpy(), made[1].numpy(), strict=True)


@pytest.mark.parametrize("make", [needle.random.uniform, needle.random.normal], ids=["uniform", "normal"])
def test_same_for_every_thread_count(make):
    before, made = nd.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            nd.set_num_threads(threads)
            needle.random.seed(1)
            made.append(make(LARGE).numpy())
    finally:
        nd.set_num_threads(before)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


def test_numpys_generator_is_left_alone():
    needle.random.seed(7)
    np.random.seed(5)
    init.randn(10)
    after = np.random.rand()
    np.random.seed(5)
    assert after == np.random.rand()


def test_the_way_back():
    needle.random.seed(7)
    assert needle.random.get_state() == {"seed": 7, "counter": 0}
    needle.random.seed(None)
    assert needle.random.get_state() is None
    np.random.seed(5)
    made = needle.random.uniform(3).numpy()
    np.random.seed(5)
    np.testing.assert_array_equal(made, np.random.rand(3).astype("float32"))


def test_state():
    needle.random.seed(7)
    needle.random.normal(5)
    state = needle.random.get_state()
    first = needle.random.normal(5).numpy()
    needle.random.seed(None)
    needle.random.set_state(state)
    np.testing.assert_array_equal(needle.random.normal(5).numpy(), first)


# mean and variance, to five standard errors
MOMENTS = [
    ("uniform", lambda: needle.random.uniform(LARGE, low=2.0, high=4.0), 3.0, 4 / 12),
    ("normal", lambda: needle.random.normal(LARGE, mean=-1.0, std=0.5), -1.0, 0.25),
    ("bernoulli", lambda: needle.random.bernoulli(LARGE, p=0.2, dtype="float32"), 0.2, 0.16),
]


@pytest.mark.parametrize(("make", "mean", "variance"), [row[1:] for row in MOMENTS], ids=[row[0] for row in MOMENTS])
def test_moments(make, mean, variance):
    needle.random.seed(0)
    x = make().numpy().astype("float64")
    assert abs(x.mean() - mean) < 5 * (variance / LARGE) ** 0.5
    assert abs(x.var() / variance - 1) < 5 * (2 / LARGE) ** 0.5


@pytest.mark.parametrize("seed", [1.5, "1", True])
def test_seed_is_an_int(seed):
    with pytest.raises(TypeError, match="seed: expected an int, got"):
        needle.random.seed(seed)


def test_examples():
    failed, tried = doctest.testmod(needle.random)
    assert failed == 0
    assert tried >= 6
