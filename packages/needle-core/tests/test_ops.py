"""Each property of every row of op_table.py, on every device."""

import inspect
from collections import Counter
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from op_table import ABSTRACT, DIFFERENTIABLE, HELPERS, NON_DIFFERENTIABLE, ROWS, TOLERANCE, outputs

import needle as ndl
from needle import ops
from needle.autograd import Op, find_topo_sort, gradients
from needle.testing import check_gradients
from needle_ndarray.testing import each

every_row = each("row", ROWS)
every_differentiable_row = each("row", DIFFERENTIABLE)


def projections(results, requires_grad=False):
    """A random out_grad for each result."""
    rng = np.random.default_rng(1)
    return [
        ndl.Tensor(rng.standard_normal(y.shape), device=y.device, dtype=y.dtype, requires_grad=requires_grad)
        for y in results
    ]


def run(row, tensors):
    """The results of a row and the gradients of its inputs, as tensors."""
    results = outputs(row.fn(*tensors))
    return results, gradients(results, tensors, projections(results)) if row.order else []


def values(tensors):
    return [None if t is None else t.numpy() for t in tensors]


def assert_close(got, expected, dtype, context=""):
    assert len(got) == len(expected), context
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None), f"{context}: gradient {a}, expected {b}"
        if b is not None:
            assert a.shape == np.shape(b), f"{context}: shape {a.shape}, expected {np.shape(b)}"
            np.testing.assert_allclose(a, b, **TOLERANCE[dtype], err_msg=context)


# ---- Coverage --------------------------------------------------------------------------


def public(kind):
    """Names that needle.ops exports, of functions or of classes."""
    return {name for name in ops.__all__ if kind(getattr(ops, name))}


def test_every_function_has_a_row():
    covered = {row.name for row in ROWS} | HELPERS.keys()
    assert public(inspect.isfunction) <= covered, "add rows to op_table.py"
    assert public(inspect.isfunction) >= NON_DIFFERENTIABLE
    assert {row.name for row in ROWS if not row.order} == NON_DIFFERENTIABLE, (
        "an op without rows, or without being listed"
    )


def test_rows_call_what_they_are_called(monkeypatch):
    """The name of a row is no promise: calls are counted."""
    called = set()

    def counted(name, function):
        def call(*args, **kwargs):
            called.add(name)
            return function(*args, **kwargs)

        return call

    for name in public(inspect.isfunction):
        monkeypatch.setattr(ops, name, counted(name, getattr(ops, name)))
        monkeypatch.setattr(ops.PLAIN, name, getattr(ops, name))  # what methods of Tensor call
    for row in ROWS:
        called.clear()
        with suppress(Exception):  # what goes wrong in a row is for test_forward to say
            row.fn(*row.tensors(ndl.cpu()))
        assert row.name in called or not hasattr(ops, row.name) or inspect.isclass(getattr(ops, row.name)), row.id


def test_every_class_is_in_a_graph():
    seen = set()
    for row, dtype in product(DIFFERENTIABLE, TOLERANCE):
        with suppress(Exception):  # as above
            inputs = row.tensors(ndl.cpu(), dtype)
            results = outputs(row.fn(*inputs))
            grads = gradients(results, inputs, projections(results, requires_grad=True))  # recorded, even where linear
            nodes = find_topo_sort([*results, *[g for g in grads if g is not None]])
            seen |= {type(node.op).__name__ for node in nodes}
    classes = public(lambda value: inspect.isclass(value) and issubclass(value, Op))
    assert classes - ABSTRACT <= seen, "add rows to op_table.py"


def test_ids_are_unique():
    assert not [name for name, n in Counter(row.id for row in ROWS).items() if n > 1]


# ---- Properties --------------------------------------------------------------------------


@every_row
def test_forward(row, device):
    """The values of NumPy in float64; floats keep their dtype, and the device stays."""
    for dtype in TOLERANCE:
        results = outputs(row.fn(*row.tensors(device, dtype)))
        with np.errstate(all="ignore"):
            expected = row.ref(*[x.astype("float64") for x in row.arrays(dtype)])
        expected = [np.asarray(e) for e in (expected if isinstance(expected, list) else [expected])]
        assert_close(values(results), expected, dtype)
        for y, e in zip(results, expected, strict=True):
            assert y.dtype == (dtype if e.dtype == np.float64 else e.dtype)
            assert y.device == device
            assert y.requires_grad == bool(row.order)
            assert row.order or y.is_leaf()


@every_differentiable_row
def test_gradients(row, device):
    check_gradients(row.fn, *row.tensors(device), order=row.order)


@every_differentiable_row
def test_backward(row, device):
    """`.grad` has its input's shape, dtype and device and the bits of `gradients`; inputs stay; float32 is float64, rounded."""
    found = {}
    for dtype in TOLERANCE:
        inputs = [ndl.Tensor(x, dtype=dtype, device=device) for x in row.arrays("float32")]
        before = values(inputs)
        results, grads = run(row, inputs)
        total = sum(((y * v).sum() for y, v in zip(results, projections(results), strict=True)), start=0.0)
        total.backward()
        for x, g, b in zip(inputs, grads, before, strict=True):
            assert (x.grad is None) == (g is None)
            assert g is None or (x.grad.shape, x.grad.dtype, x.grad.device) == (x.shape, dtype, device)
            assert g is None or np.array_equal(x.grad.numpy(), g.numpy())
            assert np.array_equal(x.numpy(), b)
        found[dtype] = values(grads)
    assert_close(found["float32"], found["float64"], "float32")


@every_row
def test_lazy_gives_the_same_bits(row, device):
    eager = [values(tensors) for tensors in run(row, row.tensors(device))]
    with ndl.lazy_mode():
        lazy = [values(tensors) for tensors in run(row, row.tensors(device))]
    for got, expected in zip(lazy, eager, strict=True):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert (a is None and b is None) or (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True))


# ---- Views --------------------------------------------------------------------------


def transposed(x):
    return x.permute(tuple(range(x.ndim - 1, -1, -1))).compact().permute(tuple(range(x.ndim - 1, -1, -1)))


def sliced(x):
    room = x.device.full(tuple(2 * n + 1 for n in x.shape) or (3,), 7.0, x.dtype)
    places = tuple(slice(1, None, 2) for _ in x.shape) or 1
    room[places] = x
    return room[places]


def reversed_(x):
    return x.flip().compact()[tuple(slice(None, None, -1) for _ in x.shape)]


def broadcast(x):
    """The first entry along axis 0, everywhere"""
    return x[:1].broadcast_to(x.shape) if x.ndim and x.shape[0] > 1 else x


VIEWS = [transposed, sliced, reversed_, broadcast]


@pytest.mark.parametrize("view", VIEWS, ids=lambda f: f.__name__)
def test_views_are_views(view, device):
    x = ndl.Tensor(np.arange(6.0).reshape(2, 3), device=device).realize_cached_data()
    assert not view(x).is_compact()
    assert view is broadcast or np.array_equal(view(x).numpy(), x.numpy())


@every_row
def test_views_as_inputs(row, device):
    """An op does not see how its inputs lie in memory."""
    for view in VIEWS:
        arrays = [view(x.realize_cached_data()) for x in row.tensors(device)]
        compact = [ndl.Tensor.make_const(a.compact().copy(), requires_grad=True) for a in arrays]
        strided = [ndl.Tensor.make_const(a, requires_grad=True) for a in arrays]
        for got, expected in zip(run(row, strided), run(row, compact), strict=True):
            assert_close(values(got), values(expected), "float64", view.__name__)
