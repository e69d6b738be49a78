"""The op table, captured on an emulated CUDA device: replayed as CUDA graphs, with the bits of eager code."""

import os
import sys
from pathlib import Path

import pytest

import needle as ndl

if os.environ.get("NEEDLE_CUDA_EMULATION") != "1":
    pytest.skip("counts what the emulation is asked", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/needle-core/tests"))
from op_table import ROWS
from test_capture import compare, inputs_of, naming, outputs


@pytest.mark.filterwarnings("ignore::needle.capturing.CaptureWarning", "error::RuntimeWarning")
def test_ops_in_graphs():
    """Most rows: the others are a call or two, or cannot be captured."""
    from needle_cuda.testing import count_launches

    graphed = 0
    for row in ROWS:

        def run(*tensors, row=row):
            results = outputs(row.fn(*tensors))
            if row.order:
                sum(((y * (y + 1.5)).sum() for y in results), start=0.0).backward()
            return results

        with naming(row), count_launches() as found:
            compare(run, lambda call, row=row: inputs_of(row, ndl.cuda(), "float32", call))
        graphed += found["graph"] > 0
    assert graphed > 0.75 * len(ROWS)
