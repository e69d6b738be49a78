"""What one machine with a GPU has to say: `nox -s cuda_gpu` runs this, and prints a report to paste into an issue.

Every suite is run by pytest in a process of its own; the report has the machine, the counts, the first failures and the
benchmark. The exit code is 1 if anything failed.
"""

import argparse
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import NamedTuple

from needle_cuda.status import find_cupy, why_disabled

FAILURES = 20  # that are shown of each suite


class Outcome(NamedTuple):
    name: str
    counts: dict[str, int]
    seconds: float
    failures: list[str]  # "test: first line of the message"

    @property
    def good(self) -> bool:
        return self.counts["passed"] > 0 and not self.counts["failed"]


def machine() -> list[tuple[str, str]]:
    """What the results depend on."""
    cupy = find_cupy()
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    device = cupy.cuda.Device(0)
    return [
        ("GPU", f"{properties['name'].decode()}, compute capability {device.compute_capability}"),
        ("memory", f"{properties['totalGlobalMem'] / 2**30:.1f} GiB"),
        ("devices", str(runtime.getDeviceCount())),
        ("driver", f"CUDA {_version(runtime.driverGetVersion())}"),
        ("runtime", f"CUDA {_version(runtime.runtimeGetVersion())}, cupy {cupy.__version__}"),
        ("Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"),
    ]


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def run_suite(arguments: list[str], config: str | None) -> Outcome:
    """Run pytest with these arguments in a process, and read what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        where = ["-c", config, "--rootdir", str(Path(config).parent)] if config else []
        command = [sys.executable, "-m", "pytest", *where, "-q", "--no-header", f"--junit-xml={results}", *arguments]
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seconds = time.perf_counter() - start
        counts, failures = _read(results) if results.exists() else ({"passed": 0, "failed": 0, "skipped": 0}, [])
    if done.returncode and not counts["failed"]:  # it did not even start
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or done.stdout.splitlines()[-1:]
        counts["failed"], failures = 1, [f"pytest: {said[0] if said else 'no output'}"]
    return Outcome(" ".join(arguments), counts, seconds, failures)


def _read(results: Path) -> tuple[dict[str, int], list[str]]:
    counts, failures = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in xml.parse(results).getroot().iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        if bad:
            counts["failed"] += 1
            message = (bad[0].get("message") or "").strip().splitlines()
            failures.append(f"{case.get('name')}: {message[0] if message else bad[0].tag}")
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts, failures


def markdown(facts: list[tuple[str, str]], outcomes: list[Outcome], benchmark: str) -> str:
    """The report."""
    lines = ["## needle-cuda on a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in facts]
    lines += ["", "| suite | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
    for each in outcomes:
        numbers = " | ".join(str(each.counts[kind]) for kind in ("passed", "failed", "skipped"))
        lines.append(f"| `{each.name}` | {numbers} | {each.seconds:.0f} |")
    for each in outcomes:
        if each.failures:
            lines += ["", f"### Failures of `{each.name}`", ""]
            lines += [f"- `{failure}`" for failure in each.failures[:FAILURES]]
            if len(each.failures) > FAILURES:
                lines.append(f"- and {len(each.failures) - FAILURES} more")
    if benchmark:
        lines += ["", "### Benchmark", "", benchmark.strip()]
    return "\n".join(lines)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", help="arguments of one run of pytest each, quoted")
    parser.add_argument("--config", help="the pytest configuration")
    parser.add_argument("--benchmark", help="a script whose output ends the report")
    chosen = parser.parse_args(given)
    why = why_disabled()
    if why is not None:
        print(f"CUDA cannot be used here: {why}", file=sys.stderr)
        return 1
    outcomes = [run_suite(shlex.split(suite), chosen.config) for suite in chosen.suites]
    benchmark = ""
    if chosen.benchmark:
        done = subprocess.run(
            [sys.executable, chosen.benchmark], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        benchmark = done.stdout if done.returncode == 0 else f"It failed:\n\n```\n{done.stdout.strip()[-2000:]}\n```"
    print(markdown(machine(), outcomes, benchmark))
    return 0 if all(each.good for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
