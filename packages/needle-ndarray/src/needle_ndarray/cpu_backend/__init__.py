"""The CPU backend: `backend` has the verbs, the other modules what they hand to the kernels, `guard` the checks they share."""

from needle_ndarray import kernels

kernels.settle()  # before the modules below bind the functions of a level

from needle_ndarray.cpu_backend.backend import CPUBackend  # noqa: E402

__all__ = ["CPUBackend"]
