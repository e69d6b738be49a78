"""What code written for the course relies on: the same names, arguments, defaults and numbers."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray import NDArray
from needle_ndarray.testing.oracle import assert_same


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_array_defaults_to_float32(device):
    for value in ([1, 2, 3], [[1.5, 2], [3, 4]], np.arange(3), np.zeros(2), 3, np.float64(1.5)):
        a = nd.array(value, device=device)
        assert a.dtype == "float32" and a.device == device
        assert_same(a.numpy(), np.asarray(value, np.float32))
        assert NDArray(value, device=device).shape == a.shape
    assert NDArray([1.0, 2.0]).dtype == "float32"
    assert nd.array([1], "int32", device).dtype == "int32"


def test_constructor_copies(device):
    a = nd.array(numbers(2, 3), device=device)
    for b in (NDArray(a), NDArray(a, device=device), nd.array(a)):
        b[...] = 0
        assert a.sum().item() == 15
    other = NDArray(a, device="cpu_numpy" if device == nd.cpu() else "cpu")
    assert other.device != device and other.tolist() == a.tolist()


def test_make(device):
    a = NDArray.make((2, 3), device=device)
    assert (a.shape, a.strides, a.dtype, a.device) == ((2, 3), (3, 1), "float32", device)
    a.fill(2)
    view = NDArray.make((3, 2), strides=(1, 3), device=device, handle=a._handle)
    assert view._handle.ptr() == a._handle.ptr() and view.shape == (3, 2) and view.strides == (1, 3)
    a[1, 2] = 9
    assert view[2, 1].item() == 9
    part = NDArray.make((2,), device=device, handle=a._handle, offset=4)
    assert part.tolist() == [2, 9]


@pytest.mark.parametrize(
    "shape, strides", [((2, 3, 4), (12, 4, 1)), ((5,), (1,)), ((), ()), ((3, 1), (1, 1)), ((2, 0, 3), (0, 3, 1))]
)
def test_compact_strides(shape, strides):
    assert NDArray.compact_strides(shape) == strides


def test_strides_count_elements(device):
    a = nd.array(numbers(4, 6), device=device)
    assert (a.strides, a.permute((1, 0)).strides, a[::2, ::3].strides) == ((6, 1), (1, 6), (12, 3))
    assert a.broadcast_to((2, 4, 6)).strides == (0, 6, 1)
    assert a[1:2].broadcast_to((4, 6)).strides == (0, 1)
    assert a.as_strided((2, 2, 3), (6, 3, 1)).tolist() == a.numpy()[:2].reshape(2, 2, 3).tolist()


def test_properties(device):
    a = nd.array(numbers(4, 6), device=device)
    assert (a.shape, a.ndim, a.size, a.device, a.dtype) == ((4, 6), 2, 24, device, "float32")
    assert a.is_compact() and a.compact() is a
    for view in (a.permute((1, 0)), a[:, 1:], a[1:], a[:1].broadcast_to((4, 6)), a.flip((0,))):
        assert not view.is_compact()
        compact = view.compact() if view.offset == 0 or not view.is_compact() else view
        assert_same(compact.numpy(), view.numpy())
    assert a.flat.shape == (24,) and str(a) == str(a.numpy()) and f"device={device}" in repr(a)
    assert a.astype("int32").dtype == "int32" and a.to(device) is a


def test_compact_of_an_offset_view_is_compact(device):
    """`compact()` always ends in `is_compact()`, as the course's asserts expect."""
    a = nd.array(numbers(4, 6), device=device)
    for view in (a[1:], a[:, 1:], a.T, a[::-1], a[2, 3], a[:1].broadcast_to((4, 6)), a[1:3].reshape((12,))):
        assert view.compact().is_compact()


def test_handle_does_not_move(device):
    """`_handle.ptr()` is the address; in-place writes leave it, and views share it."""
    a = nd.array(numbers(4, 6), device=device)
    address = a._handle.ptr()
    a[...] = 1
    a[1, 2:4] = 5
    a[[0, 1]] = 2
    a += 1
    a.fill(3)
    nd.exp(a, out=a)
    assert a._handle.ptr() == address
    for view in (
        a.permute((1, 0)),
        a[1],
        a.reshape((24,)),
        a.broadcast_to((2, 4, 6)),
        a[::-1],
        a.as_strided((2,), (1,)),
        a.flip((0,)),
    ):
        assert view._handle.ptr() == address
    assert (a + 1)._handle.ptr() != address and a.copy()._handle.ptr() != address


@pytest.mark.parametrize(
    "given, expected",
    [
        (slice(None), slice(0, 6, 1)),
        (slice(1, 3), slice(1, 3, 1)),
        (slice(-2, None), slice(4, 6, 1)),
        (slice(None, 100), slice(0, 6, 1)),
        (slice(0, 6, 2), slice(0, 6, 2)),
    ],
)
def test_process_slice(given, expected, device):
    assert nd.zeros((4, 6), device=device).process_slice(given, 1) == expected


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, device):
    x, y = numbers(3, 4) - 5, np.flip(numbers(3, 4)) - 4
    a, b = nd.array(x, device=device), nd.array(y, device=device)
    with np.errstate(all="ignore"):
        for other, theirs in ((b, y), (2, 2), (0.5, 0.5), (b[0], y[0]), (y, y)):
            assert_same(OPERATORS[name](a, other).numpy(), OPERATORS[name](x, theirs))
            assert_same(OPERATORS[name](other, a).numpy(), OPERATORS[name](theirs, x))


def test_power_neg_maximum(device):
    x = numbers(3, 4) - 5
    a = nd.array(x, device=device)
    assert_same((-a).numpy(), -x)
    assert_same((a**2).numpy(), x**2)
    assert_same((a**3).numpy(), x**3)
    assert_same(a.maximum(0).numpy(), np.maximum(x, 0))
    assert_same(nd.maximum(a, -a).numpy(), np.maximum(x, -x), signs=False)
    np.testing.assert_allclose((abs(a) ** 0.5).numpy(), np.abs(x) ** 0.5, rtol=1e-6)
    np.testing.assert_allclose((2.0**a).numpy(), 2.0**x, rtol=1e-6)
    for name in ("log", "exp", "tanh"):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x)
        np.testing.assert_allclose(getattr(a, name)().numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(getattr(nd, name)(a).numpy(), expected, rtol=1e-6)


def test_scalar_is_cast_before_it_is_compared(device):
    """float32 0.1 equals the array made from 0.1."""
    a = nd.array([0.1, 0.2], device=device)
    assert (a == 0.1).tolist() == [True, False] and (a >= 0.1).tolist() == [True, True]
    assert (a != np.float64(0.1)).tolist() == [False, True]


def test_sum_and_max(device):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    a = nd.array(x, device=device)
    for axis in (None, 0, 1, -1, (0, 1), (1, 2), (0, 1, 2)):
        for keepdims in (False, True):
            np.testing.assert_allclose(
                a.sum(axis=axis, keepdims=keepdims).numpy(), x.sum(axis=axis, keepdims=keepdims), rtol=1e-5
            )
            assert_same(a.max(axis=axis, keepdims=keepdims).numpy(), np.asarray(x.max(axis=axis, keepdims=keepdims)))
    assert nd.sum(a, 1).shape == (2, 4)


@pytest.mark.parametrize("m, n, p", [(8, 8, 8), (5, 7, 3), (128, 128, 128), (1, 200, 1), (133, 97, 61)])
def test_matmul(m, n, p, device):
    x, y = numbers(m, n) % 7 - 3, numbers(n, p) % 5 - 2
    assert_same((nd.array(x, device=device) @ nd.array(y, device=device)).numpy(), x @ y)


@pytest.mark.parametrize("m, n, p", [(8, 8, 8), (16, 24, 8), (40, 8, 64)])
def test_matmul_tiled(m, n, p, device):
    """Handles hold [M/T][N/T][T][T] tiles."""
    tile = device.__tile_size__
    assert isinstance(tile, int) and tile == 8

    def tiled(x):
        r, c = x.shape
        return nd.array(x.reshape(r // tile, tile, c // tile, tile).transpose(0, 2, 1, 3).copy(), device=device)

    x, y = numbers(m, n) % 7 - 3, numbers(n, p) % 5 - 2
    a, b, out = tiled(x), tiled(y), NDArray.make((m // tile, p // tile, tile, tile), device=device)
    out.fill(np.nan)
    device.matmul_tiled(a._handle, b._handle, out._handle, m, n, p)
    assert_same(out.numpy().transpose(0, 2, 1, 3).reshape(m, p), x @ y)


def test_reshape_and_broadcast_errors(device):
    a = nd.array(numbers(4, 6), device=device)
    with pytest.raises(ValueError, match="24"):
        a.reshape((5, 5))
    with pytest.raises(AssertionError, match=r"\(4, 6\).*\(4, 7\)"):
        a.broadcast_to((4, 7))
    with pytest.raises(AssertionError):
        a + a[:3]
    assert nd.reshape(a, (6, 4)).shape == nd.broadcast_to(nd.array([1, 2, 3, 4]), (6, 4)).shape == (6, 4)


def test_flip_and_pad(device):
    x = numbers(2, 3, 4)
    a = nd.array(x, device=device)
    for axes in ((0,), (1, 2), (0, 1, 2), (-1,)):
        assert_same(a.flip(axes).numpy(), np.flip(x, axes))
        assert_same(nd.flip(a, axes).numpy(), np.flip(x, axes))
    assert_same(a.pad(((0, 0), (1, 1), (2, 0))).numpy(), np.pad(x, ((0, 0), (1, 1), (2, 0))))


def test_setitem(device):
    x = numbers(4, 6)
    a = nd.array(x, device=device)
    a[1:3, ::2] = nd.array(numbers(2, 3), device=device)
    x[1:3, ::2] = numbers(2, 3)
    a[0, :] = 9
    x[0, :] = 9
    a[3, 1:2] = nd.array([[5]], device=device)
    x[3, 1:2] = 5
    assert_same(a.numpy(), x)


def test_subclass(device):
    class Named(NDArray):
        def __init__(self, values, name):
            super().__init__(values, device=device)
            self.name = name

        def twice(self):
            return self + self

    a = Named([1, 2], "mine")
    assert a.name == "mine" and a.twice().tolist() == [2, 4] and isinstance(a + 1, NDArray) and a.device == device


def test_devices():
    assert (
        str(nd.cpu()) == repr(nd.cpu()) == "cpu()"
        and str(nd.cuda()) == "cuda()"
        and str(nd.cpu_numpy()) == "cpu_numpy()"
    )
    assert (
        nd.cpu() == nd.cpu() != nd.cpu_numpy()
        and nd.cpu() == nd.device("cpu")
        and hash(nd.cpu()) == hash(nd.device("cpu"))
    )
    assert nd.cpu().enabled() and nd.cpu_numpy().enabled()
    assert {nd.cpu(), nd.cuda(), nd.cpu_numpy()} <= set(nd.all_devices())
    assert nd.default_device() == nd.cpu()
    for bad in (3, object()):
        with pytest.raises(TypeError, match="device"):
            nd.device(bad)


def test_cuda_explains_itself_when_used():
    device = nd.cuda()
    if device.enabled():
        pytest.skip("a GPU is here")
    for use in (
        lambda: device.backend,
        lambda: nd.zeros(3, device=device),
        lambda: device.rand(2),
        lambda: nd.ones(2).to(device),
    ):
        with pytest.raises(nd.DeviceError) as error:
            use()
        assert "cuda()" in str(error.value) and len(str(error.value).splitlines()) == 1


def test_unknown_device():
    assert not nd.device("tpu").enabled()
    with pytest.raises(nd.DeviceError, match=r"tpu\(\).*cpu"):
        nd.zeros(3, device="tpu")


def test_device_methods(device):
    assert device.rand(2, 3).shape == device.randn(2, 3).shape == (2, 3)
    assert device.rand(2).dtype == device.empty((2, 3)).dtype == "float32"
    assert device.rand(4, dtype="float64").dtype == "float64"
    assert device.full((2, 2), 7).tolist() == [[7, 7], [7, 7]] and device.full((), 1, "int32").dtype == "int32"
    assert device.one_hot(3, 1).tolist() == [0, 1, 0]
    assert device.one_hot(3, np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert all(
        made.device == device
        for made in (device.rand(1), device.randn(1), device.empty(1), device.full(1, 1), device.one_hot(2, 0))
    )


def test_numpy_seed_reproduces(device):
    """Without a seed of ours, numbers are those of np.random, in order of creation."""
    np.random.seed(3)  # noqa: NPY002
    got = [device.randn(2, 3), device.rand(4)]
    np.random.seed(3)  # noqa: NPY002
    expected = [np.random.randn(2, 3).astype(np.float32), np.random.rand(4).astype(np.float32)]  # noqa: NPY002
    for a, x in zip(got, expected, strict=True):
        assert_same(a.numpy(), x)


def test_own_seed(device):
    """After `seed`, every draw starts a new block; the state can be saved, and both backends agree."""
    nd.random.seed(7)
    try:
        first, state = nd.random.uniform(10, device=device), nd.random.get_state()
        second = nd.random.uniform(10, device=device)
        assert state == {"seed": 7, "counter": 3}
        nd.random.set_state(state)
        assert_same(nd.random.uniform(10, device="cpu_numpy").numpy(), second.numpy())
        nd.random.seed(7)
        whole = nd.random.uniform(22, device=device).numpy()
        assert_same(first.numpy(), whole[:10])
        assert_same(second.numpy(), whole[12:22])  # ten numbers use up three blocks of four
        nd.random.seed(7)
        draws = nd.random.bernoulli(50_000, p=0.3, device=device)
        assert draws.dtype == "bool" and abs(draws.mean().item() - 0.3) < 0.02
        shifted = nd.random.normal(50_000, mean=5.0, std=0.1, device=device)
        assert abs(shifted.mean().item() - 5) < 0.01 and abs(shifted.std().item() - 0.1) < 0.01
        ranged = nd.random.uniform(1000, low=-2.0, high=3.0, device=device)
        assert ranged.min().item() >= -2 and ranged.max().item() < 3
    finally:
        nd.random.seed(None)
    assert nd.random.get_state() is None


def test_creation(device):
    for got, expected in [
        (nd.zeros((2, 3), device=device), np.zeros((2, 3), np.float32)),
        (nd.ones(3, "int64", device), np.ones(3, np.int64)),
        (nd.full((2,), 1.5, device=device), np.full(2, 1.5, np.float32)),
        (nd.zeros_like(nd.ones((2, 2), "int32", device)), np.zeros((2, 2), np.int32)),
        (nd.full_like(nd.ones((2, 2), "int32", device), 7, dtype="float64"), np.full((2, 2), 7.0)),
        (nd.arange(5, device=device), np.arange(5)),
        (nd.arange(2, 9, 3, device=device), np.arange(2, 9, 3)),
        (nd.arange(5, 0, -2, device=device), np.arange(5, 0, -2)),
        (nd.arange(0.0, 1.0, 0.25, device=device), np.arange(0, 1, 0.25, np.float32)),
        (nd.linspace(0, 1, 5, device=device), np.linspace(0, 1, 5, dtype=np.float32)),
        (nd.eye(3, device=device), np.eye(3, dtype=np.float32)),
        (nd.eye(2, 4, k=1, device=device), np.eye(2, 4, 1, dtype=np.float32)),
        (nd.eye(4, 2, k=-1, dtype="bool", device=device), np.eye(4, 2, -1, dtype=bool)),
    ]:
        assert got.device == device
        assert_same(got.numpy(), expected)
    assert nd.empty((2, 3), device=device).shape == nd.empty_like(nd.ones((2, 3))).shape == (2, 3)
