"""What ops do at kinks, poles, infinities, ties and empties; by name."""

import math

import numpy as np
import pytest
from op_table import TOLERANCE

import needle as ndl
from needle import ops
from needle.autograd import gradients

INF, NAN = math.inf, math.nan


def tensor(values, device=None, dtype="float64", **kwargs):
    return ndl.Tensor(np.array(values), device=device, dtype=dtype, **kwargs)


def grad(fn, *inputs):
    """Gradients of the sum of fn(*inputs), as arrays."""
    result = fn(*inputs)
    return [None if g is None else g.numpy() for g in gradients([result], inputs)]


def same(got, expected, dtype="float64"):
    got = got.numpy() if isinstance(got, ndl.Tensor) else got
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(got, expected, **TOLERANCE[dtype])


def guarded_sqrt(x):
    return ops.where(x > 0, ops.sqrt(ops.where(x > 0, x, 1.0)), 0.0)


TAKEN = np.array([True, False])

# ---- Values and derivatives of one variable --------------------------------------------------------------------------

# name: function, x, f(x), f'(x)
POINTS = {
    "relu at 0": (ops.relu, [-1.0, -0.0, 0.0, 1.0], [0, 0, 0, 1], [0, 0, 0, 1]),
    "relu of infinities": (ops.relu, [-INF, INF], [0, INF], [0, 1]),
    "abs at 0": (ops.abs, [-2.0, 0.0, 2.0], [2, 0, 2], [-1, 0, 1]),
    "clip at its bounds": (lambda x: ops.clip(x, -1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0], [-1, -1, 0, 1, 1], [0, 1, 1, 1, 0]),
    "clip without bounds": (lambda x: ops.clip(x), [-2.0, 2.0], [-2, 2], [1, 1]),
    "x ** 0": (lambda x: x**0, [-1.0, 0.0, 2.0], [1, 1, 1], [0, 0, 0]),
    "x ** 1 at 0": (lambda x: x**1, [0.0, -2.0], [0, -2], [1, 1]),
    "x ** 2 at 0": (lambda x: x**2, [0.0, -2.0], [0, 4], [0, -4]),
    "x ** -1 at 0": (lambda x: x**-1, [0.0], [INF], [-INF]),
    "x ** 0.5 at 0": (lambda x: x**0.5, [0.0], [0], [INF]),
    "x ** 0.5 of negatives": (lambda x: x**0.5, [-1.0], [NAN], [NAN]),
    "x ** 3 of negatives": (lambda x: x**3, [-2.0], [-8], [12]),
    "log at 0": (ops.log, [0.0, 1.0], [-INF, 0], [INF, 1]),
    "log of negatives": (ops.log, [-1.0], [NAN], [-1]),
    "log1p near 0": (ops.log1p, [1e-18], [1e-18], [1]),
    "expm1 near 0": (ops.expm1, [1e-18], [1e-18], [1]),
    "exp of large values": (ops.exp, [1000.0, -1000.0], [INF, 0], [INF, 0]),
    "sqrt at 0": (ops.sqrt, [0.0, 4.0], [0, 2], [INF, 0.25]),
    "sqrt of negatives": (ops.sqrt, [-1.0], [NAN], [NAN]),
    "tanh of large values": (ops.tanh, [-1e4, 1e4, INF, -INF], [-1, 1, 1, -1], [0, 0, 0, 0]),
    "sigmoid of large values": (ops.sigmoid, [-1e4, 1e4, -INF, INF], [0, 1, 0, 1], [0, 0, 0, 0]),
    "gelu of large values": (ops.gelu, [-1e4, 1e4, -1e200, 1e200], [0, 1e4, 0, 1e200], [0, 1, 0, 1]),
    "silu of large values": (ops.silu, [-1e4, 1e4], [0, 1e4], [0, 1]),
    "erf of large values": (ops.erf, [-1e4, 1e4], [-1, 1], [0, 0]),
    "1 / x at 0": (lambda x: 1 / x, [0.0], [INF], [-INF]),
    "x / 0": (lambda x: x / 0.0, [1.0, -1.0, 0.0], [INF, -INF, NAN], [INF, INF, INF]),
    "max with ties": (ops.max, [3.0, 1.0, 3.0, 3.0], 3, [1 / 3, 0, 1 / 3, 1 / 3]),
    "min with ties": (ops.min, [3.0, 1.0, 1.0], 1, [0, 0.5, 0.5]),
    "max of infinities": (ops.max, [INF, -INF, INF], INF, [0.5, 0, 0.5]),
    "maximum with itself": (lambda x: ops.maximum(x, x), [1.0, -1.0], [1, -1], [1, 1]),
    "maximum with a number": (lambda x: ops.maximum(x, 1.0), [0.0, 1.0, 2.0], [1, 1, 2], [0, 0.5, 1]),
    "minimum with a number": (lambda x: ops.minimum(x, 1.0), [0.0, 1.0, 2.0], [0, 1, 1], [1, 0.5, 0]),
    "logsumexp of large values": (ops.logsumexp, [1e4, 0.0, -1e4], 1e4, [1, 0, 0]),
    "logsumexp of small values": (ops.logsumexp, [-1e4, -1e4], -1e4 + math.log(2), [0.5, 0.5]),
    "logsumexp with -inf": (ops.logsumexp, [-INF, 0.0, 0.0], math.log(2), [0, 0.5, 0.5]),
    "logsumexp of nothing but -inf": (ops.logsumexp, [-INF, -INF], -INF, [0, 0]),
    "logsumexp with inf": (ops.logsumexp, [INF, 0.0], INF, [NAN, 0]),
    "softmax of large values": (lambda x: ops.softmax(x)[0], [1e4, 0.0, -1e4], 1, [0, 0, 0]),
    "softmax with -inf": (lambda x: ops.softmax(x)[1], [-INF, 0.0, 0.0], 0.5, [0, 0.25, -0.25]),
    "logsoftmax of large values": (lambda x: ops.logsoftmax(x)[2], [1e4, 0.0, -1e4], -2e4, [-1, 0, 1]),
    "logsoftmax with -inf": (lambda x: ops.logsoftmax(x)[1], [-INF, 0.0, 0.0], -math.log(2), [0, 0.5, -0.5]),
    "cumsum of nothing": (lambda x: ops.cumsum(x), np.zeros(0), np.zeros(0), np.zeros(0)),
    "sum of huge values": (ops.summation, [1e308, 1e308], INF, [1, 1]),
    "mean of huge values": (ops.mean, [1e300, 1e300], 1e300, [0.5, 0.5]),
    "var of equal values": (ops.var, [1e8, 1e8, 1e8], 0, [0, 0, 0]),
    "var beside a large mean": (ops.var, [1e8, 1e8 + 1, 1e8 + 2], 2 / 3, [-2 / 3, 0, 2 / 3]),
    "sum of nothing": (ops.summation, np.zeros((0, 3)), 0, np.zeros((0, 3))),
    "mean of nothing": (ops.mean, np.zeros((0, 3)), NAN, np.zeros((0, 3))),
    "0-d": (lambda x: ops.softmax(x.reshape(1)).sum() + x.max() + x.sum() + x.mean() + x.var(), 2.0, 7, 3),
    "0-d item": (lambda x: x[()] * x[...], 3.0, 9, 6),
    "repeated indices": (lambda x: x[[0, 0, 2, 0]], [1.0, 2.0, 3.0], [1, 1, 3, 1], [3, 0, 1]),
    "take from the end": (lambda x: ops.take(x, [-1, -3, -1]), [1.0, 2.0, 3.0], [3, 1, 3], [1, 0, 2]),
    "gather the same": (lambda x: ops.gather(x, [1, 1, 1]), [1.0, 2.0], [2, 2, 2], [0, 3]),
    "embedding with float ids": (lambda x: ops.embedding(np.ones(2, "float32"), x), [[1.0], [2.0]], [[2], [2]], [[0], [2]]),
    "dilate beyond the rank": (lambda x: ops.dilate(x, (1, 9), 1), [[1.0, 2.0]], [[1, 0, 2, 0]], [[1, 1]]),
    "undilate of a rest": (lambda x: ops.undilate(x, (0,), 1), [1.0, 2.0, 3.0], [1, 3], [1, 0, 1]),
    "where with NaN not taken": (lambda x: ops.where(TAKEN, x, NAN), [1.0, NAN], [1, NAN], [1, 0]),
    "where guards sqrt": (guarded_sqrt, [0.0, 4.0], [0, 2], [0, 0.25]),
    "scalar of shape (1,)": (lambda x: ops.mul_scalar(x, np.array([3.0])), [1.0, 2.0], [3, 6], [3, 3]),
    "where of two ints": (lambda x: ops.where(x > 0, 2, 3) * x, [-1.0, 1.0], [-3, 2], [3, 2]),
    "uint8 scalar": (lambda x: x - np.uint8(1), [5.0], [4], [1]),
    "bool scalar": (lambda x: x * True - np.True_, [5.0], [4], [1]),
    "a - a": (lambda x: x - x, [2.0, INF], [0, NAN], [0, 0]),
    "x used three times": (lambda x: x * x * x + x, [2.0], [10], [13]),
    "abs plus sign": (lambda x: ops.abs(x) * ops.sign(x), [-2.0, 3.0], [-2, 3], [1, 1]),
    "float64 numbers are not rounded": (lambda x: ops.where(np.array([False]), x, 0.1) + x * 0.1, [1.0], [0.2], [0.1]),
    "float64 arrays are not rounded": (lambda x: x + np.array([0.1]), [1.0], [1.1], [1]),
    "lists are not rounded": (lambda x: [0.1] * x, [1.0], [0.1], [0.1]),
}  # fmt: skip


@pytest.mark.parametrize(("fn", "x", "value", "slope"), POINTS.values(), ids=POINTS)
def test_point(fn, x, value, slope, device):
    x = tensor(x, device)
    same(fn(x), value)
    same(grad(fn, x)[0], slope)


SECOND = {
    "x ** 0": (lambda x: x**0, [0.0, 2.0], [0, 0]),
    "x ** 1": (lambda x: x**1, [0.0, 2.0], [0, 0]),
    "x ** 2 at 0": (lambda x: x**2, [0.0], [2]),
    "x ** 3 at 0": (lambda x: x**3, [0.0], [0]),
    "power with a tensor of 2": (lambda x: ops.power(x, tensor([2.0], x.device)), [0.0], [2]),
    "power with a tensor of 0": (lambda x: ops.power(x, tensor([0.0], x.device)), [0.0], [0]),
    "relu": (ops.relu, [-1.0, 0.0, 1.0], [0, 0, 0]),
    "max with ties": (lambda x: ops.max(x) ** 2, [2.0, 2.0], [0.5 * 2, 0.5 * 2]),
    "where guards sqrt": (guarded_sqrt, [0.0, 4.0], [0, -1 / 32]),
}


@pytest.mark.parametrize(("fn", "x", "expected"), SECOND.values(), ids=SECOND)
def test_second_derivative_at_a_point(fn, x, expected, device):
    """The sum of the rows of the Hessian, by backward of a gradient."""
    x = tensor(x, device)
    fn(x).sum().backward()
    first = x.grad
    if first.requires_grad:
        first.sum().backward()
        same(x.grad, expected)
    else:
        same(np.zeros(x.shape), expected)


# ---- Two variables --------------------------------------------------------------------------

# name: function, a, b, value, gradient of a, gradient of b
PAIRS = {
    "maximum ties": (ops.maximum, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [2, 2, 3], [0, 0.5, 1], [1, 0.5, 0]),
    "minimum ties": (ops.minimum, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1, 2, 2], [1, 0.5, 0], [0, 0.5, 1]),
    "maximum ties, broadcast": (ops.maximum, [1.0, 2.0, 3.0], 2.0, [2, 2, 3], [0, 0.5, 1], 1.5),
    "maximum with NaN": (ops.maximum, [NAN, 1.0], [1.0, NAN], [NAN, NAN], [0, 0], [0, 0]),
    "power at 0": (ops.power, [0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [1, 0, 0], [0, 1, 0], [0, 0, 0]),
    "power of negatives": (ops.power, [-2.0], [3.0], [-8], [12], [NAN]),
    "where with NaN not taken": (lambda a, b: ops.where(TAKEN, a, b), [1.0, NAN], [NAN, 2.0], [1, 2], [1, 0], [0, 1]),
    "divide by 0": (ops.divide, [1.0, 0.0], [0.0, 0.0], [INF, NAN], [INF, INF], [-INF, NAN]),
    "setitem": (lambda a, b: ops.setitem(a, [0, 2], b), [1.0, 2.0, 3.0], [5.0, 6.0], [5, 2, 6], [0, 1, 0], [1, 1]),
    "setitem of one number": (lambda a, b: ops.setitem(a, slice(1, None), b), [1.0, 2.0, 3.0], 7.0, [1, 7, 7], [1, 0, 0], 2),
    "setitem hides NaN": (lambda a, b: ops.setitem(a, 0, b), [NAN, 2.0], 1.0, [1, 2], [0, 1], 1),
    "setitem of nothing": (lambda a, b: ops.setitem(a, slice(0, 0), b), [1.0, 2.0], 7.0, [1, 2], [1, 1], 0),
    "0-d with 0-d": (lambda a, b: a @ b if a.ndim else a * b, 2.0, 3.0, 6, 3, 2),
    "nothing with nothing": (ops.matmul, np.zeros((2, 0)), np.zeros((0, 3)), np.zeros((2, 3)), np.zeros((2, 0)), np.zeros((0, 3))),
    "huge and small": (ops.multiply, [1e200], [1e-200], [1], [1e-200], [1e200]),
}  # fmt: skip


@pytest.mark.parametrize(("fn", "a", "b", "value", "da", "db"), PAIRS.values(), ids=PAIRS)
def test_pair(fn, a, b, value, da, db, device):
    inputs = tensor(a, device), tensor(b, device)
    same(fn(*inputs), value)
    got = grad(fn, *inputs)
    same(got[0], da)
    same(got[1], db)


def test_all_minus_inf_row_of_softmax(device):
    """As NumPy and PyTorch: NaN in that row, and in no other."""
    y = ops.softmax(tensor([[-INF, -INF], [0.0, 0.0]], device))
    same(y, [[NAN, NAN], [0.5, 0.5]])
    same(ops.logsoftmax(tensor([[-INF, -INF], [0.0, 0.0]], device)), [[NAN, NAN], [-math.log(2)] * 2])


@pytest.mark.parametrize("axes", [0, 1, None, (0, 1)])
def test_ties_share_along_each_axis(axes, device):
    x = np.array([[1.0, 2.0, 2.0], [1.0, 2.0, 0.0]])
    won = x == x.max(axes, keepdims=True)
    same(grad(lambda t: ops.max(t, axes), tensor(x, device))[0], won / won.sum(axes, keepdims=True))


# ---- Dtypes --------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [ops.add, ops.multiply, ops.divide, ops.power, ops.maximum, ops.subtract, ops.matmul])
def test_mixed_floats(fn, device):
    """The result is promoted, gradients have the dtype of their input."""
    a, b = tensor([1.5, 2.5], device, "float32"), tensor([0.5, 3.0], device, "float64")
    for x, y in [(a, b), (b, a)]:
        result = fn(x, y)
        assert result.dtype == "float64"
        dx, dy = gradients([result], [x, y])
        assert (dx.dtype, dy.dtype) == (x.dtype, y.dtype)


@pytest.mark.parametrize(
    ("fn", "expected", "dtype"),
    [
        (lambda i: i + 1, [2, 3, -3], "int64"),
        (lambda i: i * i, [1, 4, 16], "int64"),
        (lambda i: i - 1, [0, 1, -5], "int64"),
        (lambda i: 1 - i, [0, -1, 5], "int64"),
        (lambda i: -i, [-1, -2, 4], "int64"),
        (lambda i: i**2, [1, 4, 16], "int64"),
        (lambda i: i.sum(), -1, "int64"),
        (lambda i: i.max(), 2, "int64"),
        (lambda i: ops.maximum(i, 0), [1, 2, 0], "int64"),
        (lambda i: ops.where(i > 0, i, 7), [1, 2, 7], "int64"),
        (lambda i: i[::-1], [-4, 2, 1], "int64"),
        (lambda i: ops.abs(i), [1, 2, 4], "int64"),
        (lambda i: ops.stack([i, i])[0], [1, 2, -4], "int64"),
        (lambda i: i / 2, [0.5, 1, -2], "float64"),
        (lambda i: i > 1, [False, True, False], "bool"),
    ],
)
def test_int_tensors(fn, expected, dtype, device):
    """Ints compute as in NumPy and have no gradient."""
    i = ndl.Tensor(np.array([1, 2, -4]), device=device)
    y = fn(i)
    assert not i.requires_grad and not y.requires_grad
    assert np.array_equal(y.numpy(), expected) and y.numpy().dtype.kind == np.dtype(dtype).kind


def test_int_with_float(device):
    i, x = ndl.Tensor(np.array([1, 2]), device=device), tensor([0.5, 1.5], device, "float64")
    same(x * i, [0.5, 3])
    same(grad(lambda x: x * i, x)[0], [1, 2])
    same(i - x, [0.5, 0.5])


def test_astype_cuts_and_keeps_the_graph(device):
    x = tensor([1.5, -2.5], device)
    assert ops.astype(x, "float64") is x
    y = ops.astype(x, "float32")
    assert y.dtype == "float32" and y.requires_grad
    slope = grad(lambda x: ops.astype(x, "float32") * 2, x)[0]
    assert slope.dtype == np.float64
    same(slope, [2, 2])
    i = ops.astype(x, "int64")
    assert np.array_equal(i.numpy(), [1, -2]) and not i.requires_grad


# ---- Writing --------------------------------------------------------------------------


def test_setitem_leaves_its_input(device):
    x = tensor([1.0, 2.0], device)
    y = ops.setitem(x, 0, 9.0)
    same(x, [1, 2])
    same(y, [9, 2])


def test_assignment_to_a_constant_writes_in_place(device):
    x = tensor([1.0, 2.0, 3.0], device, requires_grad=False)
    data = x.realize_cached_data()
    x[1:] = tensor([8.0, 9.0], device, requires_grad=False)
    x[0] = 7
    same(x, [7, 8, 9])
    assert x.realize_cached_data() is data and x.is_leaf()


def test_assignment_is_recorded(device):
    x, v = tensor([1.0, 2.0, 3.0], device), tensor([5.0], device)
    y = x * 2
    y[1:2] = v * 3
    y[0] = 0.0
    same(y, [0, 15, 6])
    assert [type(y.op).__name__, y.is_leaf(), y.requires_grad] == ["SetItem", False, True]
    (y * y).sum().backward()
    same(x.grad, [0, 0, 24])
    same(v.grad, [90])


def test_assignment_of_a_recorded_value_to_a_constant(device):
    x, v = tensor([1.0, 2.0], device, requires_grad=False), tensor([5.0], device)
    x[:1] = v * 2
    same(x, [10, 2])
    assert x.requires_grad
    x.sum().backward()
    same(v.grad, [2])


def test_assignment_to_a_leaf_within_no_grad(device):
    x = tensor([1.0, 2.0], device)
    with ndl.no_grad():
        x[0] = 5.0
    same(x, [5, 2])
    assert x.requires_grad and x.is_leaf()


def test_assignment_errors(device):
    x = tensor([1.0, 2.0], device)
    with pytest.raises(RuntimeError, match="a leaf that requires a gradient cannot be written to"):
        x[0] = 1.0
    y = x * 2
    z = y * y
    with pytest.raises(
        RuntimeError, match="has been used already: writing to it would change what was computed from it"
    ):
        y[0] = 1.0
    same(x, [1, 2])
    same(y, [2, 4])
    z.sum().backward()
    same(x.grad, [8, 16])


@pytest.mark.parametrize(
    ("key", "value"), [(5, 1.0), (slice(0, 2), np.zeros(3)), ((0, 0), 1.0)], ids=["key", "value", "rank"]
)
def test_failed_assignment_changes_nothing(key, value, device):
    x = tensor([1.0, 2.0], device)
    y = x * 2
    with pytest.raises((IndexError, ValueError)):
        y[key] = value
    same(y, [2, 4])
    assert not y.is_leaf()
    y.sum().backward()
    same(x.grad, [2, 2])


# ---- Tuples --------------------------------------------------------------------------


def test_split_and_stack_are_inverse(device):
    x = tensor(np.arange(24.0).reshape(2, 3, 4), device)
    for axis in (0, 1, 2, -1):
        same(ops.stack(ops.split(x, axis), axis), x.numpy())
        parts = [tensor(np.arange(6.0).reshape(2, 3) + i, device) for i in range(3)]
        back = ops.split(ops.stack(parts, axis), axis)
        for a, b in zip(parts, back, strict=True):
            same(a, b.numpy())


def test_tensor_tuple(device):
    x = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device)
    t = ops.split(x, 0)
    assert isinstance(t, ndl.TensorTuple) and len(t) == t.num_outputs == 3
    same(t[1], [3, 4])
    same(t[-1], [5, 6])
    assert [y.numpy().tolist() for y in t[1:]] == [[3, 4], [5, 6]]
    assert [y.numpy().tolist() for y in t] == [y.numpy().tolist() for y in t.tuple()] == x.numpy().tolist()
    assert isinstance(t.tuple(), tuple)
    assert repr(t).startswith("needle.TensorTuple(needle.Tensor([1., 2.]")
    for i in (3, -4):
        with pytest.raises(IndexError, match=f"entry {i} of a tuple of 3"):
            t[i]


def test_tensor_tuple_add(device):
    x = tensor([[1.0, 2.0], [3.0, 4.0]], device)
    total = ops.split(x, 0) + ops.split(x * x, 1)
    assert isinstance(total, ndl.TensorTuple)
    same(total[0], [2, 11])
    same(total[1], [7, 20])
    same(grad(lambda x: (ops.split(x, 0) + ops.split(x * x, 1))[0], x)[0], [[3, 1], [6, 0]])
    with pytest.raises(ValueError, match=r"TensorTuple of 2 \+ one of 1"):
        ops.split(x, 0) + ops.split(x[:1], 0)
    with pytest.raises(ValueError, match=r"TensorTuple of 2 \+ 1"):
        ops.split(x, 0) + 1


def test_tensor_tuple_detach(device):
    t = ops.split(tensor([[1.0], [2.0]], device) * 2, 0)
    free = t.detach()
    assert t.requires_grad and not free.requires_grad and not free[0].requires_grad
    assert free.is_leaf() and len(free) == 2
    same(free[1], [4])


def test_unused_entries_have_gradient_zero(device):
    x = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device)
    same(grad(lambda x: ops.split(x, 0)[1] ** 2, x)[0], [[0, 0], [6, 8], [0, 0]])
    t = ops.split(x, 0)
    same(gradients([t[0] * t[0] + t[2]], [x])[0], [[2, 4], [0, 0], [1, 1]])


def test_empty_tuples(device):
    assert len(ops.split(tensor(np.zeros((0, 2)), device), 0)) == 0
    assert ops.split(tensor(np.zeros((0, 2)), device), 0).tuple() == ()


def test_make_tuple_gives_its_tensors_back(device):
    a, b = tensor([1.0], device), tensor([2.0], device)
    t = ops.make_tuple(a, b)
    assert t[0] is a and t[1] is b


# ---- Constants beside tensors --------------------------------------------------------------------------


def test_inputs_that_are_no_tensors_have_no_node(device):
    x = tensor([1.0, 2.0], device)
    for y in (x + np.ones(2), np.ones(2) + x, x * [1.0, 2.0], ops.maximum(np.ones(2), x)):
        assert isinstance(y, ndl.Tensor) and y.device == device
        assert [i.requires_grad for i in y.inputs].count(True) == 1


def test_numpy_leaves_operators_to_us(device):
    x = tensor([1.0, 2.0], device)
    for y in (np.float64(2) * x, np.ones(2) - x, np.array(3.0) / x, np.ones((2, 2)) @ x, 2.0**x):
        assert isinstance(y, ndl.Tensor)


def test_unused_input_has_no_gradient(device):
    x, y = tensor([1.0], device), tensor([2.0], device)
    assert gradients([x * 2], [x, y])[1] is None
    (x * 2).sum().backward()
    assert y.grad is None


def test_comparisons_cut_the_graph(device):
    x = tensor([1.0, -2.0], device)
    same(grad(lambda x: x * (x > 0), x)[0], [1, 0])


def test_truth_of_a_comparison(device):
    x = tensor([1.0], device)
    assert bool(x > 0) and not bool(x < 0) and bool(x)
    assert (x == x) is True and (x != tensor([1.0], device)) is True


# ---- Networks --------------------------------------------------------------------------


def test_dropout(device):
    """Kept elements are divided by 1 - p, and the gradient goes through the same ones; the mask is np.random's."""
    x = tensor(np.ones((50, 40)), device)
    np.random.seed(0)  # noqa: NPY002  the generator that the course's numbers come from
    y = ops.dropout(x, 0.25)
    kept = y.numpy() != 0
    assert set(np.unique(y.numpy())) == {0, 1 / 0.75}
    assert abs(kept.mean() - 0.75) < 4 * (0.25 * 0.75 / kept.size) ** 0.5
    same(gradients([y * y], [x])[0], kept * 2 / 0.75**2)
    np.random.seed(0)  # noqa: NPY002
    same(ops.dropout(x, 0.25), y.numpy())
    assert ops.dropout(x, 0.25, training=False) is x


def test_batch_norm_keeps_statistics(device):
    values = np.arange(12.0).reshape(4, 3) ** 1.5
    x = tensor(values, device)
    mean, var = (
        tensor([1.0, 2.0, 3.0], device, requires_grad=False),
        tensor([0.5, 0.5, 0.5], device, requires_grad=False),
    )
    data = mean.realize_cached_data()
    y = ops.batch_norm(x, running_mean=mean, running_var=var, momentum=0.1)
    same(mean, 0.9 * np.array([1.0, 2.0, 3.0]) + 0.1 * values.mean(0))
    same(var, 0.9 * 0.5 + 0.1 * values.var(0))
    assert mean.realize_cached_data() is data and not mean.requires_grad
    before = mean.numpy()
    y.sum().backward()
    ops.batch_norm(x, running_mean=mean, running_var=var, training=False)
    same(mean, before)


def test_batch_norm_in_lazy_mode_keeps_statistics_once(device):
    x = tensor(np.arange(6.0).reshape(3, 2), device)
    mean, var = tensor([0.0, 0.0], device, requires_grad=False), tensor([1.0, 1.0], device, requires_grad=False)
    with ndl.lazy_mode():
        y = ops.batch_norm(x, running_mean=mean, running_var=var, momentum=0.5)
        (y * y).sum().backward()
        y.numpy()
    same(mean, 0.5 * x.numpy().mean(0))


def test_norms_of_equal_values(device):
    x = tensor(np.full((3, 4), 7.0), device)
    for fn in (ops.layer_norm, ops.batch_norm):
        same(fn(x), np.zeros((3, 4)))
        same(grad(lambda x, fn=fn: fn(x) * 1, x)[0], np.zeros((3, 4)))


def test_max_pool_ties_go_to_the_first(device):
    x = tensor(np.ones((1, 2, 2, 1)), device)
    same(grad(lambda x: ops.max_pool2d(x, 2), x)[0].reshape(2, 2), [[1, 0], [0, 0]])


def test_max_pool_of_negatives_does_not_see_the_padding(device):
    x = tensor(np.full((1, 2, 2, 1), -5.0), device)
    same(ops.max_pool2d(x, 2, stride=1, padding=1), np.full((1, 3, 3, 1), -5.0))


@pytest.mark.parametrize(
    "kinds", [("float32", "float32"), ("float64", "float64"), ("float32", "float64"), ("float32", "int64")]
)
@pytest.mark.parametrize(
    "view", [np.s_[:], np.s_[::-2], np.s_[:, ::3], np.s_[:0]], ids=["all", "back", "columns", "none"]
)
def test_mean_squared_error_is_what_it_is_made_of(kinds, view, device):
    """Bit for bit, value and gradients."""
    a, b = (
        tensor(np.random.default_rng(i).normal(size=(6, 7)) * 3, device, kind)[view] for i, kind in enumerate(kinds)
    )
    twin = (a - b) * (a - b)
    for got, expected in zip(
        [ops.mean_squared_error(a, b), *gradients([ops.mean_squared_error(a, b)], [a, b])],
        [twin.mean(), *gradients([twin.mean()], [a, b])],
        strict=True,
    ):
        assert (got is None) == (expected is None)
        if got is not None:
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_cross_entropy_of_large_logits(device):
    x = tensor([[1e4, 0.0, -1e4], [0.0, 1e4, 0.0]], device)
    same(ops.cross_entropy(x, [2, 1], reduction="none"), [2e4, 0])
    same(grad(lambda x: ops.cross_entropy(x, [2, 1], reduction="sum"), x)[0], [[1, 0, -1], [0, 0, 0]])


def test_cross_entropy_with_minus_inf(device):
    x = tensor([[-INF, 0.0, 0.0]], device)
    same(ops.cross_entropy(x, [1]), math.log(2))
    same(grad(lambda x: ops.cross_entropy(x, [1]), x)[0], [[0, -0.5, 0.5]])
    same(ops.cross_entropy(x, [0]), INF)


def test_cross_entropy_of_ignored_rows(device):
    x = tensor([[1.0, 2.0], [3.0, 5.0]], device)
    assert math.isnan(ops.cross_entropy(x, [-1, -1], ignore_index=-1).item())
    same(ops.cross_entropy(x, [-1, -1], "sum", ignore_index=-1), 0)
    same(grad(lambda x: ops.cross_entropy(x, [-1, 1], ignore_index=-1), x)[0][0], [0, 0])


def test_attention_of_a_query_that_sees_nothing(device):
    q, k, v = (tensor(np.random.default_rng(i).standard_normal((1, 2, 3)), device) for i in range(3))
    mask = np.array([[False, False], [True, True]])
    y = ops.scaled_dot_product_attention(q, k, v, mask)
    same(y.numpy()[0, 0], [0, 0, 0])
    grads = grad(lambda *a: ops.scaled_dot_product_attention(*a, mask), q, k, v)
    assert all(np.isfinite(g).all() for g in grads)
    same(grads[0][0, 0], [0, 0, 0])


def test_causal_attention_does_not_look_ahead(device):
    q, k, v = (tensor(np.random.default_rng(i).standard_normal((1, 3, 2)), device) for i in range(3))
    same(ops.scaled_dot_product_attention(q, k, v, causal=True).numpy()[0, 0], v.numpy()[0, 0])
    first = gradients([ops.scaled_dot_product_attention(q, k, v, causal=True)[:, 0]], [k, v])
    assert not first[0].numpy()[:, 1:].any() and not first[1].numpy()[:, 1:].any()


def test_attention_of_large_scores(device):
    q, k = tensor([[1e3, 0.0], [0.0, 1e3]], device), tensor([[1e3, 0.0], [0.0, 1e3]], device)
    v = tensor([[1.0], [2.0]], device)
    same(ops.scaled_dot_product_attention(q, k, v), [[1], [2]])
    assert all(np.isfinite(g).all() for g in grad(ops.scaled_dot_product_attention, q, k, v))


# ---- Where all values are equal --------------------------------------------------------------------------


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_std_of_equal_values_has_gradient_0(ddof, keepdims, device):
    rows = np.array([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [1.0, 2.0, 6.0]])
    x = tensor(rows, device)
    ops.std(x, 1, keepdims, ddof).sum().backward()
    apart = rows[2] - 3.0
    expected = apart / (np.sqrt((apart**2).sum() / (3 - ddof)) * (3 - ddof))
    np.testing.assert_allclose(x.grad.numpy(), [[0, 0, 0], [0, 0, 0], expected], rtol=1e-5, atol=1e-7)
    again = tensor(rows, device)
    (first,) = gradients([ops.std(again, 1, keepdims, ddof).sum()], [again])
    (second,) = gradients([(first * first * first).sum()], [again])
    assert np.isfinite(second.numpy()).all() and not second.numpy()[:2].any()


def test_std_of_one_value_and_of_none():
    x = ndl.Tensor([[5.0]])
    x.std(1).sum().backward()
    assert x.grad.tolist() == [[0.0]]
    assert np.isnan(ops.std(ndl.Tensor([[5.0]]), 1, ddof=1).item())
