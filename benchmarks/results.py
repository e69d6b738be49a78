"""Results as a dict that is kept in a JSON file: what it holds, how runs are merged, what follows from the numbers.

{"machine": {cpu, cores, memory, system}, "families": {family: {date, commit, rounds, seconds, versions}},
 "results": [{family, name, threads, elements, rounds, times: {framework: {best, median, loops}}, missing: {framework: why}}],
 "memory": [{model, name, framework: {growth, peak}}], "install": [{framework, import, beyond_numpy, bytes, parts}]}
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import machine

NAMES = {
    "needle": "Needle",
    "numpy": "NumPy",
    "torch": "PyTorch",
    "eager": "Needle eager",
    "compile": "torch.compile",
    "jax": "JAX jit",
    "onnx": "ONNX Runtime",
}


def empty() -> dict[str, Any]:
    return {"machine": machine.describe(), "families": {}, "results": [], "memory": [], "install": []}


def load(path: Path) -> dict[str, Any]:
    report = json.loads(path.read_text())
    if not isinstance(report, dict) or set(empty()) - set(report):
        raise ValueError(f"{path}: not a file of results: expected {', '.join(empty())}")
    return report


def save(path: Path, report: dict[str, Any]) -> None:
    """Whole or not at all: an interrupted run leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(unfinished, path)


def opened(path: Path, fresh: bool) -> dict[str, Any]:
    """The results that a run goes on with: those in the file, if they are of this machine."""
    if fresh or not path.exists():
        return empty()
    report = load(path)
    if report["machine"] != machine.describe():
        raise ValueError(f"{path}: measured on another machine ({report['machine']['cpu']}): --fresh starts anew")
    return report


def put(report: dict[str, Any], result: dict[str, Any]) -> None:
    """Add the result of a case, or replace the one that is there, framework by framework."""
    for old in report["results"]:
        if all(old[part] == result[part] for part in ("family", "name", "threads")):
            measured = set(result["times"]) | set(result["missing"])
            for part in ("times", "missing"):
                kept = {name: value for name, value in old[part].items() if name not in measured}
                old[part] = kept | result[part]
            old["rounds"], old["elements"] = result["rounds"], result["elements"]
            return
    report["results"].append(result)


def arrange(report: dict[str, Any], keys: list[str]) -> None:
    """Results in the order of the cases; those of cases that are no more go."""
    order = {key: i for i, key in enumerate(keys)}
    known = [
        (order[key], r["threads"], r) for r in report["results"] if (key := f"{r['family']}: {r['name']}") in order
    ]
    report["results"] = [r for *_, r in sorted(known, key=lambda row: row[:2])]


def replace_rows(rows: list[dict[str, Any]], new: Iterable[dict[str, Any]], key: str) -> None:
    """Rows of memory or install: those of the same model or framework go."""
    for row in new:
        rows[:] = [old for old in rows if old[key] != row[key]] + [row]


def ratios(result: dict[str, Any], which: str = "best") -> dict[str, float]:
    """Their time over Needle's, for every peer."""
    times = result["times"]
    if "needle" not in times:
        return {}
    return {name: t[which] / times["needle"][which] for name, t in times.items() if name != "needle"}


def threads_in(report: dict[str, Any]) -> list[int]:
    return sorted({r["threads"] for r in report["results"]})


def of_family(report: dict[str, Any], family: str, threads: int | None = None) -> list[dict[str, Any]]:
    return [r for r in report["results"] if r["family"] == family and threads in (None, r["threads"])]


def find(report: dict[str, Any], family: str, name: str, threads: int) -> dict[str, Any] | None:
    return next((r for r in of_family(report, family, threads) if r["name"] == name), None)


def in_megabytes(count: float) -> str:
    return f"{count / 1e6:.3g} MB" if count < 9.995e8 else f"{count / 1e9:.3g} GB"
