"""The networks: sizes, the course's random numbers, what they compute, and that they learn."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import math

import numpy as np
import pytest
from layer_references import softmax

import needle as ndl
from needle import nn
from needle_nn.models import GPT, LanguageModel, LeNet, MLPResNet, ResidualBlock, ResNet9

rng = np.random.default_rng


def count(model):
    return sum(p.size for p in model.parameters())


DEVICES = [ndl.cpu, ndl.cpu_numpy] + [ndl.cuda] * ndl.cuda().enabled()
MODELS = {
    "MLPResNet": (
        lambda **d: MLPResNet(6, hidden_dim=8, num_blocks=2, num_classes=3, **d),
        rng(0).normal(size=(4, 6)),
        (4, 3),
    ),
    "ResNet9": (lambda **d: ResNet9(**d), rng(0).normal(size=(2, 3, 32, 32)), (2, 10)),
    "LeNet": (lambda **d: LeNet(in_size=8, **d), rng(0).normal(size=(4, 1, 8, 8)), (4, 10)),
    "LeNet/28": (lambda **d: LeNet(in_channels=3, num_classes=7, **d), rng(0).normal(size=(2, 3, 28, 28)), (2, 7)),
    "GPT": (
        lambda **d: GPT(11, context=6, embedding_size=8, num_layers=2, num_head=2, **d),
        rng(0).integers(0, 11, (2, 5)),
        (2, 5, 11),
    ),
    "GPT/untied": (
        lambda **d: GPT(11, context=6, embedding_size=8, num_layers=2, num_head=2, tied=False, **d),
        rng(0).integers(0, 11, (2, 5)),
        (2, 5, 11),
    ),
}
for kind in ("rnn", "lstm", "gru", "transformer"):
    MODELS[f"LanguageModel/{kind}"] = (
        lambda kind=kind, **d: LanguageModel(5, 11, 6, 2, kind, 7, num_head=2, dim_head=3, **d),
        rng(0).integers(0, 11, (7, 3)),
        (21, 11),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns_on_every_device(name, device, dtype):
    make, x, shape = MODELS[name]
    model = make(device=device(), dtype=dtype)
    x = ndl.Tensor(x, device=device(), dtype=dtype if x.dtype.kind == "f" else None)
    y = model(x)
    y = y[0] if isinstance(y, tuple) else y
    assert (y.shape, y.dtype, y.device) == (shape, dtype, device())
    nn.SoftmaxLoss()(y, ndl.Tensor(np.zeros(shape[:-1], int), device=device())).backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not np.isfinite(p.grad.numpy()).all()]
    assert missing == []
    assert {(str(p.dtype), str(p.grad.dtype)) for p in model.parameters()} == {(dtype, dtype)}


@pytest.mark.parametrize("name", MODELS)
def test_devices_agree(name):
    make, x, _ = MODELS[name]
    found = []
    for device in DEVICES:
        np.random.seed(0)
        y = make(device=device()).eval()(ndl.Tensor(x.astype("float32"), device=device()))
        found.append((y[0] if isinstance(y, tuple) else y).numpy())
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-4, atol=1e-5)


# ---- The course's --------------------------------------------------------------------------


def test_mlp_resnet_computes_what_the_course_computes():
    """Draws and forward pass, in evaluation, written once more in NumPy."""
    np.random.seed(1)
    model = MLPResNet(6, hidden_dim=8, num_blocks=2, num_classes=3).eval()
    x = rng(0).normal(size=(4, 6)).astype("float32")
    found = model(ndl.Tensor(x)).numpy()

    def linear(n, m):
        w = (np.random.rand(n, m) * 2 - 1) * math.sqrt(6 / n)
        return w, (np.random.rand(m, 1).T * 2 - 1) * math.sqrt(6 / m)

    def still(y):  # batch norm as it starts
        return y / math.sqrt(1 + 1e-5)

    np.random.seed(1)
    layers = [linear(*sizes) for sizes in [(6, 8), (8, 4), (4, 8), (8, 4), (4, 8), (8, 3)]]
    y = np.maximum(x @ layers[0][0] + layers[0][1], 0)
    for (w1, b1), (w2, b2) in (layers[1:3], layers[3:5]):
        y = np.maximum(y + still(np.maximum(still(y @ w1 + b1), 0) @ w2 + b2), 0)
    np.testing.assert_allclose(found, y @ layers[5][0] + layers[5][1], rtol=1e-5, atol=1e-5)


def test_mlp_resnet_takes_another_norm_and_dropout():
    class Double(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size

        def forward(self, x):
            return x * 2

    block = ResidualBlock(4, 2, norm=Double, drop_prob=0.25)
    inner = block[0].fn
    assert [type(m).__name__ for m in inner] == ["Linear", "Double", "ReLU", "Dropout", "Linear", "Double"]
    assert [m.size for m in (inner[1], inner[5])] == [2, 4] and inner[3].p == 0.25
    model = MLPResNet(6, 8, 2, 3, nn.LayerNorm1d, dtype="float64")
    assert sum(isinstance(m, nn.LayerNorm1d) for _, m in model.named_modules()) == 4


@pytest.mark.parametrize(("kind", "state"), [("rnn", (2, 3, 6)), ("gru", (2, 3, 6)), ("lstm", ((2, 3, 6),) * 2)])
def test_language_model_hands_on_its_state(kind, state):
    model = LanguageModel(5, 11, 6, 2, kind, dtype="float64")
    ids = ndl.Tensor(rng(0).integers(0, 11, (7, 3)))
    whole, h = model(ids)
    assert (tuple([part.shape for part in h]) if isinstance(h, tuple) else h.shape) == state
    first, h = model(ids[:4])
    second, _ = model(ids[4:], h)
    np.testing.assert_allclose(np.concatenate([first.numpy(), second.numpy()]), whole.numpy(), rtol=1e-12)


def test_language_model_refuses_other_kinds():
    with pytest.raises(ValueError, match="'cnn': expected rnn, lstm, gru or transformer"):
        LanguageModel(5, 11, 6, seq_model="cnn")


# ---- GPT --------------------------------------------------------------------------


def small(**settings):
    np.random.seed(0)
    return GPT(11, context=6, embedding_size=8, num_layers=2, num_head=2, **settings)


def test_gpt_does_not_see_the_future():
    model, ids = small(), rng(0).integers(0, 11, (1, 6))
    other = ids.copy()
    other[0, 4] = (ids[0, 4] + 1) % 11
    a, b = model(ids).numpy(), model(other).numpy()
    np.testing.assert_array_equal(a[:, :4], b[:, :4])
    assert abs(a[:, 4:] - b[:, 4:]).max(axis=-1).min() > 1e-6


def test_gpt_size():
    c, block = 8, 2 * 2 * 8 + (8 * 24 + 24) + (8 * 8 + 8) + (8 * 32 + 32) + (32 * 8 + 8)
    assert count(small()) == 11 * c + 6 * c + 2 * block + 2 * c
    assert count(small(tied=False)) == count(small()) + 11 * c
    assert small().state_dict().keys() == small(tied=False).state_dict().keys() - {"head.weight"}


def test_gpt_generates_the_likeliest_by_looking_at_the_last_tokens_only():
    model = small(dropout=0.3)
    prompt = rng(1).integers(0, 11, (2, 4))
    found = model.generate(prompt, 5, temperature=0)
    assert found.shape == (2, 9) and (found[:, :4] == prompt).all() and model.training
    expected = prompt
    model.eval()
    for _ in range(5):
        logits = model(expected[:, -6:]).numpy()[:, -1]
        expected = np.concatenate([expected, logits.argmax(-1)[:, None]], 1)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(model.generate(prompt, 5, temperature=1.0, top_k=1, seed=3), expected)
    np.testing.assert_array_equal(model.generate(prompt[0], 5, temperature=0), expected[0])
    np.testing.assert_array_equal(model.generate(ndl.Tensor(prompt), 5, temperature=0), expected)


def test_gpt_draws_from_its_distribution():
    model = small()
    model.tokens.weight.data = model.tokens.weight.data * 60  # far from even
    prompt = np.tile([[3, 1]], (4000, 1))
    logits = model.eval()(prompt[:1]).numpy()[0, -1].astype("float64")
    for temperature, top_k in [(1.0, None), (2.0, None), (1.0, 3)]:
        drawn = model.generate(prompt, 1, temperature, top_k, seed=0)[:, -1]
        allowed = np.where(logits >= np.sort(logits)[-(top_k or 11)], logits, -np.inf)
        expected = softmax(allowed / temperature)
        found = np.bincount(drawn, minlength=11) / len(drawn)
        assert abs(found - expected).max() < 4 * math.sqrt(0.25 / 4000)
        assert not found[expected == 0].any()
    first, again, other = (model.generate([3, 1], 8, seed=seed) for seed in (5, 5, 6))
    assert (first == again).all() and not (first == other).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: small()(np.zeros((1, 7), int)), r"ids have shape \(1, 7\), expected \(B, T\), T up to 6"),
        (lambda: small()(np.zeros(3, int)), r"ids have shape \(3,\), expected \(B, T\)"),
        (lambda: small().generate([], 1), r"prompt of shape \(0,\)"),
        (lambda: small().generate([1], 1, temperature=-1), "temperature -1"),
        (lambda: small().generate([1], 1, top_k=0), "top_k 0"),
        (lambda: GPT(11, embedding_size=10, num_head=3), "embedding_size 10 does not make 3 heads"),
        (lambda: LeNet(in_size=3), "in_size 3: expected 4 or more"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- Learning --------------------------------------------------------------------------


def learn(model, inputs, labels, steps, lr):
    """Losses of plain gradient descent."""
    losses = []
    for _ in range(steps):
        y = model(inputs)
        loss = nn.SoftmaxLoss()(y[0] if isinstance(y, tuple) else y, labels)
        loss.backward()
        for p in model.parameters():
            p.data = p.data - lr * p.grad.data
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("name", "lr"),
    [
        ("MLPResNet", 0.1),
        ("LeNet", 0.05),
        ("GPT", 0.3),
        ("LanguageModel/lstm", 4.0),
        ("LanguageModel/transformer", 0.1),
    ],
)
def test_learns_a_few_examples_by_heart(name, lr):
    make, x, shape = MODELS[name]
    np.random.seed(0)
    model = make()
    x = ndl.Tensor(x.astype("float32") if x.dtype.kind == "f" else x)
    labels = ndl.Tensor(rng(3).integers(0, shape[-1], shape[:-1]))
    losses = learn(model, x, labels, 80, lr)
    assert losses[-1] < 0.3 * losses[0]
