"""The contract suite on the two backends of this package."""

from needle_ndarray.testing import ContractSuite


class TestCPU(ContractSuite):
    device = "cpu"


class TestNumPy(ContractSuite):
    device = "cpu_numpy"
