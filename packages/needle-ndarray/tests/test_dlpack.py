"""DLPack with NumPy, PyTorch and producers that nobody sane would write; who keeps whose memory alive."""

import ctypes
import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from interop_cases import DTYPES, VIEWS, host, same

import needle_ndarray as nd

dtype = pytest.fixture(params=DTYPES)(lambda request: request.param)
view = pytest.fixture(params=VIEWS)(lambda request: VIEWS[request.param])


def child(program: str) -> str:
    """Run a program that may crash the interpreter in one of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
    return done.stdout


# ---- Both ways -------------------------------------------------------------------------------------------------------------


def test_to_numpy_by_dlpack(host_device, dtype, view):
    source = view(host(dtype))
    a = view(nd.array(host(dtype), dtype, host_device))
    if view is VIEWS["negative"]:  # PyTorch ends the process on negative strides: nobody gets them
        with pytest.raises(BufferError, match=r"strides \(-6, -2\) .* use \.compact\(\)"):
            np.from_dlpack(a)
        a = a.compact()
    seen = np.from_dlpack(a)
    np.testing.assert_array_equal(seen, source, strict=True)
    if a.size:
        assert np.shares_memory(seen, np.asarray(a))
        a[...] = 1
        assert (seen == 1).all()


def test_from_numpy_by_dlpack(host_device, dtype, view):
    source = np.asarray(view(host(dtype)))
    source = source if source.flags.writeable else source.copy()  # NumPy's scalars
    a = nd.from_dlpack(source, device=host_device)
    same(a, source)
    assert a.device == host_device
    a[...] = 1
    assert (source == 1).all()


def test_from_dlpack_of_our_own(device, dtype, view):
    a = view(nd.array(host(dtype), dtype, device))
    a = a.compact() if view is VIEWS["negative"] else a
    b = nd.from_dlpack(a)
    same(b, view(host(dtype)))
    b[...] = 1
    assert (a.numpy() == 1).all()


def test_dlpack_copy(host_device):
    a = nd.array(host(), device=host_device)
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


def test_dlpack_protocol(host_device):
    a = nd.array(host(), device=host_device)
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
    with pytest.raises(BufferError, match=r"\(10, 0\)"):
        nd.from_dlpack(Producer(None, (10, 0)))


@pytest.mark.parametrize("bad", ["int8", "int16", "uint16", "uint64", "complex64"])
def test_from_dlpack_refuses_dtypes(bad):
    with pytest.raises(TypeError, match="is not one of bool, uint8, int32, int64, float32, float64"):
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
        ((3,), None, {"bits": 128}, TypeError, "float128 is not one of"),
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
