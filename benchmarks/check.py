"""Whether the frameworks do the same work: the numbers a case comes to, side by side.

Arrays are compared by their size and the sums of x, |x| and x^2 over them, which do not depend on layout; train steps by the
losses of three steps from the same weights, with dropout off.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from benchmarks.cases import Case
from benchmarks.run import Failed, Player, Team

TOLERANCE = 2e-3  # of sums of |x| and x^2; three steps of Adam make a last bit larger


class Verdict(NamedTuple):
    """What came of comparing a case with Needle: `problem` is empty if the numbers agree."""

    case: Case
    label: str
    problem: str


def difference(ours: list[list[float]], theirs: list[list[float]]) -> str:
    """Where two lists of [count, sum, sum of |x|, sum of x^2] differ.

    >>> difference([[2, 0.0, 4.0, 8.0]], [[2, 1e-6, 4.0, 8.0]]), difference([[2, 0, 4, 8]], [[2, 0, 5, 8]])
    ('', 'value 0: sum |x| 4 here, 5 there')
    """
    if len(ours) != len(theirs):
        return f"{len(ours)} values here, {len(theirs)} there"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a[0] != b[0]:
            return f"value {i}: {a[0]:g} numbers here, {b[0]:g} there"
        scale = max(abs(a[2]), abs(b[2]), 1e-12)
        for name, x, y, size in zip(("sum", "sum |x|", "sum x^2"), a[1:], b[1:], (scale, scale, a[3]), strict=True):
            if not math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE * abs(size)):
                return f"value {i}: {name} {x:.6g} here, {y:.6g} there"
    return ""


def verdicts(players: Iterable[Player], cases: Iterable[Case], threads: int) -> Iterator[Verdict]:
    """Compare every peer with Needle, case by case."""
    with Team(players, threads) as team:
        for case in cases:
            asked = [p.label for p in team.players.values() if p.framework in case.of]
            found: dict[str, Any] = {}
            for label in asked:
                try:
                    found[label] = team.ask(label, check=case.key)["sums"]
                except Failed as failure:
                    yield Verdict(case, label, str(failure))
            for label in [name for name in found if name != "needle" and "needle" in found]:
                yield Verdict(case, label, difference(found["needle"], found[label]))


def report(players: list[Player], cases: list[Case], threads: int) -> int:
    """Print a line per comparison; how many failed."""
    random = [case for case in cases if case.after == "-"]
    failed = total = 0
    for verdict in verdicts(players, [case for case in cases if case not in random], threads):
        total += 1
        failed += bool(verdict.problem)
        print(f"{(verdict.problem and 'DIFFERENT') or 'same':10}{verdict.label:9}{verdict.case.key}  {verdict.problem}")
    for case in random:
        print(f"{'random':10}{'':9}{case.key}")
    print(f"{total} comparisons with Needle: {failed} differ; {len(random)} cases draw random numbers")
    return failed
