"""Devices for the tests of needle-core."""

import pytest

import needle as ndl

DEVICES = {"cpu": ndl.cpu, "cpu_numpy": ndl.cpu_numpy}


@pytest.fixture(params=DEVICES)
def device(request):
    """Each of the backends that are always there."""
    return DEVICES[request.param]()
