"""The contract suite's tests by name, case by case, for tests that change something and look what happens."""

import itertools
import re

import pytest

from needle_cuda.testing.cupy_standin.module import Kernel
from needle_ndarray.testing import ContractSuite

#: Kernels that loop over what their grid does not cover, and the axes of the grid along which they do.
LOOPS = {
    "reduce_.*|scan_rows|transpose": (0,),
    "(softmax|log_softmax|logsumexp)(_grad)?|cross_entropy.*|layer_norm|layer_norm_grad": (0,),
    "matvec_rows": (0, 2),
    r"matvec_columns|matmul_\d+|attention.*|conv2d_weight_grad_direct": (2,),
}
FEW_BLOCKS = 2


class Suite(ContractSuite):
    device = "cuda"

    @pytest.mark.parametrize("dtype", ["float32"])
    def test_large_product(self, dtype):
        """More than one of the largest tiles."""
        self.multiply(dtype, (), 130, 40, 129, ("compact", "compact", "compact"))


def cases(test, where):
    """The keyword arguments of each case of a test that fits: a value is compared as text, an op by its name."""
    columns = [getattr(getattr(Suite, test), "cases", [{}])]
    for mark in getattr(getattr(Suite, test), "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
            values = [
                each.values if hasattr(each, "marks") else each if len(names) > 1 else (each,) for each in mark.args[1]
            ]
            columns.append([dict(zip(names, value, strict=True)) for value in values])
    for chosen in itertools.product(*columns):
        case = {name: value for part in chosen for name, value in part.items()}
        if all(str(getattr(case[name], "name", case[name])) == value for name, value in where.items() if name in case):
            yield case


def run_case(test, case):
    """One case alone of a test, which has others in a table."""
    function = getattr(Suite, test)
    getattr(function, "body", function)(Suite(), **case)


def use_small_grids(monkeypatch, launcher):
    """At most FEW_BLOCKS blocks where a kernel allows it: blocks then come round to a second row or tile, as in large arrays."""
    call = Kernel.__call__

    def with_few_blocks(self, grid, *args, **more):
        for names, axes in LOOPS.items():
            if re.fullmatch(names, self.name):
                grid = tuple(min(size, FEW_BLOCKS) if axis in axes else size for axis, size in enumerate(grid))
        return call(self, grid, *args, **more)

    monkeypatch.setattr(Kernel, "__call__", with_few_blocks)
    monkeypatch.setattr(launcher, "most_blocks", FEW_BLOCKS)
