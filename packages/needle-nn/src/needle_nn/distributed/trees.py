"""The order in which the arrays of several ranks, or of several parts of a step, are combined: a fixed binary tree."""

from collections.abc import Sequence

import needle_ndarray as nd
from needle_ndarray import NDArray

#: What arrays may be combined by: the names here, and those of needle_ndarray's functions.
OPS = {"sum": "add", "max": "maximum", "min": "minimum"}


def tree_reduce(arrays: Sequence[NDArray], op: str = "sum") -> NDArray:
    """((a0 + a1) + (a2 + a3)) + ...: neighbours first, then neighbours among the results; an odd one waits for the next round.

    The order depends on the number of arrays alone. A run of 2^k neighbours that begins at a multiple of 2^k is a subtree, so
    whoever has it may sum it beforehand, to the same bits.

    >>> tree_reduce([nd.array([x]) for x in (1.0, 2.0, 3.0, 4.0, 5.0)]).item()
    15.0
    """
    level, combine = list(arrays), getattr(nd, OPS[op])
    while len(level) > 1:
        paired = [combine(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(level) - len(level) % 2 :]
    return level[0]
