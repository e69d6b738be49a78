"""Types of the compiled module."""

from typing import Any

from needle_ndarray.backend import Op

def run_step(what: str, op: Op, given: tuple[Any, ...], hyperparameters: tuple[float, ...]) -> None: ...
