"""One framework in one process: answers the driver's requests, one JSON line each.

{"case": key} sets that case up and answers {"loops": 1000, "call": 1e-5}: the calls that fill a turn, seconds of one;
{"run": 1000} times as many calls and answers {"seconds": 1e-5} per call; {"check": key} answers sums of what the case
comes to; {"versions": true} says what is measured. What goes wrong is answered as {"error": "..."}.
"""

import gc
import json
import os
import sys
import time
import timeit
from typing import Any

import numpy as np

from benchmarks.cases import all_cases
from benchmarks.frameworks import prepare

TURN = 0.03  # seconds a turn should take
FIRST = 5  # calls before the first that counts: compilers compile, plans are recorded and made
SETTLE = 0.004  # before a turn: threads of the one before may still be spinning
MODULES = {"compile": "torch", "eager": "needle", "onnx": "onnxruntime"}


def settle(framework: str, count: int) -> None:
    """Compute on that many threads, and, where the system can, on no more cores: not every framework can be told."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    if framework in ("needle", "eager"):
        import needle_ndarray as nd

        nd.set_num_threads(count)
        nd.random.seed(0)  # masks of dropout from Needle's own generator, as the other frameworks draw them from theirs
    elif framework in ("torch", "compile"):
        import torch

        torch.set_num_threads(count)


def versions(framework: str) -> dict[str, str]:
    name = MODULES.get(framework, framework)
    return {"python": sys.version.split()[0], name: __import__(name).__version__}


def sums(value: Any) -> list[list[float]]:
    """[count, sum, sum of |x|, sum of x^2] of every array, in float64: the same in any layout."""
    if isinstance(value, (list, tuple)):
        return [row for part in value for row in sums(part)]
    if hasattr(value, "detach"):
        value = value.detach()
    x = np.asarray(value.numpy() if hasattr(value, "numpy") else value, dtype=np.float64)
    return [[float(x.size), float(x.sum()), float(np.abs(x).sum()), float((x * x).sum())]]


class Timing:
    """The case that is set up, if any."""

    def __init__(self, framework: str):
        self.framework = framework
        self.cases = {case.key: case for case in all_cases()}
        self.timer: timeit.Timer | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "case" in request:
            return self.set_up(request["case"])
        if "run" in request:
            return self.run(request["run"], request.get("warm", True))
        if "check" in request:
            self.timer = None
            return {"sums": sums(prepare(self.cases[request["check"]], self.framework, checking=True).outcome())}
        return versions(self.framework)

    def set_up(self, key: str) -> dict[str, Any]:
        self.timer = None  # frees the last case's arrays
        gc.collect()
        prepared = prepare(self.cases[key], self.framework)
        self.timer = timer = timeit.Timer(prepared.statement, globals=prepared.names)
        timer.timeit(FIRST)
        prepared.ready()
        loops = 1
        while (seconds := timer.timeit(loops)) < TURN / 4:
            loops *= 4
        return {"loops": max(1, round(loops * TURN / seconds)), "call": seconds / loops}

    def run(self, loops: int, warm: bool) -> dict[str, Any]:
        assert self.timer is not None
        time.sleep(SETTLE)
        if warm:
            self.timer.timeit(1)  # the others ran since: fill the caches
        return {"seconds": self.timer.timeit(loops) / loops}


def main() -> int:
    framework, threads = sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints is not an answer
    settle(framework, threads)
    timing = Timing(framework)
    for line in sys.stdin:
        try:
            answer = timing.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps(answer), file=answers, flush=True)
    return 0
