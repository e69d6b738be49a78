"""What a step on many ranks costs: `python benchmarks/scaling.py` prints the tables of docs/scaling.md, `--svg` draws its picture.

A message of n bytes takes latency + n / bandwidth. The steps of a training over MPI are those of needle_nn.distributed: see
`exchange`. `benchmarks/delayed.py` compares the formulas with ranks that exchange messages over a network that is made slow.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import pictures  # noqa: E402

WHOLE = 1 << 16  # up to so many bytes on all ranks together go in one message, as in needle_nn.distributed
SMALL = 1 << 15  # up to so many bytes an all_gather doubles what it has in every round, as Open MPI does


class Network(NamedTuple):
    name: str
    latency: float  # seconds from a program to another one
    bandwidth: float  # bytes a second, each way


class Model(NamedTuple):
    name: str
    parameters: int
    tensors: int  # how many parameters are arrays of their own
    statistics: tuple[int, int]  # running statistics of batch norm: how many arrays, of how many elements together
    seconds: float  # forward and backward of one part


NETWORKS = (
    Network("Ethernet, 1 Gb/s", 50e-6, 0.118e9),
    Network("Ethernet, 10 Gb/s", 20e-6, 1.18e9),
    Network("InfiniBand, 200 Gb/s", 1.5e-6, 24e9),
)
#: Seconds are those of docs/benchmarks.md on two cores, but for the last: 6 flops for each parameter and token, 150 GFLOP/s.
MODELS = (
    Model("MLPResNet, 100 images", 110_860, 28, (12, 900), 1.11e-3),
    Model("ResNet9, 128 images", 431_946, 36, (16, 1120), 7.72e-3),
    Model("LSTM, PTB size, 20 × 35 words", 4_653_200, 11, (0, 0), 93.9e-3),
    Model("transformer, PTB size, 20 × 35 words", 4_590_600, 36, (0, 0), 90.7e-3),
    Model("GPT-2, 8 × 1,024 words (estimated)", 124_439_808, 148, (0, 0), 6 * 124_439_808 * 8 * 1024 / 150e9),
)
RANKS = tuple(2**i for i in range(11))


def rounds(ranks: int) -> int:
    return math.ceil(math.log2(ranks))


def all_gather(n: int, ranks: int, network: Network) -> float:
    """Everybody's n bytes to everybody: few bytes by doubling, in log2 p rounds; many around a ring, in p - 1."""
    latency, each = network.latency, n / network.bandwidth
    if n * ranks <= SMALL:
        return rounds(ranks) * latency + (ranks - 1) * each
    return (ranks - 1) * (latency + each)


def all_to_all(n: int, ranks: int, network: Network) -> float:
    """n bytes of everybody, a slice for each, from everybody to everybody in p - 1 rounds."""
    return (ranks - 1) * (network.latency + n / ranks / network.bandwidth)


def gradients(n: int, ranks: int, network: Network) -> float:
    """The sum of n bytes of gradients: whole where they are few, else slices to everybody and sums of slices back."""
    if n * ranks <= WHOLE:
        return all_gather(n, ranks, network)
    return all_to_all(n, ranks, network) + all_gather(math.ceil(n / ranks), ranks, network)


def halving(n: int, ranks: int, network: Network) -> float:
    """The same sum in 2 log2 p rounds: with a neighbour at distance 1, 2, 4, ... half of what is left, and back."""
    return 2 * rounds(ranks) * network.latency + 2 * (ranks - 1) / ranks * n / network.bandwidth


def figures(model: Model) -> int:
    """Bytes that a rank with one part tells in a step: which gradients there are, the loss, and statistics, as float64."""
    arrays, elements = model.statistics
    return 8 * (2 + model.tensors + 2 + (1 + 3 * arrays + elements if arrays else 1))


def exchange(model: Model, ranks: int, network: Network, tree: str = "slices") -> float:
    """All messages of a step: figures, gradients, and whether to go on."""
    if ranks == 1:
        return 0.0
    small = all_gather(figures(model), ranks, network) + all_gather(4, ranks, network)
    return small + (gradients if tree == "slices" else halving)(4 * model.parameters, ranks, network)


def efficiency(
    model: Model, ranks: int, network: Network, parts: int = 1, tree: str = "slices", overlap: bool = False
) -> float:
    """The share of a step in which ranks with so many parts each compute; overlapped, two thirds of computing hide messages."""
    computing, told = parts * model.seconds, exchange(model, ranks, network, tree)
    hidden = min(told, model.seconds * 2 / 3) if overlap else 0.0
    return computing / (computing + told - hidden)


# ---- Tables ----------------------------------------------------------------------------------------------------------------


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def table_of_costs() -> str:
    shown = (2, 16, 128, 1024)
    lines = ["| milliseconds of messages in a step | computing | " + " | ".join(f"{p:,} ranks" for p in shown) + " |"]
    lines.append("|---|--:|" + "--:|" * len(shown))
    for network in NETWORKS:
        for model in MODELS:
            costs = " | ".join(milliseconds(exchange(model, p, network)) for p in shown)
            lines.append(f"| {network.name}: {model.name} | {milliseconds(model.seconds)} | {costs} |")
    return "\n".join(lines)


#: What can be changed: name, further arguments of `efficiency`.
CHANGES = (
    ("as it is", {}),
    ("messages during backward", {"overlap": True}),
    ("sums by halving", {"tree": "halving"}),
    ("8 parts on each rank", {"parts": 8}),
    ("all three", {"overlap": True, "tree": "halving", "parts": 8}),
)


def table_of_changes(ranks: int = 1024) -> str:
    lines = [f"| share of computing on {ranks:,} ranks | " + " | ".join(name for name, _ in CHANGES) + " |"]
    lines.append("|---|" + "--:|" * len(CHANGES))
    for network in NETWORKS:
        for model in MODELS:
            cells = [f"{efficiency(model, ranks, network, **how):.0%}" for _, how in CHANGES]
            lines.append(f"| {network.name}: {model.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


# ---- The picture -----------------------------------------------------------------------------------------------------------

COLOURS = ("#2f6db5", "#c2410c", "#3f8f4f", "#8a4fb0", "#b08900")


def picture() -> str:
    """Share of computing by the number of ranks, a panel for each network and a line for each model."""
    named = [(model.name, color) for model, color in zip(MODELS, COLOURS, strict=True)]
    parts = [*pictures.legend(named[:3], 16, 46), *pictures.legend(named[3:], 16, 64)]
    for i, network in enumerate(NETWORKS):
        lines = []
        for model, color in zip(MODELS, COLOURS, strict=True):
            shares = [(math.log2(p), efficiency(model, p, network), p) for p in RANKS]
            lines.append((color, [(x, share, f"{model.name}: {share:.0%} on {p:,}") for x, share, p in shares]))
        ranks, shares = {math.log2(p): f"{p:,}" for p in RANKS[::2]}, {y / 4: f"{y / 4:.0%}" for y in range(5)}
        parts += pictures.panel(network.name, lines, ranks, shares, (50 + i * 300, 110, 250, 190))
    return pictures.document(950, 334, "Share of a step that ranks compute, by the number of ranks", parts)


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--svg", action="store_true", help="draw docs/scaling.svg as well")
    args = told.parse_args()
    print(table_of_costs(), table_of_changes(), sep="\n\n")
    if args.svg:
        (ROOT / "docs" / "scaling.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
