"""Cases that Needle runs as captured plans: small graphs, train steps and inference at batch 1 and 32."""

from dataclasses import replace

from benchmarks import cases_arrays
from benchmarks.cases import CAPTURED, Case
from benchmarks.workloads import TITLES

GRAPHS = [
    replace(case, family="captured graphs", of=CAPTURED, captured=True)
    for case in cases_arrays.CASES
    if case.family == "small graphs" and case.backward
]

#: model, batch sizes; the peers that compile do so at the first one only
STEPS = {
    "mlp": (32,),
    "mlpresnet": (1, 32, 100),
    "lenet": (32,),
    "resnet9": (32,),
    "lstm small": (16,),
    "gru small": (16,),
    "transformer tiny": (8,),
    "transformer small": (16,),
}


def train(model: str, batch: int, of: tuple[str, ...]) -> Case:
    name = f"{TITLES[model]}, batch {batch}"
    return Case("captured steps", name, f"step = train({model!r}, {batch})", "step()", of=of, captured=True,
                after="(step(), step())")  # fmt: skip


def infer(model: str, batch: int) -> Case:
    name = f"{TITLES[model]}, batch {batch}"
    setup = f"step = infer({model!r}, {batch})"
    return Case("captured inference", name, setup, "step()", of=(*CAPTURED, "onnx"), captured=True)


TRAIN = [
    train(model, batch, (*CAPTURED, *(["numpy"] if model == "mlp" else [])) if i == 0 else ("needle", "eager", "torch"))
    for model, batches in STEPS.items()
    for i, batch in enumerate(batches)
]
INFERENCE = [
    infer(model, batch) for model in ("mlp", "mlpresnet", "lenet", "resnet9", "transformer small") for batch in (1, 32)
]
CASES = [*GRAPHS, *TRAIN, *INFERENCE]
