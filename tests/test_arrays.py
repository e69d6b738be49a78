"""The array as users reach it: through needle, on every device that works here."""

from importlib.metadata import version

import numpy as np
import pytest

import needle
from needle import backend_ndarray as nd

DEVICES = [device for device in needle.all_devices() if device.enabled()]


def test_both_cpu_devices_work():
    assert {"cpu()", "cpu_numpy()"} <= {str(device) for device in DEVICES}


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_small_computation(device):
    a = np.arange(12, dtype="float32").reshape(3, 4)
    x = nd.array(a, device=device)
    result = ((x @ x.permute((1, 0))) / 10).tanh().sum(axis=0)
    assert isinstance(result, needle.NDArray)
    assert result.device == device
    np.testing.assert_allclose(result.numpy(), np.tanh(a @ a.T / 10).sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("source", DEVICES, ids=str)
@pytest.mark.parametrize("target", DEVICES, ids=str)
def test_moving_between_devices_keeps_values_and_view(source, target):
    a = np.arange(24, dtype="float32").reshape(2, 3, 4)
    x = nd.array(a, device=source).permute((2, 0, 1))[::-2]
    moved = x.to(target)
    assert moved.device == target
    np.testing.assert_array_equal(moved.numpy(), a.transpose(2, 0, 1)[::-2])


def test_cuda_explains_itself():
    if needle.cuda().enabled():
        pytest.skip("CUDA works here")
    with pytest.raises(Exception, match="needle-cuda"):
        nd.array([1.0], device=needle.cuda())


def test_show_config(capsys):
    needle.show_config()
    shown = capsys.readouterr().out
    assert version("needle-ndarray") in shown
    assert "threads" in shown.lower()
