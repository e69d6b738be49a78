"""Memory and values shared with others: NumPy, the buffer protocol, pickle, copies, Python numbers, text."""

import copy
import ctypes
import pickle
import zlib

import numpy as np
import pytest
from interop_cases import DTYPES, VIEWS, host, same

import needle_ndarray as nd

FORMATS = {"bool": "?", "uint8": "B", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}

dtype = pytest.fixture(params=DTYPES)(lambda request: request.param)
view = pytest.fixture(params=VIEWS)(lambda request: VIEWS[request.param])


# ---- NumPy ------------------------------------------------------------------------------------------------------------


def test_numpy_is_a_copy(device, dtype, view):
    source = host(dtype)
    a = view(nd.array(source, dtype, device))
    values = a.numpy()
    assert type(values) is np.ndarray and values.flags.c_contiguous and values.flags.writeable
    np.testing.assert_array_equal(values, view(source), strict=True)
    values[...] = 1
    same(a, view(source))


def test_array_shares(host_device, dtype, view):
    source = host(dtype)
    a = view(nd.array(source, dtype, host_device))
    for seen in (np.asarray(a), np.array(a, copy=False)):
        np.testing.assert_array_equal(seen, view(source), strict=True)
        if a.size:
            seen[...] = ~view(source) if dtype == "bool" else view(source) + 3
            same(a, seen)
            a[...] = view(source)
            np.testing.assert_array_equal(seen, view(source))


def test_array_copy_and_dtype(device):
    a = nd.array([1.5, 2.5], device=device)
    copied = np.array(a, copy=True)
    copied[0] = 9
    assert a[0].item() == 1.5
    assert np.asarray(a, dtype="float64").dtype == np.float64
    assert np.asarray(a, dtype="int32").tolist() == [1, 2]
    with pytest.raises(ValueError, match="copy"):
        np.array(a, dtype="float64", copy=False)


def test_from_numpy_shares(host_device, dtype, view):
    source = view(host(dtype))
    source = np.asarray(source) if source.ndim else view(host(dtype))[...].reshape(())
    a = nd.from_numpy(source, device=host_device)
    same(a, source)
    assert a.device == host_device
    assert a.size == 0 or a.strides == tuple(s // a.itemsize for s in source.strides)
    a[...] = 1
    assert (source == 1).all()
    source[...] = 0
    assert not a.numpy().any()


@pytest.mark.parametrize(
    "why, make",
    [
        ("read-only", lambda: np.broadcast_to(np.float32(3), (2, 3))),
        ("misaligned", lambda: np.frombuffer(bytearray(13), np.uint8)[1:].view("float32")),
        ("byte-swapped", lambda: np.arange(4, dtype=">f8")),
        ("between elements", lambda: np.zeros(3, [("a", "int32"), ("b", "int8")])["a"]),
    ],
)
def test_from_numpy_copies(why, make, device):
    source = make()
    a = nd.from_numpy(source, device=device)
    same(a, source.astype(source.dtype.newbyteorder("=")))
    a[...] = 7
    assert not (source == 7).any()


def test_from_numpy_edges():
    wide = np.lib.stride_tricks.sliding_window_view(np.arange(6.0), 3, writeable=True)  # elements that overlap
    same(nd.from_numpy(wide), wide)
    deep = np.zeros((1,) * 32, "float32")
    same(nd.from_numpy(deep), deep)
    odd = np.ndarray((1, 3), "int32", bytearray(12), strides=(3, 4))  # a stride nobody steps along
    same(nd.from_numpy(odd), odd)
    longlong = np.arange(3, dtype="longlong")
    nd.from_numpy(longlong)[0] = 5
    assert longlong[0] == 5


@pytest.mark.parametrize("bad", ["int8", "int16", "complex64", "object", "datetime64[s]", "U3"])
def test_from_numpy_refuses(bad):
    with pytest.raises(TypeError, match=r"from_numpy: .* is not one of bool, uint8, int32, int64, float32, float64"):
        nd.from_numpy(np.zeros(3, bad))


def test_from_numpy_wants_an_array():
    with pytest.raises(TypeError, match="got list"):
        nd.from_numpy([1, 2])
    with pytest.raises(ValueError, match="33"):
        nd.from_numpy(np.zeros((1,) * 33, "float32"))


def test_in_place_between_shared_views():
    """Two buffers on one memory: overlap is seen as NumPy sees it."""
    source = np.arange(8.0)
    a, b = nd.from_numpy(source[1:]), nd.from_numpy(source[:-1])
    a[...] = b
    assert source.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    a += b
    assert source.tolist() == [0, 0, 1, 3, 5, 7, 9, 11]


def test_numpy_operand_on_the_left(device, dtype):
    x, y = host(dtype), host("float64")
    a = nd.array(x, dtype, device)
    same(y + a, y + x)
    same(a + y, x + y)
    same(y * a, y * x)
    same(y < a, y < x)
    same(np.float64(2) + nd.array(y, "float64", device), 2 + y)
    assert isinstance(y @ nd.array(x.T, "float64", device), nd.NDArray)


# ---- Buffer protocol ----------------------------------------------------------------------------------------------------


def test_memoryview(host_device, dtype, view):
    source = view(host(dtype))
    a = view(nd.array(host(dtype), dtype, host_device))
    seen = memoryview(a)
    assert seen.format == FORMATS[dtype] and seen.itemsize == a.itemsize and not seen.readonly
    assert seen.shape == a.shape and seen.nbytes == a.nbytes
    assert seen.strides == tuple(s * a.itemsize for s in a.strides)
    assert seen.tolist() == source.tolist()


def test_contiguous_consumers(host_device):
    a = nd.array(host(), device=host_device)
    assert bytes(memoryview(a)) == bytearray(a) == host().tobytes()
    assert zlib.crc32(a) == zlib.crc32(host())
    for refused in (a.T, a[:, ::2], a[::-1]):
        with pytest.raises(BufferError, match=r"not compact .* \.compact\(\)"):
            zlib.crc32(refused)
    ctypes.c_float.from_buffer(a).value = 42.0
    assert a[0, 0].item() == 42.0


C_ORDER, F_ORDER, ANY_ORDER = 0x38, 0x58, 0x98  # PyBUF_C_CONTIGUOUS and its relatives


@pytest.mark.parametrize(
    "name, flags, served",
    [
        ("compact", C_ORDER, True),
        ("compact", F_ORDER, False),
        ("compact", ANY_ORDER, True),
        ("transposed", C_ORDER, False),
        ("transposed", F_ORDER, True),
        ("transposed", ANY_ORDER, True),
        ("sliced", ANY_ORDER, False),
        ("row", F_ORDER, True),
        ("column", C_ORDER, False),
        ("0-d", F_ORDER, True),
    ],
)
def test_consumers_that_ask_for_an_order(name, flags, served):
    """Whoever asks C for row- or column-major memory gets that or a BufferError."""
    a = VIEWS[name](nd.array(host()))
    view = ctypes.create_string_buffer(200)  # larger than a Py_buffer
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release.argtypes, release.restype = [ctypes.c_void_p], None
    if served:
        assert get(a, view, flags) == 0
        release(view)
    else:
        with pytest.raises(BufferError):
            get(a, view, flags)
            release(view)


# ---- Pickle and copies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickle(device, dtype, view, protocol):
    a = view(nd.array(host(dtype), dtype, device))
    b = pickle.loads(pickle.dumps(a, protocol))
    same(b, view(host(dtype)))
    assert b.device == a.device
    b[...] = 1
    same(a, view(host(dtype)))


def test_pickle_of_others():
    for thing in (nd.cpu(), nd.cpu_numpy(), nd.float32, nd.int64):
        assert pickle.loads(pickle.dumps(thing)) == thing


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda a: a.copy()])
def test_copies(device, dtype, view, make):
    a = view(nd.array(host(dtype), dtype, device))
    b = make(a)
    same(b, view(host(dtype)))
    assert b.is_compact() and b.device == a.device
    b[...] = 1
    same(a, view(host(dtype)))


# ---- Python numbers and text --------------------------------------------------------------------------------------------------


def test_tolist(device, dtype, view):
    got = view(nd.array(host(dtype), dtype, device)).tolist()
    assert got == view(host(dtype)).tolist()
    first = got
    while isinstance(first, list) and first:
        first = first[0]
    if not isinstance(first, list):
        assert type(first) is {"b": bool, "i": int, "u": int, "f": float}[np.dtype(dtype).kind]


def test_item(device, dtype):
    a = nd.array(host(dtype), dtype, device)
    for one in (a[1, 2], a[1:2, 2:3]):
        assert one.item() == host(dtype)[1, 2].item()
        assert type(one.item()) is type(host(dtype)[1, 2].item())
    with pytest.raises(ValueError, match=r"shape \(4, 6\) has 24"):
        a.item()


def test_numbers(device):
    a = nd.array([3], "int64", device)
    assert (int(a), float(a), bool(a), list(range(5))[a[0]]) == (3, 3.0, True, 3)
    assert f"{a[0] / 2:.3f}" == "1.500"
    with pytest.raises(ValueError, match="ambiguous"):
        bool(nd.ones(2, device=device))
    with pytest.raises(TypeError, match="index"):
        [1, 2][nd.array(1.0, device=device)]


def test_repr(device):
    text = repr(nd.array([[1, 2.5], [3, 4]], device=device))
    assert text.startswith("NDArray([[1. , 2.5],") and "float32" in text and f"device={device}" in text
    assert repr(nd.array(3, "int32", device)).startswith("NDArray(3")
    assert "shape" in repr(nd.zeros((0, 3), device=device)) or "[]" in repr(nd.zeros((0, 3), device=device))
    assert str(nd.array([True, False], "bool", device)) == "[ True False]"


def test_repr_stays_short(device):
    for large in (nd.zeros((3000, 2000), device=device), nd.zeros((1,), device=device).broadcast_to((1 << 40,))):
        assert len(repr(large)) < 1000 and "..." in repr(large)


def test_array_namespace():
    a = nd.ones(3)
    assert a.__array_namespace__() is nd and a.__array_namespace__(api_version="2024.12") is nd
    xp = a.__array_namespace__()
    for name in [
        "asarray",
        "from_dlpack",
        "permute_dims",
        "matrix_transpose",
        "concat",
        "pow",
        "bitwise_invert",
        "astype",
    ]:
        assert callable(getattr(xp, name)), name
    for name in ["float32", "float64", "int32", "int64", "uint8", "bool", "pi", "inf", "nan", "newaxis"]:
        assert hasattr(xp, name), name
