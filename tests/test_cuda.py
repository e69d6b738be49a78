"""Training on a CUDA device: everything moves there and back, and no step waits but for the loss that is read."""

import os

import numpy as np
import pytest
from test_training import MODELS

import needle as ndl
from needle import data, nn, optim
from needle_nn.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.skipif(not ndl.cuda().enabled(), reason="needs a CUDA device, or its emulation")
emulated = pytest.mark.skipif(
    os.environ.get("NEEDLE_CUDA_EMULATION") != "1", reason="counts what the emulation is asked"
)
OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params: optim.Adam(params, lr=0.01, weight_decay=0.1),
}


def model(device):
    np.random.seed(0)  # noqa: NPY002
    first, second = nn.Linear(6, 8, device=device), nn.Linear(8, 3, device=device)
    return nn.Sequential(first, nn.BatchNorm1d(8, device=device), nn.ReLU(), second)


def batches(device):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 5, 6)).astype("float32"), rng.integers(0, 3, (3, 5))
    return [
        (ndl.Tensor(a, device=device, requires_grad=False), ndl.Tensor(b, device=device))
        for a, b in zip(x, y, strict=True)
    ]


def step(network, optimizer, x, y):
    optimizer.reset_grad()
    loss = nn.SoftmaxLoss()(network(x), y)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_goes_on_on_another_device(make):
    """Two steps here, one there, with module and optimizer moved: the losses are those of a run that stayed."""
    expected, found = [], []
    stays = model(ndl.cpu())
    optimizer = make(stays.parameters())
    for x, y in batches(ndl.cpu()):
        expected.append(step(stays, optimizer, x, y).item())

    moves = model(ndl.cpu())
    optimizer = make(moves.parameters())
    for i, (x, y) in enumerate(batches(ndl.cpu())):
        if i == 1:
            assert moves.to(ndl.cuda()) is moves and optimizer.to(ndl.cuda()) is optimizer
        there = ndl.cuda() if i else ndl.cpu()
        found.append(step(moves, optimizer, x.to(there), y.to(there)).item())
    assert {str(p.device) for p in moves.parameters()} == {"cuda()"}
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_state_left_behind_is_named():
    network = model(ndl.cpu())
    optimizer = optim.Adam(network.parameters(), lr=0.01)
    step(network, optimizer, *batches(ndl.cpu())[0])
    network.to(ndl.cuda())
    with pytest.raises(
        ValueError, match=r"state 0 is on cpu\(\), parameter 0 on cuda\(\); move it with \.to\(device\)"
    ):
        step(network, optimizer, *batches(ndl.cuda())[1])


@pytest.mark.parametrize("pair", [("cpu", "cuda"), ("cuda", "cpu")], ids="-".join)
def test_checkpoints_load_on_another_device(pair, tmp_path):
    here, there = pair
    network = model(here)
    optimizer = optim.Adam(network.parameters(), lr=0.01)
    step(network, optimizer, *batches(here)[0])
    save_checkpoint(tmp_path / "checkpoint", {"model": network.state_dict(), "optimizer": optimizer.state_dict()})
    again = model(there)
    adam = optim.Adam(again.parameters(), lr=0.01)
    state = load_checkpoint(tmp_path / "checkpoint")
    again.load_state_dict(state["model"])
    adam.load_state_dict(state["optimizer"])
    assert {p.device.name for p in again.parameters()} == {a.device.name for a in adam.m.values()} == {there}
    for x, y in zip(network.parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(x.numpy(), y.numpy(), strict=True)
    losses = [step(m, o, *batches(d)[1]).item() for m, o, d in ((network, optimizer, here), (again, adam, there))]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_loader(workers):
    """Batches come to the device, in order; with workers one is on its way while another is used."""
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    dataset = data.NDArrayDataset(x, np.arange(20))
    loader = data.DataLoader(dataset, batch_size=6, num_workers=workers, device=ndl.cuda())
    for _ in range(2):
        got = [(a, b) for a, b in loader]
        assert all(t.device == ndl.cuda() for pair in got for t in pair)
        np.testing.assert_array_equal(np.concatenate([a.numpy() for a, _ in got]), x)
        np.testing.assert_array_equal(np.concatenate([b.numpy() for _, b in got]), np.arange(20))


@emulated
@pytest.mark.parametrize("name", MODELS)
def test_a_step_waits_only_for_what_is_read(name, monkeypatch):
    from needle_cuda.testing import settings, standin

    seen = []
    plain = standin().cuda.Stream.synchronize
    monkeypatch.setattr(standin().cuda.Stream, "synchronize", lambda self: (seen.append(1), plain(self))[1])
    build, (x, y), forward = MODELS[name]
    with settings.changed(streams="deferred"):
        network = build(ndl.cuda())
        optimizer = optim.Adam(network.parameters(), lr=0.01)
        inputs, labels = (ndl.Tensor(each, device=ndl.cuda(), requires_grad=False) for each in (x, y))
        for _ in range(2):
            loss = step(lambda x: forward(network, x) if forward else network(x), optimizer, inputs, labels)
            assert seen == []
        assert np.isfinite(loss.item()) and len(seen) == 1
