"""Memory: from cupy's pool, given back to it, counted, and refused with the numbers."""

import gc

import numpy as np
import pytest

import needle_cuda
import needle_ndarray as nd

cuda = nd.cuda
pytestmark = pytest.mark.skipif(not cuda().enabled(), reason="needs a CUDA device")
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def quiet():
    gc.collect()
    needle_cuda.empty_cache()


def test_statistics():
    before = needle_cuda.memory_stats()
    assert before.keys() == {"live_bytes", "cached_bytes", "cached_blocks", "cache_limit"}
    a = nd.zeros((MEGABYTE,), device=cuda())
    during = needle_cuda.memory_stats()
    assert during["live_bytes"] - before["live_bytes"] == 4 * MEGABYTE
    del a
    after = needle_cuda.memory_stats()
    assert after["live_bytes"] == before["live_bytes"] and after["cached_bytes"] >= 4 * MEGABYTE
    needle_cuda.empty_cache()
    assert needle_cuda.memory_stats()["cached_bytes"] < 4 * MEGABYTE


def test_views_keep_the_memory():
    before = needle_cuda.memory_stats()["live_bytes"]
    view = nd.ones((MEGABYTE,), device=cuda())[5:7]
    assert needle_cuda.memory_stats()["live_bytes"] - before == 4 * MEGABYTE and view.tolist() == [1, 1]


def test_memory_is_used_again():
    """A step that frees what it takes does not grow."""
    x = nd.ones((1000, 100), device=cuda())

    def step():
        return ((x * 2).exp() + x).sum(axis=0)

    step()
    held = needle_cuda.memory_stats()
    for _ in range(5):
        step()
    now = needle_cuda.memory_stats()
    assert now["live_bytes"] + now["cached_bytes"] <= held["live_bytes"] + held["cached_bytes"]


def test_other_devices_have_their_own():
    if not cuda(1).enabled():
        pytest.skip("needs two CUDA devices")
    here, there = needle_cuda.memory_stats(), needle_cuda.memory_stats(cuda(1))
    a = nd.zeros((MEGABYTE,), device=cuda(1))
    assert needle_cuda.memory_stats() == here
    assert needle_cuda.memory_stats("cuda:1")["live_bytes"] - there["live_bytes"] == a.nbytes
    with pytest.raises(ValueError, match=r"cpu\(\) is not a CUDA device"):
        needle_cuda.memory_stats(nd.cpu())


def test_too_much_is_refused_with_the_numbers():
    with pytest.raises(MemoryError, match=r"cuda\(0\): cannot allocate 1,125,899,906,842,624 bytes .*empty_cache"):
        nd.empty((1 << 48,), device=cuda())


@pytest.mark.parametrize("size", [0, 1, 3, 1000, MEGABYTE])
@pytest.mark.parametrize("staged", [0, 1 << 30])
def test_host_copies_with_and_without_pinned_memory(size, staged, monkeypatch):
    monkeypatch.setattr("needle_cuda.memory.STAGED", staged)
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(nd.array(x, device=cuda()).numpy(), x)


def test_printing_brings_only_the_edges():
    large = nd.zeros((1,), device=cuda()).broadcast_to((1 << 40,))
    assert repr(large) == "NDArray([0., 0., 0., ..., 0., 0., 0.], dtype=float32, device=cuda())"
    x = np.arange(12000).reshape(100, 120)
    assert str(nd.array(x, device=cuda())) == str(nd.array(x, device=nd.cpu()))
