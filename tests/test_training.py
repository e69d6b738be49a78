"""Every model trains on every device that can be used: the loss falls, and the devices agree."""

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle_nn.models import GPT, LanguageModel, LeNet, MLPResNet, ResNet9

DEVICES = {"cpu": ndl.cpu, "cpu_numpy": ndl.cpu_numpy} | ({"cuda": ndl.cuda} if ndl.cuda().enabled() else {})


def images(*shape, classes):
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(np.float32), rng.integers(0, classes, shape[0])


def tokens(steps, batch, words):
    ids = np.random.default_rng(0).integers(0, words, (steps + 1, batch))
    return ids[:-1], ids[1:].reshape(-1)


def language(kind):
    def build(device):
        return LanguageModel(12, 20, 16, num_layers=1, seq_model=kind, seq_len=6, device=device)

    return build, tokens(6, 4, 20), lambda model, x: model(x)[0]


MODELS = {
    "MLPResNet": (lambda device: MLPResNet(20, 16, num_blocks=2, device=device), images(8, 20, classes=10), None),
    "LeNet": (lambda device: LeNet(in_size=8, device=device), images(8, 1, 8, 8, classes=10), None),
    "ResNet9": (lambda device: ResNet9(device=device), images(4, 3, 32, 32, classes=10), None),
    "rnn": language("rnn"),
    "lstm": language("lstm"),
    "transformer": language("transformer"),
    "GPT": (
        lambda device: GPT(20, 6, embedding_size=16, num_layers=2, num_head=2, device=device),
        tuple(a.T if a.ndim == 2 else a.reshape(6, 4).T.reshape(-1) for a in tokens(6, 4, 20)),
        lambda model, x: model(x).reshape(-1, 20),
    ),
}


def train(name, device, steps=6):
    build, (x, y), forward = MODELS[name]
    np.random.seed(0)  # noqa: NPY002
    model = build(device)
    optimizer = ndl.optim.Adam(model.parameters(), lr=0.01)
    loss_of = nn.SoftmaxLoss()
    inputs = ndl.Tensor(x, device=device, requires_grad=False)
    labels = ndl.Tensor(y, device=device, requires_grad=False)
    losses = []
    for _ in range(steps):
        optimizer.reset_grad()
        loss = loss_of(forward(model, inputs) if forward else model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
def test_loss_falls_and_devices_agree(name):
    losses = {device: train(name, make()) for device, make in DEVICES.items()}
    for device, found in losses.items():
        assert np.isfinite(found).all(), (device, found)
        assert found[-1] < 0.9 * found[0], (device, found)
    # The first step is the same arithmetic up to rounding, which training then lets grow.
    for found in losses.values():
        np.testing.assert_allclose(found[0], losses["cpu"][0], rtol=1e-5)
        np.testing.assert_allclose(found[1], losses["cpu"][1], rtol=1e-3)
