"""What the tests of training have in common."""

import os
import signal
import time

import numpy as np
import pytest

import needle.random
from needle_nn import nn, optim
from needle_nn.data import NDArrayDataset
from needle_nn.training import Callback, Trainer


@pytest.fixture(autouse=True)
def seeded():
    np.random.seed(0)  # noqa: NPY002
    needle.random.seed(0)
    yield
    needle.random.seed(None)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def points(n=40):
    rng = np.random.RandomState(1)
    x = rng.randn(n, 4).astype("float32")
    return NDArrayDataset(x, (x[:, 0] > 0).astype("int64") + (x[:, 1] > 0.5))


def trainer(model=None, lr=0.05, **options):
    model = model or network()
    return Trainer(model, optim.Adam(model.parameters(), lr=lr), nn.SoftmaxLoss(), **options)


def bits(model):
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


class Told(Callback):
    """Notes what it was told."""

    def __init__(self):
        self.events = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda trainer, *args: self.events.append((name[3:], trainer.step))
        return super().__getattribute__(name)


class StopAt(Callback):
    """Ctrl-C, sent in the middle of a step."""

    def __init__(self, step, number=signal.SIGINT):
        self.at, self.number = step, number

    def on_step_end(self, trainer):
        if trainer.step == self.at:
            os.kill(os.getpid(), self.number)
            time.sleep(0.01)
