"""The stand-in for cupy: memory, streams, arrays and the compiler behave as cupy's do, and stricter."""

import gc
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from needle_cuda.testing import compiler, count_launches, settings, standin
from needle_cuda.testing.cupy_standin import runtime
from needle_cuda.testing.cupy_standin.arrays import asarray
from needle_cuda.testing.cupy_standin.memory import OutOfMemoryError
from needle_cuda.testing.emulator import LaunchError

cupy = standin()
cuda = cupy.cuda
ADD_ONE = 'extern "C" __global__ void add_one(float* a, int n) { if (threadIdx.x < n) a[threadIdx.x] += 1; }'


@pytest.fixture(scope="module")
def add_one():
    return cupy.RawModule(code=ADD_ONE).get_function("add_one")


@pytest.fixture
def deferred():
    with settings.changed(streams="deferred"):
        yield
        for device in range(settings.devices):
            cuda.Device(device).synchronize()


def host(n=4, value=0.0):
    """Pinned memory, and a NumPy array on it."""
    memory = cuda.alloc_pinned_memory(4 * n)
    array = np.frombuffer(memory, np.float32, n)
    array[:] = value
    return memory, array


# ---- Memory -------------------------------------------------------------------------------------------------------------


def test_memory_starts_poisoned_and_is_copied():
    pointer = cuda.alloc(16)
    memory, array = host()
    pointer.copy_to_host_async(memory.ptr, 16)
    assert np.isnan(array).all()
    array[:] = [1, 2, 3, 4]
    pointer.copy_from_host_async(memory.ptr, 16)
    other = cuda.alloc(16)
    other.memset_async(0, 16)
    (other + 4).copy_from_device_async(pointer + 8, 8)
    back = np.empty(4, np.float32)
    other.copy_to_host_async(back.ctypes.data, 16)
    assert back.tolist() == [0, 3, 4, 0]


@pytest.mark.parametrize(
    "verb", ["copy_from_host_async", "copy_to_host_async", "copy_from_device_async", "memset_async"]
)
def test_copies_stay_within_their_buffers(verb):
    pointer, (memory, _) = cuda.alloc(16), host(8)
    first = {"copy_from_device_async": cuda.alloc(64), "memset_async": 0}.get(verb, memory.ptr)
    getattr(pointer, verb)(first, 16)
    with pytest.raises(LaunchError, match="17 bytes exceed the allocation of 16 bytes by 1"):
        getattr(pointer, verb)(first, 17)
    with pytest.raises(LaunchError, match="12 bytes exceed the allocation of 16 bytes by 4"):
        getattr(pointer + 8, verb)(first, 12)
    with pytest.raises(LaunchError, match="in no live allocation"):
        getattr(pointer - 4, verb)(first, 4)


def test_copies_between_devices():
    a = asarray([1, 2, 3, 4], "f4")
    with cuda.Device(1):
        b = cuda.alloc(16)
        assert b.device_id == 1
        b.copy_from_device_async(a.data, 16)
        runtime.memcpyPeerAsync(b.ptr, 1, a.data.ptr, 0, 16, cuda.get_current_stream().ptr)
        with pytest.raises(LaunchError, match="belongs to device 0, not 1"):
            runtime.memcpyPeerAsync(b.ptr, 1, a.data.ptr, 1, 16, 0)
        assert cupy.ndarray(4, "f4", b).get().tolist() == [1, 2, 3, 4]


def test_pool_counts_and_runs_out():
    pool = cupy.get_default_memory_pool()
    with cuda.Device(1):
        pool.free_all_blocks()
        used, total = pool.used_bytes(), pool.total_bytes()
        pointer = cuda.alloc(1000)
        assert (pool.used_bytes() - used, pool.total_bytes() - total) == (1024, 1024)
        first = pointer.ptr
        del pointer
        assert (pool.used_bytes() - used, pool.total_bytes() - total, pool.n_free_blocks()) == (0, 1024, 1)
        assert cuda.alloc(1000).ptr == first  # the block is used again
        pool.free_all_blocks()
        assert pool.total_bytes() == total and pool.n_free_blocks() == 0
        with pytest.raises(OutOfMemoryError, match="Out of memory allocating 1,099,511,627,776 bytes"):
            cuda.alloc(2**40)
        pool.set_limit(total + 512)
        with pytest.raises(MemoryError):
            cuda.alloc(513)
        pool.set_limit(0)
    assert cuda.alloc(0).ptr == 0


def test_devices():
    assert runtime.getDeviceCount() == settings.devices == 2
    with cuda.Device(1) as device, cuda.Device(0):
        assert (device.id, cuda.Device().id) == (1, 0)
    with pytest.raises(runtime.CUDARuntimeError, match="invalid device ordinal"), cuda.Device(2):
        pass
    assert cuda.Device().id == 0


# ---- Streams ------------------------------------------------------------------------------------------------------------


def test_nothing_is_done_before_somebody_waits(deferred, add_one):
    memory, array = host(4, 7)
    a = asarray([1, 2, 3, 4], "f4")
    stream = cuda.Stream(non_blocking=True)
    with stream:
        add_one((1,), (4,), (a, np.int32(4)))
        a.data.copy_to_host_async(memory.ptr, 16)
    assert array.tolist() == [7, 7, 7, 7] and not stream.done
    stream.synchronize()
    assert array.tolist() == [2, 3, 4, 5] and stream.done


def test_pinned_memory_is_read_late_and_pageable_memory_at_once(deferred):
    memory, pinned = host(4, 1)
    pageable = np.ones(4, np.float32)
    pointer, other = cuda.alloc(16), cuda.alloc(16)
    pointer.copy_from_host_async(memory.ptr, 16)
    other.copy_from_host_async(pageable.ctypes.data, 16)
    pinned[:], pageable[:] = 2, 2
    assert cupy.ndarray(4, "f4", pointer).get().tolist() == [2] * 4
    assert cupy.ndarray(4, "f4", other).get().tolist() == [1] * 4


def test_events_order_streams(deferred, add_one):
    a = asarray(np.zeros(4), "f4")
    first, second = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
    memory, array = host()
    with first:
        add_one((1,), (4,), (a, np.int32(4)))
        event = first.record()
    second.wait_event(event)
    a.data.copy_to_host_async(memory.ptr, 16, second)
    assert not event.done
    second.synchronize()
    assert array.tolist() == [1] * 4 and event.done

    with first:
        add_one((1,), (4,), (a, np.int32(4)))
    a.data.copy_to_host_async(memory.ptr, 16, second)  # waits for nothing: a mistake, and it shows
    second.synchronize()
    assert array.tolist() == [1] * 4
    first.synchronize()


def test_the_null_stream_waits_for_blocking_streams(deferred, add_one):
    for non_blocking, expected in [(False, 1), (True, 0)]:
        a = asarray(np.zeros(4), "f4")
        stream = cuda.Stream(non_blocking=non_blocking)
        with stream:
            add_one((1,), (4,), (a, np.int32(4)))
        memory, array = host()
        a.data.copy_to_host_async(memory.ptr, 16)
        cuda.Stream.null.synchronize()
        assert array.tolist() == [expected] * 4
        stream.synchronize()


def test_memory_freed_under_a_stream_that_still_uses_it(deferred, add_one):
    stream = cuda.Stream(non_blocking=True)
    a = asarray(np.zeros(4), "f4")  # belongs to the null stream
    with stream:
        add_one((1,), (4,), (a, np.int32(4)))
    del a
    cuda.Stream.null.synchronize()
    with pytest.raises(LaunchError, match="add_one: parameter a: the pointer is in no live allocation"):
        stream.synchronize()

    a = asarray(np.zeros(4), "f4")
    add_one((1,), (4,), (a, np.int32(4)))
    del a  # behind the launch, on the same stream: as it should be
    cuda.Stream.null.synchronize()


def test_a_stream_belongs_to_its_device(add_one):
    stream, a = cuda.Stream(), asarray(np.zeros(4), "f4")
    with cuda.Device(1), pytest.raises(LaunchError, match="launched on device 1 with a stream of device 0"):
        add_one((1,), (4,), (a, np.int32(4)), stream=stream)


# ---- Arrays -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_dlpack_there_and_back(dtype):
    a = asarray(np.arange(12).reshape(3, 4) % 5, dtype)
    view = cupy.ndarray((2, 2), dtype, a.data + a.itemsize, (a.strides[0], 2 * a.itemsize))
    b = cupy.from_dlpack(view)
    assert b.data.ptr == view.data.ptr and b.dtype == a.dtype and b.strides == view.strides
    np.testing.assert_array_equal(b.get(), a.get()[:2, 1::2])
    assert view.__dlpack_device__() == (2, 0)


def test_dlpack_keeps_the_memory_alive():
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes()
    a = asarray(np.arange(1000), "i8")
    b = cupy.from_dlpack(a)
    del a
    assert pool.used_bytes() > before and b.get()[999] == 999
    del b
    assert pool.used_bytes() == before
    asarray([1, 2]).__dlpack__()  # a capsule that nobody takes
    assert pool.used_bytes() == before


def test_a_capsule_that_is_refused():
    """NumPy refuses the device and drops the capsule while its exception is under way."""
    gc.collect()
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes()
    with pytest.raises((RuntimeError, BufferError), match=r"(?i)device"):
        np.from_dlpack(asarray([1, 2]))
    gc.collect()
    assert pool.used_bytes() == before


def test_a_capsule_is_taken_once():
    class Twice:
        def __init__(self, array):
            self.capsule = array.__dlpack__()

        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **_):
            return self.capsule

    twice = Twice(asarray([1, 2]))
    cupy.from_dlpack(twice)
    with pytest.raises(BufferError, match="has been used"):
        cupy.from_dlpack(twice)
    with pytest.raises(BufferError, match="device of type 1"):
        cupy.from_dlpack(np.zeros(3))


def test_no_silent_conversion():
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(asarray([1.0]))


# ---- The compiler -------------------------------------------------------------------------------------------------------


def test_compile_error_has_the_message_and_the_line():
    module = cupy.RawModule(code='#line 7 "wrong.cu"\nextern "C" __global__ void k(float* a) { a[0] = missing; }')
    with pytest.raises(cuda.compiler.CompileException, match=re.escape("wrong.cu:7:")) as error:
        module.get_function("k")
    assert "missing" in str(error.value)


def test_a_kernel_that_is_not_there(add_one):
    with pytest.raises(RuntimeError, match="named symbol not found: other"):
        cupy.RawModule(code=ADD_ONE).get_function("other")


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" __global__ void k(float* a) { __shared__ float x; x = 1; a[0] = x; }',
        'extern "C" __global__ void k(float* a) { __shared__ __align__(8) char x[2][8]; *(float*)x[1] = 1; a[0] = *(float*)x[1]; }',
        'extern "C" __global__ void k(float* a) { __shared__ alignas(16) float x[4], y[2]; *x = y[1] = 1; a[0] = x[0] * y[1]; }',
        'extern "C" __global__ void k(float* a) { extern __shared__ char room[]; *(float*)room = 1; a[0] = *(float*)room; }',
        'template <int N> __device__ float f() { __shared__ float x[N]; x[N - 1] = 1; return x[N - 1]; }\n'
        'extern "C" __global__ void k(float* a) { a[0] = f<1>() * f<2>(); }',
        '#define K(n) extern "C" __global__ void n(float* a)\nK(k) { a[0] = min(1, 2); }',
        'extern "C" __global__ void __launch_bounds__(32 * (1 + 1), 2) k(float* const a) { a[0] = 1; }',
        'extern "C" __global__ __launch_bounds__(64) void k(float* __restrict__ a) { a[0] = __ldg(a + 1) > 0 ? 1 : 2; }',
    ],
)  # fmt: skip
def test_ways_to_write_it(text):
    a = asarray([0, 1], "f4")
    cupy.RawModule(code=text).get_function("k")((1,), (1,), (a,), shared_mem=4)
    assert a.get()[0] == 1


def test_options_define_macros():
    a = asarray([0], "f8")
    module = cupy.RawModule(
        code='extern "C" __global__ void k(T* a) { a[0] = VALUE; }', options=("-DT=double", "-DVALUE=3")
    )
    module.get_function("k")((1,), (1,), (a,))
    assert a.get()[0] == 3


COMPILER = """#!/bin/sh
case " $* " in *" -E "*) echo once >> {log};; esac
exec g++ "$@"
"""


def test_processes_compile_a_module_once(tmp_path):
    log, script = tmp_path / "log", tmp_path / "g++"
    script.write_text(COMPILER.format(log=log))
    script.chmod(0o700)
    code = f"from needle_cuda.testing import standin; standin().RawModule(code={ADD_ONE!r}).get_function('add_one')"
    cache = tmp_path / "cache"
    env = {**os.environ, "CXX": str(script), "NEEDLE_CUDA_EMULATION_CACHE": str(cache)}
    running = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(3)]
    assert [each.wait() for each in running] == [0, 0, 0]
    assert log.read_text() == "once\n"
    assert not list(cache.glob("*.new")) and len(list(cache.glob("*.so"))) == 2
    assert cache.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with settings.changed(cache=str(tmp_path)), pytest.raises(PermissionError, match="others can write"):
        compiler.folder()


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(compiler, "COMPILER", "/nonexistent/g++")
    with pytest.raises(compiler.CompileError, match="needs a C\\+\\+ compiler: /nonexistent/g\\+\\+ was not found"):
        compiler.run("--version")


def test_settings_are_checked(tmp_path):
    with pytest.raises(ValueError, match="order is one of forward, reverse, random, not 'sideways'"):
        settings.order = "sideways"
    env = {**os.environ, "NEEDLE_CUDA_EMULATION_ORDER": "reverse", "NEEDLE_CUDA_EMULATION_DEVICES": "3"}
    code = "from needle_cuda.testing import settings; print(settings.order, settings.devices)"
    assert (
        subprocess.check_output([sys.executable, "-c", code], env=env, text=True, cwd=tmp_path).strip() == "reverse 3"
    )
    assert Path(compiler.HERE / "shim.h").is_file()


def test_launches_are_counted(add_one):
    a = asarray(np.zeros(4), "f4")
    add_one((1,), (4,), (a, np.int32(4)))
    with count_launches() as found:
        add_one((1,), (4,), (a, np.int32(4)))
        add_one((1,), (4,), (a, np.int32(4)))
    assert found == {"add_one": 2}


def test_each_thread_has_a_device_of_its_own():
    """As in CUDA: what one thread makes current is nothing to another, however the two take turns."""
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def other():
        with cuda.Device(1):
            inside.set()
            leave.wait(10)
            seen.append(cuda.runtime.getDevice())
        seen.append(cuda.runtime.getDevice())

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    with cuda.Device(0):
        assert cuda.runtime.getDevice() == 0
        leave.set()
        thread.join(10)
    assert seen == [1, 0] and cuda.runtime.getDevice() == 0


# ---- Stream capture -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", ["immediate", "deferred"])
def test_a_graph_does_when_launched_what_was_captured(add_one, streams):
    """Nothing is done or counted while capturing; a launch of the graph is one, and does all of it in order."""
    with settings.changed(streams=streams), count_launches() as found:
        a, other = asarray(np.zeros(4), "f4"), asarray(np.zeros(4), "f4")
        stream = cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture(runtime.streamCaptureModeThreadLocal)
            assert stream.is_capturing() and runtime.streamIsCapturing(stream.ptr)
            add_one((1,), (4,), (a, np.int32(4)))
            other.data.copy_from_device_async(a.data, 16)
            add_one((1,), (4,), (a, np.int32(4)))
            graph = stream.end_capture()
        assert a.get().tolist() == [0] * 4
        graph.launch()
        graph.launch()
        assert (a.get().tolist(), other.get().tolist()) == ([4] * 4, [3] * 4)
    assert found == {"graph": 2}


def refused_pageable(a, stream):
    a.data.copy_from_host_async(np.zeros(4, "f4").ctypes.data, 16, stream)


REFUSED = {
    "waiting for the stream": (lambda a, s: s.synchronize(), "Unsupported.*stream is waited for"),
    "asking whether it is done": (lambda a, s: s.done, "Unsupported.*queried"),
    "waiting for the device": (lambda a, s: cuda.Device().synchronize(), "Unsupported.*device is waited for"),
    "an event": (lambda a, s: cuda.Event().record(s), "Unsupported.*event"),
    "work of another stream": (lambda a, s: s.wait_event(PAST), "Isolation"),
    "values from the host": (refused_pageable, "transfers from and to the host"),
    "values to the host": (lambda a, s: a.data.copy_to_host_async(host()[0].ptr, 16, s), "pinned memory|transfers"),
    "reading an array": (lambda a, s: a.get(), "waited for"),
    "memory": (lambda a, s: cuda.alloc(100_000), "Unsupported.*100,000 bytes taken"),
    "pinned memory": (lambda a, s: cuda.alloc_pinned_memory(64), "Unsupported.*64 bytes of pinned"),
    "a module": (lambda a, s: cupy.RawModule(code=ADD_ONE).get_function("add_one"), "Unsupported.*module"),
    "the legacy stream": (lambda a, s: a.data.memset_async(0, 16, cuda.Stream.null), "Implicit.*legacy"),
    "a capture in a capture": (lambda a, s: s.begin_capture(), "capturing already"),
}
PAST = cuda.Event()


@pytest.mark.parametrize("what", REFUSED)
def test_refused_while_capturing(what):
    """The error is the call's; the capture can be ended, and the same call works afterwards (or has nothing to say)."""
    call, message = REFUSED[what]
    a, stream = asarray(np.zeros(4), "f4"), cuda.Stream(non_blocking=True)
    PAST.record(cuda.Stream.null)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(RuntimeError, match=message):
                call(a, stream)
        finally:
            stream.end_capture()
        if what != "a capture in a capture":
            call(a, stream)
    a.get()


def test_what_cannot_be_captured():
    with pytest.raises(RuntimeError, match="cannot capture on the default"):
        cuda.Stream.null.begin_capture()
    with pytest.raises(RuntimeError, match="not capturing"):
        cuda.Stream().end_capture()
    stream = cuda.Stream(non_blocking=True)
    stream.begin_capture()
    graph = stream.end_capture()
    with cuda.Device(1), pytest.raises(RuntimeError, match="a graph of device 0"):
        graph.launch()
