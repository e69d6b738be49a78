"""Whether CUDA can be used here; if not, what is missing and what brings it, in one line."""

import os
from typing import Any

EMULATION = "NEEDLE_CUDA_EMULATION"
INSTALL = "pip install 'needle-cuda[cuda12]' (or [cuda13], by the CUDA version that nvidia-smi shows)"
INSUFFICIENT_DRIVER, NO_DEVICE = 35, 100  # cudaError_t


def find_cupy() -> Any:
    """The module cupy; with NEEDLE_CUDA_EMULATION=1 its stand-in, which runs kernels on the CPU."""
    if os.environ.get(EMULATION) == "1":
        from needle_cuda.testing import standin

        return standin()
    import cupy

    return cupy


def why_disabled(number: int = 0) -> str | None:
    """None where device `number` can be used, else one line."""
    try:
        cupy = find_cupy()
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            return f"cupy does not import: {_line(error)}; {INSTALL} brings a matching one"
        return f"cupy is missing; {INSTALL} brings it"
    except Exception as error:  # whatever a broken installation raises
        return f"cupy does not import: {_line(error)}; {INSTALL} brings a matching one"
    return _driver(cupy) or _devices(cupy, number) or _compiler(cupy)


def _driver(cupy: Any) -> str | None:
    try:
        driver = cupy.cuda.runtime.driverGetVersion()
    except Exception:
        driver = 0
    if driver == 0:
        return "no NVIDIA driver; install the one for your GPU, until nvidia-smi lists it"
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    if driver // 1000 < runtime // 1000:
        return _too_old(driver, runtime)
    return None


def _too_old(driver: int, runtime: int) -> str:
    return (
        f"the NVIDIA driver is too old: it supports CUDA {_version(driver)}, cupy needs {_version(runtime)};"
        f" update the driver, or {INSTALL}"
    )


def _devices(cupy: Any, number: int) -> str | None:
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        status = getattr(error, "status", None)
        if status == INSUFFICIENT_DRIVER:
            return _too_old(runtime.driverGetVersion(), runtime.runtimeGetVersion())
        if status != NO_DEVICE:
            return f"CUDA does not start: {_line(error)}; see whether nvidia-smi works"
        count = 0
    if count == 0:
        return "no CUDA device; see whether nvidia-smi lists a GPU and CUDA_VISIBLE_DEVICES does not hide it"
    if not 0 <= number < count:
        return (
            f"no device {number}: there {'is' if count == 1 else 'are'} {count}, numbered from 0; use a smaller number"
        )
    return None


def _compiler(cupy: Any) -> str | None:
    if os.environ.get(EMULATION) == "1":
        return None
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        return f"NVRTC, the compiler of kernels, is missing ({_line(error)}); {INSTALL} brings it"
    return None


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _line(error: Exception) -> str:
    """The first line of a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
