"""The contract suite on the two backends of this package."""

import pytest

from needle_ndarray.testing import ContractSuite


class TestCPU(ContractSuite):
    device = "cpu"


@pytest.mark.slow
class TestNumPy(ContractSuite):
    device = "cpu_numpy"
