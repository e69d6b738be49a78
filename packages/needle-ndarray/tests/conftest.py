"""Devices and Hypothesis profiles for the tests of needle-ndarray."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

import needle_ndarray as nd

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
COMMON = {"deadline": None, "suppress_health_check": CHECKS, "database": None, "print_blob": True}
settings.register_profile("ci", max_examples=200, derandomize=True, **COMMON)
settings.register_profile("small", max_examples=60, derandomize=True, **COMMON)  # for the sanitizer build
settings.register_profile("long", max_examples=5000, **COMMON)  # by hand, with new examples every time
settings.load_profile(os.environ.get("NEEDLE_HYPOTHESIS", "ci"))

HOST = ["cpu", "cpu_numpy"]
DEVICES = HOST + ["cuda"] * nd.cuda().enabled()  # by a GPU, or by needle-cuda's emulation


def pytest_collection_finish():
    gc.freeze()  # tens of thousands of tests, which gc.collect() need not look through each time


@pytest.fixture(params=DEVICES)
def device(request):
    """Each of the backends of this package, and CUDA where it can be used."""
    return nd.device(request.param)


@pytest.fixture(params=HOST)
def host_device(request):
    """Each of the backends whose memory NumPy can see."""
    return nd.device(request.param)


@pytest.fixture
def threads():
    """A function that sets the number of threads; the old number comes back after the test."""
    before = nd.get_num_threads()
    yield nd.set_num_threads
    nd.set_num_threads(before)
