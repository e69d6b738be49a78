"""Result dtypes and values against NumPy, for every op and pair of dtypes.

Deviations, on purpose: math functions of bool and uint8 are float32 (NumPy: float16); sums of uint8 are int64 (NumPy: uint64);
NumPy scalars bend to the array as Python scalars do; floor, ceil, trunc and round keep integers as they are.
"""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.backend import BINARY, REDUCE, UNARY
from needle_ndarray.testing.cases import NAMES, plain
from needle_ndarray.testing.oracle import assert_op, assert_same
from needle_ndarray.testing.tables import each

PAIRS = [(a, b) for a in NAMES for b in NAMES]
SCALARS = [True, 3, -2, 2.5]
WIDER = {"float16": "float32", "int8": "int32"}  # dtypes of NumPy's that we do not have
SHARED = {name: op for name, op in BINARY.items() if hasattr(np, name)}  # with NumPy, whose dtypes are the rule


def sample(dtype, salt=0):
    return plain(dtype, (3, 4), salt)


def numpy_dtype(op, *dtypes):
    """The dtype NumPy gives, or None where it refuses."""
    try:
        return getattr(np, op)(*[np.ones(2, d) for d in dtypes]).dtype
    except TypeError:
        return None


@each("a, b", PAIRS)
def test_promote_types(a, b):
    assert nd.promote_types(nd.dtype(a), nd.dtype(b)) == np.promote_types(a, b)
    assert nd.result_type(a, b) == nd.result_type(nd.ones(1, a), nd.ones(1, b)) == np.promote_types(a, b)
    assert nd.can_cast(a, b) == np.can_cast(a, b)


@each("a, b", PAIRS)
@pytest.mark.parametrize("op", SHARED.values(), ids=SHARED)
def test_binary_dtypes(op, a, b, device):
    x, y = sample(a, 1), np.abs(sample(b, 2)).astype(b) if op.name == "power" else sample(b, 2)
    p, q = nd.array(x, a, device), nd.array(y, b, device)
    expected = numpy_dtype(op.name, a, b)
    expected = None if expected is None else np.dtype(WIDER.get(expected.name, expected))
    if expected is None:
        with pytest.raises(TypeError, match=op.name):
            getattr(nd, op.name)(p, q)
        return
    got = getattr(nd, op.name)(p, q)
    assert got.dtype == expected
    common = np.dtype(NAMES[op.compute_dtype[NAMES.index(np.promote_types(a, b).name)]])
    assert_op(op, got.numpy(), x.astype(common), y.astype(common))


@pytest.mark.parametrize("name", sorted(BINARY.keys() - SHARED.keys()))
def test_dtypes_of_ops_that_numpy_lacks(name, device):
    assert name in ("relu_grad", "tanh_grad", "sigmoid_grad", "gelu_grad", "silu_grad")
    function, one = getattr(nd, name), {d: nd.ones(2, d, device=device) for d in NAMES}
    assert [function(one[d], one[d]).dtype for d in ("float32", "float64")] == ["float32", "float64"]
    assert function(one["float32"], one["float64"]).dtype == function(one["int32"], one["float32"]).dtype == "float64"
    assert function(one["int32"], one["int64"]).dtype == ("int64" if name == "relu_grad" else "float64")
    assert function(one["float32"], 1).dtype == function(2.5, one["float32"]).dtype == "float32"
    if name == "relu_grad":
        with pytest.raises(TypeError, match=name):
            function(one["bool"], one["bool"])


@each("dtype", NAMES)
@pytest.mark.parametrize("op", UNARY.values(), ids=UNARY)
def test_unary_dtypes(op, dtype, device):
    x = np.abs(sample(dtype))
    a = nd.array(x, dtype, device)
    if op.compute_dtype[NAMES.index(dtype)] < 0:
        assert numpy_dtype(op.name, dtype) is None
        with pytest.raises(TypeError, match=rf"{op.name}.*{dtype}"):
            getattr(nd, op.name)(a)
        return
    got = getattr(nd, op.name)(a)
    assert_same(got.numpy(), getattr(a, op.name)().numpy())
    computed = np.dtype(NAMES[op.compute_dtype[NAMES.index(dtype)]])
    if hasattr(np, op.name) and op.name not in ("floor", "ceil", "trunc", "round"):
        expected = numpy_dtype(op.name, dtype)
        assert got.dtype == ("float32" if expected == np.float16 else expected)
    assert_op(op, got.numpy(), x.astype(computed))


@each("scalar", SCALARS)
@each("dtype", NAMES)
@pytest.mark.parametrize("op", SHARED.values(), ids=SHARED)
def test_python_scalars_are_weak(op, dtype, scalar, device):
    """a op scalar and scalar op a have NumPy 2's dtype and value."""
    x = np.abs(sample(dtype)) + (dtype != "bool")
    a = nd.array(x, dtype, device)
    for ours, theirs in (((a, scalar), (x, scalar)), ((scalar, a), (scalar, x))):
        with np.errstate(all="ignore"):
            try:
                expected = getattr(np, op.name)(*theirs)
            except (TypeError, ValueError, OverflowError) as error:
                with pytest.raises((TypeError, ValueError, type(error))):
                    getattr(nd, op.name)(*ours)
                continue
        got = getattr(nd, op.name)(*ours)
        if expected.dtype.name in WIDER:
            wider = WIDER[expected.dtype.name]  # and computed in it, not only stored
            wide = [np.asarray(each).astype(wider) for each in theirs]
            expected = getattr(np, op.name)(*wide) if wider == "float32" else expected.astype(wider)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got.numpy(), expected, rtol=4 * np.finfo(np.float32).eps)


@each("scalar", [np.float64(2.5), np.float32(0.5), np.int64(3), np.int32(-2), np.bool_(True)])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_numpy_scalars_count_as_python_scalars(dtype, scalar, device):
    a = nd.array([1, 2, 3], dtype, device)
    assert (a + scalar).dtype == (a + scalar.item()).dtype
    assert_same((a * scalar).numpy(), (a * scalar.item()).numpy())
    assert_same((scalar * a).numpy(), (a * scalar.item()).numpy())


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_scalars_out_of_range(dtype, device):
    """As in NumPy 2: a Python int that does not fit raises."""
    a = nd.ones(3, dtype, device)
    with pytest.raises(OverflowError, match=str(2**70)):
        a + 2**70
    with pytest.raises(OverflowError):
        a[0] = 2**70


@each("dtype", NAMES)
@pytest.mark.parametrize("name", [*REDUCE, "mean", "var", "std", "argmax", "argmin", "cumsum"])
def test_reduction_dtypes(name, dtype, device):
    x = sample(dtype)
    a = nd.array(x, dtype, device)
    expected = np.asarray(getattr(np, name)(x))
    got = getattr(a, name)()
    ours = {"float16": "float64", "uint64": "int64"}  # for NumPy types that we do not have
    assert got.dtype == ours.get(expected.dtype.name, expected.dtype) and got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert_same(getattr(nd, name)(a).numpy(), got.numpy())


@pytest.mark.parametrize("op", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"])
@each("a, b", PAIRS)
def test_in_place_keeps_the_dtype(op, a, b, device):
    """x op= y gives NumPy's values, and TypeError where NumPy refuses the cast."""
    x, y = sample(a, 1), np.abs(sample(b, 2)).astype(b) + (b != "bool")
    p, q = nd.array(x, a, device), nd.array(y, b, device)
    address = p._handle.ptr()
    method = f"__{op}__"
    try:
        expected = x.copy()
        with np.errstate(all="ignore"):
            getattr(expected, method)(y)
    except TypeError:
        if a == b == "bool" and op in ("ifloordiv", "imod", "ipow"):
            return  # NumPy computes these in int8 and refuses; we in int32 and refuse too
        with pytest.raises(TypeError):
            getattr(p, method)(q)
        assert_same(p.numpy(), x)
        return
    result = getattr(p, method)(q)
    assert result is p and p.dtype == a and p._handle.ptr() == address
    np.testing.assert_allclose(p.numpy(), expected, rtol=4 * np.finfo(np.float32).eps)


@each("to", NAMES)
@pytest.mark.parametrize("dtype", NAMES)
def test_out_takes_what_numpy_takes(dtype, to, device):
    """add(a, a, out=...) casts by NumPy's rule same_kind."""
    x = sample(dtype)
    a, out = nd.array(x, dtype, device), nd.zeros((3, 4), to, device)
    if np.can_cast(dtype, to, "same_kind"):
        assert nd.add(a, a, out=out) is out
        assert_same(out.numpy(), np.add(x, x).astype(to))
    else:
        with pytest.raises(TypeError, match=r"add.*cannot store"):
            nd.add(a, a, out=out)


@pytest.mark.parametrize("dtype", [*NAMES, "int8", "int16", "float16", "uint64"])
def test_array_from_numpy_dtypes(dtype, device):
    """`array` makes float32 of anything unless told; dtype None keeps what we have."""
    x = np.arange(6).reshape(2, 3).astype(dtype)
    assert nd.array(x, device=device).dtype == "float32"
    assert_same(nd.array(x, "int64", device).numpy(), x.astype("int64"))
    if dtype in NAMES:
        assert_same(nd.asarray(x, device=device).numpy(), x)


@pytest.mark.parametrize(
    "bad",
    [np.array(["a"]), np.array([1j]), np.array([object()]), np.array(["2020-01-01"], "M8[D]")],
    ids=lambda x: str(x.dtype),
)
def test_array_refuses(bad, device):
    with pytest.raises(TypeError):
        nd.array(bad, device=device)


def test_dtype_objects():
    for name, kind in (("float32", np.float32), ("int64", np.int64), ("bool", np.bool_)):
        d = nd.dtype(name)
        assert d == name == d and d == kind and d == np.dtype(name) and hash(d) == hash(name)
        assert nd.dtype(kind) is d and np.dtype(str(d)) == d.numpy
    assert nd.float32 != "float64" and nd.float32 != np.float64 and nd.bool == np.bool_
    assert (nd.finfo("float32").eps, nd.iinfo(nd.int32).max) == (np.finfo(np.float32).eps, 2**31 - 1)
    for bad in ("float8", "complex64", "nonsense", "", 3, object):
        with pytest.raises(TypeError, match="dtype"):
            nd.dtype(bad)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float16"])
def test_small_numpy_dtypes_are_treated_alike(dtype, device):
    """With or without a device, asarray either widens to a dtype we have or says which one it cannot take."""
    x = np.arange(3).astype(dtype)

    def outcome(**where):
        try:
            return str(nd.asarray(x, **where).dtype)
        except TypeError as error:
            assert dtype in str(error)
            return "refused"

    assert outcome() == outcome(device="cpu")
