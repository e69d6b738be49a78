"""Ways through the kernels that depend on sizes: sorting, parts of rows, tiles, long scans, single numbers, many axes."""

import itertools

import numpy as np
import pytest

import needle_cuda.indexing
import needle_cuda.reductions
import needle_ndarray as nd
from needle_cuda import views
from needle_cuda.testing import settings
from needle_ndarray.testing.calls import call

pytestmark = pytest.mark.skipif(not nd.cuda().enabled(), reason="needs a CUDA device")
NAMES = ["bool", "uint8", "int32", "int64", "float32", "float64"]


@pytest.fixture(params=["forward", "reverse", "random"])
def order(request):
    """Whoever comes first: the results are the same."""
    with settings.changed(order=request.param):
        yield


def cuda(values, dtype=None):
    return nd.array(values, dtype or values.dtype.name, nd.cuda())


# ---- Rows by number --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 256, 257, 70_000, 1 << 24], ids=str)
@pytest.mark.parametrize("n", [1, 255, 257, 4096, 4097, 20_000], ids=str)
def test_sort_is_stable(n, bound):
    index = np.random.default_rng(n).integers(0, bound, n)
    keys, where = nd.cuda().backend._sorted_entries(cuda(index), bound)
    expected = np.argsort(index, kind="stable")
    np.testing.assert_array_equal(where.numpy(), expected)
    np.testing.assert_array_equal(keys.numpy(), index[expected])


def test_sort_in_every_order(order):
    index = np.random.default_rng(0).integers(0, 600, 5000)
    _, where = nd.cuda().backend._sorted_entries(cuda(index), 600)
    np.testing.assert_array_equal(where.numpy(), np.argsort(index, kind="stable"))


@pytest.mark.parametrize("few", [0, 10_000], ids=["sorted", "each with each"])
@pytest.mark.parametrize("row", [(), (3,), (2, 5)], ids=str)
@pytest.mark.parametrize("dtype", NAMES)
def test_put_and_scatter_add(dtype, row, few, monkeypatch):
    """The bits of a loop, both ways."""
    monkeypatch.setattr(needle_cuda.indexing, "FEW", few)
    rng = np.random.default_rng(1)
    x, values = (10 * rng.normal(size=(300, *row))).astype(dtype), (10 * rng.normal(size=(700, *row))).astype(dtype)
    index = rng.integers(0, 300, 700)
    put, added, a, b = x.copy(), x.copy(), cuda(x), cuda(x)
    for i, at in enumerate(index):
        put[at] = values[i]
        added[at : at + 1] += values[i]  # a slice: bytes wrap without a warning
    call(nd.cuda().backend, "put", a, cuda(index), cuda(values))
    call(nd.cuda().backend, "scatter_add", b, cuda(index), cuda(values))
    np.testing.assert_array_equal(a.numpy(), put)
    np.testing.assert_array_equal(b.numpy(), added)


# ---- Reductions and scans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 7, 100_000], ids=["one part", "few", "many"])
@pytest.mark.parametrize(
    "shape, axis", [((9000,), 0), ((2, 5001), 1), ((5001, 3), 0), ((700, 33), 0), ((3, 40, 30), (0, 2))], ids=str
)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "any", "argmin"])
def test_parts_of_rows(name, shape, axis, blocks, monkeypatch, order):
    monkeypatch.setattr(needle_cuda.reductions, "ENOUGH_BLOCKS", blocks)
    if name == "argmin" and isinstance(axis, tuple):
        axis = 1
    x = np.random.default_rng(2).integers(-3, 4, shape).astype("float64") if name != "prod" else np.full(shape, -1.0)
    found = getattr(cuda(x), name)(axis=axis).numpy()
    np.testing.assert_array_equal(found, getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize(
    "shape, axis", [((5000,), 0), ((3, 2049), 1), ((2049, 3), 0), ((1024 * 1024 + 5,), 0), ((40, 50), 0)], ids=str
)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_long_scans(shape, axis, dtype):
    x = np.random.default_rng(3).integers(-9, 9, shape).astype(dtype)
    np.testing.assert_array_equal(cuda(x).cumsum(axis).numpy(), np.cumsum(x, axis))


def test_sums_have_the_same_bits_every_time(order):
    x = np.random.default_rng(4).normal(size=(3, 20_000)).astype("float32")
    with settings.changed(order="forward"):
        expected = [cuda(x).sum(axis).numpy().tobytes() for axis in (0, 1, None)]
    assert [cuda(x).sum(axis).numpy().tobytes() for axis in (0, 1, None)] == expected


# ---- Layouts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(33, 65), (64, 64), (100, 17), (2, 40, 50), (40, 3, 50), (3, 33, 2, 34)], ids=str)
@pytest.mark.parametrize("to", ["float32", "int64", "uint8", "bool"])
def test_transpositions(shape, to, order):
    x = np.random.default_rng(5).integers(-9, 9, shape).astype("float32")
    turned = 0
    for axes in itertools.permutations(range(len(shape))):
        view = cuda(x).permute(axes)
        turned += views.transposition(nd.empty(view.shape, to, nd.cuda()), view) is not None
        np.testing.assert_array_equal(view.astype(to).numpy(), x.transpose(axes).astype(to))
    assert turned


def test_as_many_axes_as_there_can_be():
    x = np.arange(1 << 12).reshape((2,) * 12 + (1,) * 20)
    a, b = cuda(x).permute(tuple(reversed(range(32)))), cuda(x)
    np.testing.assert_array_equal(
        (a.reshape((2,) * 12) + b.reshape((2,) * 12)).numpy(), x.T.reshape((2,) * 12) + x.reshape((2,) * 12)
    )
    np.testing.assert_array_equal(a.sum((12, 20, 31)).numpy(), x.T.sum((12, 20, 31)))


@pytest.mark.parametrize(
    "shape, strides, expected",
    [
        ((2, 3, 4), [(12, 4, 1)], ((24,), (1,))),
        ((2, 3, 4), [(12, 4, 1), (0, 0, 0)], ((24,), (1,), (0,))),
        ((2, 3, 4), [(12, 4, 1), (1, 2, 6)], ((2, 3, 4), (12, 4, 1), (1, 2, 6))),
        ((2, 1, 4), [(4, 99, 1)], ((8,), (1,))),
        ((3,), [(-1,)], ((3,), (-1,))),
        ((), [(), ()], ((), (), ())),
        ((1, 1), [(5, 7)], ((), ())),
    ],
)
def test_axes_are_merged(shape, strides, expected):
    assert views.merged(shape, *strides) == expected


@pytest.mark.parametrize(
    "kinds", list(itertools.product(["array", "number", "element", "odd"], repeat=2)), ids="-".join
)
@pytest.mark.parametrize("dtype", NAMES)
def test_operands_of_dense_kernels(dtype, kinds):
    """Arrays, numbers by value, one element broadcast, and addresses that no vector load can take."""
    rng = np.random.default_rng(6)

    def operand(kind):
        x = rng.integers(0, 5, 1001).astype(dtype)
        if kind == "number":
            return nd.array(x[7], dtype, nd.cuda()).broadcast_to((1000,)), np.broadcast_to(x[7], (1000,))
        if kind == "element":
            return cuda(x)[7:8].broadcast_to((1000,)), np.broadcast_to(x[7], (1000,))
        return (cuda(x)[1:], x[1:]) if kind == "odd" else (cuda(x[:1000]), x[:1000])

    (a, x), (b, y) = map(operand, kinds)
    condition = rng.random(1000) < 0.5
    np.testing.assert_array_equal((a * b).numpy(), x * y, strict=True)
    np.testing.assert_array_equal((a <= b).numpy(), x <= y, strict=True)
    np.testing.assert_array_equal(nd.where(cuda(condition), a, b).numpy(), np.where(condition, x, y), strict=True)
    np.testing.assert_array_equal(a.astype("float32").numpy(), x.astype("float32"), strict=True)
    np.testing.assert_array_equal(a.relu().numpy(), x, strict=True)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 1023, 40_000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_those_of_the_cpu(dtype, size):
    for draw in (nd.random.uniform, nd.random.normal):
        found = []
        for device in (nd.cpu(), nd.cuda()):
            nd.random.seed(7)
            draw(3, device=device)
            found.append(draw(size, device=device, dtype=dtype).numpy().tobytes())
        nd.random.seed(None)
        assert found[0] == found[1]
