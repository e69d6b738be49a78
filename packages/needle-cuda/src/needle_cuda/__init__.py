"""CUDA backend of Needle's NDArray, on cupy: `needle.cuda()` is its device, found by entry point."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__version__ = "0.1.0"
__all__ = ["empty_cache", "memory_stats", "stream"]


def _backend(device: Any) -> Any:
    from needle_ndarray import cuda
    from needle_ndarray import device as find

    found = cuda() if device is None else find(device)
    if not found.name.startswith("cuda"):
        raise ValueError(f"needle_cuda: {found} is not a CUDA device")
    return found.backend


@contextmanager
def stream(device: Any = None) -> Iterator[Any]:
    """Queue what is done inside on a stream of its own: after all before it, and before all behind it.

    Kernels always go to cupy's current stream, so `with cupy.cuda.Stream():` works too; then the order between streams is
    the caller's to keep.
    """
    backend = _backend(device)
    cuda, here = backend.cupy.cuda, backend.launcher.device
    with here:
        before, inside = cuda.get_current_stream(), cuda.Stream(non_blocking=True)
        inside.wait_event(backend._mark())
        with inside:
            yield inside
            end = backend._mark()
        before.wait_event(end)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes of cupy's pool on a device: in use by arrays, kept for later (and in how many blocks), and the limit (0: none)."""
    backend = _backend(device)
    with backend.launcher.device:
        pool = backend.cupy.get_default_memory_pool()
        return {
            "live_bytes": pool.used_bytes(),
            "cached_bytes": pool.free_bytes(),
            "cached_blocks": pool.n_free_blocks(),
            "cache_limit": pool.get_limit(),
        }


def empty_cache(device: Any = None) -> None:
    """Give the pool's unused blocks back to the device."""
    backend = _backend(device)
    with backend.launcher.device:
        backend.cupy.get_default_memory_pool().free_all_blocks()
