"""needle bench: how fast Needle is on this machine, in a minute and without other frameworks."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from needle import Tensor, capture, no_grad, ops
from needle_ndarray import get_num_threads, set_num_threads
from needle_nn import nn, optim
from needle_nn.command.arguments import UsageError
from needle_nn.command.runs import options, seed_everything
from needle_nn.data import DataLoader, NDArrayDataset
from needle_nn.files import replacing
from needle_nn.models import GPT, LanguageModel, LeNet, MLPResNet, ResNet9

WARM = 4  # the calls that a captured function needs until it replays, and one more
#: {name: (what to time, how much of the family's unit it does; 0: not counted)}
Cases = dict[str, tuple[Callable[[], Any], float]]


def add_to(commands: Any) -> None:
    told = "time operations, layers, training steps and data loading"
    made = commands.add_parser("bench", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    made.add_argument("--device", default="cpu", help="where to compute (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=0.5, metavar="X", help="for each row (default: %(default)s)")
    made.add_argument("--family", action="append", choices=list(FAMILIES), help="only these; may be repeated")
    made.add_argument("--threads", type=int, metavar="N", help="of the CPU (default: as many as there are cores)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the times there, too")


class Maker:
    """Tensors of random numbers on a device."""

    def __init__(self, device: Any) -> None:
        self.device, self.rng = device, np.random.default_rng(0)

    def __call__(self, *shape: int, grad: bool = True) -> Tensor:
        return Tensor(self.rng.normal(size=shape).astype("float32"), device=self.device, requires_grad=grad)

    def ids(self, high: int, *shape: int) -> Tensor:
        return Tensor(self.rng.integers(0, high, shape), device=self.device, requires_grad=False)


# ---- The families ------------------------------------------------------------------------------------------------


def operations(new: Maker) -> Cases:
    small, large, square, tiny = new(8, 8), new(1000, 1000), new(512, 512), new(64, 64)
    many, images, kernel = new(64, 64, 64), new(32, 28, 28, 16), new(3, 3, 16, 32)
    row = new(1000)
    return {
        "add, 8 × 8, recorded": (lambda: (small + small).shape, 0),
        "add, 1000 × 1000": (lambda: (large + large).shape, 1e6),
        "add a row, 1000 × 1000": (lambda: (large + row).shape, 1e6),
        "add transposed, 1000 × 1000": (lambda: (large + large.transpose()).shape, 1e6),
        "exp, 1000 × 1000": (lambda: large.exp().shape, 1e6),
        "sum, 1000 × 1000": (lambda: large.sum().shape, 1e6),
        "matmul, 64 × 64": (lambda: (tiny @ tiny).shape, 2 * 64.0**3),
        "matmul, 512 × 512": (lambda: (square @ square).shape, 2 * 512.0**3),
        "matmul, 64 of 64 × 64": (lambda: (many @ many).shape, 2 * 64.0**4),
        "conv 3 × 3, 16 to 32 channels, 32 images of 28 × 28": (
            lambda: ops.conv(images, kernel, padding=1).shape,
            2 * 32 * 28 * 28 * 9 * 16 * 32.0,
        ),
    }


def layers(new: Maker) -> Cases:
    a, b, c, x, row = new(8, 8), new(8, 8), new(8, 8), new(4096, 256), new(256)
    logits, labels, grad = new(700, 10000), new.ids(10000, 700), new(4096, 256, grad=False)
    table, ids, looked_up = new(10000, 200), new.ids(10000, 700), new(700, 200, grad=False)
    return {
        "((a b + c) a).sum(), 8 × 8": (lambda: ((a * b + c) * a).sum().backward(), 0),
        "layer norm, 4096 × 256": (lambda: ops.layer_norm(x, row, row).backward(grad), x.size),
        "batch norm, 4096 × 256": (lambda: ops.batch_norm(x, row, row).backward(grad), x.size),
        "softmax, 4096 × 256": (lambda: ops.softmax(x).backward(grad), x.size),
        "cross-entropy, 700 × 10,000": (lambda: ops.cross_entropy(logits, labels).backward(), logits.size),
        "embedding, 700 of 10,000 × 200": (lambda: ops.embedding(ids, table).backward(looked_up), looked_up.size),
        "dropout, 4096 × 256": (lambda: ops.dropout(x, 0.1).backward(grad), x.size),
        "gelu, 4096 × 256": (lambda: ops.gelu(x).backward(grad), x.size),
    }


def optimizers(new: Maker) -> Cases:
    def update(kind: Any, *shapes: tuple[int, ...]) -> tuple[Callable[[], Any], float]:
        params = [new(*shape) for shape in shapes]
        for p in params:
            p.grad = new(*p.shape, grad=False)
        return kind(params, lr=1e-3).step, sum(p.size for p in params)

    return {
        "SGD, 300 of 32 × 32": update(optim.SGD, *[(32, 32)] * 300),
        "Adam, 300 of 32 × 32": update(optim.Adam, *[(32, 32)] * 300),
        "SGD, 4 of 1024 × 1024": update(optim.SGD, *[(1024, 1024)] * 4),
        "Adam, 4 of 1024 × 1024": update(optim.Adam, *[(1024, 1024)] * 4),
    }


def train(new: Maker) -> Cases:
    made = {"device": new.device}
    rows, labels, colored = new(100, 784, grad=False), new.ids(10, 100), new(32, 3, 32, 32, grad=False)
    words, next_words = new.ids(1000, 20, 16), new.ids(1000, 320)
    ids = new.ids(64, 16, 64)
    tiny = nn.Sequential(nn.Linear(2, 16, **made), nn.Tanh(), nn.Linear(16, 2, **made))
    language = {
        kind: LanguageModel(64, 1000, 128, seq_model=kind, seq_len=20, **made)
        for kind in ("lstm", "gru", "transformer")
    }
    return {
        "MLP 2-16-2, batch 32": (_step(tiny, new(32, 2, grad=False), new.ids(2, 32)), 32),
        "MLPResNet on 784 numbers, batch 100": (_step(MLPResNet(784, **made), rows, labels), 100),
        "LeNet on 28 × 28, batch 100": (_step(LeNet(**made), rows.reshape((100, 1, 28, 28)), labels), 100),
        "ResNet9 on 32 × 32, batch 32": (_step(ResNet9(**made), colored, new.ids(10, 32)), 32),
        "LSTM, 128 wide, 16 × 20 words": (_step(language["lstm"], words, next_words), 320),
        "GRU, 128 wide, 16 × 20 words": (_step(language["gru"], words, next_words), 320),
        "transformer, 64 wide, 16 × 20 words": (_step(language["transformer"], words, next_words), 320),
        "GPT, 4 layers of 128, 16 × 64 characters": (
            _step(GPT(64, 64, embedding_size=128, num_layers=4, **made), ids, ids),
            16 * 64,
        ),
    }


def _step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Any]:
    optimizer, loss = optim.Adam(model.parameters(), lr=1e-3), nn.SoftmaxLoss()

    def step() -> None:
        optimizer.reset_grad()
        out = model(x)
        loss(out[0] if isinstance(out, tuple) else out, y).backward()
        optimizer.step()

    return step


def inference(new: Maker) -> Cases:
    made = {"device": new.device}

    def answer(model: nn.Module, x: Tensor) -> tuple[Callable[[], Any], float]:
        model.eval()

        def run() -> Any:
            with no_grad():
                return model(x)

        return run, 1

    gpt = GPT(64, 64, embedding_size=128, num_layers=4, **made)
    return {
        "MLPResNet on 784 numbers": answer(MLPResNet(784, **made), new(1, 784, grad=False)),
        "LeNet on 28 × 28": answer(LeNet(**made), new(1, 1, 28, 28, grad=False)),
        "ResNet9 on 32 × 32": answer(ResNet9(**made), new(1, 3, 32, 32, grad=False)),
        "GPT, 4 layers of 128, 64 characters": answer(gpt, new.ids(64, 1, 64)),
    }


def replayed(family: Callable[[Maker], Cases]) -> Callable[[Maker], Cases]:
    """A family whose functions are captured; one that could not be replayed is an error, not a time of something else."""

    def cases(new: Maker) -> Cases:
        return {name: (capture(action, strict=True), count) for name, (action, count) in family(new).items()}

    return cases


def data(new: Maker) -> Cases:
    dataset = NDArrayDataset(new.rng.random((10000, 784), dtype=np.float32), np.arange(10000) % 10)

    def epoch(**how: Any) -> tuple[Callable[[], Any], float]:
        loader = DataLoader(dataset, 100, device=new.device, **how)
        return lambda: sum(x.shape[0] for x, _ in loader), len(dataset)

    return {
        "10,000 rows of 784, in order": epoch(),
        "10,000 rows of 784, shuffled": epoch(shuffle=True),
        "10,000 rows of 784, shuffled, 2 workers": epoch(shuffle=True, num_workers=2),
    }


#: {name: (heading, unit, its size, cases)}
FAMILIES: dict[str, tuple[str, str, float, Callable[[Maker], Cases]]] = {
    "operations": ("operation, forward", "GFLOP", 1e9, operations),
    "layers": ("layer, forward and backward", "million", 1e6, layers),
    "optimizers": ("optimizer step", "million", 1e6, optimizers),
    "train": ("training step: forward, backward, Adam", "examples", 1, train),
    "inference": ("inference, batch 1", "examples", 1, inference),
    "captured train": ("training step, captured", "examples", 1, replayed(train)),
    "captured inference": ("inference, batch 1, captured", "examples", 1, replayed(inference)),
    "data": ("data loading, batch 100", "examples", 1, data),
}


# ---- Measuring ---------------------------------------------------------------------------------------------------


def timed(action: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Best and median seconds of one call, of as many as fit into `seconds`, at least five, after some to warm up."""
    for _ in range(WARM):
        action()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 100_000):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times), statistics.median(times)


def run(args: argparse.Namespace) -> int:
    if not args.seconds > 0:
        raise UsageError(f"--seconds must be above 0, got {args.seconds}")
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads must be 1 or more, got {args.threads}")
    if args.json and (args.json.is_dir() or not args.json.parent.is_dir()):  # told now, not after a minute
        raise UsageError(f"--json {args.json}: expected a file in a folder that is there")
    device, before = options({}, args.device).device, get_num_threads()
    seed_everything(0)
    results: dict[str, dict[str, Any]] = {}
    threads = args.threads or before
    try:
        set_num_threads(threads)
        for name in args.family or FAMILIES:
            results[name] = _family(name, device, args.seconds)
    finally:
        set_num_threads(before)
        if args.json:
            with replacing(args.json) as unfinished:
                unfinished.write_text(json.dumps({"threads": threads, "results": results}, indent=1) + "\n")
    return 0


def _family(name: str, device: Any, seconds: float) -> dict[str, Any]:
    heading, unit, size, cases = FAMILIES[name]
    print(f"{heading:54} {'best':>10} {'median':>10} {'a second':>16}")
    found = {}
    for case, (action, count) in cases(Maker(device)).items():
        best, median = timed(action, seconds)
        found[case] = {"best": best, "median": median}
        many = f"{count / best / size:,.{0 if size == 1 else 1}f} {unit}" if count else ""
        print(f"{case:54} {readable(best):>10} {readable(median):>10} {many:>16}", flush=True)
    print()
    return found


def readable(seconds: float) -> str:
    """A short time.

    >>> readable(2.5e-7), readable(3.21e-4), readable(0.0123), readable(1.5)
    ('250 ns', '321 µs', '12.3 ms', '1.5 s')
    """
    for size, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")):
        if seconds < 1000 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
