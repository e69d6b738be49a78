"""Pictures of results as SVG files: bars of ratios, curves over sizes, targets. Each brings its own ground, light or dark."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.results import NAMES
from benchmarks.targets import Outcome
from needle_nn.command.bench import readable
from needle_nn.reporting.markup import Markup, tag

COLORS = {
    "needle": "#8a5cf0",
    "numpy": "#3f88d9",
    "torch": "#e2662f",
    "compile": "#c99a1c",
    "jax": "#2aa078",
    "eager": "#b79af5",
    "onnx": "#d6457f",
}
GOOD, FAIR, BAD = "#2aa078", "#3f88d9", "#dd4444"
STYLE = """
text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-size: 14px; font-weight: 600 } .small { font-size: 10.5px } .tick { font-size: 10.5px; fill: #59636e }
.ground { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #e1e5ea } .one { stroke: #59636e; stroke-width: 1.4 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .tick { fill: #9aa5b1 }
.ground { fill: #10151c; stroke: #30363d } .grid { stroke: #262d36 } .one { stroke: #9aa5b1 }
}
"""
NAMED, LEFT, PLOT, RIGHT = 320, 362, 390, 64  # end of the names; the plot, with room for labels on both sides
BAR, GAP, TOP = 11, 8, 72


def document(width: float, height: float, title: str, parts: Iterable[Any]) -> str:
    ground = tag("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=6, class_="ground")
    heading = tag("text", title, x=16, y=24, class_="title")
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    inside = (tag("title", title), tag("style", Markup(STYLE)), ground, heading, *parts)
    return tag("svg", *inside, xmlns="http://www.w3.org/2000/svg", role="img", **size) + "\n"


def legend(entries: Iterable[tuple[str, str]], x: float, y: float) -> list[Markup]:
    """Squares of colours with their names, in a row."""
    parts = []
    for name, color in entries:
        parts.append(tag("rect", x=x, y=y - 9, width=10, height=10, rx=2, fill=color))
        parts.append(tag("text", name, x=x + 15, y=y))
        x += 34 + 6.8 * len(name)
    return parts


class Ratios:
    """A logarithmic axis of ratios around 1, from left to right."""

    def __init__(self, values: Iterable[float]):
        found = [v for v in values if v > 0 and math.isfinite(v)]
        self.low = min(-1, math.floor(math.log2(min(found, default=1))))
        self.high = max(1, math.ceil(math.log2(max(found, default=1))))

    def x(self, value: float) -> float:
        return LEFT + PLOT * (math.log2(value) - self.low) / (self.high - self.low)

    def lines(self, top: float, bottom: float) -> list[Markup]:
        parts = []
        every = 2 if self.high - self.low > 8 else 1
        for power in range(self.low, self.high + 1):
            if power % every and power:
                continue
            x = self.x(2.0**power)
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="one" if power == 0 else "grid"))
            label = f"{2**power}×" if power >= 0 else f"1/{2**-power}"
            parts.append(tag("text", label, x=x, y=top - 5, text_anchor="middle", class_="tick"))
        return parts

    def bar(self, value: float, y: float, color: str, note: str, label: str, clear: float = 0.0) -> list[Markup]:
        """From 1 to the value, its label beyond `clear`; where a peer is ahead it goes left, and is paler."""
        start, end = sorted((self.x(1), self.x(value)))
        right = value >= 1
        box = {"x": start, "y": y, "width": max(end - start, 1.5), "height": BAR - 1, "rx": 1.5}
        place = {"x": max(end, clear) + 4, "text_anchor": "start"} if right else {"x": start - 4, "text_anchor": "end"}
        return [
            tag("rect", tag("title", note), **box, fill=color, opacity=None if right else "0.6"),
            tag("text", label, y=y + BAR - 2, class_="small", **place),
        ]


def bars(title: str, rows: Sequence[tuple[str, dict[str, float]]]) -> str:
    """Rows of (name, {peer: their time / Needle's})."""
    axis = Ratios(v for _, row in rows for v in row.values())
    peers = [name for name in NAMES if any(name in row for _, row in rows)]
    parts, y = [], float(TOP + 6)
    for name, row in rows:
        if not row:
            continue
        middle = y + BAR * len(row) / 2
        parts.append(tag("text", name, x=NAMED, y=middle + 4, text_anchor="end"))
        for peer in [peer for peer in peers if peer in row]:
            note = f"{name}: {NAMES[peer]} takes {row[peer]:.2f} times as long as Needle"
            parts += axis.bar(
                row[peer], y, COLORS[peer], note, f"{row[peer]:.2f}" if row[peer] < 10 else f"{row[peer]:.0f}"
            )
            y += BAR
        y += GAP
    key = legend(((f"{NAMES[p]} / Needle", COLORS[p]) for p in peers), 16, 46)
    return document(LEFT + PLOT + RIGHT, y + 8, title, [*key, *axis.lines(TOP, y), *parts])


def targets(title: str, outcomes: Sequence[Outcome]) -> str:
    """Every measured target as a multiple of what is required: right of 1 it is kept; a line marks the target."""
    shown = [o for o in outcomes if o.value is not None]

    axis = Ratios(o.share(value) for o in shown for value in (o.value or 1, o.target))
    parts, y = [], float(TOP + 6)
    for o in shown:
        value = o.share(o.value or 1)
        color = GOOD if o.reached else FAIR if o.kept else BAD
        name = f"{o.name.partition(' (')[0].partition(', forward')[0]}{' / JAX' if o.peer == 'jax' else ''}"
        note = f"{o.name}: {o.shown[0]}, required {o.shown[1]}, target {o.shown[2]}"
        parts.append(tag("text", name, x=NAMED, y=y + BAR - 1, text_anchor="end"))
        mark = axis.x(o.share(o.target))
        parts += axis.bar(value, y, color, note, o.shown[0], clear=0.0 if o.reached else mark)
        parts.append(tag("line", x1=mark, x2=mark, y1=y - 3, y2=y + BAR + 2, class_="one"))
        y += BAR + GAP
    key = legend((("target reached (line)", GOOD), ("required value reached", FAIR), ("missed", BAD)), 16, 46)
    return document(LEFT + PLOT + RIGHT, y + 8, title, [*key, *axis.lines(TOP, y), *parts])


def curves(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """Time per element over the number of elements, both logarithmic: a panel for each operation."""
    names = list(dict.fromkeys(r["name"].split()[0] for r in rows))
    frameworks = [name for name in NAMES if any(name in r["times"] for r in rows)]
    wide, high, left, top = 300, 230, 56, 84
    parts = legend(((NAMES[f], COLORS[f]) for f in frameworks), 16, 46)
    for i, name in enumerate(names):
        lines = []
        for f in reversed(frameworks):
            known = [
                (r["elements"], r["times"][f]["best"]) for r in rows if r["name"].split()[0] == name and f in r["times"]
            ]
            lines.append((COLORS[f], [
                (math.log10(n), math.log10(t / n * 1e9), f"{NAMES[f]}: {readable(t)} for {n:,} elements") for n, t in known
            ]))  # fmt: skip
        xs, ys = ([spot[k] for _, spots in lines for spot in spots] for k in (0, 1))
        powers = {p: tag("tspan", "10", tag("tspan", p, dy=-4, font_size=8)) for p in whole(xs)}
        place = (left + i * (wide + 56), top, wide, high)
        parts += panel(f"{name}: ns per element", lines, powers, {p: f"{10.0**p:g}" for p in whole(ys)}, place)
        parts.append(
            tag("text", "elements", x=place[0] + wide / 2, y=top + high + 34, text_anchor="middle", class_="tick")
        )
    return document(left + len(names) * (wide + 56) - 32, top + high + 46, title, parts)


def whole(values: Sequence[float]) -> range:
    """Whole numbers from below the smallest to above the largest, two at least."""
    low = math.floor(min(values, default=0))
    return range(low, max(math.ceil(max(values, default=0)), low + 1) + 1)


def panel(
    title: str,
    lines: Iterable[tuple[str, Sequence[tuple[float, float, str]]]],
    x_marks: Mapping[Any, Any],
    y_marks: Mapping[Any, Any],
    place: tuple[float, float, float, float],
) -> list[Markup]:
    """Lines, of a colour and points (x, y, note), over a grid of marks with their labels; `place` is (left, top, width, height)."""
    left, top, wide, high = place

    def x_of(x: float) -> float:
        return left + wide * (x - min(x_marks)) / (max(x_marks) - min(x_marks))

    def y_of(y: float) -> float:
        return top + high - high * (y - min(y_marks)) / (max(y_marks) - min(y_marks))

    parts = [tag("text", title, x=left, y=top - 10)]
    for y, label in y_marks.items():
        parts.append(tag("line", x1=left, x2=left + wide, y1=y_of(y), y2=y_of(y), class_="grid"))
        parts.append(tag("text", label, x=left - 6, y=y_of(y) + 4, text_anchor="end", class_="tick"))
    for x, label in x_marks.items():
        parts.append(tag("line", x1=x_of(x), x2=x_of(x), y1=top, y2=top + high, class_="grid"))
        parts.append(tag("text", label, x=x_of(x), y=top + high + 16, text_anchor="middle", class_="tick"))
    for color, points in lines:
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y, _ in points)
        parts += [tag("path", d="M" + path, fill="none", stroke=color, stroke_width=2)] if points else []
        parts += [tag("circle", tag("title", note), cx=x_of(x), cy=y_of(y), r=2.6, fill=color) for x, y, note in points]
    return parts
