"""The parts of a step, and the tree by which their gradients are summed: the same whoever computes which part.

Part i of a step is part i on any number of ranks. Neighbours are added first, then neighbours among the sums, as `tree_reduce`
does; a run of 2^k parts that begins at a multiple of 2^k is a subtree, a node here. A rank has a run of parts and sums them to as
few nodes as that run holds; the nodes of all ranks, in order, give the sum of the step.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from needle_ndarray import NDArray


class Node(NamedTuple):
    """The sum of 2^level parts, the first of them a multiple of that."""

    first: int
    level: int
    value: Any


def run_of(rank: int, size: int, count: int) -> range:
    """The parts of a step of `count` that are a rank's.

    >>> [run_of(rank, 4, 6) for rank in range(4)]
    [range(0, 1), range(1, 3), range(3, 4), range(4, 6)]
    """
    return range(rank * count // size, (rank + 1) * count // size)


def nodes_of(parts: range) -> list[tuple[int, int]]:
    """(first, level) of the nodes that a run of parts makes.

    >>> nodes_of(range(3, 8))
    [(3, 0), (4, 2)]
    """
    nodes: list[Node] = []
    for part in parts:
        push(nodes, Node(part, 0, None), lambda a, b, level: None)
    return [(node.first, node.level) for node in nodes]


def push(nodes: list[Node], node: Node, add: Callable[[Any, Any, int], Any]) -> None:
    """Append the next node, and add up what makes a larger one; add(a, b, level of a)."""
    nodes.append(node)
    while len(nodes) > 1 and nodes[-1].level == nodes[-2].level and nodes[-2].first % (2 << nodes[-2].level) == 0:
        b, a = nodes.pop(), nodes.pop()
        nodes.append(Node(a.first, a.level + 1, add(a.value, b.value, a.level)))


def fold(nodes: Iterable[Node], add: Callable[[Any, Any, int], Any]) -> Any:
    """The sum of nodes that follow one another from part 0 on; None of none.

    >>> add = lambda a, b, level: f"({a}{b})"
    >>> fold([Node(i, 0, f"{i}") for i in range(7)], add)
    '(((01)(23))((45)6))'
    >>> fold([Node(0, 1, "(01)"), Node(2, 0, "2"), Node(3, 0, "3"), Node(4, 1, "(45)"), Node(6, 0, "6")], add)
    '(((01)(23))((45)6))'
    """
    joined: list[Node] = []
    for node in nodes:
        push(joined, node, add)
    if not joined:
        return None
    total = joined.pop().value
    while joined:
        node = joined.pop()
        total = add(node.value, total, node.level)
    return total


def add_gradients(a: list[NDArray | None], b: list[NDArray | None], level: int) -> list[NDArray | None]:
    """a + b for each parameter, into a where it is a sum already, and no part's own; what is missing is 0, unless both are."""
    return [_added(x, y, level > 0) for x, y in zip(a, b, strict=True)]


def _added(x: NDArray | None, y: NDArray | None, mine: bool) -> NDArray | None:
    if x is None or y is None:
        there = y if x is None else x
        return None if there is None else there + 0  # -0 + 0 is 0: what it would be among other ranks' zeros
    if not mine:
        return x + y
    x += y
    return x
