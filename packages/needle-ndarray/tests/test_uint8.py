"""uint8 beside the other dtypes: what the tables over all dtypes do not ask."""

import copy
import pickle

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing.oracle import assert_same
from needle_ndarray.testing.tables import each

BYTES = np.array([0, 1, 7, 127, 128, 200, 254, 255], np.uint8)


def test_dtype_object():
    assert (
        nd.uint8 == "uint8" and nd.uint8 == np.uint8 and nd.dtype(np.uint8) is nd.uint8 and nd.dtype("u1") is nd.uint8
    )
    assert (nd.uint8.itemsize, nd.uint8.is_float, nd.iinfo("uint8").max, nd.iinfo("uint8").min) == (1, False, 255, 0)


@each(
    "make",
    [
        lambda x, d: nd.array(x, dtype="uint8", device=d),
        lambda x, d: nd.array(x, device=d).astype(np.uint8),
        lambda x, d: nd.array(x, None, d),
        lambda x, d: nd.NDArray(x, device=d),
        lambda x, d: nd.asarray(x, device=d),
        lambda x, d: nd.array(x.tolist(), "uint8", d),
        lambda x, d: nd.from_numpy(x.copy(), device=d),
        lambda x, d: nd.from_dlpack(nd.array(x, "uint8", d), device=d),
        lambda x, d: pickle.loads(pickle.dumps(nd.array(x, "uint8", d))),
        lambda x, d: copy.deepcopy(nd.array(x, "uint8", d)),
        lambda x, d: nd.array(x, "uint8", d).to(nd.cpu()).to(d),
        lambda x, d: nd.concatenate([nd.array(x[:3], "uint8", d), nd.array(x[3:], "uint8", d)]),
        lambda x, d: nd.array(x, "uint8", d)[nd.array(range(8), "uint8", d)],
        lambda x, d: nd.array(x, "uint8", d).reshape(2, 4).T.copy().T.reshape(8),
    ],
)
def test_ways_to_one(make, device):
    a = make(BYTES, device)
    assert a.dtype is nd.uint8 and a.nbytes == 8 and a.device == device
    assert_same(a.numpy(), BYTES)


def test_making(device):
    assert_same(nd.zeros((2, 3), "uint8", device).numpy(), np.zeros((2, 3), np.uint8))
    assert_same(nd.full((3,), 200, "uint8", device).numpy(), np.full(3, 200, np.uint8))
    assert_same(nd.arange(250, 256, dtype="uint8", device=device).numpy(), np.arange(250, 256, dtype=np.uint8))
    assert_same(nd.eye(3, dtype="uint8", device=device).numpy(), np.eye(3, dtype=np.uint8))
    assert_same(nd.one_hot(3, np.array([2, 0], np.uint8), "uint8", device).numpy(), np.eye(3, dtype=np.uint8)[[2, 0]])
    assert nd.ones_like(nd.zeros(2, "uint8", device)).dtype == "uint8"
    with pytest.raises(TypeError, match="uint8"):
        nd.random.uniform(3, dtype="uint8", device=device)


def test_sharing_memory():
    """With NumPy, and by the buffer protocol, nothing is copied; int8 and int16 are still widened."""
    x = BYTES.copy()
    a = nd.from_numpy(x)
    x[0] = 9
    assert a[0].item() == 9 and memoryview(a).format == "B" and np.shares_memory(np.asarray(a), x)
    assert bytes(memoryview(a)) == x.tobytes()
    assert np.shares_memory(np.from_dlpack(a), x)
    assert [nd.asarray(np.zeros(2, kind)).dtype for kind in ("int8", "int16", "uint16")] == ["int32"] * 3


def test_numbers(device):
    a = nd.array(BYTES, "uint8", device)
    assert a[7].item() == 255 and isinstance(a[7].item(), int) and int(a[6]) == 254 and bool(a[1])
    assert a.tolist() == BYTES.tolist() and [10, 20, 30][nd.array(2, "uint8", device)] == 30
    assert repr(a[:2]).startswith("NDArray([0, 1], dtype=uint8")
    a[0], a[1:3] = 255, 128
    assert a.tolist()[:4] == [255, 128, 128, 127]


@each("scalar", [0, 1, 255, True, 2.5, -0.5])
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "floor_divide", "maximum", "less", "power"])
def test_python_numbers(op, scalar, device):
    """NumPy's dtypes and values: an int that fits stays uint8 and wraps, a float makes float64."""
    a = nd.array(BYTES, "uint8", device)
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(BYTES, scalar)
    np.testing.assert_allclose(getattr(nd, op)(a, scalar).numpy(), expected, rtol=1e-15)
    assert getattr(nd, op)(a, scalar).dtype == expected.dtype


@each("number", [-1, 256, 300, -(2**70), 2**70, 2**2000])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool"])
def test_ints_out_of_range(dtype, number, device):
    """As in NumPy 2: arithmetic and assignment raise, comparisons know the answer."""
    x = np.array([0, 1, 1, 0], dtype)
    a = nd.array(x, dtype, device)
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        op = getattr(np, name)
        exact = [bool(op(int(v), number)) for v in x] if abs(number) < 2**62 else None
        exact = [name in ("not_equal", *(("less", "less_equal") if number > 0 else ("greater", "greater_equal")))] * 4 \
            if exact is None else exact  # fmt: skip
        assert getattr(nd, name)(a, number).tolist() == exact
        mirrored = {"less": "greater", "greater": "less", "less_equal": "greater_equal", "greater_equal": "less_equal"}
        assert getattr(nd, mirrored.get(name, name))(number, a).tolist() == exact
    limits = None if dtype == "bool" else np.iinfo(dtype)
    if limits is not None and not limits.min <= number <= limits.max:
        for wrong in (
            lambda: a + number,
            lambda: number * a,
            lambda: a.maximum(number),
            lambda: nd.where(a, a, number),
        ):
            with pytest.raises(OverflowError, match="out of range for " + dtype):
                wrong()
        with pytest.raises(OverflowError, match="out of range for " + dtype):
            a[0] = number
        assert_same(a.numpy(), x)


def test_sums_are_int64(device):
    """NumPy: uint64, which we do not have."""
    x = np.full(10_000_000 // 1000, 255, np.uint8)
    a = nd.array(x, "uint8", device)
    for name in ("sum", "prod", "cumsum"):
        got = getattr(a[:5], name)()
        assert got.dtype == "int64" and got.tolist() == getattr(np, name)(x[:5]).tolist()
    assert a.sum().item() == 2_550_000 and a.mean().dtype == "float64" and a.max().dtype == "uint8"


def test_einsum_does_not_wrap_before_operands_meet(device):
    """Sums over letters of one operand are made in the common dtype, as in NumPy."""
    x, w = np.full((3, 40), 200, np.uint8), np.arange(4, dtype=np.float32)
    for kind in ("float32", "float64", "int64"):
        got = nd.einsum("ij,k->k", nd.array(x, "uint8", device), nd.array(w, kind, device))
        np.testing.assert_array_equal(got.numpy(), np.einsum("ij,k->k", x, w.astype(kind)))
    mask = nd.array(x > 0, "bool", device)
    assert nd.einsum("ij,k->k", mask, nd.array(w, "float32", device)).tolist() == [0, 120, 240, 360]


def test_labels(device):
    """Labels as they come out of files."""
    logits = nd.array(np.arange(12).reshape(4, 3) % 5, "float32", device)
    labels = np.array([2, 0, 1, 1], np.uint8)
    ours, wide = nd.array(labels, "uint8", device), nd.array(labels, "int64", device)
    assert_same(nd.cross_entropy(logits, ours).numpy(), nd.cross_entropy(logits, wide).numpy())
    grad = nd.ones((4,), device=device)
    assert_same(nd.cross_entropy_grad(grad, logits, ours).numpy(), nd.cross_entropy_grad(grad, logits, wide).numpy())
    assert_same(nd.take(logits, ours, axis=0).numpy(), logits.numpy()[labels])
    assert_same(logits[ours, ours].numpy(), logits.numpy()[labels, labels])
    with pytest.raises(IndexError, match="200"):
        nd.cross_entropy(logits, nd.array([0, 1, 2, 200], "uint8", device))


def test_float_functions_of_bytes(device):
    """uint8 becomes float32 where floats are needed, as bool does (NumPy: float16); division is float64, as in NumPy."""
    x = nd.array(np.arange(32).reshape(1, 4, 4, 2), "uint8", device)
    w = nd.ones((2, 2, 2, 3), "uint8", device)
    assert nd.conv2d(x, w).dtype == nd.exp(x).dtype == nd.softmax(x).dtype == nd.layer_norm(x).dtype == "float32"
    assert nd.max_pool2d(x, 2).dtype == nd.logsumexp(x).dtype == "float32"
    assert (x / x).dtype == x.mean().dtype == x.var().dtype == "float64"
    np.testing.assert_allclose(nd.exp(x).numpy(), np.exp(x.numpy().astype("float32")), rtol=1e-6)
