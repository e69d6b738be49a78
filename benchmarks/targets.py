"""Targets: the best time of a peer over Needle's, with all cores, and what memory, import and disk may cost.

Each has two values: below `required` it is a defect, and shown as one; `target` is where it should get.
"""

from typing import Any, NamedTuple

from benchmarks import cases_captured, cases_generation, results
from benchmarks.workloads import BATCHES, TITLES


class Target(NamedTuple):
    """The least of the ratios of some cases against a peer."""

    name: str
    required: float
    target: float
    family: str
    cases: tuple[str, ...]
    peer: str = "torch"


class Outcome(NamedTuple):
    """A target and what was measured: `value` None where nothing was, `kept` what is required, `reached` the target."""

    name: str
    peer: str
    value: float | None
    required: float
    target: float
    kept: bool
    reached: bool
    shown: tuple[str, str, str]  # value, required and target as text
    note: str = ""

    def share(self, value: float) -> float:
        """A value as a multiple of what is required, above 1 where it is kept; without a peer less is better."""
        return value / self.required if self.peer else self.required / max(value, 1e-9)


def step(model: str) -> tuple[str, ...]:
    return (f"{TITLES[model]}, batch {BATCHES[model][0]}",)


def at(model: str, batch: int) -> tuple[str, ...]:
    return (f"{TITLES[model]}, batch {batch}",)


STEPS = "captured steps"
OTHERS = tuple(
    case.name for case in cases_captured.TRAIN if not case.name.startswith((TITLES["mlp"], TITLES["mlpresnet"]))
)
INFERENCE = tuple(case.name for case in cases_captured.INFERENCE if not case.name.startswith(TITLES["mlp"] + ","))
FOUR = ("((a*b + c)*a).sum() 8x8, forward + backward",)
LEVEL = 0.95  # what counts as level
TRAIN = "train steps"
TARGETS = [
    Target("recorded add 8x8", 8, 12, "overhead", ("recorded add 8x8",)),
    Target("four-op graph, forward + backward", 12, 18, "small graphs", FOUR),
    Target("tiny MLP step", 8, 12, TRAIN, step("mlp")),
    Target("elementwise on 16M", 2, 3.5, "elementwise", ("add 16M",)),
    Target("elementwise on 64k", 1.2, 2, "elementwise", ("add 64k",)),
    Target("elementwise, transposed operand", 1.2, 2, "strided", ("add transposed 2000x1000",)),
    Target("exp on 1M to 16M", 1, 1.3, "elementwise", ("exp 1M", "exp 4M", "exp 16M")),
    Target("tanh on 1M to 16M", 1, 1.3, "elementwise", ("tanh 1M", "tanh 4M", "tanh 16M")),
    Target("sum on 1M to 16M", 1, 1.3, "reductions", ("sum 1M", "sum 4M", "sum 16M")),
    Target("matmul 1024^3", 0.95, 1, "matmul", ("1024^3",)),
    Target("matmul 64^3", 1.3, 2, "matmul", ("64^3",)),
    Target("matmul batched 64 x 64^3", 1, 1.5, "matmul", ("batched 64 x 64^3",)),
    Target("layer norm, forward + backward", 1.3, 2, "layers", ("layer norm 4096x256, f+b",)),
    Target("softmax cross-entropy, 10,000 classes, forward + backward", 1.5, 2.5, "layers",
           ("cross-entropy 700x10000, f+b",)),
    Target("MLPResNet step, batch 100", 2.5, 4, TRAIN, step("mlpresnet")),
    Target("ResNet9 step, batch 128 (PyTorch in channels_last)", 1, 1.4, TRAIN, step("resnet9")),
    Target("LSTM language model step, small", 1.5, 2.5, TRAIN, step("lstm small")),
    Target("LSTM language model step, PTB size", 1.1, 1.5, TRAIN, step("lstm ptb")),
    Target("transformer language model step, small", 1.2, 1.8, TRAIN, step("transformer small")),
    Target("transformer language model step, PTB size", 1, 1.3, TRAIN, step("transformer ptb")),
    Target("tiny MLP step", LEVEL, 1, TRAIN, step("mlp"), "jax"),
    Target("MLPResNet step, batch 100", 1, 1, TRAIN, step("mlpresnet"), "jax"),
    Target("LSTM language model step, small", 1, 1, TRAIN, step("lstm small"), "jax"),
    Target("LSTM language model step, PTB size", 1, 1, TRAIN, step("lstm ptb"), "jax"),
    Target("decode of GPT-2 124M, one prompt", 1.2, 1.8, "generation", (cases_generation.DECODE,)),
    Target("prompt of 512 tokens, GPT-2 124M", 1, 1.2, "generation", (cases_generation.PREFILL,)),
    Target("captured tiny MLP step", 40, 70, STEPS, at("mlp", 32)),
    Target("captured tiny MLP step, against NumPy by hand", 3, 3, STEPS, at("mlp", 32), "numpy"),
    Target("captured four-op graph, forward + backward", 40, 80, "captured graphs", FOUR),
    Target("captured chain of 20 adds", 3, 6, "captured graphs", ("chain of 20 adds 8x8, forward + backward",), "jax"),
    Target("captured MLPResNet step, batch 1", 2.5, 3.5, STEPS, at("mlpresnet", 1), "eager"),
    Target("captured MLPResNet step, batch 32", 1.6, 1.9, STEPS, at("mlpresnet", 32), "eager"),
    Target("captured MLPResNet step, batch 100", 1.15, 1.4, STEPS, at("mlpresnet", 100), "eager"),
    Target("every other captured step", 1, 1.1, STEPS, OTHERS, "eager"),
    Target("captured inference, batch 1 and 32", 1, 2, "captured inference", INFERENCE, "jax"),
    Target("captured inference, batch 1 and 32", 1, 2, "captured inference", INFERENCE, "onnx"),
]  # fmt: skip


def judged(
    name: str, peer: str, value: float | None, required: float, target: float, unit: str = "", note: str = ""
) -> Outcome:
    """Ratios to a peer have to be as large, amounts of a unit as small."""
    kept, reached = (value is not None and (value >= x if peer else value <= x) for x in (required, target))
    measured = "n/a" if value is None else f"{value:.3g} {unit}" if unit else f"{value:.2f}×"
    limits = [f"{x:g} {unit}" if unit else f"{x:g}×" for x in (required, target)]
    return Outcome(name, peer, value, required, target, kept, reached, (measured, *limits), note)


def outcome(target: Target, report: dict[str, Any], threads: int) -> Outcome:
    found = [results.find(report, target.family, case, threads) for case in target.cases]
    known = [ratio for r in found if r and (ratio := results.ratios(r).get(target.peer)) is not None]
    value = min(known) if len(known) == len(target.cases) else None
    return judged(target.name, target.peer, value, target.required, target.target)


def memory_outcome(report: dict[str, Any], what: str, ours: str, peer: str, required: float, target: float) -> Outcome:
    """The worst of the peer's growth over Needle's."""
    pairs = [
        (row[peer]["growth"] / max(row[ours]["growth"], 1), row["name"])
        for row in report["memory"]
        if "growth" in row.get(peer, {}) and "growth" in row.get(ours, {})
    ]
    value, name = min(pairs, default=(None, ""))
    note = f"the worst of {len(pairs)}: {name}" if pairs else ""
    return judged(what, {"needle": "eager"}.get(peer, peer), value, required, target, note=note)


def install_outcomes(report: dict[str, Any]) -> list[Outcome]:
    row: dict[str, Any] = next((row for row in report["install"] if row["module"] == "needle"), {})
    size = row["bytes"] / 1e6 if row.get("bytes") else None
    return [
        judged("import, with NumPy's", "", row.get("import"), 0.15, 0.08, "s"),
        judged("installed size beyond NumPy", "", size, 45, 35, "MB"),
    ]


def outcomes(report: dict[str, Any]) -> list[Outcome]:
    """All targets against the results with the most threads."""
    threads = max(results.threads_in(report), default=1)
    return [
        *(outcome(target, report, threads) for target in TARGETS),
        memory_outcome(report, "peak memory of every train step", "needle", "torch", 1, 2),
        memory_outcome(report, "peak memory of every captured step", "captured", "needle", 1, 1.4),
        *install_outcomes(report),
    ]
