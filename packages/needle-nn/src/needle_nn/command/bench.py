"""needle bench: how fast this machine is, in a few seconds."""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from needle import Tensor
from needle_nn import nn, optim
from needle_nn.command.recipes import UsageError
from needle_nn.command.runs import options, seed_everything
from needle_nn.models import GPT, LeNet, MLPResNet


def add_to(commands: Any) -> None:
    told = "time a few operations and training steps"
    made = commands.add_parser("bench", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    made.add_argument("--device", default="cpu", help="where to compute (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=0.5, metavar="X", help="for each row (default: %(default)s)")


def cases(device: Any) -> dict[str, tuple[Callable[[], Any], float]]:
    """{name: (what to time, how many floating-point operations, or examples, it does; 0: not counted)}"""

    def tensor(*shape: int) -> Tensor:
        return Tensor(np.random.randn(*shape).astype("float32"), device=device)  # noqa: NPY002

    small, large, square = tensor(8, 8), tensor(1000, 1000), tensor(512, 512)
    images, kernel = tensor(32, 28, 28, 16), tensor(3, 3, 16, 32)
    return {
        "add, 8 × 8, recorded": (lambda: (small + small).shape, 0),
        "add, 1000 × 1000": (lambda: (large + large).shape, 1e6),
        "exp, 1000 × 1000": (lambda: large.exp().shape, 1e6),
        "matmul, 512 × 512": (lambda: (square @ square).shape, 2 * 512.0**3),
        "conv 3 × 3, 16 to 32 channels, 32 images of 28 × 28": (
            lambda: _conv(images, kernel).shape,
            2 * 32 * 28 * 28 * 9 * 16 * 32.0,
        ),
    }


def steps(device: Any) -> dict[str, tuple[Callable[[], Any], float]]:
    """{name: (one training step, examples in it)}"""
    labels = Tensor(np.arange(100) % 10, device=device, requires_grad=False)
    rows = Tensor(np.random.rand(100, 784).astype("float32"), device=device, requires_grad=False)  # noqa: NPY002
    ids = Tensor(np.random.randint(64, size=(16, 64)), device=device, requires_grad=False)  # noqa: NPY002
    return {
        "MLPResNet on 784 numbers, batch 100": (_step(MLPResNet(784, device=device), rows, labels), 100),
        "LeNet on 28 × 28, batch 100": (_step(LeNet(device=device), rows.reshape((100, 1, 28, 28)), labels), 100),
        "GPT, 4 layers of 128, 16 × 64 characters": (
            _step(GPT(64, 64, embedding_size=128, num_layers=4, device=device), ids, ids),
            16 * 64,
        ),
    }


def _conv(images: Tensor, kernel: Tensor) -> Tensor:
    from needle import ops

    return ops.conv(images, kernel, padding=1)


def _step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Any]:
    optimizer, loss = optim.Adam(model.parameters(), lr=1e-3), nn.SoftmaxLoss()

    def step() -> None:
        optimizer.reset_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def timed(action: Callable[[], Any], seconds: float) -> float:
    """Seconds of one call: the median of what fits into `seconds`, at least five times, after two to warm up."""
    for _ in range(2):
        action()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 100_000):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def run(args: argparse.Namespace) -> int:
    if not args.seconds > 0:
        raise UsageError(f"--seconds must be above 0, got {args.seconds}")
    device = options({}, args.device).device
    seed_everything(0)
    print(f"{'operation, forward':54} {'time':>10} {'a second':>16}")
    for name, (action, count) in cases(device).items():
        taken = timed(action, args.seconds)
        print(f"{name:54} {readable(taken):>10} {f'{count / taken / 1e9:.1f} GFLOP' if count else '':>16}")
    print(f"\n{'training step: forward, backward, Adam':54} {'time':>10} {'a second':>16}")
    for name, (action, count) in steps(device).items():
        taken = timed(action, args.seconds)
        print(f"{name:54} {readable(taken):>10} {f'{count / taken:,.0f} examples':>16}")
    return 0


def readable(seconds: float) -> str:
    """A short time.

    >>> readable(2.5e-7), readable(3.21e-4), readable(0.0123), readable(1.5)
    ('250 ns', '321 µs', '12.3 ms', '1.5 s')
    """
    for size, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")):
        if seconds < 1000 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
