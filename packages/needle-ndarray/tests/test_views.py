"""Views share memory, and have the shapes, strides and values that NumPy gives."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing.oracle import assert_same

SHAPE = (4, 3, 5)


@pytest.fixture
def pair(device):
    """An NDArray and a NumPy array of the same values."""
    x = np.arange(60, dtype=np.float32).reshape(SHAPE)
    return nd.array(x, device=device), x


def elements(strides, itemsize=4):
    return tuple(s // itemsize for s in strides)


def assert_view(view, expected, base):
    """The same values and strides, on the same memory."""
    assert_same(view.numpy(), expected)
    assert view.shape == expected.shape and view.ndim == expected.ndim and view.size == expected.size
    if expected.size > 1:
        meaningful = [i for i, n in enumerate(expected.shape) if n > 1]
        strides = elements(expected.strides)
        assert [view.strides[i] for i in meaningful] == [strides[i] for i in meaningful]
    assert view._handle.ptr() == base._handle.ptr()


SLICES = [
    np.s_[1],
    np.s_[-1],
    np.s_[:],
    np.s_[...],
    np.s_[()],
    np.s_[1:3],
    np.s_[::2],
    np.s_[::-1],
    np.s_[::-3],
    np.s_[3:0:-2],
    np.s_[5:2],
    np.s_[-100:100],
    np.s_[2:2],
    np.s_[:, 1],
    np.s_[..., 1],
    np.s_[1, ..., 2],
    np.s_[1, 2, 3],
    np.s_[:, None],
    np.s_[None, ..., None],
    np.s_[None, 1, None, ::-1, None, 2:],
    np.s_[::-1, ::-1, ::-1],
    np.s_[1:, :2, ::3],
    np.s_[np.int64(2)],
    np.s_[:, np.int32(-1)],
    np.s_[:0, 1],
    np.s_[:, :, 4:0:-1],
    np.s_[:: 2**62],
    np.s_[-(2**62) : 2**62],
    np.s_[: -(2**62) : -(2**61)],
]


@pytest.mark.parametrize("key", SLICES, ids=str)
def test_basic_indexing(pair, key):
    a, x = pair
    assert_view(a[key], x[key] if isinstance(x[key], np.ndarray) else np.asarray(x[key]), a)


@pytest.mark.parametrize("key", SLICES, ids=str)
def test_writes_go_through(pair, key):
    a, x = pair
    a[key] = -1
    x[key] = -1
    assert_same(a.numpy(), x)
    view = a[key]
    view[...] = 7
    x[key] = 7
    assert_same(a.numpy(), x)


@pytest.mark.parametrize(
    "key, words",
    [
        (np.s_[4], "4.*axis 0.*(4, 3, 5)"),
        (np.s_[-5], "-5.*axis 0"),
        (np.s_[0, 3], "3.*axis 1"),
        (np.s_[0, 0, 0, 0], "4.*(4, 3, 5)"),
        (np.s_[..., ...], "ellipsis"),
        (np.s_[2**70], "out of bounds"),
        (np.s_[1.0], "float"),
        (np.s_["a"], "expected|type"),
        (np.s_[1.5:], "slice"),
        (np.s_[:, 1.0], "float"),
    ],
    ids=str,
)
def test_bad_indices(pair, key, words):
    a, x = pair
    with pytest.raises((IndexError, TypeError)) as numpy_error:
        x[key]
    with pytest.raises((IndexError, TypeError), match=words.replace("(", r"\(").replace(")", r"\)")):
        a[key]
    with pytest.raises((IndexError, TypeError)):
        a[key] = 0
    assert numpy_error


VIEWS = {
    "T": (lambda a: a.T, lambda x: x.T),
    "mT": (lambda a: a.mT, lambda x: x.swapaxes(-1, -2)),
    "permute": (lambda a: a.permute((2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "permute negative": (lambda a: a.permute((-1, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "permute loose": (lambda a: a.permute(1, 0, 2), lambda x: x.transpose(1, 0, 2)),
    "permute_dims": (lambda a: nd.permute_dims(a, (1, 2, 0)), lambda x: x.transpose(1, 2, 0)),
    "transpose": (lambda a: a.transpose(), lambda x: x.T),
    "transpose axes": (lambda a: nd.transpose(a, (0, 2, 1)), lambda x: x.transpose(0, 2, 1)),
    "swapaxes": (lambda a: a.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    "moveaxis": (lambda a: nd.moveaxis(a, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    "moveaxis many": (lambda a: nd.moveaxis(a, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0))),
    "flip": (lambda a: a.flip(), lambda x: np.flip(x)),
    "flip axis": (lambda a: a.flip((0, 2)), lambda x: np.flip(x, (0, 2))),
    "flip function": (lambda a: nd.flip(a, 1), lambda x: np.flip(x, 1)),
    "reshape": (lambda a: a.reshape((12, 5)), lambda x: x.reshape(12, 5)),
    "reshape loose": (lambda a: a.reshape(2, -1), lambda x: x.reshape(2, -1)),
    "reshape int": (lambda a: a.reshape(60), lambda x: x.reshape(60)),
    "reshape ones": (lambda a: a.reshape((1, 4, 1, 15, 1)), lambda x: x.reshape(1, 4, 1, 15, 1)),
    "reshape of sliced": (lambda a: a[::2].reshape((2, 15)), lambda x: x[::2].reshape(2, 15)),
    "reshape of flipped": (lambda a: a[::-1].reshape((2, 2, 15)), lambda x: x[::-1].reshape(2, 2, 15)),
    "expand_dims": (lambda a: nd.expand_dims(a, 1), lambda x: np.expand_dims(x, 1)),
    "expand_dims last": (lambda a: a.expand_dims(-1), lambda x: np.expand_dims(x, -1)),
    "squeeze": (lambda a: a[:1, :, :1].squeeze(), lambda x: x[:1, :, :1].squeeze()),
    "squeeze axis": (lambda a: nd.squeeze(a[:1, :, :1], 0), lambda x: x[:1, :, :1].squeeze(0)),
    "squeeze strided": (lambda a: a[:, 1:2, ::2].squeeze(1), lambda x: x[:, 1:2, ::2].squeeze(1)),
    "broadcast_to": (lambda a: a[:, :1].broadcast_to((2, 4, 3, 5)), lambda x: np.broadcast_to(x[:, :1], (2, 4, 3, 5))),
    "flat": (lambda a: a.flat, lambda x: x.reshape(-1)),
    "split": (lambda a: nd.split(a, 2)[1], lambda x: np.split(x, 2)[1]),
    "split at": (lambda a: nd.split(a, [1, 3], 2)[1], lambda x: np.split(x, [1, 3], 2)[1]),
    "unstack": (lambda a: nd.unstack(a, axis=1)[2], lambda x: x[:, 2]),
    "iteration": (lambda a: list(a)[2], lambda x: list(x)[2]),
    "as_strided": (
        lambda a: a.as_strided((3, 2), (1, 7), 4),
        lambda x: np.lib.stride_tricks.as_strided(x.reshape(-1)[4:], (3, 2), (4, 28)),
    ),
    "as_strided backwards": (
        lambda a: a.as_strided((3, 2), (-1, 0), 4),
        lambda x: np.broadcast_to(x.reshape(-1)[4:1:-1][:, None], (3, 2)),
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(pair, name):
    a, x = pair
    ours, numpys = VIEWS[name]
    assert_view(ours(a), numpys(x), a)


COPIES = {
    "reshape of transposed": (lambda a: a.T.reshape((5, 12)), lambda x: x.T.reshape(5, 12)),
    "reshape of cut": (lambda a: a[:, :2].reshape((40,)), lambda x: x[:, :2].reshape(40)),
    "pad": (lambda a: a.pad(((1, 2), (0, 0), (3, 0))), lambda x: np.pad(x, ((1, 2), (0, 0), (3, 0)))),
    "pad value": (
        lambda a: nd.pad(a, ((0, 1),) * 3, -1),
        lambda x: np.pad(x, ((0, 1),) * 3, constant_values=-1),
    ),
    "stack": (lambda a: nd.stack([a, a + 1], 1), lambda x: np.stack([x, x + 1], 1)),
    "stack last": (lambda a: nd.stack([a, a + 1], -1), lambda x: np.stack([x, x + 1], -1)),
    "concatenate": (lambda a: nd.concatenate([a, a[:1]]), lambda x: np.concatenate([x, x[:1]])),
    "concat": (lambda a: nd.concat([a, a[..., 1:]], -1), lambda x: np.concatenate([x, x[..., 1:]], -1)),
    "concatenate flat": (lambda a: nd.concatenate([a, a.T], None), lambda x: np.concatenate([x, x.T], None)),
    "tile": (lambda a: nd.tile(a, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    "tile int": (lambda a: nd.tile(a, 2), lambda x: np.tile(x, 2)),
    "tile more": (lambda a: nd.tile(a.T, (2, 1, 1, 2)), lambda x: np.tile(x.T, (2, 1, 1, 2))),
    "repeat": (lambda a: nd.repeat(a, 3, axis=1), lambda x: np.repeat(x, 3, axis=1)),
    "repeat flat": (lambda a: nd.repeat(a.T, 2), lambda x: np.repeat(x.T, 2)),
    "roll": (lambda a: nd.roll(a, 2, 0), lambda x: np.roll(x, 2, 0)),
    "roll back": (lambda a: nd.roll(a, -7, 2), lambda x: np.roll(x, -7, 2)),
    "roll flat": (lambda a: nd.roll(a, 7), lambda x: np.roll(x, 7)),
    "meshgrid": (lambda a: nd.meshgrid(a[0, 0], a[0, :, 0])[0], lambda x: np.meshgrid(x[0, 0], x[0, :, 0])[0]),
    "tril": (lambda a: nd.tril(a, k=1), lambda x: np.tril(x, 1)),
    "triu": (lambda a: nd.triu(a, k=-1), lambda x: np.triu(x, -1)),
    "clip": (lambda a: nd.clip(a, 10, 20.5), lambda x: np.clip(x, 10, 20.5)),
    "where": (lambda a: nd.where(a > 30, a, -a), lambda x: np.where(x > 30, x, -x)),
    "astype": (lambda a: a.T.astype("int32"), lambda x: x.T.astype("int32")),
    "copy": (lambda a: a.T.copy(), lambda x: x.T.copy()),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies(pair, name):
    a, x = pair
    ours, numpys = COPIES[name]
    got = ours(a)
    assert_same(got.numpy(), numpys(x))
    got[...] = 0
    assert_same(a.numpy(), x)  # the original is left alone


ERRORS = {
    "reshape": (lambda a: a.reshape((7, 9)), ValueError, r"60.*63|\(4, 3, 5\)"),
    "reshape two unknown": (lambda a: a.reshape((-1, -1)), ValueError, "-1"),
    "reshape negative": (lambda a: a.reshape((-2, 30)), ValueError, "-2"),
    "reshape indivisible": (lambda a: a.reshape((7, -1)), ValueError, "7"),
    "reshape zero": (lambda a: a.reshape((0, -1)), ValueError, "0"),
    "broadcast_to": (lambda a: a.broadcast_to((4, 3, 6)), AssertionError, r"\(4, 3, 5\).*\(4, 3, 6\)"),
    "broadcast_to fewer": (lambda a: a.broadcast_to((3, 5)), AssertionError, r"\(3, 5\)"),
    "add": (lambda a: a + a[:, :2], ValueError, r"\(4, 3, 5\) and \(4, 2, 5\)"),
    "permute": (lambda a: a.permute((0, 1, 1)), ValueError, r"\(0, 1, 1\)"),
    "permute few": (lambda a: a.permute((0, 1)), ValueError, "3 axes"),
    "permute beyond": (lambda a: a.permute((0, 1, 3)), (ValueError, IndexError), "3"),
    "squeeze": (lambda a: a.squeeze(1), ValueError, r"\(4, 3, 5\)"),
    "swapaxes": (lambda a: a.swapaxes(0, 3), (ValueError, IndexError), "axis 3"),
    "split": (lambda a: nd.split(a, 3), ValueError, "3"),
    "stack": (lambda a: nd.stack([a, a.T]), ValueError, r"\(5, 3, 4\)"),
    "stack none": (lambda a: nd.stack([]), ValueError, "stack"),
    "concatenate": (lambda a: nd.concatenate([a, a.T]), ValueError, r"\(5, 3, 4\)"),
    "pad": (lambda a: a.pad(((1, 1),)), ValueError, "1 pairs"),
    "pad negative": (lambda a: a.pad(((1, 1), (0, -1), (0, 0))), ValueError, "-1"),
    "sum axis": (lambda a: a.sum(3), (ValueError, IndexError), "axis 3"),
    "sum twice": (lambda a: a.sum((0, -3)), ValueError, "twice"),
    "max of none": (lambda a: a[:0].max(), ValueError, r"\(0, 3, 5\)"),
    "argmax of none": (lambda a: a[:0].argmax(0), ValueError, r"\(0, 3, 5\)"),
    "matmul": (lambda a: a @ a, ValueError, r"inner sizes 5 and 3"),
    "matmul 0-d": (lambda a: a @ a[0, 0, 0], ValueError, "0-d"),
    "matmul batch": (lambda a: a @ a.mT[:3], ValueError, r"\(4, 3, 5\) @ \(3, 5, 3\)"),
    "out": (lambda a: nd.exp(a, out=a[0]), ValueError, r"\(3, 5\)"),
    "out broadcast": (lambda a: nd.exp(a, out=a[:, :1].broadcast_to((4, 3, 5))), ValueError, "broadcast"),
    "setitem broadcast": (lambda a: a[:1].broadcast_to((4, 3, 5)).fill(0), ValueError, "broadcast"),
    "setitem": (lambda a: a.__setitem__(0, a), ValueError, r"\(4, 3, 5\) into \(3, 5\)"),
    "truth": (lambda a: bool(a), ValueError, "ambiguous"),
    "item": (lambda a: a.item(), ValueError, "60"),
    "index": (lambda a: [1, 2][a[0, 0, 0]], TypeError, "float32"),
    "len": (lambda a: len(a[0, 0, 0]), TypeError, "0-d"),
    "iteration": (lambda a: list(a[0, 0, 0]), TypeError, "0-d"),
    "as_strided": (lambda a: a.as_strided((61,), (1,)), ValueError, r"0 to 60 of a buffer"),
    "as_strided before": (lambda a: a.as_strided((2,), (-1,)), ValueError, "-1 to 0"),
    "as_strided lengths": (lambda a: a.as_strided((2, 2), (1,)), ValueError, "length"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_carry_the_numbers(pair, name):
    a, x = pair
    if name == "as_strided" and a._handle.nbytes > 4 * 60:
        a = nd.NDArray.make((a._handle.nbytes // 4,), device=a.device, handle=a._handle)
        with pytest.raises(ValueError, match="of a buffer of"):
            a.as_strided((a.size + 1,), (1,))
        return
    call, error, words = ERRORS[name]
    with pytest.raises(error, match=words):
        call(a)
    assert_same(pair[0].numpy(), x)


@pytest.mark.parametrize("ndim", [0, 1, 6, 7, 12, 31, 32])
def test_many_axes(ndim, device):
    """Up to 32 axes, in every operation."""
    shape = tuple(2 if i % 5 == 0 else 1 for i in range(ndim))
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    a = nd.array(x, device=device)
    assert_same((a.T + 1).numpy(), x.T + 1)
    assert_same(a.sum(tuple(range(0, ndim, 2)), keepdims=True).numpy(), x.sum(tuple(range(0, ndim, 2)), keepdims=True))
    assert_same(a[...].numpy(), x[...])
    if ndim:
        assert_same(a[0, ...].numpy(), x[0, ...])
        assert_same(a[..., 0].numpy(), x[..., 0])
        assert_same(a[..., ::-1].numpy(), x[..., ::-1])
        assert_same(nd.concatenate([a, a], -1).numpy(), np.concatenate([x, x], -1))
        assert_same(a.flip().numpy(), np.flip(x))
        assert_same(a[np.array([0])].numpy(), x[np.array([0])])
    if ndim < 32:
        assert_same(a[None].numpy(), x[None])
    else:
        for call in (lambda: a[None], lambda: nd.stack([a, a]), lambda: a.expand_dims(0), lambda: a.reshape((1,) * 33)):
            with pytest.raises((ValueError, IndexError), match="32"):
                call()


@pytest.mark.parametrize("ndim", [33, 40, 64])
def test_too_many_axes(ndim, device):
    for call in (
        lambda: nd.zeros((1,) * ndim, device=device),
        lambda: nd.array(np.zeros((1,) * ndim), device=device),
        lambda: nd.zeros((), device=device).broadcast_to((1,) * ndim),
    ):
        with pytest.raises(ValueError, match=f"{ndim}.*32"):
            call()


def test_flat_of_strided_is_writable(pair):
    a, x = pair
    b, y = a.T, x.T
    assert len(b.flat) == 60 and b.flat.shape == (60,)
    assert_same(b.flat[7:9].numpy(), y.flat[7:9])
    b.flat[3] = -1
    b.flat[10:20:3] = 5
    y.flat[3] = -1
    y.flat[10:20:3] = 5
    assert_same(a.numpy(), x)
    a.flat[2] += 100
    x.flat[2] += 100
    assert_same(a.numpy(), x)


@pytest.mark.parametrize("name", ["mean", "var", "std"])
@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_statistics(pair, name, axis, keepdims):
    a, x = pair
    expected = np.asarray(getattr(x, name)(axis=axis, keepdims=keepdims))
    got = getattr(a, name)(axis=axis, keepdims=keepdims)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
    if name != "mean":
        got = getattr(nd, name)(a, axis, correction=1, keepdims=keepdims)
        np.testing.assert_allclose(got.numpy(), getattr(x, name)(axis=axis, ddof=1, keepdims=keepdims), rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_over_any_axes(pair, name, axis):
    a, x = pair
    wide = x.astype(np.float64) / 10
    log_sum = np.log(np.exp(wide).sum(axis=axis, keepdims=True))
    expected = {"softmax": np.exp(wide - log_sum), "log_softmax": wide - log_sum, "logsumexp": log_sum.squeeze(axis)}
    got = getattr(nd, name)(a / 10, axis=axis)
    assert got.dtype == "float32" and got.shape == expected[name].shape
    np.testing.assert_allclose(got.numpy(), expected[name], rtol=2e-6, atol=2e-6)
    if name == "logsumexp":
        assert (a / 10).logsumexp(axis, keepdims=True).shape == log_sum.shape


def test_zero_size(device):
    a = nd.zeros((0, 3), device=device)
    x = np.zeros((0, 3), np.float32)
    for got, expected in [
        (a + 1, x + 1),
        (a.sum(), x.sum()),
        (a.sum(0), x.sum(0)),
        (a.sum(1), x.sum(1)),
        (a.prod(0), x.prod(0)),
        (a.max(1), x.max(1)),
        (a.T, x.T),
        (a @ nd.ones((3, 4), device=device), x @ np.ones((3, 4), np.float32)),
        (nd.ones((4, 0), device=device) @ a, np.ones((4, 0), np.float32) @ x),
        (a.reshape((3, 0, 7)), x.reshape(3, 0, 7)),
        (a.any(), x.any()),
        (a.all(1), x.all(1)),
        (a.cumsum(0), x.cumsum(0)),
        (nd.concatenate([a, nd.ones((2, 3), device=device)]), np.concatenate([x, np.ones((2, 3), np.float32)])),
        (a.argmax(1), x.argmax(1)),
        (a[::-1, ::2], x[::-1, ::2]),
        (a.broadcast_to((2, 0, 3)), np.broadcast_to(x, (2, 0, 3))),
        (a.softmax(), x),
    ]:
        assert_same(got.numpy(), np.asarray(expected))
    assert np.isnan(a.mean().item()) and a.tolist() == [] and len(a) == 0 and repr(a)
