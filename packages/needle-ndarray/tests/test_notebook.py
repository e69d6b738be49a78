"""What a notebook shows of arrays: well-formed, escaped, small, and little work."""

import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.notebook import MAPS, color

#: A shape, rectangles drawn, and words of the page.
CASES = [
    ((), 0, ["()", "int64", "cpu()"]),
    ((0,), 0, ["(0,)"]),
    ((0, 3), 0, ["(0, 3)"]),
    ((1,), 0, ["(1,)"]),
    ((5,), 5, ["from 0 to 4"]),
    ((3, 4), 12, ["from 0 to 11"]),
    ((40, 100), 10 * 25, ["10 × 25 of 40 × 100", "<details "]),
    ((2, 3, 4), 24, ["(2, 3, 4)"]),
    ((9, 2, 2), MAPS * 4, ["4 of 9 matrices"]),
]


@pytest.mark.parametrize(("shape", "cells", "words"), CASES, ids=[str(row[0]) for row in CASES])
def test_page(shape, cells, words):
    page = nd.arange(int(np.prod(shape))).reshape(shape)._repr_html_()
    tree = ET.fromstring(page)
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}rect")) == cells
    assert [word for word in [*words, str(shape)] if word not in page] == []


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_dtypes(dtype):
    page = nd.array([[0, 1], [1, 0]], dtype=dtype)._repr_html_()
    assert page.count("<rect") == 4
    assert dtype in page


def test_what_is_no_number_has_a_colour_of_its_own():
    page = nd.array([[np.nan, 1.0], [np.inf, -np.inf]])._repr_html_()
    assert page.count('fill="#d6336c"') == 3
    ET.fromstring(nd.array([np.nan, np.inf])._repr_html_())


def test_colours_follow_values():
    assert color(1, 1, 1) == color(0, -2, 2)  # all equal: grey
    assert color(2, 0, 2) == color(5, 0, 5)
    assert color(-1, -4, -1) == color(0, -1, 1)  # nothing positive: the highest is grey
    assert len({color(v, -2, 2) for v in (-2, -1, 0, 1, 2)}) == 5


def test_large_arrays_are_sampled():
    """A view of a thousand million elements: nearly all of them stay unread."""
    huge = nd.ones((1,)).broadcast_to((1000, 1000, 1000))
    began = time.perf_counter()
    page = huge._repr_html_()
    assert time.perf_counter() - began < 2
    assert len(page) < 300_000
    assert "4 of 1,000 matrices" in page


def test_it_is_escaped():
    class Odd(nd.NDArray):
        pass

    from needle_ndarray.notebook import array_html

    page = array_html(Odd([1.0, 2.0]), "<script>", "by <b>")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "by &lt;b&gt;" in page
    ET.fromstring(page)
