"""The CPU backend. Compiled; its verbs have the types of `Backend`."""

from needle_ndarray.backend import Backend

class CPUBackend(Backend): ...
