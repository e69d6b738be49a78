"""Charts as inline SVG: lines over steps, and a confusion matrix."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from needle_nn.reporting.markup import Markup, join, tag

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 34, 40
MANY = 400  # points of a line; more cannot be told apart on a screen


class Line(NamedTuple):
    """A line of a chart: its name, points (x, y), colour, and whether it stays in the background."""

    name: str
    points: Sequence[tuple[float, float]]
    color: str
    faint: bool = False
    dots: bool = False


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0, 1), ticks(3, 1200, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [500.0, 1000.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((m for m in (1, 2, 5, 10) if m * power >= rough * 0.99), default=10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def line_chart(
    title: str, lines: Sequence[Line], x_name: str = "step", percent: bool = False, log: bool = False
) -> Markup:
    """Lines over a common x axis; y linear or logarithmic. Lines without points are left out."""
    lines = [line._replace(points=_thinned(line.points, log)) for line in lines]
    lines = [line for line in lines if line.points]
    if not lines:
        return tag("p", f"No data for {title}.", class_="note")
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_of, x_ticks = _axis(0, max(xs) or 1, LEFT, WIDTH - RIGHT, False)
    y_of, y_ticks = _axis(*_range(min(ys), max(ys), percent, log), HEIGHT - BOTTOM, TOP, log)
    parts = [tag("title", title)]
    for y in y_ticks:
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y_of(y), y2=y_of(y), class_="grid"))
        parts.append(tag("text", _short(y, percent), x=LEFT - 8, y=y_of(y) + 4, text_anchor="end", class_="tick"))
    for x in x_ticks:
        parts.append(tag("text", _short(x), x=x_of(x), y=HEIGHT - BOTTOM + 18, text_anchor="middle", class_="tick"))
    parts.append(tag("text", x_name, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4, text_anchor="middle", class_="tick"))
    for line in lines:
        parts.append(_drawn(line, x_of, y_of, percent, x_name))
    parts.append(_legend(lines))
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", class_="chart")


def _axis(low: float, high: float, start: float, end: float, log: bool):
    """A function from values to pixels, and the ticks."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        marks = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
        low, high = math.log10(low), math.log10(high)
    else:
        marks = ticks(low, high)
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * ((math.log10(value) if log else value) - low) / span, marks


def _range(low: float, high: float, percent: bool, log: bool) -> tuple[float, float]:
    """The range of the y axis: some air above and below, 0 if it is near, shares no higher than 1."""
    if log:
        return low / 1.15, high * 1.15
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    bottom = 0.0 if 0 <= low < 0.35 * high else low - air
    return bottom, max(high, min(high + air, 1.0)) if percent else high + air


def _thinned(points: Sequence[tuple[float, float]], log: bool) -> list[tuple[float, float]]:
    """Finite points, and of many only their means in stretches."""
    kept = [(float(x), float(y)) for x, y in points if y is not None and math.isfinite(y) and (y > 0 or not log)]
    if len(kept) <= MANY:
        return kept
    parts = np.array_split(np.array(kept), MANY)
    return [(float(part[-1, 0]), float(part[:, 1].mean())) for part in parts]


def _drawn(line: Line, x_of: Any, y_of: Any, percent: bool, x_name: str) -> Markup:
    spots = [(x_of(x), y_of(y)) for x, y in line.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    faint = "0.28" if line.faint else None
    parts = [
        tag("path", d=path, fill="none", stroke=line.color, stroke_width=1.2 if line.faint else 2.2, opacity=faint)
    ]
    if line.dots or len(spots) == 1:
        for (x, y), (at, value) in zip(spots, line.points, strict=True):
            note = tag("title", f"{line.name}: {_short(value, percent, 4)} at {x_name} {_short(at)}")
            parts.append(tag("circle", note, cx=x, cy=y, r=2.8, fill=line.color))
    return join(parts)


def _legend(lines: Sequence[Line]) -> Markup:
    parts, x = [], float(LEFT)
    for line in lines:
        parts.append(
            tag("rect", x=x, y=11, width=14, height=4, rx=2, fill=line.color, opacity="0.4" if line.faint else None)
        )
        parts.append(tag("text", line.name, x=x + 20, y=17, class_="legend"))
        x += 38 + 6.6 * len(line.name)
    return join(parts)


def _short(value: float, percent: bool = False, digits: int = 3) -> str:
    """A number for an axis.

    >>> _short(0.5), _short(0.975, percent=True), _short(25000), _short(1500)
    ('0.5', '97.5 %', '25k', '1500')
    """
    if percent:
        return f"{value * 100:.{digits}g} %"
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}" if value == int(value) else f"{value:.{digits}g}"


def confusion_chart(counts: np.ndarray, classes: Sequence[str]) -> Markup:
    """Rows are true classes, columns predicted ones; the shade is the share of the row, mistakes are red."""
    n = len(counts)
    cell = min(44.0, 440.0 / n)
    left, top = 30.0 + 7.2 * max((len(name) for name in classes), default=1), 46.0
    size = cell * n
    parts = [tag("title", "Confusion matrix")]
    parts.append(tag("text", "predicted", x=left + size / 2, y=14, text_anchor="middle", class_="tick"))
    middle = top + size / 2
    parts.append(
        tag(
            "text",
            "true",
            x=12,
            y=middle,
            text_anchor="middle",
            class_="tick",
            transform=f"rotate(-90 12 {middle:.1f})",
        )
    )
    for i, row in enumerate(counts):
        total = max(1, int(row.sum()))
        parts.append(
            tag("text", classes[i], x=left - 8, y=top + (i + 0.5) * cell + 4, text_anchor="end", class_="legend")
        )
        slanted = n * max(map(len, classes)) > 60
        x, y = left + (i + 0.5) * cell, top - 8
        turn = f"rotate(-35 {x:.1f} {y:.1f})" if slanted else None
        anchor = "start" if slanted else "middle"
        parts.append(tag("text", classes[i], x=x, y=y, text_anchor=anchor, class_="legend", transform=turn))
        for j, count in enumerate(row):
            parts.append(
                _cell(left + j * cell, top + i * cell, cell, int(count), int(count) / total, classes[i], classes[j])
            )
    height = top + size + 6
    return tag("svg", *parts, viewBox=f"0 0 {left + size + 24:.0f} {height:.0f}", role="img", class_="chart matrix")


def _cell(x: float, y: float, cell: float, count: int, share: float, true: str, predicted: str) -> Markup:
    right = true == predicted
    shade = (0.12 + 0.88 * share) if right else min(0.9, 0.15 + 2.5 * share)
    note = tag("title", f"{true} taken for {predicted}: {count} ({share:.1%})")
    box = {"x": x + 1, "y": y + 1, "width": cell - 2, "height": cell - 2, "rx": 3}
    parts = [tag("rect", note, **box, fill="#f4f5f7")]
    if count:
        color = "#2f6fde" if right else "#d9534f"
        parts.append(tag("rect", note, **box, fill=color, fill_opacity=f"{shade:.2f}"))
        if cell >= 20:
            ink = "#fff" if shade > 0.5 else "#222"
            parts.append(
                tag("text", count, x=x + cell / 2, y=y + cell / 2 + 4, text_anchor="middle", class_="count", fill=ink)
            )
    return join(parts)
