"""The results as a Markdown page, with a bar chart drawn as SVG beside it."""

import math
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import install
import memory

NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX (jit)"}
COLOURS = {"numpy": "#4c78a8", "torch": "#e45756", "jax": "#72b7b2"}
LEFT, WIDTH, BAR, GAP = 250, 420, 9, 7  # pixels


def in_units(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """Their best time over ours."""
    times = result["times"]
    return {name: times[name]["best"] / times["needle"]["best"] for name in NAMES if name in times}


def chart(results: list[dict[str, Any]], title: str) -> str:
    """Horizontal bars on a logarithmic axis from the line at 1: to the right Needle is faster, to the left slower."""
    found = [r for result in results for r in ratios(result).values()]
    low = min(-1, math.floor(math.log2(min(found, default=1))))
    high = max(2, math.ceil(math.log2(max(found, default=1))))

    def x(value: float) -> float:
        return LEFT + WIDTH * (math.log2(value) - low) / (high - low)

    top = 52
    body, y = [], top
    for result in results:
        bars = ratios(result)
        middle = y + BAR * len(bars) / 2
        body.append(f'<text x="{LEFT - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(result["name"])}</text>')
        for name, value in bars.items():
            start, end = sorted((x(1), x(value)))
            body.append(
                f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="{BAR - 1}"'
                f' fill="{COLOURS[name]}"/>'
                f'<text x="{x(value) + (4 if value >= 1 else -4):.1f}" y="{y + BAR - 2}" font-size="8"'
                f' text-anchor="{"start" if value >= 1 else "end"}">{value:.2g}</text>'
            )
            y += BAR
        y += GAP
    ticks = [
        f'<line x1="{x(2.0**p):.1f}" x2="{x(2.0**p):.1f}" y1="{top - 6}" y2="{y}"'
        f' stroke="{"#222" if p == 0 else "#ddd"}"/>'
        f'<text x="{x(2.0**p):.1f}" y="{top - 10}" text-anchor="middle" font-size="9">{2.0**p:g}x</text>'
        for p in range(low, high + 1)
    ]
    legend = [
        f'<rect x="{LEFT + 130 * i}" y="22" width="9" height="9" fill="{COLOURS[name]}"/>'
        f'<text x="{LEFT + 130 * i + 14}" y="30" font-size="10">{NAMES[name]} / Needle</text>'
        for i, name in enumerate(NAMES)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 50}" height="{y + 10}"'
            ' font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="8" y="16" font-weight="bold">{escape(title)}</text>',
            *legend,
            *ticks,
            *body,
            "</svg>",
            "",
        ]
    )


def table(results: list[dict[str, Any]]) -> list[str]:
    frameworks = ["needle", *[name for name in NAMES if any(name in r["times"] for r in results)]]
    head = [*(f"vs {NAMES[name]}" for name in frameworks[1:]), "Needle", *(NAMES[name] for name in frameworks[1:])]
    lines = ["| case | " + " | ".join(head) + " |", "|---|" + "--:|" * len(head)]
    for result in results:
        found, times = ratios(result), result["times"]
        cells = [f"**{found[name]:.2f}×**" if name in found else "" for name in frameworks[1:]]
        cells += [in_units(times[name]["best"]) if name in times else "" for name in frameworks]
        lines.append(f"| {result['family']}: {result['name']} | " + " | ".join(cells) + " |")
    return lines


def write(path: Path, report: dict[str, Any]) -> None:
    """The page at `path`; charts beside it as <name>-<threads>.svg."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    out = [
        "# Benchmarks",
        "",
        f"Measured on {report['cpu']} with {versions}.",
        f"Each framework in its own process, all in one run, taking turns; best of {report['rounds']} rounds of about",
        "30 ms. A ratio is their time over Needle's: above 1 Needle is faster.",
        "NumPy computes on one thread, but for its matmul. Run it yourself: `nox -s bench`.",
        "",
    ]
    for threads in dict.fromkeys(r["threads"] for r in report["results"]):
        results = [r for r in report["results"] if r["threads"] == threads]
        title = f"{threads} thread{'s' if threads > 1 else ''}"
        picture = path.with_name(f"{path.stem}-{threads}.svg")
        picture.write_text(chart(results, f"Times as multiples of Needle's, {title}"))
        out += [f"## {title.capitalize()}", "", f"![Ratios as bars]({picture.name})", "", *table(results), ""]
    notes = [*report.get("flatness", []), *memory.lines(report["memory"]), *install.lines(report["install"])]
    out += ["## Notes", "", *(f"- {note}" for note in notes), ""] if notes else []
    path.write_text("\n".join(out))
