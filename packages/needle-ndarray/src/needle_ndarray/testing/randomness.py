"""The contract of `random`: the very bits of Philox-4x32-10, and the distributions made of them."""

import math

import numpy as np
import pytest

from needle_ndarray.backend import RANDOM
from needle_ndarray.random import philox_normal, philox_uniform
from needle_ndarray.testing.cases import FLOATS, Suite
from needle_ndarray.testing.oracle import assert_same
from needle_ndarray.testing.tables import each

REFERENCE = {"uniform": philox_uniform, "normal": philox_normal}
SEEDS = [0, 1, 0xFFFFFFFF, 0x123456789ABCDEF0, (1 << 64) - 1]
COUNTERS = [0, 1, (1 << 32) - 3, 1 << 40, (1 << 64) - 1]
#: Words of block 0 for seed 0: the known answer published with the algorithm (Random123, kat_vectors).
KNOWN = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


class RandomSuite(Suite):
    def draw(self, name, seed, counter, shape, dtype):
        canvas = self.canvas("offset" if math.prod(shape) else "compact", shape, dtype)
        self.backend.random(RANDOM[name], canvas.out, seed, counter)
        return canvas.result()

    def test_known_answer(self):
        expected = (np.array(KNOWN, np.uint32) >> 8).astype(np.float32) / np.float32(1 << 24)
        assert_same(self.draw("uniform", 0, 0, (4,), "float32"), expected)

    @each("counter", COUNTERS)
    @each("seed", SEEDS)
    @pytest.mark.parametrize("dtype", FLOATS)
    @each("name", RANDOM)
    def test_bits(self, name, dtype, seed, counter):
        got = self.draw(name, seed, counter, (9, 13), dtype)
        assert_same(got, REFERENCE[name](seed, counter, 117, np.dtype(dtype)).reshape(9, 13))

    @each("shape", [(), (0,), (3, 0), (1,), (2,), (3,), (4,), (5,), (70001,), (3, 16384)])
    @pytest.mark.parametrize("dtype", FLOATS)
    @each("name", RANDOM)
    def test_shapes(self, name, dtype, shape):
        got = self.draw(name, 7, 3, shape, dtype)
        assert_same(got, REFERENCE[name](7, 3, math.prod(shape), np.dtype(dtype)).reshape(shape))

    @pytest.mark.parametrize("dtype", FLOATS)
    @each("name", RANDOM)
    def test_a_block_is_a_function_of_its_number(self, name, dtype):
        """Numbers from block c + 5 on are those that a draw from block c has after five blocks."""
        per_block = 16 // np.dtype(dtype).itemsize
        whole = self.draw(name, 3, 10, (100,), dtype)
        later = self.draw(name, 3, 15, (100 - 5 * per_block,), dtype)
        assert_same(later, whole[5 * per_block :])
        assert not np.array_equal(whole, self.draw(name, 4, 10, (100,), dtype))

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_uniform_distribution(self, dtype):
        """On [0, 1), and each tenth of it as often as the next, within five standard deviations."""
        n = 200_000
        x = self.draw("uniform", 11, 0, (n,), dtype)
        assert x.min() >= 0 and x.max() < 1
        counts = np.histogram(x, bins=10, range=(0, 1))[0]
        assert np.abs(counts - n / 10).max() < 5 * math.sqrt(n * 0.09)
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / math.sqrt(n)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_normal_distribution(self, dtype):
        """Moments, and the share beyond one, two and three standard deviations."""
        n = 200_000
        x = self.draw("normal", 12, 0, (n,), dtype).astype(np.float64)
        assert np.isfinite(x).all()
        moments = [x.mean(), (x**2).mean(), (x**3).mean(), (x**4).mean()]
        for moment, expected, variance in zip(moments, [0, 1, 0, 3], [1, 2, 15, 96], strict=True):
            assert abs(moment - expected) < 5 * math.sqrt(variance / n)
        for k in (1, 2, 3):
            p = math.erfc(k / math.sqrt(2))
            assert abs((np.abs(x) > k).mean() - p) < 5 * math.sqrt(p * (1 - p) / n)
        assert abs(np.corrcoef(x[::2], x[1::2])[0, 1]) < 5 / math.sqrt(n / 2)
