"""The whole contract of the backend interface, on the CUDA backend; without a GPU its kernels are emulated (conftest.py)."""

from needle_ndarray.testing import ContractSuite


class TestCUDA(ContractSuite):
    device = "cuda"
