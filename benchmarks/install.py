"""What a framework costs before it computes anything: the time of its import, and the disk it takes beyond NumPy."""

import json
import os
import subprocess
from typing import Any

from benchmarks.run import Player

#: What is installed and imported; `needle.nn` is all of Needle, layers and optimizers too.
DISTRIBUTIONS = {"needle": "needle-nn", "numpy": "numpy", "torch": "torch", "jax": "jax"}
MODULES = {"needle": ["needle", "needle.nn"], "numpy": ["numpy"], "torch": ["torch"], "jax": ["jax"]}
#: Without metadata, where packages are imported from their sources.
FOLDERS = {"needle": ["needle", "needle_ndarray", "needle_nn", "scipy_openblas32", "safetensors", "tqdm"]}

IMPORT = """
import sys, time
start = time.perf_counter()
import numpy
between = time.perf_counter()
import {module}
end = time.perf_counter()
print(end - start, end - between)
"""

SIZE = """
import importlib.metadata as metadata, importlib.util, json, pathlib, re
SKIPPED = (".c", ".pyx", ".pyc", ".html")
sizes = {}

def add(name):
    key = re.sub("[-_.]+", "-", name).lower()
    if key in sizes or key in ("setuptools", "pip") or (key == "numpy" and sizes):
        return
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # another system needs it
        return
    paths = [pathlib.Path(found.locate_file(file)) for file in found.files or []]
    sizes[key] = sum(p.stat().st_size for p in set(paths) if p.is_file() and p.suffix not in SKIPPED)
    for requirement in found.requires or []:
        if "extra ==" not in requirement:
            add(re.match("[A-Za-z0-9._-]+", requirement)[0])

add(DISTRIBUTION)
if not sizes:
    for name in FOLDERS:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            files = [p for p in pathlib.Path(folder).rglob("*") if p.is_file() and p.suffix not in SKIPPED]
            sizes[name] = sum(p.stat().st_size for p in files)
print(json.dumps(sizes))
"""


def ask(python: str, program: str) -> str:
    # A package that pip installed has its bytecode beside it; one imported from its sources, once a process may write it.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [python, "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def measure(players: list[Player], rounds: int) -> list[dict[str, Any]]:
    """Fresh processes, in turns; best import times in seconds, and bytes of every distribution that is needed."""
    wanted = [(p, module) for p in players for module in MODULES.get(p.framework, [])]
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(max(min(rounds, 10), 2)):
        for player, module in wanted:
            try:
                total, beyond = map(float, ask(player.python, IMPORT.format(module=module)).split())
            except subprocess.SubprocessError:
                continue
            times.setdefault(module, []).append((total, beyond))
    rows = []
    for player, module in wanted:
        sizes = disk(player)
        best = [min(column) for column in zip(*times[module], strict=True)] if module in times else [None, None]
        found = {"import": best[0], "beyond_numpy": best[1], "bytes": sum(sizes.values()), "parts": sizes}
        rows.append({"framework": player.framework, "module": module, **found})
    return rows


def disk(player: Player) -> dict[str, int]:
    """Bytes of every distribution, NumPy aside unless it is NumPy that is asked about."""
    names = f"DISTRIBUTION, FOLDERS = {DISTRIBUTIONS[player.framework]!r}, {FOLDERS.get(player.framework, [])!r}\n"
    try:
        return json.loads(ask(player.python, names + SIZE))
    except subprocess.SubprocessError:
        return {}
