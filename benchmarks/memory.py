"""Peak memory of a forward and backward pass: how much a fresh process grows beyond what it held before its first step."""

import subprocess
from pathlib import Path
from typing import Any

MODELS = {"deep": "20-layer MLP, 512 wide, batch 2048", "transformer": "4 transformer blocks, 256 wide, 8 x 256 tokens"}

PROGRAM = """
import resource, sys
sys.path.insert(0, {here!r})
import models
step = models.build({framework!r}, {model!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def measure(pythons: dict[str, str]) -> list[dict[str, Any]]:
    """{model, framework: bytes}; three steps each, since the second begins while gradients of the first are there."""
    here = str(Path(__file__).resolve().parent)
    results = []
    for model in MODELS:
        row: dict[str, Any] = {"model": model}
        for framework in [name for name in ("needle", "torch") if name in pythons]:
            program = PROGRAM.format(here=here, framework=framework, model=model)
            done = subprocess.run([pythons[framework], "-c", program], capture_output=True, text=True, check=True)
            row[framework] = int(done.stdout) * 1024
        results.append(row)
    return results


def lines(results: list[dict[str, Any]]) -> list[str]:
    out = []
    for row in results:
        ratio = f", {row['torch'] / row['needle']:.2f} times ours" if "torch" in row else ""
        theirs = f"; PyTorch {row['torch'] / 1e6:.0f} MB{ratio}" if "torch" in row else ""
        out.append(f"memory: {MODELS[row['model']]}: {row['needle'] / 1e6:.0f} MB beyond weights and data{theirs}")
    return out
