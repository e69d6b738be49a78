"""Reading and writing by ints, slices, arrays of ints and of bools, in every mixture, against NumPy."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing.cases import NAMES
from needle_ndarray.testing.oracle import assert_same
from needle_ndarray.testing.tables import each

SHAPE = (4, 3, 5)
LIST, MATRIX = np.array([0, 3, 1, 3]), np.array([[2, 0], [-1, 1]])
MASK = np.arange(60).reshape(SHAPE) % 3 == 0
ROWS = np.array([True, False, True, True])

KEYS = {
    "ints": np.s_[LIST],
    "list": np.s_[[1, 2]],
    "negative": np.s_[[-1, -4]],
    "matrix": np.s_[MATRIX],
    "second axis": np.s_[:, [2, 0, 2]],
    "last axis": np.s_[..., [4, -5]],
    "two": np.s_[[0, 1, 2], [2, 1, 0]],
    "two broadcast": np.s_[[[0], [3]], [0, 2]],
    "apart": np.s_[[0, 1], :, [1, 2]],
    "apart by None": np.s_[[0, 1], None, [1, 2]],
    "apart by int": np.s_[[0, 1], 1, [1, 2]],
    "three": np.s_[[0, 1], [1, 2], [3, 4]],
    "int first": np.s_[1, [0, 2]],
    "int after a slice": np.s_[:, 1, [0, 2]],
    "int far": np.s_[1, :, [0, 2]],
    "slice before": np.s_[1:3, [0, 2]],
    "negative slice before": np.s_[::-1, [0, 2]],
    "slice after": np.s_[[0, 2], 1:, ::-2],
    "ellipsis": np.s_[[0, 2], ..., 1],
    "None before": np.s_[None, [0, 2]],
    "None after": np.s_[[0, 2], None],
    "None between": np.s_[:, [0, 2], None, [1, 1]],
    "empty list": np.s_[[]],
    "empty array": np.s_[np.zeros((0, 2), int)],
    "0-d": np.s_[np.array(2)],
    "0-d after slice": np.s_[:, np.array(2)],
    "mask": np.s_[MASK],
    "mask none": np.s_[np.zeros(SHAPE, bool)],
    "mask rows": np.s_[ROWS],
    "mask two axes": np.s_[MASK[..., 0]],
    "mask last axes": np.s_[:, MASK[0]],
    "mask last": np.s_[..., np.array([True, False, True, False, True])],
    "mask and int": np.s_[ROWS, 1],
    "mask and ints": np.s_[ROWS, [0, 1, 2]],
    "mask and slice": np.s_[ROWS, ::-1, 1:],
    "empty ellipsis between": np.s_[:, [0, 1], ..., [1, 2]],
    "mask list": np.s_[[True, False, False, True]],
    "ints and mask": np.s_[[0], :, np.array([True, False, True, False, True])],
    "True": np.s_[True],
    "False": np.s_[False],
    "True within": np.s_[True, ..., 1],
    "None and True": np.s_[None, True, 1],
    "np.bool": np.s_[np.True_],
    "int32": np.s_[LIST.astype(np.int32)],
    "uint8": np.s_[LIST.astype(np.uint8)],
}


@pytest.fixture(params=["compact", "transposed", "flipped", "sliced"])
def pair(request, device):
    """A function that makes an array in some kind of view, and the NumPy array of the same values."""
    view = {
        "compact": (SHAPE, lambda x: x),
        "transposed": (SHAPE[::-1], lambda x: x.T),
        "flipped": (SHAPE, lambda x: x[::-1, ::-1, ::-1]),
        "sliced": ((9, 7, 11), lambda x: x[1::2, 1::2, 1::2]),
    }[request.param]
    base = np.arange(np.prod(view[0]), dtype=np.float32).reshape(view[0])
    return lambda: (view[1](nd.array(base, device=device)), view[1](base.copy()))


def on(device, key):
    """The same key with its arrays as NDArrays."""
    keys = key if isinstance(key, tuple) else (key,)
    made = [
        nd.array(k, "bool" if k.dtype == bool else "int64", device) if isinstance(k, np.ndarray) and k.ndim else k
        for k in keys
    ]
    return tuple(made) if isinstance(key, tuple) else made[0]


@each("name", KEYS)
def test_get(pair, name):
    a, x = pair()
    expected = np.asarray(x[KEYS[name]])
    for key in (KEYS[name], on(a.device, KEYS[name])):
        got = a[key]
        assert_same(got.numpy(), expected)
        if name not in ("0-d", "0-d after slice"):
            got[...] = -1  # a copy
    assert_same(a.numpy(), x)


@each("name", KEYS)
@each("value", ["scalar", "array", "row", "numpy", "list", "int64", "more axes"])
def test_set(pair, name, value):
    """Where positions repeat, the last one wins, as in NumPy."""
    a, x = pair()
    key = KEYS[name]
    shape = x[key].shape
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 1000
    ours, theirs = {
        "scalar": (-7, -7),
        "array": (nd.array(values, device=a.device), values),
        "row": (nd.array(values[..., :1], device=a.device), values[..., :1]) if shape else (1.5, 1.5),
        "numpy": (values, values),
        "list": (values.tolist(), values.tolist()),
        "int64": (nd.array(values, "int64", a.device), values.astype(np.int64)),
        "more axes": (nd.array(values[None, None], device=a.device), values[None, None]),
    }[value]
    try:
        x[key] = theirs
    except ValueError:
        with pytest.raises(ValueError):
            a[key] = ours
        return
    except TypeError:
        return  # NumPy refuses more axes for a mask alone, and for nothing else
    a[key] = ours
    assert_same(a.numpy(), x)


@each("name", KEYS)
def test_augmented(pair, name):
    """a[key] += 1 reads and writes once per position, as in NumPy."""
    a, x = pair()
    a[KEYS[name]] += 1
    x[KEYS[name]] += 1
    assert_same(a.numpy(), x)


BAD = {
    "beyond": np.s_[[4]],
    "before": np.s_[[-5]],
    "second": np.s_[:, [0, 3]],
    "too many": np.s_[[0], [0], [0], [0]],
    "do not broadcast": np.s_[[0, 1], [0, 1, 2]],
    "floats": np.s_[np.array([0.0, 1.0])],
    "mask too long": np.s_[np.ones(5, bool)],
    "mask too short": np.s_[np.ones(3, bool)],
    "mask shape": np.s_[np.ones((4, 2), bool)],
    "mask axes": np.s_[np.ones((4, 3, 5, 1), bool)],
    "strings": np.s_[["a"]],
    "objects": np.s_[[None]],
    "complex": np.s_[1j],
    "dict": np.s_[{}],
    "masks do not fit": np.s_[ROWS, np.array([True, True, False])],
}


@each("name", BAD)
def test_errors(pair, name):
    a, x = pair()
    with pytest.raises(IndexError):
        if name not in ("objects",):
            x[BAD[name]]
        else:
            raise IndexError
    for key in (BAD[name], on(a.device, BAD[name]) if name not in ("floats",) else BAD[name]):
        with pytest.raises((IndexError, TypeError, ValueError)):
            a[key]
        with pytest.raises((IndexError, TypeError, ValueError)):
            a[key] = 1
    assert_same(a.numpy(), x)


OVERLAPS = {
    "shift right": (np.s_[1:], np.s_[:-1]),
    "shift left": (np.s_[:-1], np.s_[1:]),
    "reverse": (np.s_[:], np.s_[::-1]),
    "same": (np.s_[:], np.s_[:]),
    "every other": (np.s_[::2], np.s_[1::2]),
    "spread": (np.s_[::2], np.s_[:8]),
    "one to all": (np.s_[:], np.s_[3]),
    "ints": (np.s_[[0, 1, 2]], np.s_[1:4]),
    "mask": (np.s_[np.arange(16) < 8], np.s_[4:12]),
}


@each("name", OVERLAPS)
@each("axis", [0, 1])
def test_overlap(name, axis, device):
    """a[target] = a[source] on shared memory: as if the source were copied first."""
    x = np.arange(16 * 17, dtype=np.float32).reshape(16, 17)[:, :16]
    a = nd.array(x.copy(), device=device)
    x = x.copy()
    target, source = ((slice(None),) * axis + (k,) for k in OVERLAPS[name])
    value = x[source][:, None] if name == "one to all" and axis == 1 else x[source]
    ours = a[source][:, None] if name == "one to all" and axis == 1 else a[source]
    x[target] = value.copy()
    a[target] = ours
    assert_same(a.numpy(), x)


def test_overlap_with_transpose(device):
    for size in (3, 40, 300):
        x = np.arange(size * size, dtype=np.float32).reshape(size, size)
        a = nd.array(x, device=device)
        a[...] = a.T
        assert_same(a.numpy(), x.T.copy())
        a = nd.array(x, device=device)
        a += a.T
        assert_same(a.numpy(), x + x.T)
        a = nd.array(x, device=device)
        nd.subtract(a[::-1], a.T, out=a)
        assert_same(a.numpy(), x[::-1] - x.T)
        a = nd.array(x, device=device)
        nd.negative(a[:, ::-1], out=a)
        assert_same(a.numpy(), -x[:, ::-1])


def test_overlap_through_borrowed_memory(device):
    """Two arrays on one NumPy array, which neither of them owns."""
    x = np.arange(100, dtype=np.float32)
    a, b = nd.from_numpy(x[:-1]), nd.from_numpy(x[1:])
    expected = x.copy()
    expected[1:] = expected[:-1].copy()
    b[...] = a
    assert_same(x, expected)


@pytest.mark.parametrize("dtype", NAMES)
@each("axis", [None, 0, 1, -1])
def test_take(dtype, axis, device):
    x = np.arange(60).reshape(SHAPE).astype(dtype)
    a = nd.array(x, dtype, device)
    for index in ([0, 2, 2], [[0], [1]], 1, [], np.array([-1, 0])):
        expected = np.take(x, np.asarray(index, np.int64), axis=axis)
        assert_same(nd.take(a, index, axis=axis).numpy(), expected)
        assert_same(a.take(index, axis).numpy(), expected)


@each("axis", [0, 1, 2, -1])
def test_take_along_axis(axis, device):
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    a = nd.array(x, device=device)
    order = np.argsort(x, axis=axis)
    assert_same(nd.take_along_axis(a, order, axis=axis).numpy(), np.take_along_axis(x, order, axis))
    first = np.take(order, [0], axis=axis)
    assert_same(nd.gather(a, nd.array(first, "int64", device), axis=axis).numpy(), np.take_along_axis(x, first, axis))
    largest = a.argmax(axis, keepdims=True)
    assert_same(nd.gather(a, largest, axis=axis).numpy(), x.max(axis, keepdims=True))


@pytest.mark.parametrize("dtype", NAMES)
@each("axis", [0, 1, -1])
def test_scatter_add(dtype, axis, device):
    x = np.arange(60).reshape(SHAPE).astype(dtype)
    for view in (lambda v: v, lambda v: v[::-1, :, ::-1]):
        y = x.copy()
        a = nd.array(x, dtype, device)
        index = np.array([0, 2, 0, -1])
        shape = list(SHAPE)
        shape[axis] = 4
        values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        assert nd.scatter_add(view(a), index, nd.array(values, dtype, device), axis=axis) is not None
        np.add.at(np.moveaxis(view(y), axis, 0), index, np.moveaxis(values, axis, 0))
        assert_same(a.numpy(), y)


def test_an_array_as_its_own_index(device):
    """Positions are those before the first write."""
    x = np.array([1, 3, 0, 1], np.int64)
    y = x.copy()
    y[x] = [9, 8, 7, 6]
    a = nd.array(x, "int64", device)
    a[a] = nd.array([9, 8, 7, 6], "int64", device)
    assert_same(a.numpy(), y)
    y = x.copy()
    np.add.at(y, x, 1)
    for add in (nd.scatter_add, nd.add_at):
        a = nd.array(x, "int64", device)
        assert_same(add(a, a, nd.ones(4, "int64", device)).numpy(), y)


def test_nonzero(device):
    x = np.arange(60).reshape(SHAPE) % 4 == 1
    for got, expected in zip(nd.nonzero(nd.array(x, "bool", device)), np.nonzero(x), strict=True):
        assert_same(got.numpy(), expected)
    with pytest.raises(ValueError, match="0-d"):
        nd.nonzero(nd.array(1.0, device=device))


def test_other_device():
    a, b = nd.zeros(3, device="cpu"), nd.zeros(3, device="cpu_numpy")
    calls = {
        "add": lambda: a + b,
        "matmul": lambda: a @ b,
        "setitem": lambda: a.__setitem__(..., b),
        "index": lambda: a[b.astype("int64")],
        "put": lambda: a.__setitem__([0, 1, 2], b),
        "stack": lambda: nd.stack([a, b]),
        "out": lambda: nd.add(a, a, out=b),
        "unary out": lambda: nd.exp(a, out=b),
        "where": lambda: nd.where(a > 0, a, b),
        "where condition": lambda: nd.where(b > 0, a, a),
        "scatter_add": lambda: nd.scatter_add(a, [0], b[:1]),
        "einsum": lambda: nd.einsum("i,i->", a, b),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"cpu\(\).*cpu_numpy\(\)|cpu_numpy\(\).*cpu\(\)"):
            call()
            pytest.fail(f"{name} took arrays on two devices")
    assert_same((a + b.to("cpu")).numpy(), np.zeros(3, np.float32))
