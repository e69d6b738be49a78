"""Matrix products of the CPU: strips of our own up to some size, BLAS beyond, on any number of threads."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.kernels import LEVEL
from needle_ndarray.testing import each

#: (m, k, n): whole strips and parts of one, one block of depth or rows and several, tall, wide, and what BLAS multiplies.
SIZES = [
    (6, 384, 16),
    (7, 385, 17),
    (13, 800, 24),
    (12, 500, 1000),
    (193, 31, 100),
    (400, 33, 5),
    (5000, 20, 3),
    (3, 20, 5000),
    (100, 784, 100),
    (320, 128, 1001),
    (97, 1200, 129),
    (1, 803, 777),
    (1, 100, 9001),
    (1, 5000, 65),
    (420, 400, 410),
]
LAYOUTS = {
    "plain": lambda x: nd.array(x, x.dtype),
    "transposed": lambda x: nd.array(x.T.copy(), x.dtype).T,
    "every second": lambda x: nd.array(x.repeat(2, 0).repeat(2, 1), x.dtype)[::2, ::2],
    "backwards": lambda x: nd.array(x[::-1, ::-1].copy(), x.dtype)[::-1, ::-1],
}
FLOATS = pytest.mark.parametrize("dtype", ["float32", "float64"])


@FLOATS
@each("left", LAYOUTS)
@each("right", LAYOUTS)
@each("m, k, n", SIZES)
def test_whole_numbers(m, k, n, left, right, dtype, threads):
    """They have no rounding: every element is right, alone and with a row added, or it is wrong."""
    rng = np.random.default_rng(0)
    x, y, z = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n), (n,)))
    a, b, row, exact = LAYOUTS[left](x), LAYOUTS[right](y), nd.array(z, dtype), x @ y
    for count in (1, 2):
        threads(count)
        np.testing.assert_array_equal((a @ b).numpy(), exact)
        np.testing.assert_array_equal(nd.linear(a, b, row).numpy(), exact + z)


@FLOATS
@each("layout", ["plain", "transposed"])
@each("m, k, n", SIZES)
def test_bits_do_not_depend_on_threads(m, k, n, layout, dtype, threads):
    rng = np.random.default_rng(0)
    a, b, row = (LAYOUTS[layout](rng.normal(size=shape).astype(dtype)) for shape in ((m, k), (k, n), (1, n)))
    results = set()
    for count in (1, 2, 3, 7):
        threads(count)
        results.add((a @ b).numpy().tobytes() + nd.linear(a, b, row.reshape(n)).numpy().tobytes())
    assert len(results) == 1


@pytest.mark.skipif(
    LEVEL not in ("v3", "v4"), reason="without fused multiplications and additions BLAS takes over sooner"
)
@FLOATS
@each("m, k, n", SIZES[:-1])
def test_rows_do_not_depend_on_each_other(m, k, n, dtype):
    """A row has the bits that it has in any other batch, up to the size from which BLAS multiplies."""
    rng = np.random.default_rng(0)
    a, b = (nd.array(rng.normal(size=shape), dtype) for shape in ((m, k), (k, n)))
    whole = (a @ b).numpy()
    for first in range(0, m - 1, max(m // 5, 1)):
        np.testing.assert_array_equal((a[first : first + 2] @ b).numpy(), whole[first : first + 2])
