"""The results as lines of a run, ratios first, and as tables in Markdown, which a run and the page show."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import results, targets
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


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """A table in Markdown; `align` has "l" or "r" for each column, by default one of words and the others of numbers.

    >>> grid(["case", "ms"], [["add", "1"]])
    ['| case | ms |', '|---|--:|', '| add | 1 |']
    """
    rule = "|".join("---" if side == "l" else "--:" for side in align or "l" + "r" * (len(head) - 1))
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [lines[0], f"|{rule}|", *lines[1:]]


def target_table(found: Iterable[targets.Outcome]) -> list[str]:
    """Every target with what was measured; one that is missed is marked."""
    rows = []
    for o in found:
        mark = "target reached" if o.reached else "✓" if o.kept else "**missed**"
        mark = "not measured" if o.value is None else mark
        measured, *limits = o.shown
        note = f"{mark} ({o.note})" if o.note else mark
        rows.append([o.name, NAMES.get(o.peer, ""), f"**{measured}**", *limits, note])
    return grid(["what", "against", "measured", "required", "target", ""], rows, "llrrrl")


def memory_table(rows: Iterable[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        ours, plan, theirs, jax = (row.get(name, {}) for name in ("needle", "captured", "torch", "jax"))
        both = "growth" in ours and "growth" in theirs
        cells.append([row["name"], f"**{theirs['growth'] / max(ours['growth'], 1):.2f}×**" if both else ""])
        for kind, measured in (("growth", (ours, plan, theirs)), ("peak", (ours, theirs, jax))):
            cells[-1] += [results.in_megabytes(x[kind]) if kind in x else "n/a" if x else "" for x in measured]
    head = ["train step", "PyTorch / Needle", "Needle", "captured", "PyTorch"]
    return grid([*head, "Needle, whole", "PyTorch, whole", "JAX, whole"], cells)


def install_table(rows: Iterable[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        took = [f"{row[key] * 1e3:.0f} ms" if row[key] is not None else "n/a" for key in ("import", "beyond_numpy")]
        largest = sorted(row["parts"].items(), key=lambda pair: -pair[1])[:4]
        parts = ", ".join(f"{name} {results.in_megabytes(count)}" for name, count in largest)
        cells.append([f"`import {row['module']}`", *took, results.in_megabytes(row["bytes"]), parts])
    return grid(["", "import", "beyond NumPy's", "on disk beyond NumPy", "of which"], cells, "lrrrl")
