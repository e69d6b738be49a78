"""Labels and images of every integer dtype in losses, layers and training: float32 stays float32, bytes do not wrap."""

import os
import subprocess
import sys

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from needle_ndarray.testing import each

LABELS = np.array([2, 0, 1, 1])
LOGITS = np.linspace(-1, 2, 12).reshape(4, 3).astype("float32")
TARGETS = np.array([[0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 1]])


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64", "float32"])
def test_softmax_loss_of_labels(kind):
    x = ndl.Tensor(LOGITS)
    got = nn.SoftmaxLoss()(x, ndl.Tensor(LABELS.astype(kind), requires_grad=False))
    expected = nn.SoftmaxLoss()(x, ndl.Tensor(LABELS))
    assert got.dtype == "float32" and got.item() == expected.item()


@each("loss", ["MSELoss", "L1Loss", "BCEWithLogitsLoss", "HuberLoss"])
@pytest.mark.parametrize("kind", ["bool", "uint8", "int32", "int64"])
def test_losses_of_targets(loss, kind):
    """Targets below and above the results: a difference of bytes must not wrap."""
    values = TARGETS if loss.startswith("BCE") or kind == "bool" else TARGETS * 200
    x, wanted = ndl.Tensor(LOGITS), ndl.Tensor(values.astype("float32"), requires_grad=False)
    found = []
    for target in (ndl.Tensor(values.astype(kind)), wanted):
        y = getattr(nn, loss)()(x, target)
        y.backward()
        assert y.dtype == x.grad.dtype == "float32"
        found.append((y.item(), x.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_images_of_integers_through_layers(kind):
    """(images - mean) / 255 through a network and a step: nothing becomes float64."""
    images = ndl.Tensor((np.arange(2 * 3 * 8 * 8).reshape(2, 3, 8, 8) % 256).astype(kind))
    model = nn.Sequential(nn.Conv(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3))
    optimizer = ndl.optim.Adam(model.parameters())
    loss = nn.SoftmaxLoss()(model((images - 128.0) / 255), ndl.Tensor(np.array([1, 2], np.uint8)))
    loss.backward()
    optimizer.step()
    assert loss.dtype == "float32" and {str(p.dtype) for p in model.parameters()} == {"float32"}
    assert model(images).dtype == "float32"
    ids = ndl.Tensor(np.array([[0, 2], [1, 1]], np.uint8))
    table = nn.Embedding(3, 4)
    np.testing.assert_array_equal(table(ids).numpy(), table.weight.numpy()[ids.numpy()])


def test_float64_networks_with_the_numpy_backend():
    """Layers, losses and optimizers of float64 parameters keep them, and give what NumPy gives to 1e-12."""
    code = """
import numpy as np, needle as ndl, needle.nn as nn
x = ndl.Tensor([[0.1, -0.7], [1.3, 0.4], [0.2, 0.9]])
kind = {"dtype": "float64"}
for make in (
    lambda: nn.Linear(2, 3, **kind), lambda: nn.LayerNorm1d(2, **kind), lambda: nn.BatchNorm1d(2, **kind),
    lambda: nn.Sequential(nn.Linear(2, 4, **kind), nn.ReLU(), nn.Dropout(0.3), nn.Residual(nn.Linear(4, 4, **kind))),
):
    for optimizer in (ndl.optim.SGD, ndl.optim.Adam, ndl.optim.AdamW, ndl.optim.RMSprop, ndl.optim.Adagrad):
        model = make()
        step = optimizer(model.parameters(), lr=0.1)
        for loss in (lambda y: nn.MSELoss()(y, y * 0.5 + 0.25), lambda y: nn.SoftmaxLoss()(y, [0, 1, 1]),
                     lambda y: nn.L1Loss()(y, y * 0.5), lambda y: nn.BCEWithLogitsLoss()(y, y.detach() * 0 + 1.0)):
            value = loss(model(x))
            value.backward()
            step.step()
            assert value.dtype == "float64", value.dtype
            for p in model.parameters():
                assert p.dtype == "float64" and (p.grad is None or p.grad.dtype == "float64")
w = ndl.Tensor([[0.3, -0.2], [0.5, 0.7]])
y = nn.SoftmaxLoss()(x @ w, [0, 1, 1])
z = x.numpy() @ w.numpy()
expected = (np.log(np.exp(z).sum(1)) - z[np.arange(3), [0, 1, 1]]).mean()
assert abs(y.item() - expected) <= 1e-14, y.item() - expected
print(x.dtype, w.dtype, y.dtype)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "NEEDLE_BACKEND": "np"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "float64 float64 float64\n", done.stderr
