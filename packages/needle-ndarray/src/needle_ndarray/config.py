"""What this build and this machine offer."""

import numpy as np

from needle_ndarray import kernels
from needle_ndarray.blas import blas_in_use
from needle_ndarray.buffer import memory_stats
from needle_ndarray.devices import DeviceError, all_devices
from needle_ndarray.threads import get_num_threads


def config() -> dict[str, object]:
    """What the CPU backend chose: instruction set, vector mathematics, threads, BLAS."""
    return {
        "instruction set": f"{kernels.settle()} (built: {', '.join(kernels.BUILT)})",
        "vector math": "Needle's own",
        "threads": get_num_threads(),
        "BLAS": blas_in_use(),
    }


def show_config() -> None:
    """Print versions, instruction set, threads, BLAS, allocator and devices."""
    from platform import python_version

    from needle_ndarray import __version__

    stats = memory_stats()
    rows = {"needle-ndarray": __version__, "Python": python_version(), "NumPy": np.__version__, **config()}
    rows["allocator"] = (
        f"{stats['live_bytes'] / 2**20:.1f} MiB live, {stats['cached_bytes'] / 2**20:.1f} MiB cached"
        f" (at most {stats['cache_limit'] / 2**20:.0f} MiB)"
    )
    for device in all_devices():
        rows[str(device)] = "ready" if device.enabled() else _reason(device)
    for name, value in rows.items():
        print(f"{name:16} {value}")


def _reason(device: object) -> str:
    try:
        _ = device.backend  # type: ignore[attr-defined]
    except DeviceError as error:
        return f"not usable: {error}"
    return "ready"
