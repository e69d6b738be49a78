"""Peak memory of train steps: how much a fresh process grows beyond what it held once the model was built, and its peak.

Three steps, since the second begins while gradients of the first are there; captured, six: three are recorded and compared.
What is compiled at run time (torch.compile, JAX) leaves the memory of the compiler in the growth, so only the whole process
tells something there.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.run import HERE, THREAD_VARIABLES, Player
from benchmarks.workloads import BATCHES, TITLES

MEASURED = ("needle", "torch", "jax")
STATUS = Path("/proc/self/status")


def held() -> tuple[int, int]:
    """Bytes that this process holds, and the most it has held."""
    try:
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) * 1024, int(lines["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return peak, peak


def forget_peak() -> None:
    """Let the peak be what is held now, where the system can do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def steps(framework: str, model: str, batch: int, threads: int, captured: bool = False) -> dict[str, int]:
    """In a process of its own."""
    from benchmarks.frameworks import namespace
    from benchmarks.worker import settle

    settle(framework, threads)
    step = namespace(framework)["train"](model, batch)
    if captured:
        import needle as ndl

        step = ndl.capture(step, strict=True)
    forget_peak()
    before, _ = held()
    for _ in range(6 if captured else 3):
        step()
    peak = held()[1]
    return {"growth": peak - before, "peak": peak}


def measure(player: Player, model: str, threads: int, captured: bool = False) -> dict[str, Any]:
    """{growth, peak} in bytes, or {missing: why}."""
    code = (
        f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); from benchmarks import memory; import json;"
        f"print('\\n' + json.dumps(memory.steps({player.framework!r}, {model!r}, {BATCHES[model][0]}, {threads}, {captured})))"
    )
    variables = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    try:
        done = subprocess.run(
            [player.python, "-c", code], env=variables, capture_output=True, text=True, timeout=300, check=True
        )
    except subprocess.SubprocessError as error:
        return {"missing": " ".join(str(getattr(error, "stderr", None) or error).split())[-300:]}
    return json.loads(done.stdout.splitlines()[-1])


def row(players: list[Player], model: str, threads: int) -> dict[str, Any]:
    found = {p.label: measure(p, model, threads) for p in players if p.framework in MEASURED}
    for player in players:
        if player.framework == "needle":
            found["captured"] = measure(player, model, threads, True)
    return {"model": model, "name": f"{TITLES[model]}, batch {BATCHES[model][0]}", **found}
