"""What a framework costs before it computes anything: the time of its import beyond NumPy's, and the disk it takes."""

import subprocess
from typing import Any

#: What an import of the framework needs on disk, NumPy aside (PyTorch's Python dependencies are not counted).
PARTS = {
    "needle": ["needle", "needle_ndarray", "scipy_openblas32"],
    "numpy": ["numpy"],
    "torch": ["torch"],
    "jax": ["jax", "jaxlib"],
}

IMPORT = """
import time
import numpy
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

SIZE = """
import importlib.util, pathlib
total = 0
for name in {parts!r}:
    spec = importlib.util.find_spec(name)
    for folder in spec.submodule_search_locations if spec else []:
        libs = pathlib.Path(folder).parent / (name + ".libs")
        for path in [*pathlib.Path(folder).rglob("*"), *(libs.rglob("*") if libs.exists() else [])]:
            if path.is_file() and path.suffix not in (".c", ".pyx", ".pyc"):
                total += path.stat().st_size
print(total)
"""


def ask(python: str, program: str) -> float:
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure(pythons: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Fresh processes, in turns; best import time in seconds, and bytes."""
    modules = {name: PARTS[name][0] for name in pythons if name != "numpy"}
    imports: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(max(rounds // 2, 2)):
        for name, module in modules.items():
            imports[name].append(ask(pythons[name], IMPORT.format(module=module)))
    sizes = {name: ask(python, SIZE.format(parts=PARTS[name])) for name, python in pythons.items()}
    best = {name: min(times) for name, times in imports.items()}
    return [{"framework": name, "import": best.get(name), "bytes": sizes[name]} for name in pythons]


def lines(results: list[dict[str, Any]]) -> list[str]:
    out = []
    for r in results:
        took = "" if r["import"] is None else f"import takes {r['import'] * 1e3:.0f} ms beyond NumPy's, "
        parts = ", ".join(PARTS[r["framework"]])
        out.append(f"install: {r['framework']}: {took}{r['bytes'] / 1e6:.0f} MB on disk ({parts})")
    return out
