"""The backend of docs/extend/c_backend.md, with kernels in C: it passes the contract suite where there is a C compiler."""

import gc
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing import (
    ElementwiseSuite,
    InterfaceSuite,
    MovementSuite,
    ProductSuite,
    RandomSuite,
    ReductionSuite,
)

DOCS = Path(__file__).resolve().parents[3] / "docs" / "extend"

pytestmark = [
    pytest.mark.skipif(not (DOCS / "c_backend.py").exists(), reason="docs/ is not beside this package"),
    pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc").split()[0]) is None, reason="no C compiler"),
]


@pytest.fixture(scope="module", autouse=True)
def registered():
    sys.path.append(str(DOCS))
    from c_backend import CBackend

    nd.register("c", CBackend)
    yield
    sys.path.remove(str(DOCS))


class TestC(InterfaceSuite, MovementSuite, ReductionSuite, ProductSuite, RandomSuite):
    """Fused verbs are the defaults, as the toy backend's."""

    device = "c"


class TestCElementwise(ElementwiseSuite):
    device = "c"


def test_it_is_short():
    """The kernels, and how they are called"""
    lines = {
        name: len((DOCS / name).read_text().splitlines()) for name in ("c_backend.py", "c_backend.c", "c_kernels.h")
    }
    assert lines["c_backend.py"] < 130 and lines["c_backend.c"] + lines["c_kernels.h"] < 150


def test_c_computes(monkeypatch):
    """The ops that the page lists do not go to NumPy."""
    import toy_backend

    a, b = nd.array(np.arange(6.0).reshape(2, 3), device="c"), nd.ones((3, 2), device="c")

    def refuse(*args):
        raise AssertionError("NumPy was asked")

    for verb in ("unary", "binary", "copy", "reduce", "matmul"):
        monkeypatch.setattr(toy_backend.ToyBackend, verb, refuse)
    assert (a @ b).sum().item() == 30
    assert nd.maximum(-a, a.T.T - 1).sum(axis=0).tolist() == [2.0, 3.0, 5.0]
    assert (a.T - a.T).abs().tolist() == [[0, 0]] * 3


def test_memory_goes_back(monkeypatch):
    import c_backend

    freed = []
    real = c_backend.library().give_back
    monkeypatch.setattr(c_backend.library(), "give_back", lambda memory: (freed.append(memory.value), real(memory)))
    a = nd.ones((1000,), device="c")
    address, view = a._handle.ptr(), a[10:20]
    del a
    gc.collect()
    assert address not in freed and view.sum().item() == 10
    del view
    gc.collect()
    assert freed.count(address) == 1
