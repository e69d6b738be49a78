"""Chapter 2 by Needle itself; docs/toy_engine.py is a shorter one."""

from needle import Tensor
from needle.autograd import compute_gradient_of_variables, find_topo_sort
from needle.ops import (
    add,
    broadcast_to,
    divide,
    exp,
    log,
    matmul,
    mul_scalar,
    multiply,
    negate,
    power_scalar,
    relu,
    reshape,
    summation,
    transpose,
)

__all__ = [
    "Tensor", "add", "broadcast_to", "compute_gradient_of_variables", "divide", "exp", "find_topo_sort", "log", "matmul",
    "mul_scalar", "multiply", "negate", "power_scalar", "relu", "reshape", "summation", "transpose",
]  # fmt: skip
