"""Needle at two commits, side by side: each is built into an environment of its own, and their processes take turns.

The cases are those of this checkout; what an old commit does not have yet is shown as n/a. Builds are kept in runs/compare, one
folder for each state of the sources.
"""

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.cases import Case
from benchmarks.run import Player, Team, measure
from needle_nn.command.bench import readable

BUILDS = machine.ROOT / "runs" / "compare"
PACKAGES = ("needle-ndarray", "needle-core", "needle-nn")


def sources(commit: str, folder: Path) -> None:
    """Put the packages as they were at a commit, or as they are now (`.`), into a folder."""
    if commit == ".":
        listed = machine.git("ls-files", "-co", "--exclude-standard", "packages").splitlines()
        for name in [name for name in listed if (machine.ROOT / name).is_file()]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(machine.ROOT / name, folder / name)
        return
    packed = subprocess.run(["git", "archive", commit, "packages"], cwd=machine.ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def state(commit: str) -> str:
    """A name for the sources: the commit's, or a hash of the files of this tree."""
    if commit != ".":
        full = machine.git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        if not full:
            raise ValueError(f"--compare {commit}: no such commit")
        return full[:12]
    key = hashlib.sha256()
    for name in machine.git("ls-files", "-co", "--exclude-standard", "packages").splitlines():
        if (machine.ROOT / name).is_file():
            key.update(name.encode() + (machine.ROOT / name).read_bytes())
    return f"tree-{key.hexdigest()[:12]}"


def built(commit: str) -> str:
    """The interpreter of an environment with Needle as it was at a commit; built unless it has been."""
    level = os.environ.get("NEEDLE_BUILD_LEVELS", "")  # another build of the same sources
    folder = BUILDS / f"{state(commit)}{level and '-' + level}"
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"building {commit} in {folder.relative_to(machine.ROOT)} ...", flush=True)
        sources(commit, folder / "source")
        run("-m", "venv", "--without-pip", str(folder / "venv"))
        places = [str(folder / "source" / "packages" / name) for name in PACKAGES]
        run("-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder / "wheels"), *places)
        wheels = [str(path) for path in sorted((folder / "wheels").glob("*.whl"))]
        run("-m", "pip", "--python", str(python), "install", "-q", *wheels)
        (folder / "done").write_text("")
    return str(python)


def run(*command: str) -> None:
    """This interpreter with these arguments, without the paths it may have been given."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, *command], env=variables, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-2000:]}")


def line(result: dict[str, Any], old: str, new: str) -> str:
    """Time at the old commit over that at the new one: above 1 the new one is faster."""
    times = result["times"]
    known = [readable(times[x]["best"]) if x in times else "n/a" for x in (old, new)]
    both = old in times and new in times
    ratios = [f"{times[old][w] / times[new][w]:.2f}x" if both else "n/a" for w in ("best", "median")]
    name = f"{result['family']}: {result['name']}"
    return f"{name[:69]:70}{result['threads']:>4}{ratios[0]:>9}{ratios[1]:>9}{known[0]:>11}{known[1]:>11}"


def report(old: str, new: str, cases: list[Case], threads: list[int], rounds: int) -> int:
    """Print a line per case, then the mean of every family and the largest changes."""
    labels = old, (new if new != old else f"{new} again")
    none = (("PYTHONPATH", ""),)  # what was built, not a source tree
    players = [Player(label, "needle", built(commit), none) for commit, label in zip((old, new), labels, strict=True)]
    print(f"{'old time / new time':70}{'thr':>4}{'best':>9}{'median':>9}{'old':>11}{'new':>11}")
    found = []
    try:
        for family in dict.fromkeys(case.family for case in cases):
            for count in threads:
                with Team(players, count) as team:
                    for case in [case for case in cases if case.family == family and "needle" in case.of]:
                        found.append(measure(team, case, rounds))
                        print(line(found[-1], *labels), flush=True)
    except KeyboardInterrupt:
        print("stopped")
    print("\n".join([*means(found, *labels), *summary(found, *labels)]))
    return 0


def means(found: list[dict[str, Any]], old: str, new: str) -> list[str]:
    """A line per family and number of threads: the geometric mean of its ratios, and the worst of them."""
    ratios: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
    for result in found:
        a, b = result["times"].get(old), result["times"].get(new)
        if a and b:
            entry = a["best"] / b["best"], a["median"] / b["median"], result["name"]
            ratios.setdefault((result["family"], result["threads"]), []).append(entry)
    lines = [
        "",
        f"{'geometric means of old time / new time':50}{'thr':>4}{'cases':>7}{'best':>9}{'median':>9}  the worst",
    ]
    for (family, threads), entries in ratios.items():
        best, median = (statistics.geometric_mean(entry[k] for entry in entries) for k in (0, 1))
        worst = min(entries)
        lines.append(
            f"{family:50}{threads:>4}{len(entries):>7}{best:>8.2f}x{median:>8.2f}x  {worst[0]:.2f}x {worst[2]}"
        )
    return lines


def summary(found: list[dict[str, Any]], old: str, new: str) -> list[str]:
    """Cases that changed by more than a tenth, the slower ones first."""
    changed = []
    for result in found:
        times = result["times"]
        if old in times and new in times:
            ratios = [times[old][which] / times[new][which] for which in ("best", "median")]
            if max(ratios) < 0.9 or min(ratios) > 1.1:
                changed.append((ratios[0], line(result, old, new)))
    slower = [text for ratio, text in sorted(changed) if ratio < 1]
    faster = [text for ratio, text in sorted(changed, reverse=True) if ratio > 1]
    return [
        "",
        f"slower by a tenth or more: {len(slower)}",
        *slower,
        f"faster by a tenth or more: {len(faster)}",
        *faster,
    ]
