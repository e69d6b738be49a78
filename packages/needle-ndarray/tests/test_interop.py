"""Memory and values shared with others: NumPy, the buffer protocol, DLPack, pickle, copies, Python numbers, text."""

import copy
import ctypes
import gc
import pickle
import subprocess
import sys
import threading
import weakref
import zlib

import numpy as np
import pytest

import needle_ndarray as nd

DEVICES = ["cpu", "cpu_numpy"]
DTYPES = ["bool", "int32", "int64", "float32", "float64"]
FORMATS = {"bool": "?", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}

#: Views of an array of shape (4, 6): the same expression for NumPy arrays and NDArrays.
VIEWS = {
    "compact": lambda x: x,
    "transposed": lambda x: x.T,
    "sliced": lambda x: x[1:4:2, 1:5],
    "negative": lambda x: x[::-1, ::-2],
    "row": lambda x: x[2],
    "column": lambda x: x[:, 3],
    "new axis": lambda x: x[:, None, 2:],
    "0-d": lambda x: x[1, 2],
    "zero-size": lambda x: x[2:2],
}

device = pytest.fixture(params=DEVICES)(lambda request: request.param)
dtype = pytest.fixture(params=DTYPES)(lambda request: request.param)
view = pytest.fixture(params=VIEWS)(lambda request: VIEWS[request.param])


def host(dtype: str = "float32", shape: tuple[int, ...] = (4, 6)) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)


def same(a: nd.NDArray, expected: np.ndarray) -> None:
    assert isinstance(a, nd.NDArray)
    assert a.dtype == expected.dtype and a.shape == expected.shape
    np.testing.assert_array_equal(a.numpy(), expected)


def child(program: str) -> str:
    """Run a program that may crash the interpreter in one of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
    return done.stdout


# ---- NumPy ------------------------------------------------------------------------------------------------------------


def test_numpy_is_a_copy(device, dtype, view):
    source = host(dtype)
    a = view(nd.array(source, dtype, device))
    values = a.numpy()
    assert type(values) is np.ndarray and values.flags.c_contiguous and values.flags.writeable
    np.testing.assert_array_equal(values, view(source), strict=True)
    values[...] = 1
    same(a, view(source))


def test_array_shares(device, dtype, view):
    source = host(dtype)
    a = view(nd.array(source, dtype, device))
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


def test_from_numpy_shares(device, dtype, view):
    source = view(host(dtype))
    source = np.asarray(source) if source.ndim else view(host(dtype))[...].reshape(())
    a = nd.from_numpy(source, device=device)
    same(a, source)
    assert a.device == nd.device(device)
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


@pytest.mark.parametrize("bad", ["float16", "uint8", "int16", "complex64", "object", "datetime64[s]", "U3"])
def test_from_numpy_refuses(bad):
    with pytest.raises(TypeError, match=r"from_numpy: .* is not one of bool, int32, int64, float32, float64"):
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


def test_memoryview(device, dtype, view):
    source = view(host(dtype))
    a = view(nd.array(host(dtype), dtype, device))
    seen = memoryview(a)
    assert seen.format == FORMATS[dtype] and seen.itemsize == a.itemsize and not seen.readonly
    assert seen.shape == a.shape and seen.nbytes == a.nbytes
    assert seen.strides == tuple(s * a.itemsize for s in a.strides)
    assert seen.tolist() == source.tolist()


def test_contiguous_consumers(device):
    a = nd.array(host(), device=device)
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


# ---- DLPack -------------------------------------------------------------------------------------------------------------


def test_to_numpy_by_dlpack(device, dtype, view):
    source = view(host(dtype))
    a = view(nd.array(host(dtype), dtype, device))
    if view is VIEWS["negative"]:  # PyTorch ends the process on negative strides: nobody gets them
        with pytest.raises(BufferError, match=r"strides \(-6, -2\).* use \.compact\(\)"):
            np.from_dlpack(a)
        a = a.compact()
    seen = np.from_dlpack(a)
    np.testing.assert_array_equal(seen, source, strict=True)
    if a.size:
        assert np.shares_memory(seen, np.asarray(a))
        a[...] = 1
        assert (seen == 1).all()


def test_from_numpy_by_dlpack(device, dtype, view):
    source = np.asarray(view(host(dtype)))
    source = source if source.flags.writeable else source.copy()  # NumPy's scalars
    a = nd.from_dlpack(source, device=device)
    same(a, source)
    assert a.device == nd.device(device)
    a[...] = 1
    assert (source == 1).all()


def test_from_dlpack_of_our_own(device, dtype, view):
    a = view(nd.array(host(dtype), dtype, device))
    a = a.compact() if view is VIEWS["negative"] else a
    b = nd.from_dlpack(a)
    same(b, view(host(dtype)))
    b[...] = 1
    assert (a.numpy() == 1).all()


def test_dlpack_copy(device):
    a = nd.array(host(), device=device)
    for copied in (nd.from_dlpack(a, copy=True), np.from_dlpack(a, copy=True)):
        copied[...] = 9
        same(a, host())
    shared = nd.from_dlpack(a, copy=False)
    shared[...] = 1
    assert (a.numpy() == 1).all()


def test_dlpack_read_only():
    source = np.broadcast_to(np.float32(3), (2, 3))  # NumPy exports it, marked as read-only
    a = nd.from_dlpack(source)
    same(a, source)
    a[...] = 1
    assert (source == 3).all()
    with pytest.raises(BufferError, match="read-only, and copy=False"):
        nd.from_dlpack(source, copy=False)


def test_dlpack_protocol(device):
    a = nd.array(host(), device=device)
    assert a.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(a.__dlpack__())
    assert '"dltensor"' in repr(a.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(a.__dlpack__(max_version=(1, 0)))
    assert '"dltensor_versioned"' in repr(a.__dlpack__(max_version=(2, 1), dl_device=(1, 0), copy=True))
    with pytest.raises(BufferError, match=r"dl_device=\(2, 0\)"):
        a.__dlpack__(dl_device=(2, 0))


class Producer:
    """Hands out a prepared capsule."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self):  # an old one: no max_version
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def test_from_dlpack_refuses():
    with pytest.raises(TypeError, match="list has no __dlpack__"):
        nd.from_dlpack([1.0])
    with pytest.raises(TypeError, match="returned int, expected a capsule"):
        nd.from_dlpack(Producer(3))
    capsule = nd.ones(3).__dlpack__()
    nd.from_dlpack(Producer(capsule))
    with pytest.raises(BufferError, match="used before"):
        nd.from_dlpack(Producer(capsule))
    with pytest.raises(BufferError, match=r"\(2, 0\)"):
        nd.from_dlpack(Producer(None, (2, 0)))


@pytest.mark.parametrize("bad", ["uint8", "int8", "int16", "uint64", "float16", "complex64"])
def test_from_dlpack_refuses_dtypes(bad):
    with pytest.raises(TypeError, match="is not one of bool, int32, int64, float32, float64"):
        nd.from_dlpack(np.zeros(3, bad))


class Tensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h, to write what no sane producer writes."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        *Tensor._fields_[:-2],
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Handmade(Producer):
    """A tensor of float32 0, 1, ... 23 with fields as given; counts the calls of its deleter."""

    def __init__(self, shape, strides=None, kind=Tensor, name=b"dltensor", **fields):
        self.memory = np.arange(24, dtype="float32")
        self.deleted = 0
        self.keep = (
            DELETER(self.count),
            None if shape is None else (ctypes.c_int64 * 40)(*shape),
            None if strides is None else (ctypes.c_int64 * 40)(*strides),
        )
        self.tensor = kind(
            data=self.memory.ctypes.data,
            device_type=1,
            ndim=len(shape or ()),
            code=2,
            bits=32,
            lanes=1,
            shape=self.keep[1],
            strides=self.keep[2],
            deleter=ctypes.cast(self.keep[0], ctypes.c_void_p),
        )
        for field, value in fields.items():
            setattr(self.tensor, field, value)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.name = name
        super().__init__(make(ctypes.addressof(self.tensor), self.name, None))

    def count(self, _):
        self.deleted += 1


@pytest.mark.parametrize(
    "shape, strides, fields, expected",
    [
        ((2, 3), None, {}, [[0, 1, 2], [3, 4, 5]]),
        ((2, 3), (1, 2), {}, [[0, 2, 4], [1, 3, 5]]),
        ((2, 2), (-6, -1), {"byte_offset": 92}, [[23, 22], [17, 16]]),
        ((2, 3), (0, 1), {"byte_offset": 40}, [[10, 11, 12], [10, 11, 12]]),
        ((), None, {"byte_offset": 20}, 5),
        ((0, 3), None, {"data": None}, []),
        ((2,), None, {"byte_offset": 0, "code": 0}, [0, 0x3F800000]),
    ],
)
def test_handmade_tensors(shape, strides, fields, expected):
    made = Handmade(shape, strides, **fields)
    a = nd.from_dlpack(made)
    assert a.tolist() == expected and a.shape == shape
    if a.size and not (strides and 0 in strides):
        assert made.deleted == 0
        a[...] = 77
        assert (made.memory.view(a.dtype.numpy) == 77).sum() == len(np.unique(expected))
    del a
    gc.collect()
    assert made.deleted == 1


HUGE = 1 << 62


@pytest.mark.parametrize(
    "shape, strides, fields, error, match",
    [
        ((1,), None, {"device_type": 2}, BufferError, "device type 2"),
        ((1,), None, {"ndim": 33}, BufferError, "33 axes"),
        ((1,), None, {"ndim": -1}, BufferError, "-1 axes"),
        (None, None, {"ndim": 2}, BufferError, "without a shape"),
        ((2, -3), None, {}, BufferError, r"\(2, -3\)"),
        ((HUGE, HUGE), None, {}, BufferError, "address space"),
        ((3,), (HUGE,), {}, BufferError, "address space"),
        ((3,), (-HUGE,), {}, BufferError, "address space"),
        ((3,), None, {"byte_offset": (1 << 64) - 1}, BufferError, "address space"),
        ((3,), None, {"data": None}, BufferError, "address space"),
        ((3,), None, {"lanes": 4}, TypeError, "float32 x 4 lanes"),
        ((3,), None, {"bits": 16}, TypeError, "float16 is not one of"),
        ((3,), None, {"code": 77}, TypeError, "type code 77"),
    ],
)
def test_hostile_tensors(shape, strides, fields, error, match):
    made = Handmade(shape, strides, **fields)
    with pytest.raises(error, match=match):
        nd.from_dlpack(made)
    gc.collect()
    assert made.deleted == 1


def test_handmade_misaligned():
    made = Handmade((3,), byte_offset=2)
    a = nd.from_dlpack(made)
    assert a.numpy().tobytes() == made.memory.tobytes()[2:14]
    a[...] = 1
    assert made.memory[1] == 1 and made.memory[2] == 2  # a copy
    assert made.deleted == 1
    with pytest.raises(BufferError, match="misaligned, and copy=False"):
        nd.from_dlpack(Handmade((3,), byte_offset=2), copy=False)


@pytest.mark.parametrize("flags, shared", [(0, True), (1, False), (2, True)])
def test_handmade_flags(flags, shared):
    made = Handmade((3,), kind=Versioned, name=b"dltensor_versioned", major=1, minor=3, flags=flags)
    a = nd.from_dlpack(made)
    a[...] = 50
    assert (made.memory[0] == 50) == shared
    del a
    assert made.deleted == 1


def test_handmade_future_version():
    made = Handmade((3,), kind=Versioned, name=b"dltensor_versioned", major=2)
    with pytest.raises(BufferError, match="version 2"):
        nd.from_dlpack(made)
    assert made.deleted == 1


def test_no_deleter():
    assert nd.from_dlpack(Handmade((2,), deleter=None)).tolist() == [0, 1]


# ---- Lifetimes ------------------------------------------------------------------------------------------------------------


class Watched(nd.NDArray):
    """An NDArray whose end can be seen."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_capsule_that_nobody_took(max_version):
    a = Watched([1.0, 2.0])
    gone = weakref.ref(a)
    capsule = a.__dlpack__(max_version=max_version)
    del a
    assert gone() is not None
    del capsule
    assert gone() is None


@pytest.mark.parametrize("take", [np.from_dlpack, nd.from_dlpack, np.asarray, memoryview])
def test_consumer_keeps_the_memory(take):
    a = Watched(np.arange(1000, dtype="float32"))
    gone = weakref.ref(a)
    seen = take(a)
    del a
    gc.collect()
    churn = [nd.full(1000, -1.0) for _ in range(20)]
    assert list(seen[500:503] if not isinstance(seen, nd.NDArray) else seen[500:503].tolist()) == [500, 501, 502]
    del seen, churn
    gc.collect()
    assert gone() is None


def test_array_keeps_the_memory_of_numpy():
    source = np.arange(1000.0)
    gone = weakref.ref(source)
    a, b = nd.from_numpy(source[::-1]), nd.from_dlpack(source)[10:20]
    del source
    gc.collect()
    churn = [np.full(1000, -1.0) for _ in range(20)]
    assert a[0].item() == 999 and b[0].item() == 10
    del a, churn
    assert gone() is not None
    del b
    gc.collect()
    assert gone() is None


def test_round_trips_do_not_leak():
    a = nd.array(host())
    before = nd.memory_stats()["live_bytes"]
    for _ in range(100):
        nd.from_dlpack(np.from_dlpack(nd.from_dlpack(nd.from_numpy(np.asarray(a)))))[0, 0] = 1
        a.__dlpack__()
    gc.collect()
    assert nd.memory_stats()["live_bytes"] == before


@pytest.mark.parametrize("kind, version", [(Tensor, None), (Versioned, (1, 0))])
def test_deleter_in_a_thread_without_the_gil(kind, version):
    """ctypes releases the GIL around a CFUNCTYPE call: what a C++ consumer's thread does."""
    a = Watched([1.0, 2.0])
    gone = weakref.ref(a)
    capsule = a.__dlpack__(max_version=version)
    name = b"dltensor" if version is None else b"dltensor_versioned"
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    used = b"used_" + name
    address = pointer(capsule, name)
    rename(capsule, used)
    del a, capsule
    assert gone() is not None
    thread = threading.Thread(target=DELETER(kind.from_address(address).deleter), args=(address,))
    thread.start()
    thread.join()
    assert gone() is None


def test_alive_at_exit():
    """Whoever is last at interpreter exit, nobody crashes."""
    program = (
        "import numpy as np, needle_ndarray as nd\n"
        "a = np.from_dlpack(nd.ones(1000)); b = nd.from_dlpack(np.ones(1000)); c = nd.ones(3).__dlpack__()\n"
        "d = nd.from_numpy(np.ones(1000)); e = memoryview(nd.ones(5)); f = [a, b, c, d, e]; f.append(f)\n"
        "print('fine')"
    )
    assert child(program) == "fine\n"


def test_threads_trade_memory():
    program = (
        "import threading, numpy as np, needle_ndarray as nd\n"
        "def work():\n"
        "    for i in range(2000):\n"
        "        a = nd.from_dlpack(np.full(100, i, 'float32')); b = np.from_dlpack(a + 1); del a\n"
        "        assert b[99] == i + 1\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print('fine')"
    )
    assert child(program) == "fine\n"


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
        assert type(first) is {"b": bool, "i": int, "f": float}[np.dtype(dtype).kind]


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
    assert text.startswith("NDArray([[1. , 2.5],") and "float32" in text and f"device={device}()" in text
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
    for name in ["float32", "float64", "int32", "int64", "bool", "pi", "inf", "nan", "newaxis"]:
        assert hasattr(xp, name), name


# ---- PyTorch ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parity
def test_to_torch(device, dtype, view):
    torch = pytest.importorskip("torch")
    a = view(nd.array(host(dtype), dtype, device))
    if view is VIEWS["negative"]:
        with pytest.raises(BufferError, match="negative"):
            torch.from_dlpack(a)
        a = a.compact()
    seen = torch.from_dlpack(a)
    np.testing.assert_array_equal(seen.numpy(), view(host(dtype)))
    assert str(seen.dtype) == f"torch.{dtype}"
    if a.size:
        seen.fill_(1)
        assert (a.numpy() == 1).all()
    del a
    gc.collect()
    assert (seen.numpy() == 1).all()


@pytest.mark.parity
def test_from_torch(device, dtype, view):
    torch = pytest.importorskip("torch")
    start = torch.from_numpy(host(dtype))
    seen = start if view is VIEWS["negative"] else view(start)  # PyTorch has no negative strides
    a = nd.from_dlpack(seen, device=device)
    same(a, host(dtype) if view is VIEWS["negative"] else view(host(dtype)))
    if a.size:
        a[...] = 1
        assert bool((seen == 1).all())
    del seen
    gc.collect()
    assert (a.numpy() == 1).all()


@pytest.mark.parity
def test_torch_deleter_in_its_own_thread():
    """Autograd's threads free tensors without the GIL."""
    torch = pytest.importorskip("torch")
    a = Watched([1.0, 2.0, 3.0])
    gone = weakref.ref(a)
    x = torch.from_dlpack(a).requires_grad_()
    del a
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4, 6]
    del x
    gc.collect()
    assert gone() is None
