"""Needle on a GPU beside PyTorch, in one run; prints a table. `nox -s cuda_gpu` runs it. Nothing of it has run on a GPU yet.

Both compute in float32 (PyTorch's TF32 is off), each number is the median of several rounds, and every round ends with a
synchronisation. `python benchmarks/cuda.py --launches` needs no GPU: it counts the launches of a train step of each model in the
emulation, with a batch of 2.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import needle as ndl
from benchmarks.models_needle import train
from benchmarks.workloads import BATCHES, TITLES

ROUNDS, SECONDS = 7, 0.2
rng = np.random.default_rng(0)


def median_time(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """Seconds of one call: the median of ROUNDS rounds of about SECONDS each, after a round to compile and warm up."""
    run(), wait()
    start = time.perf_counter()
    run(), wait()
    once = time.perf_counter() - start
    count = max(1, min(1000, int(SECONDS / max(once, 1e-6))))
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        found.append((time.perf_counter() - start) / count)
    return statistics.median(found)


# ---- Ops: (name, shapes of the operands, the same function of tensors for both) -----------------------------------

OPS = [
    ("add, 16 elements", [(16,), (16,)], lambda a, b: a + b),
    ("add, 16M elements", [(4096, 4096), (4096, 4096)], lambda a, b: a + b),
    ("exp, 16M elements", [(4096, 4096)], lambda a: a.exp()),
    ("sum of rows, 4096 x 4096", [(4096, 4096)], lambda a: a.sum(1)),
    ("sum of columns, 4096 x 4096", [(4096, 4096)], lambda a: a.sum(0)),
    ("matmul, 256", [(256, 256), (256, 256)], lambda a, b: a @ b),
    ("matmul, 1024", [(1024, 1024), (1024, 1024)], lambda a, b: a @ b),
    ("matmul, 4096", [(4096, 4096), (4096, 4096)], lambda a, b: a @ b),
    ("softmax, 4096 x 4096", [(4096, 4096)], "softmax"),
]


def ops(device, torch) -> list[tuple[str, float, float | None]]:
    rows = []
    for name, shapes, function in OPS:
        arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        mine = [ndl.NDArray(each, device=device) for each in arrays]
        ours = (lambda a: a.softmax(-1)) if function == "softmax" else function
        needle = median_time(lambda ours=ours, mine=mine: ours(*mine), device.synchronize)
        other = None
        if torch is not None:
            theirs = (lambda a: torch.softmax(a, -1)) if function == "softmax" else function
            tensors = [torch.from_numpy(each).cuda() for each in arrays]
            other = median_time(lambda theirs=theirs, tensors=tensors: theirs(*tensors), torch.cuda.synchronize)
        rows.append((name, needle, other))
    return rows


# ---- Train steps: those of the other benchmarks, on another device --------------------------------------------------

MODELS = ("mlpresnet", "lenet", "resnet9", "lstm ptb", "transformer ptb")


def count() -> None:
    """Launches of the second step of each model: the first one also makes what the optimizer keeps."""
    from needle_cuda.testing import count_launches

    print("| train step | launches | most of them |\n|---|---|---|")
    for name in MODELS:
        step = train(name, 2, device=ndl.cuda())
        step()
        with count_launches() as launches:
            step()
        most = ", ".join(f"{times} `{kernel}`" for kernel, times in launches.most_common(5))
        print(f"| {TITLES[name]} | {sum(launches.values())} | {most} |", flush=True)


def main() -> None:
    if "--launches" in sys.argv:
        os.environ["NEEDLE_CUDA_EMULATION"] = "1"
        return count()
    device = ndl.cuda()
    if not device.enabled():
        sys.exit("cuda() is not enabled: python -c 'import needle; needle.cuda().zeros((1,))' says why")
    try:
        import torch

        if not torch.cuda.is_available():
            torch = None
    except ImportError:
        torch = None
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print("| op | Needle | PyTorch |\n|---|---|---|")
    for name, needle, other in ops(device, torch):
        print(f"| {name} | {1e6 * needle:.1f} µs | {'' if other is None else f'{1e6 * other:.1f} µs'} |")
    print("\n| train step | Needle |\n|---|---|")
    for name in MODELS:
        batch = BATCHES[name][0]
        took = median_time(train(name, batch, device=device), device.synchronize)
        print(f"| {TITLES[name]}, batch {batch} | {1e3 * took:.2f} ms |")


if __name__ == "__main__":
    main()
