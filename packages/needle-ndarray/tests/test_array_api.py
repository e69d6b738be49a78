"""The array API standard 2024.12: every name is here or listed as left out, and gives what NumPy and array-api-strict give."""

import re

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing import each

NAMES = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and bitwise_invert
bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_to can_cast ceil clip
complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide e empty
empty_like equal exp expand_dims expm1 eye finfo flip float32 float64 floor floor_divide from_dlpack full full_like greater
greater_equal hypot iinfo imag inf int16 int32 int64 int8 isdtype isfinite isinf isnan less less_equal linspace log log10
log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min
minimum moveaxis multiply nan negative newaxis nextafter nonzero not_equal ones ones_like permute_dims pi positive pow prod
real reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze
stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc uint16 uint32 uint64 uint8 unique_all
unique_counts unique_inverse unique_values unstack var vecdot where zeros zeros_like __array_namespace_info__
""".split()
LEFT_OUT = {
    **dict.fromkeys(["complex64", "complex128", "conj", "imag", "real"], "there are no complex numbers"),
    **dict.fromkeys(["int8", "int16", "uint16", "uint32", "uint64"], "six dtypes are enough for networks"),
    **dict.fromkeys(
        ["fft", "linalg"], "extensions of the standard: transforms and decompositions are not our business"
    ),
}

#: x, y are (2, 3) floats, p those of x within (0, 1), i, j (2, 3) integers, b (2, 3) bools, s (3, 3), v (4,) in order, w (4,).
EXPRESSIONS = """
xp.abs(x) | xp.acos(p) | xp.acosh(p + 1) | xp.add(x, y) | xp.all(b) | xp.all(b, axis=1, keepdims=True) | xp.any(b, axis=(0, 1))
xp.any(b, axis=0) | xp.arange(5) | xp.arange(1, 7, 2) | xp.arange(0.0, 1.0, 0.25) | xp.argmax(x, axis=1, keepdims=True)
xp.argmin(x) | xp.argsort(x, axis=0) | xp.argsort(x, axis=-1, descending=True) | xp.argsort(i, stable=True)
xp.argsort(i, axis=1, descending=True) | xp.asarray([1.0, 2.0]) | xp.asarray(x, dtype=xp.int32) | xp.asin(p) | xp.asinh(x)
xp.astype(x, xp.int64) | xp.astype(i, xp.float32, copy=False) | xp.atan(x) | xp.atan2(x, y) | xp.atanh(p) | xp.bitwise_and(i, j)
xp.bitwise_invert(i) | xp.bitwise_invert(b) | xp.bitwise_left_shift(i, j) | xp.bitwise_or(b, b)
xp.bitwise_right_shift(i * 8, j) | xp.bitwise_xor(i, j) | i << j | (i * 9) >> j | i & j | i | j | ~i | i ^ j
xp.broadcast_arrays(x, x[0, :]) | xp.broadcast_to(v, (2, 4)) | xp.can_cast(xp.int32, xp.int64)
xp.can_cast(xp.float64, xp.float32) | xp.ceil(x) | xp.clip(x, min=-0.5, max=0.5) | xp.clip(x, min=-1.0)
xp.concat([x, y], axis=1) | xp.concat((x, y)) | xp.concat([x, y], axis=None) | xp.copysign(x, y) | xp.cos(x) | xp.cosh(x)
xp.count_nonzero(i) | xp.count_nonzero(b, axis=1, keepdims=True) | xp.cumulative_prod(x, axis=1) | xp.cumulative_prod(i, axis=0)
xp.cumulative_prod(v, include_initial=True) | xp.cumulative_sum(x, axis=1) | xp.cumulative_sum(v)
xp.cumulative_sum(i, axis=0, include_initial=True) | xp.cumulative_sum(i, axis=1, dtype=xp.float64) | xp.diff(x)
xp.diff(x, axis=0) | xp.diff(v, n=2) | xp.diff(v, prepend=w, append=v) | xp.divide(x, y) | xp.e | xp.empty((2, 0))
xp.empty_like(x).shape | xp.equal(i, j) | xp.exp(x) | xp.expand_dims(x, axis=1) | xp.expm1(x) | xp.eye(3) | xp.eye(2, 4, k=1)
xp.eye(3, dtype=xp.int64) | xp.finfo(xp.float32).bits | xp.finfo(xp.float64).eps | xp.flip(x) | xp.flip(x, axis=1) | xp.floor(x)
xp.floor_divide(x, y) | xp.floor_divide(i, j + 1) | xp.from_dlpack(x) | xp.full((2, 2), 3.0) | xp.full((2,), 7, dtype=xp.int32)
xp.full_like(i, 2) | xp.greater(x, y) | xp.greater_equal(i, j) | xp.hypot(x, y) | xp.iinfo(xp.int32).max | xp.inf
xp.isdtype(xp.float32, "real floating") | xp.isdtype(xp.int32, ("bool", "signed integer"))
xp.isdtype(xp.uint8, "unsigned integer") | xp.isdtype(xp.bool, "numeric") | xp.isdtype(xp.int64, xp.int64)
xp.isdtype(xp.int64, "integral") | xp.isdtype(xp.float64, "complex floating") | xp.isfinite(x / 0.0) | xp.isinf(x / 0.0)
xp.isnan(x * xp.nan) | xp.less(x, y) | xp.less_equal(i, j) | xp.linspace(0.0, 1.0, 5)
xp.linspace(0.0, 1.0, num=4, endpoint=False) | xp.log(p) | xp.log10(p) | xp.log1p(p) | xp.log2(p) | xp.logaddexp(x, y)
xp.logical_and(b, b) | xp.logical_not(b) | xp.logical_or(b, b) | xp.logical_xor(b, b) | xp.matmul(s, s) | xp.matmul(s, x[0, :])
xp.matrix_transpose(x) | xp.max(x) | xp.max(x, axis=1, keepdims=True) | xp.maximum(x, y) | xp.mean(x, axis=0)
xp.meshgrid(v, x[0, :]) | xp.meshgrid(v, x[0, :], indexing="ij") | xp.min(x, axis=(0, 1)) | xp.minimum(x, y)
xp.moveaxis(x, 0, 1) | xp.multiply(x, y) | xp.nan | xp.negative(x) | x[:, xp.newaxis, :] | xp.nextafter(x, y) | xp.nonzero(b)
xp.not_equal(i, j) | xp.ones((2, 3)) | xp.ones(2, dtype=xp.int64) | xp.ones_like(i) | xp.permute_dims(x, axes=(1, 0))
xp.permute_dims(x, (1, 0)) | xp.pi | xp.positive(x) | xp.pow(p, y) | xp.prod(x, axis=1) | xp.prod(i)
xp.prod(x, dtype=xp.float64) | xp.reciprocal(x) | xp.remainder(x, y) | xp.repeat(x, 2) | xp.repeat(x, 2, axis=1)
xp.repeat(v, xp.asarray([1, 0, 2, 1])) | xp.reshape(x, (3, 2)) | xp.reshape(x, shape=(-1,))
xp.result_type(xp.float32, xp.float64) == xp.float64 | xp.roll(x, 1) | xp.roll(x, shift=(1, -1), axis=(0, 1)) | xp.round(x)
xp.searchsorted(v, w) | xp.searchsorted(v, v, side="right") | xp.searchsorted(w, v, sorter=xp.argsort(w)) | xp.sign(x)
xp.signbit(x) | xp.sin(x) | xp.sinh(x) | xp.sort(x) | xp.sort(x, axis=0, descending=True) | xp.sort(i, stable=False)
xp.sqrt(p) | xp.square(x) | xp.squeeze(x[:1, :], axis=0) | xp.stack([x, y], axis=-1) | xp.std(x, axis=1, correction=1)
xp.subtract(x, y) | xp.sum(x, axis=0) | xp.sum(i) | xp.sum(i, axis=1, dtype=xp.int64, keepdims=True)
xp.take(x, xp.asarray([2, 0]), axis=1) | xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1) | xp.tan(x) | xp.tanh(x)
xp.tensordot(x, s, axes=1) | xp.tensordot(x, y, axes=((0, 1), (0, 1))) | xp.tensordot(x, v, axes=0) | xp.tensordot(x, y, axes=2)
xp.tile(x, (2, 1)) | xp.tile(v, (2, 2)) | xp.tril(s) | xp.tril(s, k=-1) | xp.triu(s, k=1) | xp.trunc(x) | xp.unique_all(i)
xp.unique_counts(i) | xp.unique_inverse(i) | xp.sort(xp.unique_values(i)) | xp.unstack(x, axis=1) | xp.var(x, axis=0)
xp.var(x, correction=1.0) | xp.vecdot(x, y) | xp.vecdot(x, y, axis=-2) | xp.vecdot(i, j) | xp.where(b, x, y) | xp.zeros((2,))
xp.zeros_like(x, dtype=xp.int64) | xp.float32 == x.dtype | xp.zeros(1, dtype=xp.bool) | xp.zeros(1, dtype=xp.uint8) | x.mT | x.T
x.ndim | x.size | x.to_device(x.device) | sorted(xp.__array_namespace_info__().dtypes(kind="real floating"))
xp.__array_namespace_info__().capabilities()["boolean indexing"] | "int64" in xp.__array_namespace_info__().dtypes()
xp.__array_namespace_info__().default_device() is not None
sorted(xp.__array_namespace_info__().dtypes(kind=("bool", "real floating"))) | len(xp.__array_namespace_info__().devices()) > 0
"integral" in xp.__array_namespace_info__().default_dtypes()
"""
ROWS = [
    row.replace(" OR ", " | ").strip()
    for line in EXPRESSIONS.replace("i | j", "i OR j").strip().splitlines()
    for row in line.split(" | ")
]

#: What array-api-strict has not got, or knows otherwise.
NOT_STRICT = {"xp.zeros(1, dtype=xp.uint8)", "xp.from_dlpack(x)"}
#: Where we give the default float, float32, and NumPy its float64; or int64 for sums of int32.
OTHER_DTYPE = re.compile(r"arange\(0\.0|asarray\(\[|eye|full\(\(2, 2\)|linspace|ones\(\(|zeros\(\(|empty|xp\.prod\(i\)")


def given(xp):
    rng = np.random.default_rng(0)
    made = {"x": rng.uniform(-2, 2, (2, 3)), "y": rng.uniform(0.3, 2, (2, 3)), "s": rng.uniform(-1, 1, (3, 3))}
    made |= {
        "p": rng.uniform(0.1, 0.9, (2, 3)),
        "v": np.sort(rng.uniform(0, 1, 4)),
        "w": rng.permutation(np.linspace(0, 1, 4)),
    }
    made |= {"i": rng.integers(0, 4, (2, 3)), "j": rng.integers(0, 4, (2, 3)), "b": rng.uniform(size=(2, 3)) < 0.5}
    return {"xp": xp, **{name: xp.asarray(array) for name, array in made.items()}}


def results(value):
    """A flat list of NumPy arrays and Python values."""
    if isinstance(value, (tuple, list)) and not (value and isinstance(value[0], (int, str))):
        return [part for one in value for part in results(one)]
    return [np.asarray(value) if hasattr(value, "dtype") else value]


def compare(expression, xp):
    with np.errstate(all="ignore"):
        ours, theirs = (results(eval(expression, given(each_namespace))) for each_namespace in (nd, xp))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(a, np.ndarray):
            assert a == b or (a != a and b != b) or a == pytest.approx(b), (a, b)
            continue
        assert a.shape == b.shape
        assert a.dtype == b.dtype or OTHER_DTYPE.search(expression), (a.dtype, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-6 if a.dtype == np.float32 else 1e-13, atol=1e-15)


@each("expression", ROWS)
def test_the_same_as_numpy(expression):
    compare(expression, Ours())


class Ours:
    """NumPy, with what its functions lack of the standard."""

    def __getattr__(self, name):
        return getattr(np, name)

    def argsort(self, x, *, axis=-1, descending=False, stable=True):
        return np.argsort(-x if descending else x, axis=axis, kind="stable")

    def sort(self, x, *, axis=-1, descending=False, stable=True):
        return np.flip(np.sort(x, axis=axis), axis) if descending else np.sort(x, axis=axis)


@each("expression", ROWS)
def test_the_same_as_array_api_strict(expression):
    strict = pytest.importorskip("array_api_strict")
    if expression not in NOT_STRICT:
        compare(expression, strict)


def test_every_name_is_here_or_left_out():
    missing = {name for name in NAMES if not hasattr(nd, name)}
    assert missing == LEFT_OUT.keys() & set(NAMES)
    used = set(re.findall(r"xp\.(\w+)", EXPRESSIONS))
    assert set(NAMES) - LEFT_OUT.keys() <= used, "write an expression"


def test_kinds_of_dtypes_are_checked():
    with pytest.raises(ValueError, match=r"isdtype: kind 'float': expected one of bool, signed integer"):
        nd.isdtype("float32", "float")
    with pytest.raises(ValueError, match=r"dtypes: kind 'floating'"):
        nd.__array_namespace_info__().dtypes(kind="floating")


ERRORS = {
    "searchsorted: the sorted array has shape (2, 3), expected one axis": lambda x: nd.searchsorted(x, x),
    "searchsorted: side 'middle': expected 'left' or 'right'": lambda x: nd.searchsorted(x[0], x, side="middle"),
    "cumulative_sum: an array of shape (2, 3): expected an axis": lambda x: nd.cumulative_sum(x),
    "cumulative_prod: an array of shape (2, 3): expected an axis": lambda x: nd.cumulative_prod(x),
    "tensordot: (2, 3) and (2, 3): summed axes have sizes [3] and [2]": lambda x: nd.tensordot(x, x, axes=1),
    "tensordot: 3 axes of shapes (2, 3) and (2, 3)": lambda x: nd.tensordot(x, x, axes=3),
    "vecdot: (2, 3) and (3, 2): axis -1 has sizes 3 and 2": lambda x: nd.vecdot(x, x.T),
    "vecdot: axis 0 of shapes": lambda x: nd.vecdot(x, x, axis=0),
    "repeat: counts of shape (3,) for axis 0 of shape (2, 3): expected ints": lambda x: nd.repeat(x, [1, 2, 3], axis=0),
    "repeat: -1: expected 0 or more": lambda x: nd.repeat(x, [1, -1], axis=0),
    "repeat: 1.84e+19 entries: more than memory can hold": lambda x: nd.repeat(x, [2**63 - 1, 2**63 - 1], axis=0),
    "roll: 2 shifts for 1 axes": lambda x: nd.roll(x, (1, 2), (0,)),
    "diff: n -1: expected 0 or more": lambda x: nd.diff(x, n=-1),
    "flip: axes 0 and axis 1 are two names for the same argument": lambda x: nd.flip(x, 0, axis=1),
    "sort: axis 2 is out of bounds": lambda x: nd.sort(x, axis=2),
}


@each("message", ERRORS)
def test_errors_carry_the_numbers(message):
    with pytest.raises((ValueError, TypeError)) as caught:
        ERRORS[message](nd.zeros((2, 3)))
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_sorting_takes_every_dtype_and_view(dtype):
    host = np.random.default_rng(0).integers(0, 5, (3, 4)).astype(dtype)
    for view in (lambda a: a, lambda a: a.T, lambda a: a[::-1, ::2], lambda a: a[:0], lambda a: a[:1]):
        a, n = nd.asarray(host), view(host)
        assert nd.sort(view(a), axis=0).tolist() == np.sort(n, 0).tolist() and nd.sort(view(a)).dtype == dtype
        order = nd.argsort(view(a), axis=-1, descending=True)
        assert np.take_along_axis(n, order.numpy(), -1).tolist() == np.sort(n, -1)[..., ::-1].tolist()
        assert nd.isin(view(a), [1, 2]).tolist() == np.isin(n, [1, 2]).tolist()


def test_nan_counts_as_the_largest():
    a = nd.array([2.0, float("nan"), 1.0])
    assert nd.argsort(a).tolist() == [2, 0, 1] and nd.argsort(a, descending=True).tolist() == [1, 0, 2]
    assert np.isnan(nd.sort(a, descending=True).tolist()[0])


SHIFTS = [
    ("uint8", [255, 1, 3, 7], [1, 7, 8, 200], [254, 128, 0, 0], [127, 0, 0, 0]),
    ("int32", [1, -5, -5, 3], [31, 1, 40, -1], [-(2**31), -10, 0, 0], [0, -3, -1, 0]),
    ("int64", [1, -1, -8, 5], [63, 64, 2, -3], [-(2**63), 0, -32, 0], [0, -1, -2, 0]),
]


@pytest.mark.parametrize(("dtype", "a", "b", "left", "right"), SHIFTS)
def test_shifts(dtype, a, b, left, right, device):
    x, y = (nd.asarray(np.array(n, dtype), device=device) for n in (a, b))
    assert (x << y).tolist() == left and (x >> y).tolist() == right
    assert nd.bitwise_left_shift(x, y).dtype == dtype and (1 << nd.asarray(np.array([3]))).tolist() == [8]
