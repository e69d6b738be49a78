"""Kernels whose grid is smaller than their work: what happens on a GPU with arrays too large for this suite."""

import itertools

import pytest
from contract_cases import cases, run_case, use_small_grids

from needle_ndarray import device

MOST = 40  # cases of each test

TESTS = [
    ("test_unary", {"op": "exp"}),
    ("test_binary", {"op": "add"}),
    ("test_where", {}),
    ("test_copy", {"to": "float32"}),
    ("test_copy", {"to": "float64"}),
    ("test_fill", {}),
    ("test_take", {}),
    ("test_put", {}),
    ("test_scatter_add", {}),
    ("test_many_rows", {}),
    ("test_reduce", {"op": "sum"}),
    ("test_reduce_long_and_thin", {"op": "sum"}),
    ("test_reduce_long_and_thin", {"op": "max"}),
    ("test_arg_reduce", {}),
    ("test_scan", {}),
    ("test_matmul", {}),
    ("test_row_lengths", {"way": "own"}),
    ("test_norm_shapes", {}),
    ("test_entropy_shapes", {}),
    ("test_attention", {}),
    ("test_conv2d", {"way": "own"}),
    ("test_conv2d_input_grad", {"way": "own"}),
    ("test_conv2d_weight_grad", {"way": "own"}),
    ("test_max_pool2d", {"way": "own"}),
    ("test_max_pool2d_grad", {"way": "own"}),
    ("test_avg_pool2d_grad", {"way": "own"}),
    ("test_bits", {}),
    ("test_shapes", {}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("test, where", TESTS, ids=[" ".join((test, *where.values())) for test, where in TESTS])
def test_few_blocks(test, where, monkeypatch):
    use_small_grids(monkeypatch, device("cuda").backend.launcher)
    found = list(cases(test, {"dtype": "float32", **where}))
    assert found
    for case in itertools.islice(found, 0, None, max(1, len(found) // MOST)):
        run_case(test, case)
