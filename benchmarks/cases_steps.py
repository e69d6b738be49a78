"""Cases of whole models: train steps (forward, backward, update), inference at batch 1, and data loading."""

from benchmarks.cases import GRAPHS, Case
from benchmarks.workloads import BATCHES, TITLES


def train(model: str, batch: int, of: tuple[str, ...] = GRAPHS) -> Case:
    setup, name = f"step = train({model!r}, {batch})", f"{TITLES[model]}, batch {batch}"
    return Case("train steps", name, setup, "step()", of=of, after="(step(), step())")


def infer(model: str, of: tuple[str, ...] = GRAPHS) -> Case:
    return Case("inference", f"{TITLES[model]}, batch 1", f"step = infer({model!r})", "step()", of=of)


#: Compiling takes long: at the first batch size of a model only.
TRAIN = [
    train(model, batch, GRAPHS if i == 0 else ("needle", "torch"))
    for model, batches in BATCHES.items()
    for i, batch in enumerate(batches)
]
INFERENCE = [infer(model) for model in ("mlp", "mlpresnet", "lenet", "resnet9")]
INFERENCE += [infer(model) for model in ("lstm small", "gru small", "transformer small", "transformer ptb")]

LOADED = ("needle", "numpy", "torch")
LOADING = [
    Case("data loading", "10,000 rows of 784, batch 100, in order", "go = epoch('order')", "go()", of=LOADED),
    Case("data loading", "10,000 rows of 784, batch 100, shuffled", "go = epoch('shuffled')", "go()", of=LOADED),
    Case("data loading", "the same, PyTorch indexing whole batches", "go = epoch('batches')", "go()", of=LOADED),
    Case("data loading", "shuffled, 2 workers", "go = epoch('workers')", "go()", of=("needle", "torch")),
]

CASES = [*TRAIN, *INFERENCE, *LOADING]
