"""Devices for the tests of needle-core."""

import pytest

import needle as ndl

DEVICES = {"cpu": ndl.cpu, "cpu_numpy": ndl.cpu_numpy}
if ndl.cuda().enabled():  # by a GPU, or by needle-cuda's emulation
    DEVICES["cuda"] = ndl.cuda


@pytest.fixture(params=DEVICES)
def device(request):
    """Each of the backends that are always there, and CUDA where it can be used."""
    return DEVICES[request.param]()
