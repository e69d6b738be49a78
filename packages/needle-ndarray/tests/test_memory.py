"""The caching allocator, and who keeps memory alive."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import needle_ndarray as nd

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with an empty cache and the default limit."""
    gc.collect()
    nd.empty_cache()
    limit = nd.memory_stats()["cache_limit"]
    yield
    nd.set_cache_limit(limit)
    nd.empty_cache()


def change(before):
    """How the counters moved since `before`."""
    return {name: value - before[name] for name, value in nd.memory_stats().items()}


def test_a_freed_block_is_used_again():
    a = nd.empty(MIB)
    address = a._handle.ptr()
    before = nd.memory_stats()
    del a
    freed = change(before)
    assert (
        freed["cached_bytes"] >= 4 * MIB
        and freed["cached_blocks"] == 1
        and freed["live_bytes"] == -freed["cached_bytes"]
    )
    b = nd.empty(MIB)
    after = change(before)
    assert b._handle.ptr() == address and after["hits"] == 1 and after["misses"] == 0
    assert after["cached_bytes"] == after["live_bytes"] == 0


def test_sizes_of_a_class_share_blocks_and_others_do_not():
    a = nd.empty(1000)
    address = a._handle.ptr()
    del a
    a = nd.empty(995)
    assert a._handle.ptr() == address
    before = nd.memory_stats()
    kept = nd.empty(100_000)
    assert change(before)["misses"] == 1 and kept._handle.ptr() != address


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 80, 81, 96, 127, 128, 129, 1000, 4096, 5000, 10**6, 3 * MIB + 1])
def test_blocks_are_large_enough_and_not_much_larger(nbytes):
    buffer = nd.empty(nbytes, "bool")._handle
    assert nbytes <= buffer.nbytes <= max(64, nbytes * 1.26) and buffer.ptr() % 64 == 0


def test_empty_cache_gives_everything_back():
    arrays = [nd.empty(n) for n in (10, 1000, 10**5, 10**6)]
    del arrays
    assert nd.memory_stats()["cached_blocks"] >= 4
    nd.empty_cache()
    stats = nd.memory_stats()
    assert stats["cached_bytes"] == stats["cached_blocks"] == 0


def test_live_bytes_return_to_where_they_were():
    before = nd.memory_stats()["live_bytes"]
    for _ in range(3):
        a = nd.ones((100, 100))
        b = [(a @ a).sum(0) for _ in range(10)]
        views = [a[i] for i in range(100)]
        del a, b, views
    gc.collect()
    assert nd.memory_stats()["live_bytes"] == before


def test_peak():
    nd.reset_peak()
    before = nd.memory_stats()
    a = nd.empty(MIB)
    del a
    assert change(before)["peak_bytes"] >= 4 * MIB
    nd.reset_peak()
    stats = nd.memory_stats()
    assert stats["peak_bytes"] == stats["live_bytes"]


def test_ceiling():
    """The cache never holds more than its limit; what does not fit goes back to the system."""
    nd.set_cache_limit(10 * MIB)
    arrays = [nd.empty(MIB // 2) for _ in range(20)]  # 2 MiB each
    del arrays
    stats = nd.memory_stats()
    assert 0 < stats["cached_bytes"] <= 10 * MIB == stats["cache_limit"]


def test_limit_zero_keeps_nothing():
    nd.set_cache_limit(0)
    before = nd.memory_stats()
    for _ in range(3):
        nd.empty(1000)
    after = change(before)
    assert after["cached_blocks"] == 0 and after["hits"] == 0 and after["misses"] == 3 and after["live_bytes"] == 0


def test_lowering_the_limit_empties():
    nd.empty(MIB)
    assert nd.memory_stats()["cached_bytes"]
    nd.set_cache_limit(1000)
    assert nd.memory_stats()["cached_bytes"] <= 1000


@pytest.mark.parametrize("bad, error", [(-1, ValueError), ("x", (TypeError, ValueError)), (None, TypeError)], ids=repr)
def test_bad_limits(bad, error):
    with pytest.raises(error):
        nd.set_cache_limit(bad)


def test_handle_outlives_the_array():
    a = nd.array([1, 2, 3])
    handle, address = a._handle, a._handle.ptr()
    del a
    others = [nd.zeros(3) for _ in range(10)]
    assert all(b._handle.ptr() != address for b in others)
    again = nd.NDArray.make((3,), handle=handle)
    assert again.tolist() == [1, 2, 3]
    before = nd.memory_stats()
    del handle
    assert change(before)["cached_blocks"] == 0
    del again
    assert change(before)["cached_blocks"] == 1


def test_handle_alone_frees_its_memory():
    before = nd.memory_stats()
    handle = nd.empty(MIB)._handle
    assert change(before)["live_bytes"] >= 4 * MIB
    del handle
    after = change(before)
    assert after["live_bytes"] == 0 and after["cached_blocks"] == 0


EXPORTS = {
    "memoryview": memoryview,
    "memoryview of a view": lambda a: memoryview(a[1:]),
    "asarray": np.asarray,
    "slice of asarray": lambda a: np.asarray(a)[1:],
    "dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_exported_memory_stays(export, host_device):
    """The NDArray is gone, its bytes are not: neither freed nor given to another array."""
    a = nd.array(np.arange(1000), "float32", host_device)
    exported = export(a)
    expected = np.array(exported, copy=True)
    del a
    gc.collect()
    nd.empty_cache()
    others = [nd.full(1000, -1.0, device=host_device) for _ in range(20)]
    assert np.array_equal(np.asarray(exported), expected)
    if not (isinstance(exported, np.ndarray) and not exported.flags.writeable):
        np.asarray(exported)[...] = 7
    assert all((b == -1).all() for b in others)


def test_view_keeps_the_base_alive(device):
    a = nd.array(np.arange(1000), "float32", device)
    view = a[10:20:3]
    del a
    others = [nd.zeros(1000, device=device) for _ in range(5)]
    assert view.tolist() == [10, 13, 16, 19] and len(others) == 5


def test_borrowed_memory_is_never_recycled():
    x = np.arange(1000, dtype=np.float32)
    before = nd.memory_stats()
    a = nd.from_numpy(x)
    assert a._handle.ptr() <= x.ctypes.data
    del a
    after = change(before)
    assert after["cached_blocks"] == 0 and after["live_bytes"] == 0
    assert x.sum() == 499500


def test_version_counts_writes():
    a = nd.zeros((3, 4))
    view = a[1]
    start = a.version
    writes = [
        lambda: a.fill(1),
        lambda: a.__setitem__(0, 2),
        lambda: view.__setitem__([0, 1], 3),
        lambda: a.__iadd__(1),
        lambda: nd.exp(a, out=a),
        lambda: nd.scatter_add(a, [0], nd.ones((1, 4))),
    ]
    for write in writes:
        before = a.version
        write()
        assert a.version > before and view.version == a.version
    before = a.version
    for read in (a.sum, a.numpy, a.copy, lambda: a[0], lambda: a + 1, lambda: a.T):
        read()
    assert a.version == before > start


def test_threads_share_the_allocator():
    """Many Python threads make and drop arrays at once; the counters add up in the end."""
    before = nd.memory_stats()["live_bytes"]
    wrong = []

    def work(seed):
        for i in range(300):
            n = 1 + (seed * 7919 + i * 104729) % 5000
            a = nd.full(n, seed)
            b = a + i
            if not (b.max().item() == b.min().item() == seed + i):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    stats = nd.memory_stats()
    assert not wrong and stats["live_bytes"] <= before and stats["cached_bytes"] <= stats["cache_limit"]


SIZES = {  # bytes asked for: as the message writes them
    1 << 29: "536,870,912 bytes (512.0 MiB)",
    3 << 29: "1,610,612,736 bytes (1.5 GiB)",
    5 << 28: "1,342,177,280 bytes (1.2 GiB)",
}


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("nbytes", SIZES)
def test_out_of_memory_in_units_that_fit(nbytes):
    """Half a gigabyte is not "0.0 GiB"; nor are the arrays that are there."""
    code = f"""
import resource, needle_ndarray as nd
kept = nd.ones(3 << 18)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26), used + (1 << 26)))
try:
    nd.empty({nbytes // 4})
except MemoryError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert SIZES[nbytes] in told and "3.0 MiB are in use by arrays" in told and " 0.0 " not in told


def test_out_of_memory_says_how_much():
    with pytest.raises(MemoryError, match=r"[\d,]{10,} bytes"):
        nd.empty((1 << 44,))
    assert nd.ones(3).sum().item() == 3  # and life goes on


@pytest.mark.parametrize(
    "text, line", [("abc", "NEEDLE_CACHE_LIMIT=abc"), ("-5", "NEEDLE_CACHE_LIMIT=-5"), ("", "NEEDLE_CACHE_LIMIT=")]
)
def test_bad_environment(text, line):
    done = subprocess.run(
        [sys.executable, "-c", "import needle_ndarray"],
        env={**os.environ, "NEEDLE_CACHE_LIMIT": text}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and line in done.stderr.strip().splitlines()[-1]


def test_limit_from_environment():
    code = "import needle_ndarray as nd; print(nd.memory_stats()['cache_limit'])"
    env = {**os.environ, "NEEDLE_CACHE_LIMIT": "12345"}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == "12345"
