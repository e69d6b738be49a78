"""The default device, chosen by NEEDLE_BACKEND: `nd` (the default) means cpu(), `np` means cpu_numpy()."""

import os

from needle import backend_ndarray as array_api
from needle_ndarray import Device, NDArray, all_devices, cpu, cpu_numpy, cuda, default_device

__all__ = ["BACKEND", "Device", "NDArray", "all_devices", "array_api", "cpu", "cpu_numpy", "cuda", "default_device"]

BACKEND = os.environ.get("NEEDLE_BACKEND", "nd")

if BACKEND not in ("nd", "np"):
    raise RuntimeError(f"NEEDLE_BACKEND={BACKEND}: expected nd or np")
