"""Training that was cut goes on with the same bits: stopped between any two steps, interrupted, or killed at any moment."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from trainer_helpers import StopAt, Told, bits, network, points, seeded, trainer  # noqa: F401  a fixture

import needle.random
from needle_nn import nn, optim
from needle_nn.checkpoint import Checkpoints
from needle_nn.data import DataLoader
from needle_nn.training import Average, Callback, EarlyStop, MetricsFile, SaveCheckpoints, Trainer, accuracy
from needle_nn.training.callbacks import read_metrics

LOADERS = {
    "in order": lambda: DataLoader(points(), 8),
    "shuffled by seed": lambda: DataLoader(points(), 8, shuffle=True, seed=3),
    "shuffled by numpy": lambda: DataLoader(points(), 8, shuffle=True),
    "workers": lambda: DataLoader(points(), 8, shuffle=True, num_workers=2),
    "a list": lambda: list(DataLoader(points(), 8)),
}
OPTIMIZERS = {
    "plain": lambda params: optim.Adam(params, lr=0.05),
    "accumulate": lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
    "clip and metric": lambda params: optim.RMSprop(params, lr=0.01),
}
OPTIONS = {
    "plain": {},
    "accumulate": {"accumulate": 2},
    "clip and metric": {"clip_norm": 0.1, "metrics": {"accuracy": accuracy}},
}


def fresh(folder, loader, options):
    """A trainer as a new process would make it, gone on with what the folder holds."""
    np.random.seed(0)  # noqa: NPY002
    needle.random.seed(0)
    data = LOADERS[loader]()
    model = network()
    optimizer = OPTIMIZERS[options](model.parameters())
    stateful = [Average(optim.EMA(model.parameters(), 0.9)), EarlyStop(optim.EarlyStopping(9), "loss")]
    made = Trainer(
        model,
        optimizer,
        nn.SoftmaxLoss(),
        schedule=optim.CosineLR(optimizer, 12),
        callbacks=[MetricsFile(folder / "metrics.jsonl", 1), *stateful, SaveCheckpoints(folder, 1)],
        **OPTIONS[options],
    )
    if Checkpoints(folder).files():
        np.random.seed(77)  # noqa: NPY002
        needle.random.seed(99)
        made.load_state_dict(Checkpoints(folder).load())
    return made, data


def told(folder):
    """The lines of the metrics, without times."""
    return [
        {key: value for key, value in row.items() if key != "seconds"} for row in read_metrics(folder / "metrics.jsonl")
    ]


def kept(trainer):
    """What the rest of a run depends on beside the model."""
    wanted = ("optimizer", "schedule", "callbacks", "random")
    return {name: value for name, value in trainer.state_dict().items() if name in wanted}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("options", OPTIONS)
def test_cut_anywhere_it_goes_on_with_the_same_bits(tmp_path, loader, options):
    """Two epochs of five batches, cut after every step in turn."""
    whole, data = fresh(tmp_path / "whole", loader, options)
    whole.fit(data, 2, valid=DataLoader(points(), 40))
    for cut in range(1, whole.step):
        folder = tmp_path / str(cut)
        first, data = fresh(folder, loader, options)
        first.callbacks.append(StopAt(cut))
        with pytest.raises(KeyboardInterrupt):
            first.fit(data, 2, valid=DataLoader(points(), 40))
        assert first.step == cut
        second, data = fresh(folder, loader, options)
        assert second.step == cut
        second.fit(data, 2, valid=DataLoader(points(), 40))
        assert bits(second.model) == bits(whole.model)
        assert flat(kept(second)) == flat(kept(whole))
        assert told(folder) == told(tmp_path / "whole")


@pytest.mark.parametrize("loader", LOADERS)
def test_longer_in_two_calls_is_the_same(tmp_path, loader):
    """fit up to 7 steps and on to 3 epochs, in one process."""
    whole, data = fresh(tmp_path / "a", loader, "plain")
    whole.fit(data, 3)
    parts, data = fresh(tmp_path / "b", loader, "plain")
    parts.fit(data, 3, steps=7)
    assert parts.step == 7
    parts.fit(data, 3)
    assert bits(parts.model) == bits(whole.model)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_saves_and_says_how_to_go_on(tmp_path, capsys, number):
    before = signal.getsignal(number)
    made = trainer(callbacks=[SaveCheckpoints(tmp_path), StopAt(2, number)])
    with pytest.raises(KeyboardInterrupt):
        made.fit(DataLoader(points(), 8), 3)
    assert signal.getsignal(number) is before
    assert Checkpoints(tmp_path).load()["trainer"]["step"] == 2
    told = capsys.readouterr().err
    assert "interrupted; saved" in told and "checkpoint-00000002" in told and "goes on from there" in told


def test_second_interrupt_does_not_wait(tmp_path):
    class Twice(Callback):
        def on_step_end(self, trainer):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)

    told = Told()
    with pytest.raises(KeyboardInterrupt):
        trainer(callbacks=[told, Twice()]).fit(DataLoader(points(), 8), 1)
    assert ("interrupt", 1) not in told.events


def test_other_threads_train_too():
    made = trainer()
    thread = threading.Thread(target=lambda: made.fit(DataLoader(points(), 8), 1))
    thread.start()
    thread.join()
    assert made.epoch == 1


# ---- Killed ------------------------------------------------------------------------------------------------------------

KILLED = """
import sys, numpy as np, needle.random
from needle_nn import nn, optim
from needle_nn.checkpoint import Checkpoints
from needle_nn.data import DataLoader, NDArrayDataset
from needle_nn.training import MetricsFile, SaveCheckpoints, Trainer, accuracy

folder = sys.argv[1]
np.random.seed(0)
needle.random.seed(0)
rng = np.random.RandomState(1)
x = rng.randn(200, 20).astype("float32")
loader = DataLoader(NDArrayDataset(x, (x[:, 0] > 0).astype("int64")), 8, shuffle=True)
model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
optimizer = optim.Adam(model.parameters(), lr=0.01)
callbacks = [MetricsFile(f"{folder}/metrics.jsonl", 1), SaveCheckpoints(folder, 3)]
trainer = Trainer(model, optimizer, nn.SoftmaxLoss(), metrics={"accuracy": accuracy}, callbacks=callbacks)
if Checkpoints(folder).files():
    trainer.load_state_dict(Checkpoints(folder).load())
print("ready", flush=True)
trainer.fit(loader, 12, valid=DataLoader(NDArrayDataset(x, (x[:, 0] > 0).astype("int64")), 50))
"""


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path):
    def run(folder, seconds=None):
        """Whether the run came to its end before it was killed."""
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / folder)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout.readline() == b"ready\n"
            try:
                return process.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                return False

    start = time.perf_counter()
    assert run("whole")
    took = time.perf_counter() - start
    rng, kills = np.random.RandomState(int.from_bytes(os.urandom(4), "little")), 0
    while not run("killed", rng.uniform(0.01, 0.15) * took if kills < 5 else None):
        kills += 1
    assert kills >= 3
    states = [Checkpoints(tmp_path / folder).load() for folder in ("whole", "killed")]
    for state in states:
        state["trainer"]["seconds"] = 0
    assert repr(states[0]["trainer"]) == repr(states[1]["trainer"])
    for part in ("model", "optimizer"):
        assert flat(states[0][part]) == flat(states[1][part])
    assert told(tmp_path / "whole") == told(tmp_path / "killed")


def flat(state):
    from needle_nn.packing import pack

    arrays, text = pack(state)
    return text, {name: array.tobytes() for name, array in arrays.items()}
