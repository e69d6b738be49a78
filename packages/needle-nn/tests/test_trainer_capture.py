"""A Trainer that captures its steps gives the bits of one that does not, in everything a run depends on."""

import warnings

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from needle.optim import EMA, SGD, Adam, AdamW, CosineLR, StepLR
from needle_nn.training import Callback, Trainer, accuracy


class Averages(Callback):
    """Keeps an EMA up to date, as users do."""

    def __init__(self, ema):
        self.ema = ema

    def on_step_end(self, trainer):
        self.ema.update()


def network(norm, dropout):
    return nn.Sequential(
        nn.Linear(6, 16),
        nn.BatchNorm1d(16) if norm else nn.LayerNorm1d(16),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(16, 3),
    )


def batches(sizes, seed):
    rng = np.random.default_rng(seed)
    return [
        (
            ndl.Tensor(rng.standard_normal((n, 6)).astype("float32"), requires_grad=False),
            ndl.Tensor(rng.integers(0, 3, n), dtype="int32", requires_grad=False),
        )
        for n in sizes
    ]


#: name: sizes of the batches, options of the Trainer, the optimizer, the schedule of it, whether batch norm, ignored label
RUNS = {
    "plain": ([8] * 6, {}, lambda p: SGD(p, lr=0.1), None, False, None),
    "momentum, uneven tail": ([8, 8, 8, 8, 3], {}, lambda p: SGD(p, lr=0.1, momentum=0.9), None, True, None),
    "adam, cosine": ([8] * 6, {"clip_norm": 0.5}, lambda p: Adam(p, lr=0.01), lambda o: CosineLR(o, 30), True, None),
    "accumulated": ([8] * 7, {"accumulate": 3}, lambda p: AdamW(p), lambda o: StepLR(o, 2), False, None),
    "accumulated, ignored": ([8, 8, 5, 8], {"accumulate": 2, "clip_norm": 1.0}, lambda p: Adam(p), None, True, 1),
    "epochs": ([8] * 5, {"schedule_every": "epoch"}, lambda p: SGD(p, lr=0.1), lambda o: StepLR(o, 1), True, None),
}


def train(row, capture, seed=4):
    sizes, options, optimizer, schedule, norm, ignored = RUNS[row]
    np.random.seed(seed)  # noqa: NPY002  (the course draws weights so)
    ndl.random.seed(seed)
    model = network(norm, 0.25)
    made = optimizer(model.parameters())
    ema = EMA(model.parameters(), decay=0.9, ramp=True)
    trainer = Trainer(
        model,
        made,
        nn.SoftmaxLoss() if ignored is None else nn.SoftmaxLoss(ignore_index=ignored),
        metrics={"accuracy": accuracy},
        callbacks=[Averages(ema)],
        schedule=schedule(made) if schedule else None,
        keep={"ema": ema},
        capture=capture,
        **options,
    )
    logs = trainer.fit(batches(sizes, 1), epochs=4, valid=batches([7, 7, 2], 2))
    state = trainer.state_dict()
    state["trainer"].pop("seconds")
    ndl.random.seed(None)
    return trainer, logs, state


def bits(tree):
    if isinstance(tree, dict):
        return {name: bits(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [bits(value) for value in tree]
    return tree.numpy().tobytes() if hasattr(tree, "numpy") else tree.tobytes() if hasattr(tree, "tobytes") else tree


@pytest.mark.parametrize("row", RUNS)
def test_same_bits(row):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer, logs, state = train(row, capture=True)
    _, eager_logs, eager_state = train(row, capture=False)
    assert logs == eager_logs
    assert bits(state) == bits(eager_state)
    assert (
        sum(plan.replays for plan in trainer._run.plans) > 0 and sum(plan.replays for plan in trainer._apply.plans) > 0
    )


def test_a_model_that_reads_values_stays_eager():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            y = self.linear(x)
            return y * 2 if y.sum().item() > 0 else y

    np.random.seed(0)  # noqa: NPY002
    model = Reads()
    trainer = Trainer(model, SGD(model.parameters(), lr=0.1), nn.SoftmaxLoss(), capture=True)
    with pytest.warns(ndl.CaptureWarning, match=r"test_trainer_capture.py:\d+: reads values of an array on the host"):
        trainer.fit(batches([8] * 4, 1), epochs=2)
    assert trainer.step == 8 and not trainer._run.plans


def test_a_loss_that_is_no_number():
    np.random.seed(0)  # noqa: NPY002
    model = network(False, 0.0)
    data = batches([8] * 5, 1)
    data[4][0].cached_data[...] = np.nan
    trainer = Trainer(model, SGD(model.parameters(), lr=0.1), nn.SoftmaxLoss(), capture=True)
    with pytest.raises(FloatingPointError, match="the loss is nan in epoch 1, batch 5"):
        trainer.fit(data, epochs=1)
    assert trainer.step == 4 and all(np.isfinite(p.numpy()).all() for p in model.parameters())
