"""Elementwise functions: one per row of the op table, with `out=`."""

from typing import Any

from needle_ndarray.backend import BINARY, UNARY, Op
from needle_ndarray.ndarray import NDArray, binary_function, unary_function, where_op

#: Names of the array API standard for ops of the table.
ALIASES = {"pow": "power", "bitwise_invert": "invert", "absolute": "abs", "true_divide": "divide", "mod": "remainder"}


def _named(function: Any, op: Op, arguments: str) -> Any:
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = __name__
    function.__doc__ = f"{op.name}({arguments}): {op.formula}"
    return function


FUNCTIONS: dict[str, Any] = {op.name: _named(unary_function(op), op, "x") for op in UNARY.values()}
FUNCTIONS |= {op.name: _named(binary_function(op), op, "a, b") for op in BINARY.values()}
FUNCTIONS |= {alias: FUNCTIONS[name] for alias, name in ALIASES.items()}
globals().update(FUNCTIONS)


def where(condition: Any, x1: Any, x2: Any, /) -> NDArray:
    """x1 where condition else x2."""
    return where_op(condition, x1, x2)


def clip(x: NDArray, /, min: Any = None, max: Any = None) -> NDArray:
    """Values below min become min, above max max; NaN stays."""
    return x.clip(min, max)


def square(x: NDArray, /) -> NDArray:
    """x * x"""
    return x * x


def reciprocal(x: NDArray, /) -> NDArray:
    """1 / x, of floats."""
    return 1 / x


def positive(x: NDArray, /) -> NDArray:
    """A copy of x."""
    return +x


__all__ = [*FUNCTIONS, "where", "clip", "square", "reciprocal", "positive"]
