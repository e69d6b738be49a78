"""Norms, cross-entropy and attention as functions: what they accept, what they say, and that PyTorch agrees."""

# ruff: noqa: E501  (a row of the table is one line)

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing import calls

ARRAYS = {
    "x": ((2, 3, 4), "float32"),
    "x64": ((2, 3, 4), "float64"),
    "x5": ((2, 3, 5), "float32"),
    "w": ((4,), "float32"),
    "w5": ((5,), "float32"),
    "w64": ((4,), "float64"),
    "g": ((2, 3), "float32"),
    "g64": ((2, 3), "float64"),
    "i": ((2, 3), "int64"),
    "i32": ((2, 3), "int32"),
    "i6": ((6,), "int64"),
    "k": ((2, 5, 4), "float32"),
    "v": ((2, 5, 6), "float32"),
    "o": ((2, 3, 6), "float32"),
    "k3": ((3, 5, 4), "float32"),
    "m": ((3, 5), "bool"),
    "m4": ((3, 4), "bool"),
    "empty": ((3, 0), "float32"),
    "zero": ((), "float32"),
}
#: (call, the error and its one line)
ERRORS = [
    ("layer_norm([1.0])", "TypeError: layer_norm: x: expected an NDArray, got list"),
    ("layer_norm(zero)", "ValueError: layer_norm: x has shape (), expected (..., n), n > 0"),
    ("layer_norm(empty)", "ValueError: layer_norm: x has shape (3, 0), expected (..., n), n > 0"),
    ("layer_norm(x, w5)", "ValueError: layer_norm: weight has shape (5,), expected (4,) as x is (2, 3, 4)"),
    ("layer_norm(x, w, x)", "ValueError: layer_norm: bias has shape (2, 3, 4), expected (4,) as x is (2, 3, 4)"),
    ("layer_norm(x, w64)", "TypeError: layer_norm: weight is float64, expected float32"),
    ("layer_norm(x, 3)", "TypeError: layer_norm: weight: expected an NDArray, got int"),
    ("layer_norm(x, there(w))", "ValueError: layer_norm: weight is on cpu_numpy(), x on cpu(); move it with .to(device)"),
    ("layer_norm(x, eps=-1)", "ValueError: layer_norm: eps = -1: expected a number from 0 on"),
    ("layer_norm(x, eps=nd.nan)", "ValueError: layer_norm: eps = nan: expected a number from 0 on"),
    ("layer_norm(x, eps='a')", "ValueError: layer_norm: eps = 'a': expected a number from 0 on"),
    ("layer_norm_grad(x5, x)", "ValueError: layer_norm_grad: grad has shape (2, 3, 5), expected (2, 3, 4) as x is (2, 3, 4)"),
    ("layer_norm_grad(x64, x)", "TypeError: layer_norm_grad: grad is float64, expected float32"),
    ("layer_norm_grad(None, x)", "TypeError: layer_norm_grad: grad: expected an NDArray, got NoneType"),
    ("nd.linear(x, w5, w)", "ValueError: matmul: (2, 3, 4) @ (5,): inner sizes 4 and 5 differ"),
    ("nd.linear(x, nd.eye(4), None)", "TypeError: expected an NDArray, a NumPy array or a number, got NoneType"),
    ("nd.linear(3, nd.eye(4), w)", "ValueError: matmul: () @ (4, 4): 0-d operands, use * instead"),
    ("nd.linear(x, nd.eye(4), w5)", "BroadcastError: add: shapes (2, 3, 4) and (5,) do not broadcast"),
    ("nd.linear(x, nd.eye(4), there(w))", "ValueError: add: operands on cpu() and cpu_numpy(); move one with .to(device)"),
    ("batch_norm(x, w5)", "ValueError: batch_norm: weight has shape (5,), expected (4,) as x is (2, 3, 4)"),
    ("batch_norm(zero)", "ValueError: batch_norm: x has shape (), expected (..., n), n > 0"),
    ("batch_norm_grad(x, x, w5, w)", "ValueError: batch_norm_grad: mean has shape (5,), expected (4,) as x is (2, 3, 4)"),
    ("batch_norm_grad(x, x, w, w64)", "TypeError: batch_norm_grad: var is float64, expected float32"),
    ("batch_norm_grad(x, x, w, None)", "TypeError: batch_norm_grad: var: expected an NDArray, got NoneType"),
    ("nd.softmax_grad(x, x5)", "ValueError: softmax_grad: grad has shape (2, 3, 4), expected (2, 3, 5) as y"),
    ("nd.softmax_grad(x, 3)", "TypeError: softmax_grad: expected an NDArray, got int"),
    ("nd.softmax_grad(x, there(x))", "ValueError: softmax_grad: grad is on cpu(), y on cpu_numpy(); move it with .to(device)"),
    ("nd.softmax_grad(empty, empty)", "ValueError: softmax_grad: y has shape (3, 0), expected (..., n), n > 0"),
    ("nd.log_softmax_grad(x, x, 3)", "AxisError: log_softmax_grad: axis 3 is out of bounds for 3 axes"),
    ("nd.logsumexp_grad(w, x, g, -1)", "ValueError: logsumexp_grad: grad has shape (4,), expected (2, 3) or (2, 3, 1) as x is (2, 3, 4)"),
    ("cross_entropy(x, i6)", "ValueError: cross_entropy: labels has shape (6,), expected (2, 3) as logits is (2, 3, 4)"),
    ("cross_entropy(x, g)", "TypeError: cross_entropy: labels is float32, expected integers"),
    ("cross_entropy(x, 3)", "TypeError: cross_entropy: labels: expected an NDArray, got int"),
    ("cross_entropy(x, i + 4)", "IndexError: cross_entropy: label 5 is out of range for 4 classes"),
    ("cross_entropy(x, i32 - 2)", "IndexError: cross_entropy: label -1 is out of range for 4 classes"),
    ("cross_entropy(x, there(i))", "ValueError: cross_entropy: labels is on cpu_numpy(), logits on cpu(); move it with .to(device)"),
    ("cross_entropy(empty, i)", "ValueError: cross_entropy: logits has shape (3, 0), expected (..., c), c > 0"),
    ("cross_entropy_grad(g64, x, i)", "TypeError: cross_entropy_grad: grad is float64, expected float32"),
    ("cross_entropy_grad(w, x, i)", "ValueError: cross_entropy_grad: grad has shape (4,), expected (2, 3) as logits is (2, 3, 4)"),
    ("attention(x, k, w)", "ValueError: attention: v has shape (4,), expected (2, 5, e) as q is (2, 3, 4) and k is (2, 5, 4)"),
    ("attention(x5, k, v)", "ValueError: attention: k has shape (2, 5, 4), expected (2, s, 5) as q is (2, 3, 5)"),
    ("attention(x, k, x)", "ValueError: attention: v has shape (2, 3, 4), expected (2, 5, e) as q is (2, 3, 4) and k is (2, 5, 4)"),
    ("attention(x, k3, v)", "ValueError: attention: q (2, 3, 4), k (3, 5, 4), v (2, 5, 6): leading axes do not broadcast"),
    ("attention(x64, k, v)", "TypeError: attention: k is float32, expected float64"),
    ("attention(x, k, v, m4)", "ValueError: attention: mask has shape (3, 4), expected (2, 3, 5) as q is (2, 3, 4) and k is (2, 5, 4)"),
    ("attention(x, k, v, i)", "TypeError: attention: mask is int64, expected bool or float32"),
    ("attention(x, k, v, [1])", "TypeError: attention: mask: expected an NDArray, got list"),
    ("attention(x, k, v, there(m))", "ValueError: attention: mask is on cpu_numpy(), q on cpu(); move it with .to(device)"),
    ("attention(x, k, v, scale='a')", "ValueError: attention: scale = 'a': expected a number"),
    ("attention(x, k, v, scale=nd.inf)", "ValueError: attention: scale = inf: expected a number"),
    ("attention_grad(x, x, k, v)", "ValueError: attention_grad: grad has shape (2, 3, 4), expected (2, 3, 6) as q is (2, 3, 4) and v is (2, 5, 6)"),
    ("attention(huge, huge, huge)", r"MemoryError"),
    ("layer_norm(huge)", r"MemoryError"),
    ("layer_norm_grad(huge, huge)", r"MemoryError"),
    ("cross_entropy(huge, nd.zeros((2**40,), 'int64'))", r"MemoryError"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", ERRORS, ids=[call for call, _ in ERRORS])
def test_errors(call, message):
    made = {name: nd.ones(shape, dtype) for name, (shape, dtype) in ARRAYS.items()}
    made["huge"] = nd.ones(()).broadcast_to((2**40, 8))
    functions = {name: getattr(nd, name) for name in nd.fused.__all__}
    with pytest.raises(Exception) as caught:
        eval(call, {"nd": nd, "there": lambda a: a.to("cpu_numpy"), **functions, **made})
    text = f"{type(caught.value).__name__}: {caught.value}"
    assert text.startswith(message) if message.endswith("Error") else text == message


def test_integers_and_bools_compute_in_floats(device):
    """As softmax does: float64 of integers, float32 of bools."""
    x = nd.array([[1, 2, 4], [0, 3, 9]], "int32", device)
    assert nd.layer_norm(x).dtype == "float64" and nd.layer_norm(x > 1).dtype == "float32"
    assert nd.cross_entropy(x, nd.array([0, 2], "int32", device)).dtype == "float64"
    assert nd.attention(x, x, x).dtype == "float64"


#: Shapes of x, weight and bias
LINEAR = [
    ((5, 3), (3, 4), (4,)),
    ((5, 3), (3, 4), (1, 4)),
    ((2, 5, 3), (3, 4), (1, 4)),
    ((2, 5, 3), (2, 3, 4), (4,)),
    ((3,), (3, 4), (4,)),
    ((3,), (3, 4), (1, 4)),
    ((3,), (3,), (1,)),
    ((5, 3), (3, 4), (5, 4)),
    ((1, 3), (3, 4), (5, 4)),
    ((5, 3), (3, 4), (1,)),
    ((5, 3), (3, 4), ()),
    ((5, 3), (3, 1), (4,)),
    ((0, 3), (3, 4), (4,)),
    ((5, 0), (0, 4), (4,)),
    ((5, 3), (3, 0), (0,)),
]


@pytest.mark.parametrize(
    "dtypes", ["float32", "float64", "int64", "bool", "float32 float64 float32", "float32 float32 float64"]
)
@pytest.mark.parametrize("shapes", LINEAR, ids=str)
def test_linear_is_a_product_and_a_sum(shapes, dtypes, device):
    """Whatever the bias: integers exactly, floats as well as the product; operands are left as they are."""
    rng, kinds = np.random.default_rng(0), dtypes.split()
    x, w, b = (
        nd.array(rng.normal(size=[2 * n for n in shape]) * 9, kind, device)[tuple([np.s_[::-2]] * len(shape))]
        for shape, kind in zip(shapes, kinds * (4 - len(kinds)), strict=False)
    )
    before = [a.numpy() for a in (x, w, b)]
    got, expected = nd.linear(x, w, b), x @ w + b
    assert got.dtype == expected.dtype and got.shape == expected.shape and got.device == device
    limit = 0.0
    if expected.dtype.is_float:
        limit = np.finfo(expected.dtype.numpy).eps * (np.abs(before[0]) @ np.abs(before[1]) + np.abs(before[2]))
    assert (np.abs(got.numpy().astype("float64") - expected.numpy()) <= limit).all()
    for a, old in zip((x, w, b), before, strict=True):
        np.testing.assert_array_equal(a.numpy(), old)


@pytest.mark.parametrize("shape", [(3, 4), (), (0,), (7,)], ids=str)
@pytest.mark.parametrize("dtypes", ["float32 float32", "float64 float64", "float64 float32", "float32 int64"])
@pytest.mark.parametrize("view", ["compact", "reversed", "broadcast", "the same", "overlapping"])
def test_accumulate_is_products_and_a_sum(shape, dtypes, view, device):
    """Bit for bit, also where the new values lie in the memory of the kept ones; every write counts."""
    rng, (kind, other) = np.random.default_rng(0), dtypes.split()
    every = tuple([np.s_[::-1]] * len(shape))
    kept, new = nd.array(rng.normal(size=shape) * 9, kind, device), nd.array(rng.normal(size=shape) * 9, other, device)
    if view == "reversed":
        kept, new = kept[every], new[every]
    elif view == "broadcast":
        new = new.sum().astype(other)
    elif view == "the same":
        new = kept
    elif view == "overlapping":
        new = kept[every]
    expected = kept * 0.9 + new * 0.1
    before = kept.version
    nd.accumulate(kept, new, 0.9, 0.1)
    assert kept.dtype == kind and kept.version > before
    np.testing.assert_array_equal(kept.numpy(), expected.numpy().astype(kind))


def test_accumulate_refuses(device):
    a = nd.ones(3, device=device)
    for call, error in [
        (lambda: nd.accumulate(a, nd.ones(4, device=device), 2, 2), ValueError),
        (lambda: nd.accumulate(a.broadcast_to((2, 3)), nd.ones((2, 3), device=device), 2, 2), ValueError),
        (lambda: nd.accumulate(nd.ones(3, "int64", device), a, 2, 2), TypeError),
        (lambda: nd.accumulate(None, a, 2, 2), TypeError),
        (lambda: nd.accumulate(a, a, "a", 2), TypeError),
    ]:
        with pytest.raises(error):
            call()
    np.testing.assert_array_equal(a.numpy(), np.ones(3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, k", [(1, 3), (5, 1), (6, 17), (7, 5), (13, 40)])
def test_products_of_every_width(m, k, dtype, device):
    """Small products are made in tiles, the last of which may begin within the one before; whole numbers have no rounding."""
    rng = np.random.default_rng(0)
    for n in range(1, 70):
        x, y = rng.integers(-9, 9, (m, k)).astype(dtype), rng.integers(-9, 9, (k, n)).astype(dtype)
        a, b, bt = (nd.array(v, dtype, device) for v in (x, y, y.T.copy()))
        for name, got in {"plain": a @ b, "transposed": a @ bt.T, "all": (bt @ a.T).T}.items():
            np.testing.assert_array_equal(got.numpy(), x @ y, err_msg=f"{name}, {n} columns")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_of_every_width(dtype, device):
    """Gradients are products that are added to what is there: a block of queries after the other."""
    rng = np.random.default_rng(0)
    for n in range(1, 40):
        q, k, v, g = (rng.normal(size=(rows, n)) for rows in (150, 9, 9, 150))
        p = np.exp(q @ k.T / np.sqrt(n))
        p /= p.sum(-1, keepdims=True)
        ds = p * (g @ v.T - (p * (g @ v.T)).sum(-1, keepdims=True)) / np.sqrt(n)
        q_, k_, v_, g_ = (nd.array(x, dtype, device) for x in (q, k, v, g))
        results = nd.attention(q_, k_, v_), *nd.attention_grad(g_, q_, k_, v_)
        for name, got, expected in zip("y dq dk dv".split(), results, (p @ v, ds @ k, ds.T @ q, p.T @ g), strict=True):
            limit = (2e-6 if dtype == "float32" else 4e-15) * max(np.abs(expected).max(), 1) * n**0.5
            np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=limit, err_msg=f"{name}, {n} columns")


def test_leading_axes_broadcast(device):
    """One k and v for every head; gradients have the broadcast shape."""
    rng = np.random.default_rng(0)
    q, k, v = (nd.array(rng.normal(size=s), "float32", device) for s in ((2, 3, 5, 4), (3, 1, 6, 4)[1:], (6, 2)))
    mask = nd.array(rng.random((2, 1, 1, 6)) < 0.5, "bool", device)
    out = nd.attention(q, k, v, mask)
    full = [x.broadcast_to((2, 3, *x.shape[-2:])).copy() for x in (q, k, v)]
    assert out.shape == (2, 3, 5, 2)
    np.testing.assert_array_equal(out.numpy(), nd.attention(*full, mask.broadcast_to((2, 3, 5, 6)).copy()).numpy())
    grads = nd.attention_grad(out, q, k, v, mask)
    assert [g.shape for g in grads] == [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2)]


def test_scale_is_by_the_size_of_a_query(device):
    x = nd.array(np.random.default_rng(0).normal(size=(5, 16)), "float64", device)
    np.testing.assert_array_equal(nd.attention(x, x, x).numpy(), nd.attention(x, x, x, scale=0.25).numpy())


def test_without_blas():
    """Where scipy-openblas32 is missing the default does it, by numpy.matmul."""
    code = """
        import numpy as np, needle_ndarray as nd
        x = nd.array(np.random.default_rng(0).normal(size=(2, 70, 8)))
        out, grads = nd.attention(x, x, x, causal=True), nd.attention_grad(x, x, x, x, causal=True)
        y = x.to("cpu_numpy")
        assert np.allclose(out.numpy(), nd.attention(y, y, y, causal=True).numpy(), atol=1e-5)
        for a, b in zip(grads, nd.attention_grad(y, y, y, y, causal=True)):
            assert np.allclose(a.numpy(), b.numpy(), atol=1e-4)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "NEEDLE_BLAS": "numpy"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# ---- Verbs of the CPU called past the checks -----------------------------------------------------------------------------

f32, f64 = nd.ones((3, 4)), nd.ones((3, 4), "float64")
vector, labels = nd.ones(4), nd.zeros(3, "int64")
wide = nd.ones(()).broadcast_to((2**30, 2**29))
HOSTILE = {
    "no axes": ("layer_norm", (nd.ones(()), None, None, 1e-5, nd.ones(()))),
    "out too small": ("layer_norm", (f32, None, None, 1e-5, nd.ones((2, 4)))),
    "out of another dtype": ("layer_norm", (f32, None, None, 1e-5, f64)),
    "short weight": ("layer_norm", (f32, nd.ones(3), None, 1e-5, f32)),
    "long dweight": ("layer_norm_grad", (f32, f32, None, 1e-5, f32, nd.ones(5), vector)),
    "no dbias": ("layer_norm_grad", (f32, f32, None, 1e-5, f32, vector, None)),
    "grad of another shape": ("layer_norm_grad", (f32.T, f32, None, 1e-5, f32, vector, vector)),
    "rows beyond any memory": ("layer_norm", (wide, None, None, 1e-5, wide)),
    "ints": ("batch_norm", (f32.astype("int32"), None, None, 1e-5, f32, vector, vector)),
    "no mean": ("batch_norm", (f32, None, None, 1e-5, f32, None, vector)),
    "no var": ("batch_norm_grad", (f32, f32, vector, None, None, 1e-5, f32, vector, vector)),
    "short mean": ("batch_norm_grad", (f32, f32, nd.ones(3), vector, None, 1e-5, f32, vector, vector)),
    "label 4 of 4": ("cross_entropy", (f32, labels + 4, nd.ones(3))),
    "label -1": ("cross_entropy_grad", (nd.ones(3), f32, labels - 1, f32.copy())),
    "huge label": ("cross_entropy_grad", (nd.ones(3), f32, labels + 2**61, f32.copy())),
    "int32 labels": ("cross_entropy", (f32, labels.astype("int32"), nd.ones(3))),
    "too few labels": ("cross_entropy", (f32, labels[:2], nd.ones(3))),
    "too few losses": ("cross_entropy", (f32, labels, nd.ones(2))),
    "one axis": ("attention", (vector, vector, vector, None, False, 1.0, vector)),
    "k of another size": ("attention", (f32, nd.ones((3, 5)), f32, None, False, 1.0, f32)),
    "v of another length": ("attention", (f32, f32, nd.ones((2, 4)), None, False, 1.0, f32)),
    "small mask": ("attention", (f32, f32, f32, nd.ones((3, 2)), False, 1.0, f32)),
    "int mask": ("attention", (f32, f32, f32, nd.ones((3, 3), "int64"), False, 1.0, f32)),
    "small out": ("attention", (f32, f32, f32, None, False, 1.0, nd.ones((3, 3)))),
    "batches that differ": ("attention", (nd.ones((2, 3, 4)), nd.ones((3, 3, 4)), nd.ones((2, 3, 4)), None, False, 1.0, f32)),
    "small dk": ("attention_grad", (f32, f32, f32, f32, None, False, 1.0, f32, nd.ones((2, 4)), f32)),
    "dv of another dtype": ("attention_grad", (f32, f32, f32, f32, None, False, 1.0, f32, f32, f64)),
    "another device": ("layer_norm", (f32, None, None, 1e-5, nd.ones((3, 4), device="cpu_numpy")[:0])),
    "no values": ("softmax_grad", (f32, None, f32)),
    "small result": ("softmax_grad", (f32, f32, nd.ones((2, 4)))),
    "long gradient": ("log_softmax_grad", (nd.ones((3, 5)), f32, f32)),
    "x is None": ("logsumexp_grad", (nd.ones(3), None, nd.ones(3), f32)),
    "too few values": ("logsumexp_grad", (nd.ones(3), f32, nd.ones(2), f32)),
    "a gradient for each element": ("logsumexp_grad", (f32, f32, nd.ones(3), f32)),
    "no array": ("attention", (None, f32, f32, None, False, 1.0, f32)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_verbs_guard_the_memory(name):
    verb, args = HOSTILE[name]
    with pytest.raises((ValueError, TypeError, IndexError, MemoryError)):
        calls.call(nd.cpu().backend, verb, *args)


# ---- Gradients of softmax and its relatives ------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1, (1, 2), (0, 2), None, ()])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "cpu_numpy"])
def test_gradients_of_rows_along_any_axes(device, dtype, axis):
    rng = np.random.default_rng(0)
    g, x = (nd.array(rng.normal(size=(3, 4, 5)), dtype, device) for _ in range(2))
    y, log_y, total = x.softmax(axis), x.log_softmax(axis), x.logsumexp(axis)
    over = tuple(range(3)) if axis is None else axis
    upstream = g.sum(over)
    wide = [
        nd.array(a.numpy(), "float64").numpy() if a.dtype != "bfloat16" else a.astype("float64").numpy()
        for a in (g, x, y, log_y)
    ]
    kept = np.sum(wide[0], axis=over, keepdims=True).shape
    values, grads = (a.astype("float64").numpy().reshape(kept) for a in (total, upstream))
    expected = {
        "softmax": wide[2] * (wide[0] - np.sum(wide[2] * wide[0], axis=over, keepdims=True)),
        "log_softmax": wide[0] - np.exp(wide[3]) * np.sum(wide[0], axis=over, keepdims=True),
        "logsumexp": grads * np.exp(wide[1] - values),
    }
    got = {
        "softmax": nd.softmax_grad(g, y, axis),
        "log_softmax": nd.log_softmax_grad(g, log_y, axis),
        "logsumexp": nd.logsumexp_grad(upstream, x, total, axis),
    }
    error = {"float64": 1e-13, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    for name, result in got.items():
        assert result.dtype == dtype, name
        np.testing.assert_allclose(
            result.astype("float64").numpy(), expected[name], rtol=error, atol=error, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gradient_has_the_same_bits_for_every_view(dtype):
    """Rows one by one, or some at a time out of a transposed array."""
    rng = np.random.default_rng(0)
    for shape in ((70, 9), (37, 130), (33, 2100)):
        g, y = (rng.normal(size=shape).astype(dtype) for _ in range(2))
        plain = [nd.array(a, dtype) for a in (g, y)]
        turned = [nd.array(a.T.copy(), dtype).T for a in (g, y)]
        for function in (nd.softmax_grad, nd.log_softmax_grad):
            expected = function(*plain).numpy()
            assert np.array_equal(function(*turned).numpy(), expected)
            assert np.array_equal(function(plain[0][3:4], plain[1][3:4]).numpy(), expected[3:4])
        assert np.array_equal(turned[1].softmax().numpy(), plain[1].softmax().numpy())
        assert np.array_equal(plain[1].T.softmax(0).numpy().T, plain[1].softmax().numpy())


# ---- PyTorch -------------------------------------------------------------------------------------------------------------


def agree(ours, theirs):
    """Within what float32 leaves of a sum of a few hundred terms."""
    scale = max(1.0, float(theirs.detach().abs().max()))
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=0, atol=2e-5 * scale)


@pytest.mark.parity
class TestPyTorch:
    @pytest.fixture(autouse=True)
    def tensors(self):
        self.torch = pytest.importorskip("torch")
        self.rng = np.random.default_rng(0)

    def leaf(self, *shape):
        x = self.rng.normal(size=shape).astype(np.float32)
        return nd.array(x), self.torch.tensor(x, requires_grad=True)

    @pytest.mark.parametrize("shape", [(7, 40), (3, 50, 64), (300, 5)])
    @pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
    def test_norm(self, name, shape):
        functional = self.torch.nn.functional
        (x, tx), (w, tw), (b, tb), (g, tg) = (self.leaf(*s) for s in (shape, shape[-1:], shape[-1:], shape))
        if name == "layer_norm":
            out, grads = nd.layer_norm(x, w, b), nd.layer_norm_grad(g, x, w)
            expected = functional.layer_norm(tx, shape[-1:], tw, tb)
        else:
            out, mean, var = nd.batch_norm(x, w, b)
            grads = nd.batch_norm_grad(g, x, mean, var, w)
            rows = tx.reshape(-1, shape[-1])
            expected = functional.batch_norm(rows, None, None, tw, tb, training=True).reshape(shape)
        expected.backward(tg)
        agree(out, expected)
        for ours, theirs in zip(grads, (tx, tw, tb), strict=True):
            agree(ours, theirs.grad)

    @pytest.mark.parametrize("shape", [(7, 10), (300, 2000)])
    def test_cross_entropy(self, shape):
        (x, tx), (g, tg) = self.leaf(*shape), self.leaf(shape[0])
        labels = self.rng.integers(0, shape[1], shape[0])
        expected = self.torch.nn.functional.cross_entropy(tx, self.torch.tensor(labels), reduction="none")
        expected.backward(tg)
        agree(nd.cross_entropy(x, nd.array(labels, "int64")), expected)
        agree(nd.cross_entropy_grad(g, x, nd.array(labels, "int64")), tx.grad)

    @pytest.mark.parametrize(
        "t, s, mask, causal", [(130, 130, None, True), (70, 90, "bool", False), (5, 40, "float", False)]
    )
    def test_attention(self, t, s, mask, causal):
        (q, tq), (k, tk), (v, tv), (g, tg) = (self.leaf(2, 3, *size) for size in ((t, 16), (s, 16), (s, 24), (t, 24)))
        given = {None: None, "bool": self.rng.random((t, s)) < 0.6, "float": self.rng.normal(size=(t, s)).astype("f4")}[
            mask
        ]
        ours = None if given is None else nd.array(given, given.dtype.name)
        theirs = None if given is None else self.torch.tensor(given)
        expected = self.torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, theirs, is_causal=causal)
        expected.backward(tg)
        agree(nd.attention(q, k, v, ours, causal), expected)
        for a, b in zip(nd.attention_grad(g, q, k, v, ours, causal), (tq, tk, tv), strict=True):
            agree(a, b.grad)
