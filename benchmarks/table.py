"""The results as lines of text: ratios first, then the times they come from."""

from collections.abc import Iterable
from typing import Any

from benchmarks import results, targets
from benchmarks.cases import FRAMEWORKS
from benchmarks.results import NAMES
from needle_nn.command.bench import readable

WIDE = 52


def heading(peers: Iterable[str]) -> str:
    """Above the lines of a run."""
    peers = list(peers)
    cells = [f"{'/ ' + NAMES[p]:>15}" for p in peers] + [f"{NAMES[p]:>14}" for p in ("needle", *peers)]
    return f"{'':{WIDE}}{'thr':>4} " + "".join(cells)


def line(result: dict[str, Any], peers: Iterable[str]) -> str:
    """One case; n/a where a peer failed, - where it is not measured."""
    peers, times = list(peers), result["times"]
    ratios = results.ratios(result)

    def cell(name: str, text: str, known: bool) -> str:
        return text if known else "n/a" if name in result["missing"] else "-"

    cells = [f"{cell(p, f'{ratios.get(p, 0):.2f}x', p in ratios):>15}" for p in peers]
    for name in ("needle", *peers):
        took = readable(times[name]["best"]) if name in times else ""
        cells.append(f"{cell(name, took, name in times):>14}")
    return f"{result['name'][: WIDE - 1]:{WIDE}}{result['threads']:>4} " + "".join(cells)


def memory_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        parts = []
        for name in ("captured", *FRAMEWORKS):
            found = row.get(name, {})
            if "peak" in found:
                grew = f"{results.in_megabytes(found['growth'])} of " if name != "jax" else ""
                parts.append(f"{NAMES.get(name, name)} {grew}{results.in_megabytes(found['peak'])}")
            elif found:
                parts.append(f"{NAMES.get(name, name)} n/a ({found.get('missing', '')[-80:]})")
        lines.append(f"{row['name'][: WIDE - 1]:{WIDE}} " + ", ".join(parts))
    return lines


def install_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        took = "n/a" if row["import"] is None else f"{row['import'] * 1e3:.0f} ms"
        beyond = "" if row["beyond_numpy"] is None else f" ({row['beyond_numpy'] * 1e3:.0f} ms beyond NumPy's)"
        lines.append(f"import {row['module']:12} {took}{beyond}, {results.in_megabytes(row['bytes'])} on disk")
    return lines


def target_lines(report: dict[str, Any]) -> list[str]:
    """Every target with what was measured; one that is not reached is marked."""
    lines = [f"{'':62}{'measured':>10}{'required':>9}{'target':>9}"]
    for o in targets.outcomes(report):
        name = f"{o.name} / {NAMES[o.peer]}" if o.peer else o.name
        mark = "" if o.value is None else "target reached" if o.reached else "" if o.kept else "MISSED"
        lines.append(f"{name[:61]:62}{o.shown[0]:>10}{o.shown[1]:>9}{o.shown[2]:>9}  {mark}")
    return lines
