"""Data parallel train steps beside PyTorch's DistributedDataParallel over gloo: `python benchmarks/distributed.py`.

Two ranks of one thread each, and one process of one thread, of both frameworks in turns, the best of several rounds. What is
printed: milliseconds of a step, the speed beside PyTorch's, and how much of Needle's step is the sum of gradients. Wants a machine
with two idle cores, mpi4py and PyTorch; in CI nothing of it runs.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MODELS = {
    "mlpresnet": 128,
    "lenet": 128,
    "resnet9": 128,
    "lstm small": 64,
    "transformer small": 64,
    "transformer ptb": 20,
}


def share(x: Any, y: Any, rank: int, size: int, text: bool) -> tuple[Any, Any]:
    """A rank's examples of a batch: columns of words (T, B), rows of all else."""
    if not text:
        return x[rank::size].copy(), y[rank::size].copy()
    labels = y.reshape(x.shape)[:, rank::size]
    return x[:, rank::size].copy(), labels.reshape(-1).copy()


def needle_step(name: str, batch: int) -> tuple[Callable[[], Any], int, dict[str, float]]:
    """A step, the rank, and where the time of the sums is counted."""
    import needle as ndl
    import needle.distributed as dist
    from benchmarks import models_needle
    from benchmarks.workloads import batch_of
    from needle_nn import nn, optim

    world = dist.init()
    model = dist.replicate(models_needle.build(name, 0.0), world)
    params, loss_of = model.parameters(), nn.SoftmaxLoss()
    optimizer = optim.Adam(params, lr=1e-3)
    x, y = share(*batch_of(name, batch), world.rank, world.size, " " in name)
    x, y = (ndl.Tensor(a, requires_grad=False) for a in (x, y))
    weight, spent = float(y.size), {"sums": 0.0}

    def step() -> None:
        optimizer.reset_grad()
        loss = loss_of(models_needle.logits(model, x), y)
        (loss * weight if world.size > 1 else loss).backward()
        if world.size > 1:
            begin = time.perf_counter()
            dist.sum_gradients(params, weight, world)
            spent["sums"] += time.perf_counter() - begin
        optimizer.step()

    return step, world.rank, spent


def torch_step(name: str, batch: int) -> tuple[Callable[[], Any], int, dict[str, float]]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks import models_torch
    from benchmarks.workloads import batch_of

    torch.set_num_threads(1)
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    model: Any = models_torch.build(name, 0.0)
    if size > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, y = share(*batch_of(name, batch), rank, size, " " in name)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    if inputs.ndim == 4:
        inputs = inputs.to(memory_format=torch.channels_last)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        output = model(inputs)
        output = output[0] if isinstance(output, tuple) else output
        torch.nn.functional.cross_entropy(output, labels).backward()
        optimizer.step()

    return step, rank, {"sums": 0.0}


def measure(kind: str, name: str, batch: int, seconds: float) -> None:
    """In a rank: print the best step, and the share of the sums in all of them, as JSON."""
    step, rank, spent = {"needle": needle_step, "torch": torch_step}[kind](name, batch)
    for _ in range(3):
        step()
    begin = time.perf_counter()
    step()
    count = max(5, int(seconds / (time.perf_counter() - begin)))
    count = agreed(kind, count)
    best, spent["sums"], begin = float("inf"), 0.0, time.perf_counter()
    for _ in range(count):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    whole = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({"best": best, "share": spent["sums"] / whole}), flush=True)


def agreed(kind: str, count: int) -> int:
    """The number of steps of rank 0: all must make as many."""
    if kind == "needle":
        import needle.distributed as dist

        return int(dist.init().broadcast_object(count))
    import torch

    if not torch.distributed.is_initialized():
        return count
    numbers = [count]
    torch.distributed.broadcast_object_list(numbers)
    return numbers[0]


def run(kind: str, ranks: int, name: str, batch: int, seconds: float) -> dict[str, float]:
    """Start the ranks of one framework, and read what rank 0 prints."""
    program = [__file__, "--rank-of", kind, "--models", name, "--batch", str(batch), "--seconds", str(seconds)]
    env = {**os.environ, "NEEDLE_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if ranks == 1:
        return json.loads(started([sys.executable, *program], env).communicate()[0].splitlines()[-1])
    if kind == "needle":
        launch = ["-m", "needle_nn.command.main", "launch", "-n", str(ranks), "--no-prefix"]
        root = ["--as-root"] if os.geteuid() == 0 else []
        return json.loads(started([sys.executable, *launch, *root, *program], env).communicate()[0].splitlines()[-1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    processes = [started([sys.executable, *program], {**env, **place, "RANK": str(rank)}) for rank in range(ranks)]
    outputs = [process.communicate()[0] for process in processes]
    return json.loads(outputs[0].splitlines()[-1])


def started(arguments: list[str], env: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True)


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--models", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}")
    told.add_argument("--rounds", type=int, default=3)
    told.add_argument("--seconds", type=float, default=2.0, help="of each round of each")
    told.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    told.add_argument("--rank-of", choices=["needle", "torch"], help=argparse.SUPPRESS)
    args = told.parse_args()
    if args.rank_of:
        measure(args.rank_of, args.models[0], args.batch, args.seconds)
        return
    print("| step, ms | batch | Needle 1 | PyTorch 1 | ratio | Needle 2 ranks | PyTorch 2 ranks | ratio | sums |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in args.models:
        best: dict[tuple[str, int], dict[str, float]] = {}
        for _ in range(args.rounds):
            for ranks in (1, 2):
                for kind in ("needle", "torch"):
                    found = run(kind, ranks, name, args.batch or MODELS[name], args.seconds)
                    best[kind, ranks] = min(best.get((kind, ranks), found), found, key=lambda each: each["best"])
        cells = []
        for ranks in (1, 2):
            ours, theirs = best["needle", ranks]["best"], best["torch", ranks]["best"]
            cells += [f"{ours * 1e3:.2f}", f"{theirs * 1e3:.2f}", f"{theirs / ours:.2f}"]
        print(
            f"| {name} | {args.batch or MODELS[name]} | {' | '.join(cells)} | {best['needle', 2]['share']:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
