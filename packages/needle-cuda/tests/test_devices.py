"""Several devices: names, copies between them, what is refused, streams, DLPack, and when anybody waits."""

import copy
import os
import pickle

import numpy as np
import pytest

import needle_cuda
import needle_ndarray as nd
from needle_cuda.launch import KernelError
from needle_cuda.status import find_cupy
from needle_cuda.testing import settings
from needle_cuda.testing.cupy_standin.streams import Stream
from needle_ndarray.devices import DeviceError

cuda = nd.cuda
cupy = find_cupy() if cuda(1).enabled() else None
pytestmark = pytest.mark.skipif(not cuda(1).enabled(), reason="needs two CUDA devices")
emulated = pytest.mark.skipif(os.environ.get("NEEDLE_CUDA_EMULATION") != "1", reason="looks into the stand-in for cupy")
VIEWS = {
    "compact": lambda a: a,
    "transposed": lambda a: a.T,
    "sliced": lambda a: a[1:, ::2],
    "negative": lambda a: a[::-1, ::-1],
    "broadcast": lambda a: a[:, :1].broadcast_to((3, 4)),
    "scalar": lambda a: a[1, 2],
    "empty": lambda a: a[:0],
}
each_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


def numbers(device, dtype="float32"):
    return nd.array(np.arange(12).reshape(3, 4), dtype, device)


# ---- Names -----------------------------------------------------------------------------------------------------------


def test_each_device_has_its_own_backend():
    assert (repr(cuda()), repr(cuda(1)), cuda(1).name) == ("cuda()", "cuda(1)", "cuda:1")
    assert cuda(0) == cuda() == nd.device("cuda:0") != cuda(1) == nd.device("cuda(1)")
    first, second = cuda().backend, cuda(1).backend
    assert first is not second and first.launcher is not second.launcher
    assert (first.name, second.name) == (cuda().name, cuda(1).name)


def test_a_device_that_is_not_there():
    assert not cuda(97).enabled()
    with pytest.raises(DeviceError, match=r"cuda\(97\): no device 97: there are"):
        nd.zeros(3, device=cuda(97))
    for bad in (-1, True, "1", 1.0):
        with pytest.raises(ValueError, match="expected the number of a device"):
            cuda(bad)


# ---- Copies ----------------------------------------------------------------------------------------------------------


@each_view
@pytest.mark.parametrize(
    "pair", [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda:1"), ("cuda:1", "cuda")], ids="-".join
)
def test_to(pair, view):
    here, there = map(nd.device, pair)
    a = view(numbers(here))
    b = a.to(there)
    assert (b.device, b.shape, b.dtype) == (there, a.shape, a.dtype)
    np.testing.assert_array_equal(b.numpy(), a.numpy(), strict=True)
    assert a.to(here) is a
    if view is VIEWS["compact"]:
        a[...] = -1  # b is a copy
        assert b.numpy()[2, 3] == 11


@each_view
def test_pickle_and_copy_keep_the_device(view):
    a = view(numbers(cuda(1)))
    for b in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a), a.copy()):
        assert b.device == cuda(1)
        np.testing.assert_array_equal(b.numpy(), a.numpy(), strict=True)


MIXED = {
    "add": lambda a, b: a + b,
    "where": lambda a, b: nd.where(a > 0, a, b),
    "matmul": lambda a, b: a @ b.T,
    "setitem": lambda a, b: a.__setitem__(0, b[0]),
    "concatenate": lambda a, b: nd.concatenate([a, b]),
    "index": lambda a, b: a[b[0].astype("int64") * 0],
    "in place": lambda a, b: a.__iadd__(b),
}


@pytest.mark.parametrize("pair", [("cuda", "cpu"), ("cuda", "cuda:1")], ids="-".join)
@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED)
def test_mixed_devices_are_refused(call, pair):
    here, there = map(nd.device, pair)
    with pytest.raises(ValueError) as error:
        call(numbers(here), numbers(there))
    assert str(here) in str(error.value) and str(there) in str(error.value)


# ---- DLPack ----------------------------------------------------------------------------------------------------------


@each_view
def test_odd_bools_from_cupy(view):
    """Bytes other than 0 and 1 are copied and made 1; good ones are shared."""
    odd = view(nd.array(np.arange(12).reshape(3, 4) * 37 % 256, "uint8", cuda(0)))
    there = cupy.from_dlpack(odd)
    there = cupy.ndarray(there.shape, "bool", there.data, there.strides)
    b = nd.from_dlpack(there)
    assert b.dtype == "bool"
    np.testing.assert_array_equal(b.numpy().view(np.uint8), odd.numpy() != 0)
    assert b.sum().item() == (odd.numpy() != 0).sum()
    if odd.size:
        with pytest.raises(BufferError, match="bytes other than 0 and 1"):
            nd.from_dlpack(there, copy=False)


@each_view
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("number", [0, 1])
def test_to_cupy_and_back(number, dtype, view):
    a = view(numbers(cuda(number), dtype))
    assert a.__dlpack_device__() == (2, number)
    b = nd.from_dlpack(cupy.from_dlpack(a))
    assert (b.device, b.shape, b.dtype) == (a.device, a.shape, dtype)
    np.testing.assert_array_equal(b.numpy(), a.numpy(), strict=True)
    if a.size and view is not VIEWS["broadcast"]:
        b[...] = 1  # the same memory
        assert (a.numpy() == 1).all()


def test_dlpack_options():
    a = numbers(cuda(1))
    copied = nd.from_dlpack(a, copy=True)
    copied[...] = 9
    assert a.numpy()[0, 1] == 1
    assert nd.from_dlpack(a, device=cuda()).device == cuda()
    with pytest.raises(BufferError, match=r"on cuda\(1\), not on cuda\(\)"):
        nd.from_dlpack(a, device=cuda(), copy=False)
    assert '"dltensor' in repr(a.__dlpack__(dl_device=(1, 0)))  # a copy on the host was asked for
    with pytest.raises(BufferError, match="dl_device"):
        a.__dlpack__(dl_device=(2, 0))


def test_exporting_counts_as_a_write():
    a = numbers(cuda())
    before = a.version
    cupy.from_dlpack(a)
    assert a.version > before


# ---- Streams and waits ---------------------------------------------------------------------------------------------------


@pytest.fixture
def deferred():
    """Work waits until somebody waits for it, where it is emulated."""
    with settings.changed(streams="deferred"):
        yield
    for device in range(settings.devices):
        for stream in Stream.all_of(device):
            stream._queue.clear()  # nobody waits for it any more, and in its turn it would come before what others ask for


def test_own_stream(deferred):
    a = numbers(cuda())
    with needle_cuda.stream() as stream:
        assert cupy.cuda.get_current_stream() == stream
        b = a * 2 + 1
    assert cupy.cuda.get_current_stream() != stream
    np.testing.assert_array_equal((b - a).numpy(), np.arange(12).reshape(3, 4) + 1)


def test_values_may_change_once_they_were_given(deferred):
    values = np.ones(1000, np.float32)
    a = nd.array(values, device=cuda())
    values[...] = 7
    assert (a.numpy() == 1).all()


@pytest.fixture
def waits(monkeypatch):
    """A list that grows with every wait."""
    seen = []
    for kind in (cupy.cuda.Stream, cupy.cuda.Device):
        plain = kind.synchronize
        monkeypatch.setattr(kind, "synchronize", lambda self, plain=plain: (seen.append(type(self)), plain(self))[1])
    return seen


@emulated
def test_only_reading_a_value_waits(waits, deferred):
    device = cuda()
    x, w = nd.array(np.ones((8, 5)), device=device), nd.random.normal(5, 3, device=device)
    h = (x @ w).tanh() * 0.5 + 1
    h[1:3] = 4.0
    total = h.softmax().sum() / h.size + h[nd.array([0, 3, 3], "int64", device)].max()
    h.argmax(axis=1), h.cumsum(axis=0), h.T.copy(), h.astype("int32"), nd.where(h > 1, h, 0.0), h.to(cuda(1))
    assert waits == []
    total.item()
    assert len(waits) == 1


@emulated
def test_single_numbers_stay_on_the_host(waits):
    """x * 2 + 1 is two launches: numbers go to kernels by value."""
    from needle_cuda.testing.cupy_standin.module import launches as launched

    x = numbers(cuda())
    launched.clear()
    y = x * 2 + 1
    assert sum(launched.values()) == 2
    two = nd.array(2.0, device=cuda())
    two[...] = 3
    assert two.item() == 3 and sum(launched.values()) == 2 and waits == []
    two += y[0, 0]  # now it needs a place
    assert two.item() == 4


@emulated
def test_indices_from_the_host_are_checked_there(waits):
    """Their smallest and largest are known; those computed on the device are read."""
    table = nd.random.normal(50, 3, device=cuda())
    index = nd.array([[0, 49], [7, 7]], "int64", cuda())
    table[index], nd.cross_entropy(table, nd.array(np.arange(50) % 3, "int64", cuda()))
    assert waits == []
    with pytest.raises(IndexError, match="index 50 is out of bounds for axis 0 of size 50"):
        table[index + 1]
    assert waits != []
    index[0, 0] = 77  # a write on the device: what was known is no longer
    with pytest.raises(IndexError, match="index 77"):
        table[index]


# ---- Errors of kernels ------------------------------------------------------------------------------------------------------


def test_python_numbers_are_no_arguments():
    x = numbers(cuda())
    with pytest.raises(TypeError, match=r"fill: argument 1: 1\.0: expected .* of the right width"):
        cuda().backend._launch("strided.cu", "fill", "float32", 12, x, 1.0, np.int64(12))


@emulated
def test_errors_name_the_kernel():
    x = numbers(cuda())
    launch = cuda().backend._launch
    with pytest.raises(KernelError, match=r"fill of strided\.cu, float32"):
        launch("strided.cu", "fill", "float32", 12, x, np.float64(1), np.int64(12))
    with pytest.raises(KernelError, match=r"no_such_kernel of strided\.cu"):
        launch("strided.cu", "no_such_kernel", "float32", 12, x)


@emulated
def test_errors_that_come_later_name_the_last_kernels(monkeypatch, deferred):
    backend = cuda().backend
    x = numbers(cuda())
    y = x + x

    def fails(stream):
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(cupy.cuda.Stream, "synchronize", fails)
    with pytest.raises(KernelError, match=r"cudaErrorIllegalAddress.*binary_add<float32>.*NEEDLE_CUDA_CHECK=1"):
        backend.to_host(y)
