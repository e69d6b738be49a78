"""Without a backend, a driver or cupy: importing works and the device explains itself."""

import sys

import needle_cuda  # noqa: F401
import needle_ndarray


def test_import_loads_no_cupy():
    assert "cupy" not in sys.modules


def test_device_is_not_enabled():
    assert str(needle_ndarray.cuda()) == "cuda()"
    assert not needle_ndarray.cuda().enabled()
