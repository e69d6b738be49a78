"""What `why_disabled` says, by a cupy that fails in each way: one line, the cause and its remedy."""

import sys
from types import SimpleNamespace

import pytest

from needle_cuda import status


class CUDARuntimeError(RuntimeError):
    def __init__(self, number: int, text: str):
        super().__init__(text)
        self.status = number


def fails(error):
    def call(*args):
        raise error

    return call


def cupy(devices=1, driver=12060, runtime=12090, nvrtc=lambda: (12, 9)):
    """As much of cupy as is asked; a number, or a function that raises."""

    def number(value):
        return value if callable(value) else lambda: value

    calls = {
        "getDeviceCount": number(devices),
        "driverGetVersion": number(driver),
        "runtimeGetVersion": number(runtime),
    }
    runtime_module = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, **calls)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime_module, nvrtc=SimpleNamespace(getVersion=nvrtc)))


NO_DEVICE = CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
OLD_DRIVER = CUDARuntimeError(
    35, "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
)
UNKNOWN = CUDARuntimeError(999, "cudaErrorUnknown: unknown error")
NO_NVRTC = RuntimeError("CuPy failed to load libnvrtc.so.12: OSError: cannot open shared object file\nmore")
CASES = {
    "all there": (cupy(), 0, []),
    "the second of two": (cupy(devices=2), 1, []),
    "a driver of an older minor version": (cupy(driver=12000), 0, []),
    "no cupy": (None, 0, ["cupy is missing", "pip install", "cuda12", "cuda13"]),
    "no driver": (cupy(driver=0, devices=fails(OLD_DRIVER)), 0, ["no NVIDIA driver", "install"]),
    "a driver that is too old": (cupy(driver=11040), 0, ["too old", "11.4", "12.9", "update the driver"]),
    "too old, says the runtime": (cupy(devices=fails(OLD_DRIVER)), 0, ["too old", "12.6", "12.9", "update"]),
    "no device, an error": (
        cupy(devices=fails(NO_DEVICE)),
        0,
        ["no CUDA device", "nvidia-smi", "CUDA_VISIBLE_DEVICES"],
    ),
    "no device, a count": (cupy(devices=0), 0, ["no CUDA device", "nvidia-smi"]),
    "a number too large": (cupy(), 1, ["no device 1", "there is 1", "smaller"]),
    "larger by far": (cupy(devices=3), 7, ["no device 7", "there are 3"]),
    "no NVRTC": (cupy(nvrtc=fails(NO_NVRTC)), 0, ["NVRTC", "libnvrtc.so.12", "pip install"]),
    "something else": (cupy(devices=fails(UNKNOWN)), 0, ["does not start", "cudaErrorUnknown", "nvidia-smi"]),
}


@pytest.fixture(autouse=True)
def no_emulation(monkeypatch):
    monkeypatch.setenv("NEEDLE_CUDA_EMULATION", "0")


@pytest.mark.parametrize("module, number, words", CASES.values(), ids=CASES)
def test_reason(module, number, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", module)
    found = status.why_disabled(number)
    if not words:
        assert found is None
    else:
        assert [word for word in words if word not in found] == [] and "\n" not in found


def test_cupy_that_does_not_import(tmp_path, monkeypatch):
    (tmp_path / "cupy.py").write_text("raise ImportError('libcublas.so.12: cannot open\\nsecond line')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    found = status.why_disabled()
    assert found.startswith("cupy does not import: libcublas.so.12") and "pip install" in found and "\n" not in found
