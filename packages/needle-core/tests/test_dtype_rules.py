"""Which dtype comes out: integers beside floats, the default dtype, and NumPy's rules with NEEDLE_BACKEND=np."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from op_table import BY_ID, DIFFERENTIABLE, ROWS, outputs

import needle as ndl
from needle import Tensor, ops
from needle.autograd import gradients
from needle_ndarray.testing import each

INTEGERS = ["bool", "uint8", "int32", "int64"]
#: Integers raise what NumPy raises: bytes have no negative numbers, bool no sign, integers no negative powers.
REFUSALS = (
    "not defined for bool",
    "is out of range for uint8",
    "integers to negative integer powers are not allowed",
)
#: Rows whose own constants are made in the dtype of the input.
OWN_CONSTANTS = {"batch_norm/in evaluation"}
#: e^60 leaves float32, and so do powers.
SMALL_ONLY = ("exp", "expm1", "sinh", "cosh", "power", "Tensor/a ** b", "LogSoftmaxGrad", "LogSumExpGrad")


@pytest.fixture
def float64_by_default():
    ndl.set_default_dtype("float64")
    yield
    ndl.set_default_dtype(None)


def whole(row, kind):
    """The row's inputs as integers: small ones, or bytes up to 255."""
    scale = 60 if kind == "uint8" and not row.id.startswith(SMALL_ONLY) else 3
    return [(np.abs(np.rint(x * scale)) % 256).astype(kind) for x in row.arrays()]


def check_integers(row, arrays, expected, device):
    """Float results are of the dtype expected, and as near to float64 as that allows."""
    tensors = [Tensor(x, device=device, dtype=x.dtype.name) for x in arrays]
    try:
        results = outputs(row.fn(*tensors))
    except (TypeError, ValueError, OverflowError) as error:
        assert any(part in str(error) for part in REFUSALS), str(error)
        return
    floats = [(i, y) for i, y in enumerate(results) if y.dtype.is_float]
    assert all(y.dtype == expected for _, y in floats), [str(y.dtype) for y in results]
    if floats and row.id not in OWN_CONSTANTS:
        exact = outputs(row.fn(*[Tensor(x, device=device, dtype="float64") for x in arrays]))
        near = {"float32": 2e-5, "float64": 1e-12}[expected]
        for i, y in floats:
            np.testing.assert_allclose(y.numpy(), exact[i].numpy(), rtol=near, atol=near)
    wanted = [t for t in tensors if t.requires_grad]
    if wanted and any(y.requires_grad for y in results):
        for t, g in zip(wanted, gradients(results, wanted), strict=True):
            assert g is None or g.dtype == t.dtype


@each("row", ROWS)
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_alone_take_the_default_dtype(kind, row, device):
    check_integers(row, whole(row, kind), "float32", device)


@each("row", ROWS)
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_alone_with_another_default(kind, row, float64_by_default):
    check_integers(row, whole(row, kind), "float64", ndl.cpu())


@each("row", [row for row in ROWS if len(row.inputs) > 1])
@pytest.mark.parametrize("floats", ["float32", "float64"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_take_the_dtype_of_the_floats(kind, floats, row, device):
    """Whichever of the inputs are integers."""
    arrays, ints = [x.astype(floats) for x in row.arrays()], whole(row, kind)
    for i in range(len(arrays)):
        check_integers(row, [ints[i] if i == j else x for j, x in enumerate(arrays)], floats, device)


@each(
    "fn",
    [
        lambda x: x + 0.5,
        lambda x: 0.5 + x,
        lambda x: x - 0.5,
        lambda x: 0.5 - x,
        lambda x: x * 0.5,
        lambda x: x / 255,
        lambda x: x / 255.0,
        lambda x: 255.0 / (x + 1),
        lambda x: x**0.5,
        lambda x: 1.0009765625**x,
        lambda x: x * np.float64(0.5),
        lambda x: np.float32(0.5) - x,
        lambda x: x - np.array(0.5),
        lambda x: np.array(0.5) - x,
        lambda x: [0.5] - x,
        lambda x: ops.where(x > 1, x, 0.5),
        lambda x: ops.maximum(x, 1.5),
        lambda x: ops.subtract(0.5, x),
        lambda x: x.mean(),
        lambda x: x.var(),
        lambda x: x.std(),
        lambda x: ops.dropout(x, 0.0) / 2,
        lambda x: ops.mean_squared_error(x, x),
    ],
)
@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_integers_with_python_floats(kind, fn, device):
    x = np.array([0, 1, 2, 128, 254], kind)
    got, exact = fn(Tensor(x, device=device)), fn(Tensor(x.astype("float64"), device=device, dtype="float64"))
    assert got.dtype == "float32" and exact.dtype == "float64"
    np.testing.assert_allclose(got.numpy(), exact.numpy(), rtol=1e-6)


@each("kind, other", [(a, b) for a in INTEGERS for b in [*INTEGERS, "float32", "float64"]])
@pytest.mark.parametrize("lazy", [False, True])
def test_differences_do_not_wrap_before_they_are_made(kind, other, lazy, device):
    """a - b is a + (-b), and -b of bytes is 256 - b: they take the dtype of the difference first. In lazy mode too."""
    a, b = np.array([0, 1, 1], other), np.array([1, 0, 1], kind) if kind == "bool" else np.array([0, 200, 255], kind)
    try:
        expected = a - b
    except TypeError:  # bool - bool
        with pytest.raises(TypeError, match="not defined for bool"):
            (Tensor(a, device=device) - Tensor(b, device=device)).numpy()
        return
    with ndl.lazy_mode(lazy):
        x, y = (Tensor(v, device=device, dtype=v.dtype.name, requires_grad=False)[::1] for v in (a, b))
        got = (x - y).numpy(), ops.subtract(x, y).numpy(), (a - y).numpy()
    for each_way in got:
        np.testing.assert_array_equal(each_way, expected)
        if expected.dtype.kind != "f":
            assert each_way.dtype == expected.dtype


@pytest.mark.parametrize("lazy", [False, True])
def test_bytes_and_numbers(lazy, device):
    with ndl.lazy_mode(lazy):
        x = Tensor(np.array([0, 5, 255], np.uint8), device=device)[::1]
        rows = [
            (x - 1, [255, 4, 254]),
            (1 - x, [1, 252, 2]),
            (x + 1, [1, 6, 0]),
            (-x, [0, 251, 1]),
            (x * 2, [0, 10, 254]),
        ]
        for y, expected in rows:
            assert (y.dtype, y.tolist()) == ("uint8", expected)
        assert (0.5 - x).tolist() == [0.5, -4.5, -254.5]
        with pytest.raises(OverflowError, match="300 is out of range for uint8"):
            (x - 300).numpy()


def test_numbers_beside_bools(device):
    """A number is not made True."""
    mask = Tensor(np.array([True, False]), device=device)
    assert (3 / (mask + 1)).tolist() == [1.5, 3.0] and (3 / mask)[0].item() == 3.0
    assert ops.where(np.array([True, False]), mask, 7).tolist() == [1, 7]


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64", "float32"])
def test_labels_of_every_dtype(kind, device):
    """As they come out of files."""
    labels = np.array([2, 0, 1, 1]).astype(kind)
    y, wide = Tensor(labels, device=device, requires_grad=False), Tensor(labels.astype("int64"), device=device)
    logits, table = Tensor(np.arange(12.0).reshape(4, 3) % 5, device=device), Tensor(np.eye(3), device=device)
    for fn in (
        lambda y: ops.cross_entropy(logits, y),
        lambda y: ops.cross_entropy(logits, y, ignore_index=1),
        lambda y: ndl.init.one_hot(3, y, device=device),
        lambda y: ops.embedding(y, table),
        lambda y: (ops.argmax(logits, 1).equal(y)).astype("float32").mean(),
    ):
        got, expected = fn(y), fn(wide)
        assert got.dtype == expected.dtype == "float32"
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_uint8_tensors(device):
    y = Tensor([1, 2, 255], dtype="uint8", device=device)
    assert y.dtype == "uint8" and not y.requires_grad and y.tolist() == [1, 2, 255]
    x = Tensor([1.9, 2.5, 255.0], device=device)
    assert x.cached_data.astype(np.uint8).dtype == x.astype("uint8").dtype == "uint8"
    assert Tensor(np.zeros(2, np.uint8), device=device).dtype == "uint8"


# ---- NEEDLE_BACKEND=np ------------------------------------------------------------------------------------------

TESTS = Path(__file__).parent


def under_numpy(code):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "NEEDLE_BACKEND": "np", "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_float64_stays(row):
    """Of lists of Python floats: results and gradients are float64, and the results NumPy's to 1e-10."""
    tensors = [Tensor(x.tolist()).reshape(x.shape).detach() for x in row.arrays()]
    for t in tensors:
        t.requires_grad = True
    results = outputs(row.fn(*tensors))
    with np.errstate(all="ignore"):
        expected = row.ref(*row.arrays())
    for y, e in zip(results, expected if isinstance(expected, list) else [expected], strict=True):
        assert y.dtype == np.asarray(e).dtype, f"{row.id}: {y.dtype}"
        np.testing.assert_allclose(y.numpy(), e, rtol=1e-10, atol=1e-11, err_msg=row.id)
    if row.order:
        for g in gradients(results, tensors):
            assert g is None or g.dtype == "float64", f"{row.id}: gradient {g.dtype}"
        assert all(y.requires_grad for y in results)
        sum([y.sum() for y in results], start=0.0).backward()
        assert all(t.grad is None or t.grad.dtype == "float64" for t in tensors), row.id


def test_float64_stays_with_the_numpy_backend():
    """Every row of the table, in one process of its own."""
    code = """
import needle as ndl
from op_table import ROWS
from test_dtype_rules import check_float64_stays
assert ndl.get_default_dtype() == "float64"
for row in ROWS:
    check_float64_stays(row)
print(len(ROWS))
"""
    assert int(under_numpy(code)) == len(ROWS) > 500


def test_numpy_rules_with_the_numpy_backend():
    code = """
import numpy as np, needle as ndl
from needle import Tensor, ops
kinds = {k: Tensor(np.ones(2, k)) for k in ("bool", "uint8", "int32", "int64", "float32", "float64")}
for a, x in kinds.items():
    assert Tensor(x.numpy()).dtype == a
    for b, y in kinds.items():
        for name in ("add", "multiply", "divide", "maximum"):
            want = getattr(np, name)(np.ones(2, a), np.ones(2, b)).dtype
            assert getattr(ops, name)(x, y).dtype == want, (name, a, b)
    for number in (2, 0.5):
        assert (x * number).dtype == (np.ones(2, a) * number).dtype, (a, number)
    assert x.mean().dtype == np.ones(2, a).mean().dtype
print([str(Tensor(v).dtype) for v in (2.5, [[4.95, 1.75]], 3, [1, 2], np.float64(2), True)])
print(ndl.init.ones(2).dtype, ndl.init.randn(2).dtype, ndl.init.one_hot(2, [1]).dtype, Tensor([1.5], dtype="float32").dtype)
ndl.set_default_dtype("float32")
print(Tensor(2.5).dtype, (kinds["int64"] * 0.5).dtype, (kinds["int64"] * kinds["float32"]).dtype)
"""
    assert under_numpy(code).splitlines() == [
        "['float64', 'float64', 'float64', 'float64', 'float64', 'bool']",
        "float32 float32 float32 float32",
        "float32 float32 float32",
    ]


def test_course_check_to_1e_7_with_the_numpy_backend():
    """Central differences in Python floats, as course code makes them."""
    code = """
import numpy as np, needle as ndl
x, w = ndl.Tensor([[4.95, 1.75], [-0.3, 2.2]]), ndl.Tensor([[0.5, -1.25], [2.0, 0.125]])
f = lambda: ndl.ops.logsumexp(ndl.ops.tanh(x @ w) * 1.5 - 0.25, axes=(1,)).sum() / 3
f().backward()
for t in (x, w):
    data, found = t.realize_cached_data(), t.grad.numpy().ravel()
    for j in range(t.size):
        data.flat[j] += 1e-5
        high = f().numpy()
        data.flat[j] -= 2e-5
        low = f().numpy()
        data.flat[j] += 1e-5
        assert high.dtype == np.float64
        assert abs((high - low) / 2e-5 - found[j]) <= 1e-7 * max(abs(found[j]), 1e-3), (high, low, found[j])
print("good")
"""
    assert under_numpy(code) == "good\n"


def test_lists_are_float32_otherwise():
    for row in (BY_ID["exp/(2, 3)"] if "exp/(2, 3)" in BY_ID else DIFFERENTIABLE[0],):
        tensors = [Tensor(x.tolist()) for x in row.arrays()]
        assert all(y.dtype == "float32" for y in [*tensors, *outputs(row.fn(*tensors))])
