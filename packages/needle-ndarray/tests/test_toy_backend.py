"""The backend of docs/extend/backend.md, registered as an installed package would be: it passes the contract suite."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.backend import REQUIRED
from needle_ndarray.testing import (
    ElementwiseSuite,
    FusedSuite,
    HalfSuite,
    InterfaceSuite,
    MovementSuite,
    ProductSuite,
    RandomSuite,
    ReductionSuite,
)
from needle_ndarray.testing.movement import MEMBERS, parameters

DOCS = Path(__file__).resolve().parents[3] / "docs" / "extend"

pytestmark = pytest.mark.skipif(not (DOCS / "toy_backend.py").exists(), reason="docs/ is not beside this package")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """What pip leaves behind: a module and an entry point on the path."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "toy_backend-0.1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[needle.backends]\ntoy = toy_backend:ToyBackend\n")
    sys.path += [str(folder), str(DOCS)]
    yield
    sys.path.remove(str(folder))
    sys.path.remove(str(DOCS))


class TestToy(InterfaceSuite, MovementSuite, HalfSuite, ReductionSuite, ProductSuite, FusedSuite, RandomSuite):
    """Its fused verbs are the defaults, which the NumPy backend has too and is tested with."""

    device = "toy"


class TestToyElementwise(ElementwiseSuite):
    device = "toy"


def test_it_is_short():
    assert len((DOCS / "toy_backend.py").read_text().splitlines()) < 150


def test_the_page_lists_every_member():
    """The tables of docs/extend/backend.md, with the parameters that Backend declares; required verbs first."""
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|", (DOCS / "backend.md").read_text(), re.MULTILINE)
    declared = {
        name: parameters(getattr(nd.Backend, name))[1:] for name in MEMBERS if callable(getattr(nd.Backend, name))
    }
    assert {name: [each for each in given.split(", ") if each] for name, given in rows} == declared
    assert tuple(name for name, _ in rows[: len(REQUIRED)]) == REQUIRED


def test_found_by_entry_point():
    assert nd.device("toy") in nd.all_devices()
    assert nd.ones(3, device="toy").device == nd.device("toy")


def test_memory_is_not_on_the_host():
    """Whatever would share memory copies, or says that it cannot."""
    a = nd.array([[1, 2], [3, 4]], device="toy")
    with pytest.raises(BufferError, match="not on the host"):
        memoryview(a)
    with pytest.raises(BufferError, match="DLPack"):
        a.__dlpack_device__()
    with pytest.raises(ValueError, match="without a copy"):
        np.array(a, copy=False)
    assert np.asarray(a).tolist() == a.tolist() == [[1, 2], [3, 4]]
    assert nd.from_numpy(np.arange(3.0), device="toy").device == nd.device("toy")
    assert nd.from_dlpack(np.arange(3.0), device="toy").tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="copy=False"):
        nd.from_dlpack(np.arange(3.0), device="toy", copy=False)
    with pytest.raises(BufferError, match="cannot share toy"):
        a.__dlpack__()
    assert '"dltensor"' in repr(a.__dlpack__(dl_device=(1, 0)))  # a copy on the host was asked for


def test_everything_else_works():
    a = nd.array(np.arange(12).reshape(3, 4), device="toy")
    assert (a.T @ a)[1:, ::-1].sum().item() == (np.arange(12).reshape(3, 4).T @ np.arange(12).reshape(3, 4))[1:].sum()
    assert a.softmax(-1).sum().item() == pytest.approx(3)
    a[a > 5] = 0
    assert a.max().item() == 5 and a.version > 0
    assert a.to("cpu").device == nd.cpu()
    with pytest.raises(ValueError, match=r"operands on toy\(\) and cpu\(\)"):
        a + nd.ones(4)
