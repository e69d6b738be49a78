"""Vector mathematics: errors in units in the last place, the bits of systems and instruction levels, and special cases."""

import hashlib
import math

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray import kernels
from needle_ndarray.testing import each
from needle_ndarray.testing.oracle import ULPS, WIDER
from needle_ndarray.testing.ulps import REFERENCES, float32_numbers, ulps, worst

EXTENDED = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
#: Hard arguments: multiples of pi / 2, ends of ranges, the next to a place where a function is 0.
EDGES = [
    0.0,
    0.5,
    1.0,
    2.0,
    10.0,
    1000.0,
    1e-5,
    1e-10,
    88.72283,
    88.8,
    103.97,
    104.5,
    709.782712893384,
    709.8,
    745.13,
    745.2,
    1e5,
    1e22,
]
EDGES += [
    math.pi / 2,
    math.pi,
    11 * math.pi,
    5.319372648326541e255,
    2.0**28,
    0.4142135623730951,
    0.7071067811865475,
    math.inf,
    math.nan,
]
#: Digests of float32 and float64 results, where multiplications and additions are fused and where they are not.
BITS = {
    "rsqrt": ("e76af35813cf", "ce23fe8d9b81", "e76af35813cf", "ce23fe8d9b81"),
    "exp": ("dd0effff5bb6", "44ea11427dbe", "44be544bb7bd", "2cdc840db541"),
    "expm1": ("9c8fd49481d9", "278691019df9", "c1766f1e7f8c", "aa558b4b7848"),
    "log": ("80a5cc74ae30", "31c534a7b370", "3e701b775355", "b4784ae5f175"),
    "log1p": ("afd0f5e39ed2", "87053f6e1305", "4e8f776e7fd6", "d209cec2bde5"),
    "sin": ("0df78d9b963d", "42120d977ac8", "c2a7cd90f84c", "28553334e50d"),
    "cos": ("a5d3114da3c7", "8f90572f54b7", "c1647274aee0", "cc7dfd72c5a2"),
    "tanh": ("03a6b7da4a24", "dd961f643ba6", "b20390ec26ea", "ffc85b6a814b"),
    "sigmoid": ("cc03db2a00c5", "e3cb6475dde1", "b9f5bfc286d7", "e5706eed4ce5"),
    "erf": ("cf4c6d4dfa29", "5030d81e3517", "a6cacc2fadad", "a5ccaf69e2c9"),
    "log2": ("8827fe382b7a", "7e3448966a4e", "2eacd1cb5cf2", "b066b8020f0c"),
    "log10": ("10a42cd311b2", "13d6ab3427fb", "c8542c8e674c", "13d6ab3427fb"),
    "tan": ("289637b0f63c", "898d3dfa4920", "289637b0f63c", "2fda34345c35"),
    "asin": ("929a4bebc18c", "e321ea03f59b", "929a4bebc18c", "3ff4d7276886"),
    "acos": ("36a94b6f94bc", "63faa7e96b84", "36a94b6f94bc", "5e8d441252e4"),
    "atan": ("b404938bc16d", "c8f4ccd195cb", "b404938bc16d", "8465368215da"),
    "sinh": ("8854160f751e", "a87f612b011c", "8854160f751e", "846f27180b95"),
    "cosh": ("1f5c881e13f0", "4c10c8769994", "1f5c881e13f0", "9a06e73df2d6"),
    "asinh": ("83d921f1eb6c", "c1ce93c290b3", "83d921f1eb6c", "6e5511b19fc4"),
    "acosh": ("af7d0dbf7214", "ec80ec7e45c3", "af7d0dbf7214", "21511d8bff84"),
    "atanh": ("aba4958b0934", "5256683d9246", "aba4958b0934", "93b5dd7e6329"),
    "gelu": ("b323c771584c", "a52eb64cdefc", "65bce4e17100", "590afc69b324"),
    "silu": ("69372aa04139", "9a9b8f3324e7", "ab3017975f3a", "8dabadb91dea"),
    "power": ("ada26cc1a6c0", "a12476c5ad33", "ada26cc1a6c0", "a424eef2fa65"),
    "atan2": ("e84acc56446a", "9bf8821aab1b", "e84acc56446a", "9bf8821aab1b"),
    "hypot": ("8384685f7d9d", "e9a1796d3922", "8384685f7d9d", "e9a1796d3922"),
    "logaddexp": ("ff9b71ccc28b", "ade56a719947", "ff9b71ccc28b", "7b6ca372a0e3"),
}


def edges(dtype):
    info = np.finfo(dtype)
    x = np.array([*EDGES, info.max, info.tiny, info.smallest_subnormal], dtype)
    with np.errstate(all="ignore"):
        x = np.concatenate([x, np.nextafter(x, dtype(0)), np.nextafter(x, dtype(np.inf))])
    return np.concatenate([x, -x])


def float64_numbers(n=40_000):
    """All magnitudes, and those that functions mostly get."""
    rng = np.random.default_rng(20)
    bits = rng.integers(0, 1 << 64, n, dtype=np.uint64).view(np.float64)
    near = [rng.normal(size=n) * scale for scale in (0.01, 1, 30, 1e4)]
    return np.concatenate([bits, *near, 1 + rng.normal(size=n) * 1e-3, rng.uniform(-1, 1, n)])


@each("op", list(REFERENCES))
def test_float32_errors(op):
    """A sample over all of float32; `nox -s ulp` tries every number."""
    x = np.concatenate([float32_numbers(7, 1 << 17, 32749), edges(np.float32)])
    error, at = worst(op, x)
    assert error <= ULPS, f"{op}({at!r}) is {error:.2f} ulp off"


@each("op", list(REFERENCES))
def test_float64_errors(op):
    """Against longdouble, or where there is nothing wider against functions of double, which are about one off themselves."""
    narrow = op in ("erf", "gelu") or not EXTENDED
    x = np.concatenate([float64_numbers(4_000 if op in ("erf", "gelu") else 40_000), edges(np.float64)])
    error, at = worst(op, x)
    assert error <= ULPS + narrow, f"{op}({at!r}) is {error:.2f} ulp off"


@each("dtype", ["float32", "float64"])
def test_power_errors(dtype):
    rng = np.random.default_rng(1)
    n, kind = 40_000, np.dtype(dtype).type
    few = [
        0.0,
        1,
        2,
        3,
        0.5,
        1.5,
        1e17,
        2.0**24 + 1,
        2.0**53 - 1,
        1e-320,
        1e300,
        math.inf,
        math.nan,
        1 - 2.0**-24,
        1 + 2.0**-23,
    ]
    few = np.array([*few, *[-value for value in few]], dtype)
    x, y = (axis.ravel() for axis in np.meshgrid(few, few))
    bits = rng.integers(0, 1 << 64, (2, n), dtype=np.uint64).view(np.float64)
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [x, abs(rng.normal(size=n)) * 3, 1 + rng.normal(size=n) * 1e-4, bits[0], rng.integers(-9, 9, n)]
        ).astype(kind)
        y = np.concatenate(
            [y, rng.normal(size=n) * 30, rng.normal(size=n) * 1e5, bits[1], rng.integers(-9, 9, n)]
        ).astype(kind)
        wide = np.power(x.astype(WIDER[dtype]), y.astype(WIDER[dtype]))
    errors = ulps(nd.power(nd.array(x, dtype), nd.array(y, dtype)).numpy(), wide)
    at = int(np.argmax(errors))
    assert errors[at] <= ULPS, f"{x[at]!r} ** {y[at]!r} is {errors[at]:.2f} ulp off"


def bits_of(op, dtype):
    """A digest of an op's results; every NaN counts as the same."""
    step = 1_000_003 if dtype == "float32" else 1_000_003 << 32
    size = 4 if dtype == "float32" else 8
    x = (np.arange(4_295, dtype=np.uint64) * np.uint64(step)).astype(f"u{size}").view(dtype)
    x = np.concatenate([x, (np.arange(-2_000, 2_000) / 512).astype(dtype), edges(np.dtype(dtype).type)])
    a = nd.array(x, dtype)
    y = getattr(nd, op)(a).numpy() if op in REFERENCES else getattr(nd, op)(a, nd.array(x[::-1].copy(), dtype)).numpy()
    y = np.where(np.isnan(y), np.array(np.nan, dtype), y).astype(f"<f{size}")
    return hashlib.sha256(y.tobytes()).hexdigest()[:12]


@each("op", [*REFERENCES, "power", "atan2", "hypot", "logaddexp"])
@each("dtype", ["float32", "float64"])
def test_bits(op, dtype):
    """The same on every system, with every compiler and at every instruction level that fuses, or that does not."""
    which = (dtype == "float64") + 2 * (not kernels.fuses(kernels.settle()))
    assert bits_of(op, dtype) == BITS[op][which], f"{op}: these bits are a promise: see the changelog"


#: x: (sin, cos, tan) by 2,000 bits of pi. The third is the double that is nearest to a multiple of pi / 2.
ANGLES = {
    1e300: (-0.8178819121159085, -0.5753861119575491, 1.4214488238747245),
    2.0**1023: (0.563127779850884, -0.826369834614148, -0.6814476476066215),
    5.319372648326541e255: (1.0, -4.687165924254628e-19, -2.133485385753704e18),
    math.pi: (1.2246467991473532e-16, -1.0, -1.2246467991473532e-16),
    355.0: (-3.014435335948845e-05, -0.999999999545659, 3.0144353373184265e-05),
    1e22: (-0.8522008497671888, 0.523214785395139, -1.6287782256068988),
    3300000.0: (0.9245914418839533, -0.38096018898954814, -2.427002790859388),
}


@pytest.mark.parametrize("x", ANGLES)
def test_far_angles(x):
    for name, expected in zip(("sin", "cos", "tan"), ANGLES[x], strict=True):
        f = getattr(nd, name)
        got, opposite = f(nd.array([x, -x], "float64")).tolist()
        assert abs(got - expected) <= ULPS * math.ulp(expected), name
        assert opposite == (got if name == "cos" else -got), name


@pytest.mark.parametrize("n", [1, 2, 7, 15, 16, 17, 255, 256, 257, 1000])
def test_bits_do_not_depend_on_the_place(n):
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    for op in REFERENCES:
        whole = getattr(nd, op)(nd.array(x)).numpy()
        each_one = [getattr(nd, op)(nd.array(x[i : i + 1])).numpy()[0] for i in range(0, n, 37)]
        assert np.array_equal(whole[::37], np.array(each_one, np.float32), equal_nan=True), op
    one = nd.array(x[:1])
    assert np.array_equal(
        (nd.array(abs(x)) ** one).numpy(), (nd.array(abs(x)) ** nd.array(np.repeat(x[:1], n))).numpy()
    )
