"""The training loop: the same as one by hand, and its callbacks."""

import json
import math
import sys

import numpy as np
import pytest
from trainer_helpers import Told, bits, network, points, seeded, trainer  # noqa: F401  a fixture

import needle.random
from needle_nn import nn, optim
from needle_nn.data import DataLoader
from needle_nn.training import (
    Average,
    EarlyStop,
    MetricsFile,
    Plateau,
    ProgressBar,
    TensorBoard,
    Trainer,
    accuracy,
    fit,
)  # fmt: skip
from needle_nn.training.callbacks import read_metrics

# ---- The loop ------------------------------------------------------------------------------------------------------


def test_is_the_loop_by_hand():
    by_hand = network()
    optimizer, loss = optim.Adam(by_hand.parameters(), lr=0.05), nn.SoftmaxLoss()
    for _ in range(3):
        for x, y in DataLoader(points(), 16):
            optimizer.reset_grad()
            loss(by_hand(x), y).backward()
            optimizer.step()
    np.random.seed(0)  # noqa: NPY002
    needle.random.seed(0)
    trained = trainer()
    trained.fit(DataLoader(points(), 16), 3)
    assert bits(trained.model) == bits(by_hand)
    assert (trained.epoch, trained.step, trained.batch) == (3, 9, 0)


def test_learns_and_measures():
    trained = trainer(metrics={"accuracy": accuracy})
    loader = DataLoader(points(), 16)
    before = trained.evaluate(loader)
    logs = trained.fit(loader, 30, valid=loader)
    assert logs["valid_loss"] < 0.5 * before["loss"] and logs["valid_accuracy"] > 0.9 > before["accuracy"]
    assert set(logs) == {"epoch", "step", "loss", "accuracy", "valid_loss", "valid_accuracy"}
    assert trained.evaluate(loader) == {"loss": logs["valid_loss"], "accuracy": logs["valid_accuracy"]}


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_changes_nothing(training):
    trained = trainer()
    (trained.model.train if training else trained.model.eval)()
    before = bits(trained.model)
    state = needle.random.get_state()
    trained.evaluate(DataLoader(points(), 16))
    assert bits(trained.model) == before and needle.random.get_state() == state
    assert trained.model.training is training
    assert all(p.grad is None for p in trained.model.parameters())


def test_means_are_weighted_by_targets():
    """40 points in batches of 16: the mean over points, not over batches."""
    trained = trainer()
    whole = trained.evaluate(DataLoader(points(), 40))["loss"]
    assert trained.evaluate(DataLoader(points(), 16))["loss"] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize(("n", "accumulate", "steps"), [(40, 1, 5), (40, 5, 1), (40, 2, 3), (32, 2, 2), (8, 4, 1)])
@pytest.mark.parametrize("sized", [True, False])
def test_accumulated_gradients_are_those_of_the_large_batch(n, accumulate, steps, sized):
    """Without batch norm and dropout, k batches of 8 make the step of one of 8 k."""
    start = nn.Linear(4, 3)
    kept = start.state_dict()
    results = []
    for batch, together in ((8, accumulate), (8 * accumulate, 1)):
        model = nn.Linear(4, 3)
        model.load_state_dict(kept)
        made = Trainer(model, optim.SGD(model.parameters(), lr=0.5), nn.SoftmaxLoss(), accumulate=together)
        loader = DataLoader(points(n), batch)
        made.fit(loader if sized else iter_only(loader), 1)
        results.append((made.step, model.weight.numpy()))
    assert [step for step, _ in results] == [steps, steps]
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)


class iter_only:
    """A loader without a length and without a position."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def test_a_part_that_takes_no_part_does_not_learn():
    """Gradients of the step before are gone: the second step changes only what it used."""

    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts, self.calls = [nn.Linear(4, 3), nn.Linear(4, 3)], 0

        def forward(self, x):
            self.calls += 1
            return self.parts[self.calls > 1](x)

    model = Either()
    made = Trainer(model, optim.SGD(model.parameters(), lr=0.5), nn.SoftmaxLoss())
    made.fit(DataLoader(points(), 20), 2, steps=1)
    once = model.parts[0].weight.numpy()
    made.fit(DataLoader(points(), 20), 2, steps=2)
    assert (model.parts[0].weight.numpy() == once).all()


def test_clipping_bounds_the_step():
    lengths = []
    for clip_norm in (None, 1e-3):
        model = nn.Linear(4, 3)
        before = model.weight.numpy()
        made = Trainer(model, optim.SGD(model.parameters(), lr=1.0), nn.SoftmaxLoss(), clip_norm=clip_norm)
        made.fit(DataLoader(points(), 40), 1)
        lengths.append(np.linalg.norm(model.weight.numpy() - before))
    assert lengths[0] > 1e-2 and lengths[1] <= 1e-3 * 1.001


@pytest.mark.parametrize(("every", "lr"), [("step", 0.5**6), ("epoch", 0.5**2)])
def test_schedule(every, lr):
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    schedule = optim.StepLR(optimizer, 1, 0.5)
    made = Trainer(model, optimizer, nn.SoftmaxLoss(), schedule=schedule, schedule_every=every)
    made.fit(DataLoader(points(), 16), 2)
    assert made.lr == lr


@pytest.mark.parametrize(
    ("epochs", "steps", "reached"),
    [(2, None, (2, 6, 0)), (None, 4, (1, 4, 1)), (2, 100, (2, 6, 0)), (5, 3, (0, 3, 3)), (0, None, (0, 0, 0))],
)
def test_how_long(epochs, steps, reached):
    made = trainer()
    made.fit(DataLoader(points(), 16), epochs, steps=steps)
    assert (made.epoch, made.step, made.batch) == reached


LOADER = DataLoader(points(), 8)
WRONG = {
    "no end": (lambda: trainer().fit([], None), ValueError, "how long"),
    "no batches": (lambda: trainer().fit([], 1), ValueError, "no batches"),
    "accumulate": (lambda: trainer(accumulate=0), ValueError, "accumulate must be at least 1"),
    "schedule_every": (lambda: trainer(schedule_every="week"), ValueError, "step or epoch"),
    "loss": (lambda: trainer(lr=1e30).fit(LOADER, 9), FloatingPointError, r"the loss is (nan|inf) in epoch"),
    "state": (lambda: trainer().load_state_dict({"model": {}}), ValueError, "no optimizer, loader, random, trainer"),
    "metric": (
        lambda: trainer(callbacks=[EarlyStop(optim.EarlyStopping(), "valid_f1")]).fit(LOADER, 1),
        ValueError,
        "no metric valid_f1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_what_is_wrong_is_told(name):
    make, kind, told = WRONG[name]
    with pytest.raises(kind, match=told):
        make()


def test_fit_is_the_trainer_in_one_call():
    model = network()
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    made = fit(model, optimizer, nn.SoftmaxLoss(), DataLoader(points(), 16), 2, metrics={"a": accuracy})
    assert made.step == 6 and set(made.evaluate(DataLoader(points(), 16))) == {"loss", "a"}


# ---- Callbacks -------------------------------------------------------------------------------------------------------


def test_order_of_events():
    told = Told()
    trainer(callbacks=[told]).fit(DataLoader(points(), 20), 2)
    epoch = lambda n: [("epoch_begin", n), ("step_end", n + 1), ("step_end", n + 2), ("epoch_end", n + 2)]  # noqa: E731
    assert told.events == [("fit_begin", 0), *epoch(0), *epoch(2), ("fit_end", 4)]


def test_early_stopping():
    """A metric that only grows: after the first epoch, two more without progress."""
    stopping, count = EarlyStop(optim.EarlyStopping(patience=2), "grows"), iter(range(100))
    made = trainer(callbacks=[stopping], metrics={"grows": lambda output, target: next(count)})
    made.fit(DataLoader(points(), 40), 10)
    assert made.epoch == 3 and made.stopped == "grows got no better"
    assert made.state_dict()["callbacks"] == {"EarlyStop": {"best": 0.0, "best_step": 1, "t": 3}}


def test_plateau():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    plateau = Plateau(optim.ReduceOnPlateau(optimizer, factor=0.5, patience=0), "same")
    made = Trainer(
        model, optimizer, nn.SoftmaxLoss(), metrics={"same": lambda output, target: 1.0}, callbacks=[plateau]
    )
    made.fit(DataLoader(points(), 40), 3)
    assert optimizer.lr == made.lr == 0.25


def test_average():
    model = network()
    ema = optim.EMA(model.parameters(), decay=0.5)
    made = trainer(model, callbacks=[Average(ema)])
    seen = [model.parameters()[0].numpy()]
    for epochs in (1, 2):
        made.fit(DataLoader(points(), 40), epochs)
        seen.append(model.parameters()[0].numpy())
    average = ema.average[model.parameters()[0]].numpy()
    np.testing.assert_allclose(average, seen[0] / 4 + seen[1] / 4 + seen[2] / 2, atol=1e-6)


def test_metrics_file(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    made = trainer(callbacks=[MetricsFile(path, every=2)], metrics={"accuracy": accuracy})
    made.fit(DataLoader(points(), 16), 2, valid=DataLoader(points(), 40))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["kind"], row["epoch"], row["step"]) for row in rows] == [
        ("step", 1, 2), ("epoch", 1, 3), ("step", 2, 4), ("step", 2, 6), ("epoch", 2, 6)
    ]  # fmt: skip
    assert set(rows[0]) == {"kind", "epoch", "step", "loss", "lr", "seconds"}
    assert set(rows[1]) == set(rows[0]) | {"accuracy", "valid_loss", "valid_accuracy"}
    assert rows == read_metrics(path)


def test_metrics_file_holds_json_only(tmp_path):
    path = tmp_path / "m"
    trainer(callbacks=[MetricsFile(path)], metrics={"odd": lambda output, target: math.nan}).fit(
        DataLoader(points(), 16), 1
    )
    assert "NaN" not in path.read_text() and read_metrics(path)[-1]["odd"] is None


ROW = '{"kind": "step", "epoch": 1, "step": 1}\n'


@pytest.mark.parametrize(("text", "rows"), [("", 0), (ROW + '{"a":', 1), (ROW + ROW, 2), (ROW + ROW[:-1], 1)])
def test_metrics_that_were_cut_off(tmp_path, text, rows):
    (tmp_path / "m").write_text(text)
    assert len(read_metrics(tmp_path / "m")) == rows
    assert read_metrics(tmp_path / "absent") == []


def test_progress_is_a_line_for_each_epoch(capsys):
    trainer(callbacks=[ProgressBar(bar=False)]).fit(DataLoader(points(), 16), 2)
    shown = capsys.readouterr()
    assert [line.split("  ")[0] for line in shown.out.splitlines()] == ["epoch 1/2", "epoch 2/2"] and shown.err == ""


def test_bar_is_drawn(capsys):
    trainer(callbacks=[ProgressBar(bar=True)]).fit(DataLoader(points(), 16), 1)
    assert "epoch 1/1" in capsys.readouterr().err


def test_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trainer(callbacks=[TensorBoard(tmp_path, every=1)]).fit(DataLoader(points(), 16), 2)
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("step/loss")] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in events.Scalars("epoch/loss")] == [3, 6]


def test_tensorboard_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ModuleNotFoundError, match=r"needle-nn\[tensorboard\]"):
        TensorBoard(tmp_path)
