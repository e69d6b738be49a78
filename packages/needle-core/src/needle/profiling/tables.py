"""Tables of a profile: rows by op, verb or line, as data and as text."""

import os
from collections.abc import Callable
from linecache import getline
from typing import Any, NamedTuple

from needle.profiling.listener import Event, Track

BETWEEN = "between operations"


class Row(NamedTuple):
    """Calls that have something in common, and what they cost together."""

    name: str
    calls: int
    seconds: float
    share: float  # of the profile's time, 0 to 1
    nbytes: int
    flops: int

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.nbytes / self.seconds if self.seconds else 0.0


def name_of_line(line: tuple[str, int]) -> str:
    """'train.py:31  loss.backward()'"""
    text = getline(*line).strip()
    return f"{os.path.basename(line[0])}:{line[1]}" + (f"  {text}" if text else "")


#: What rows are made by: a key of an event, and the name that a key gets.
BY: dict[str, tuple[Callable[[Event], Any], Callable[[Any], str]]] = {
    "op": (lambda event: event.op, str),
    "verb": (lambda event: event.kind.verb, str),
    "line": (lambda event: event.line, name_of_line),
}


def rows_of(track: Track, by: str, total: int) -> list[Row]:
    """Rows of one thread, the longest time first, then what lies between operations; `total`: nanoseconds of all of it."""
    if by not in BY:
        raise ValueError(f"by={by!r}: expected one of {', '.join(BY)}")
    key, name = BY[by]
    sums: dict[Any, list[int]] = {}
    for event in map(Event._make, track.events):
        found = sums.setdefault(key(event), [0, 0, 0, 0])
        found[0] += 1
        found[1] += event.end - event.start
        found[2] += event.kind.nbytes
        found[3] += event.kind.flops
    rows = [
        Row(name(k), calls, ns / 1e9, ns / total if total else 0.0, nbytes, flops)
        for k, (calls, ns, nbytes, flops) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    rest = total - sum(found[1] for found in sums.values())
    return [*rows, Row(BETWEEN, 0, rest / 1e9, rest / total if total else 0.0, 0, 0)]


# ---- Text ------------------------------------------------------------------------------------------------------------------

WIDEST = 60  # characters of a name


def text_of(rows: list[Row], title: str, limit: int) -> str:
    """A table: at most `limit` rows of operations, the others as one, what lies between, and the sum."""
    *found, between = rows
    more = found[limit:]
    shown = found[:limit]
    if more:
        shown.append(summed(f"{len(more)} more", more))
    shown.append(between)
    lines: list[tuple[str, ...]] = [(title, "calls", "time", "share", "per call", "bytes", "GFLOP/s", "GB/s")]
    lines += [cells(row) for row in shown]
    lines.append((*cells(summed("total", rows))[:4], "", "", "", ""))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    made = []
    for line in lines:
        right = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        made.append("  ".join([line[0].ljust(widths[0]), *right]).rstrip())
    return "\n".join(made)


def summed(name: str, rows: list[Row]) -> Row:
    return Row(name, *[sum(column) for column in list(zip(*rows, strict=True))[1:]])


def cells(row: Row) -> tuple[str, ...]:
    name = row.name if len(row.name) <= WIDEST else row.name[: WIDEST - 1] + "…"
    time, share = duration(row.seconds), f"{100 * row.share:.1f} %"
    if not row.calls:
        return name, "", time, share, "", "", "", ""
    rate, speed = (f"{x / 1e9:.2f}" if x else "" for x in (row.flops_per_second, row.bytes_per_second))
    return name, f"{row.calls:,}", time, share, duration(row.seconds / row.calls), amount(row.nbytes), rate, speed


def duration(seconds: float) -> str:
    """0.0123 -> 12.3 ms"""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= 0.9995 * size or unit == "us":
            return f"{seconds / size:.3g} {unit}" if abs(seconds) < 999.5 * size else f"{seconds / size:.0f} {unit}"
    raise AssertionError("a duration without a unit")


def amount(nbytes: int) -> str:
    """1536 -> 1.54 kB"""
    value, units = float(nbytes), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
