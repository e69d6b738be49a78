"""Time Needle beside NumPy, PyTorch and JAX: one process each, taking turns round by round, in one run.

    python benchmarks --family matmul --threads 1
    python benchmarks --json times.json --page docs/benchmarks.md

A ratio is their time over ours: above 1 Needle is faster. Times are the best of many rounds, each long enough (30 ms)
to be measured well; the median is beside them in the JSON file. NumPy computes on one thread, but for its matmul.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import install
import memory
import page
from cases import CASES, FAMILIES, FRAMEWORKS, Case

HERE = Path(__file__).resolve().parent
THREAD_VARIABLES = ("NEEDLE_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Worker:
    """A process that measures one framework when it is told to."""

    def __init__(self, framework: str, python: str, threads: int):
        command = [python, str(HERE / "worker.py"), framework, str(threads)]
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        self.framework = framework
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.framework}: its process ended with code {self.process.wait()} on {request}")
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(workers: list[Worker], number: int, rounds: int) -> dict[str, Any]:
    """Best and median seconds per call of one case; whoever starts changes every round."""
    workers = [w for w in workers if w.framework in CASES[number].of]
    loops = {w.framework: w.ask(case=number)["loops"] for w in workers}
    times: dict[str, list[float]] = {w.framework: [] for w in workers}
    for turn in range(rounds):
        first = turn % len(workers)
        for worker in workers[first:] + workers[:first]:
            times[worker.framework].append(worker.ask(run=loops[worker.framework])["seconds"])
    return {name: {"best": min(t), "median": statistics.median(t), "loops": loops[name]} for name, t in times.items()}


def line(result: dict[str, Any]) -> str:
    """Ratios first, then the times they come from."""
    ratios, times = page.ratios(result), result["times"]
    cells = [f"{ratios[name]:6.2f}x" if name in ratios else "      -" for name in FRAMEWORKS[1:]]
    cells += [f"{page.in_units(times[name]['best']) if name in times else '-':>9}" for name in FRAMEWORKS]
    return f"{result['family']:12}{result['name']:34}{result['threads']:>3}  " + "  ".join(cells)


def flatness(results: list[dict[str, Any]]) -> list[str]:
    """Time per element from 10^5 to 10^7 elements: largest over smallest, 1 is flat."""
    lines = []
    for threads in dict.fromkeys(r["threads"] for r in results):
        middle = [
            r for r in results if r["family"] == "curve" and r["threads"] == threads and 1e5 <= r["elements"] <= 1e7
        ]
        for name in FRAMEWORKS:
            curve = [r["times"][name]["best"] / r["elements"] for r in middle if name in r["times"]]
            if curve:
                lines.append(
                    f"add, 10^5 to 10^7 elements, threads {threads}, {name}: {min(curve) * 1e9:.3f} to"
                    f" {max(curve) * 1e9:.3f} ns per element, factor {max(curve) / min(curve):.2f}"
                )
    return lines


def cpu_model() -> str:
    try:
        found = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
        return found[0].partition(":")[2].strip()
    except (OSError, IndexError):
        import platform

        return platform.processor() or platform.machine()


def has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these; may be repeated")
    parser.add_argument("--rounds", type=int, default=25, help="turns of each framework per case (default 25)")
    parser.add_argument("--threads", default="1,all", help="comma list of numbers or 'all' (default 1,all)")
    parser.add_argument("--quick", action="store_true", help="two rounds, one thread: does it run?")
    parser.add_argument("--json", type=Path, help="write every number to this file")
    parser.add_argument("--page", type=Path, help="write a Markdown page with the table, and a chart beside it")
    parser.add_argument("--python-torch", default=sys.executable, help="an interpreter that has torch, and perhaps jax")
    return parser.parse_args()


def thread_counts(text: str) -> list[int]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        return list(dict.fromkeys(cores if part == "all" else int(part) for part in text.split(",")))
    except ValueError:
        sys.exit(f"--threads {text}: expected numbers or 'all', joined by commas")


def main() -> int:
    options = arguments()
    families = options.family or FAMILIES
    rounds = 2 if options.quick else options.rounds
    pythons = {"needle": sys.executable, "numpy": sys.executable}
    for peer in ("torch", "jax"):
        if has(options.python_torch, peer):
            pythons[peer] = options.python_torch
        else:
            print(f"{peer} cannot be imported: measured without it (--python-torch names an interpreter that has it)")
    chosen = [(i, case) for i, case in enumerate(CASES) if case.family in families]
    report: dict[str, Any] = {
        "cpu": cpu_model(),
        "rounds": rounds,
        "versions": {},
        "results": [],
        "memory": [],
        "install": [],
    }
    print(f"{report['cpu']}; best of {rounds} rounds; ratio = their time / ours")
    heads = [f"vs {name}" for name in FRAMEWORKS[1:]]
    print(
        f"{'family':12}{'case':34}{'thr':>3}  "
        + "  ".join(f"{h:>7}" for h in heads)
        + "".join(f"{n:>11}" for n in FRAMEWORKS)
    )
    for threads in thread_counts("1" if options.quick else options.threads) if chosen else []:
        report["results"] += run_cases(pythons, chosen, threads, rounds, report["versions"])
    report["flatness"] = flatness(report["results"])
    print("\n".join(report["flatness"]))
    if "memory" in families:
        report["memory"] = memory.measure(pythons)
        print("\n".join(memory.lines(report["memory"])))
    if "install" in families:
        report["install"] = install.measure(pythons, rounds)
        print("\n".join(install.lines(report["install"])))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.page:
        page.write(options.page, report)
    return 0


def run_cases(
    pythons: dict[str, str], chosen: list[tuple[int, Case]], threads: int, rounds: int, versions: dict[str, str]
) -> list[dict[str, Any]]:
    workers = [Worker(name, python, threads) for name, python in pythons.items()]
    results = []
    for worker in workers:
        versions.update(worker.ask(versions=True))
    for number, case in chosen:
        times = measure(workers, number, rounds)
        about = {"family": case.family, "name": case.name, "threads": threads, "elements": case.elements}
        results.append({**about, "times": times})
        print(line(results[-1]), flush=True)
    for worker in workers:
        worker.close()
    return results


if __name__ == "__main__":
    sys.exit(main())
