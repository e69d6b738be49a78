"""docs/toy_engine.py passes the rows of op_table.py for the ops that it has: values, gradients and second gradients."""

import importlib.util
import math
from collections import Counter
from pathlib import Path

import numpy as np
import op_rows
import op_table
import pytest
from op_table import ROWS, TOLERANCE, outputs

import needle as ndl
from needle.autograd import gradients
from needle_ndarray.testing import each

FILE = Path(__file__).resolve().parents[3] / "docs" / "toy_engine.py"
OPS = "add multiply divide negate exp log tanh relu add_scalar mul_scalar power_scalar matmul summation reshape"
OPS = {*OPS.split(), "broadcast_to", "transpose"}
HERE = [row for row in ROWS if row.name in OPS]

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="docs/ is not beside this package")


@pytest.fixture(scope="module")
def toy():
    spec = importlib.util.spec_from_file_location("toy_engine", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def rows_call_it(toy, monkeypatch):
    """The rows look the functions up in `ops` when they are called."""
    for module in (op_rows, op_table):
        monkeypatch.setattr(module, "ops", toy)


def weights(shape):
    return np.cos(np.arange(math.prod(shape)).reshape(shape))


def test_every_op_has_rows():
    assert {row.name for row in HERE} == OPS
    assert min(Counter(row.name for row in HERE).values()) >= 4


@each("row", HERE)
def test_values(row, toy, rows_call_it):
    arrays = row.arrays()
    got = row.fn(*[toy.Tensor(x) for x in arrays])
    np.testing.assert_allclose(got.numpy(), row.ref(*arrays), **TOLERANCE["float64"])
    assert got.shape == np.shape(row.ref(*arrays))


@each("row", HERE)
def test_gradients_are_those_of_needle(row, toy, monkeypatch):
    """First and second derivatives; Needle's own are compared with finite differences in test_ops.py."""
    tensors = row.tensors(ndl.cpu())
    (y,) = outputs(row.fn(*tensors))

    def product(y):
        return (y * ndl.Tensor(weights(y.shape), dtype="float64", requires_grad=False)).sum()

    expected = gradients([product(y)], tensors)
    total = sum((product(g) for g in expected), start=0.0)
    second = gradients([total], tensors) if total.requires_grad else [None] * len(tensors)

    mine = [toy.Tensor(x) for x in row.arrays()]
    with monkeypatch.context() as patched:  # a test goes through many rows
        for module in (op_rows, op_table):
            patched.setattr(module, "ops", toy)
        result = row.fn(*mine)
    toy.summation(result * toy.Tensor(weights(y.shape))).backward()
    found = [x.grad for x in mine]
    for g, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(g.numpy(), e.numpy(), **TOLERANCE["float64"])
    for x in mine:
        x.grad = None
    total = toy.Tensor(0.0)
    for g in found:
        total = total + toy.summation(g * toy.Tensor(weights(g.shape)))
    total.backward()
    for x, e in zip(mine, second, strict=True):
        got = np.zeros(x.shape) if x.grad is None else x.grad.numpy()
        np.testing.assert_allclose(got, np.zeros(x.shape) if e is None else e.numpy(), rtol=1e-9, atol=1e-9)


def test_a_deep_graph(toy):
    """A chain far deeper than Python's stack."""
    x = y = toy.Tensor([1.0])
    for _ in range(5000):
        y = y + x
    y.backward()
    assert x.grad.numpy() == [5001.0]


def test_it_is_short():
    assert len(FILE.read_text().splitlines()) < 190
