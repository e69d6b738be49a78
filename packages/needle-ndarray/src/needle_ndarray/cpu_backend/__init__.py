"""The CPU backend: `backend` has the verbs, the other modules what they hand to the kernels, `guard` the checks they share."""

from needle_ndarray.cpu_backend.backend import CPUBackend

__all__ = ["CPUBackend"]
