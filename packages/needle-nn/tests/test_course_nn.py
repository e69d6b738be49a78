"""The course's numbers: what its layers draw, and the results it has published."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import math

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle_nn.models import MLPResNet, ResidualBlock, ResNet9

# ---- The course's random numbers --------------------------------------------------------------------------


def uniform(bound, *shape):
    return np.random.rand(*shape).astype("float32") * np.float32(2 * bound) - np.float32(bound)


def drawn_linear(n, m, bias=True):
    weight = uniform(math.sqrt(6 / n), n, m)
    return [weight, uniform(math.sqrt(6 / m), m, 1).reshape(1, m)] if bias else [weight]


def drawn_norm(n):
    return [np.ones(n), np.zeros(n)]


def drawn_conv(c, f, k):
    return [uniform(math.sqrt(6 / (c * k * k)), k, k, c, f), uniform(1 / math.sqrt(c * k * k), f)]


def drawn_cell(n, h, gates=1):
    bound, wide = 1 / math.sqrt(h), gates * h
    return [uniform(bound, n, wide), uniform(bound, h, wide), uniform(bound, wide), uniform(bound, wide)]


def drawn_attention(n, inner):
    weights = [drawn_linear(*sizes, bias=False)[0] for sizes in [(n, inner)] * 3 + [(inner, n)]]
    return [a for _ in range(3) for a in drawn_norm(n)] + weights


def drawn_transformer_layer(n, inner, hidden):
    return [*drawn_attention(n, inner), *drawn_norm(n), *drawn_linear(n, hidden), *drawn_linear(hidden, n)]


def in_order(*parts):
    return [array for part in parts for array in part()]


DRAWS = {
    "Linear": (lambda: nn.Linear(5, 3), lambda: drawn_linear(5, 3)),
    "Embedding": (lambda: nn.Embedding(5, 3), lambda: [np.random.randn(5, 3)]),
    "Conv": (lambda: nn.Conv(3, 4, 5), lambda: drawn_conv(3, 4, 5)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), lambda: drawn_norm(4)),
    "LayerNorm1d": (lambda: nn.LayerNorm1d(4), lambda: drawn_norm(4)),
    "RNNCell": (lambda: nn.RNNCell(3, 4), lambda: drawn_cell(3, 4)),
    "LSTMCell": (lambda: nn.LSTMCell(3, 4), lambda: drawn_cell(3, 4, 4)),
    "RNN": (lambda: nn.RNN(3, 4, 2), lambda: [*drawn_cell(3, 4), *drawn_cell(4, 4)]),
    "LSTM": (lambda: nn.LSTM(3, 4, 2), lambda: [*drawn_cell(3, 4, 4), *drawn_cell(4, 4, 4)]),
    "AttentionLayer": (lambda: nn.AttentionLayer(6, 2, 4), lambda: drawn_attention(6, 8)),
    "TransformerLayer": (lambda: nn.TransformerLayer(6, 2, 4, 5), lambda: drawn_transformer_layer(6, 8, 5)),
    "Transformer": (
        lambda: nn.Transformer(6, 5, 2, num_head=2, dim_head=4, sequence_len=7),
        lambda: in_order(lambda: [np.random.randn(7, 6)], *[lambda: drawn_transformer_layer(6, 8, 5)] * 2),
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_what_the_course_draws(name):
    """Shapes, order and values of the parameters, and where the generator stands afterwards."""
    make, drawn = DRAWS[name]
    np.random.seed(3)
    found, after = [p.numpy() for p in make().parameters()], np.random.rand()
    np.random.seed(3)
    expected = drawn()
    assert np.random.rand() == after
    assert [a.shape for a in found] == [a.shape for a in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


# ---- Numbers that the course has published --------------------------------------------------------------------------


def integers(*shape):
    """The course's deterministic inputs: twentieths from 0 to 5."""
    np.random.seed(math.prod(shape) * len(shape))
    return ndl.Tensor(np.random.randint(0, 100, size=shape) / 20, dtype="float32")


def labels(n, classes):
    np.random.seed(n)
    return ndl.Tensor(np.random.randint(0, classes, size=n))


def published(seed, make, *shape):
    """What a network gives for normal numbers drawn before its weights."""
    np.random.seed(seed)
    x = ndl.Tensor(np.random.randn(*shape), dtype="float32")
    return make()(x)


def linear(*shape):
    np.random.seed(199)
    layer = nn.Linear(10, 5)
    layer.bias.data = integers(5)  # of another shape than before
    return layer(integers(*shape))


def sequential():
    np.random.seed(42)
    layers = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 5))
    return layers(integers(3, 5))


def images():
    np.random.seed(0)
    model = ResNet9()
    return model(ndl.Tensor(np.random.randn(2, 3, 32, 32)))


def drawn():
    np.random.seed(1337)
    return nn.Linear(7, 4)


PUBLISHED = {
    "the first weights of Linear(7, 4)": (
        lambda: drawn().weight[0],
        [-4.4064468e-01, -6.3199449e-01, -4.1082984e-01, -7.5330488e-02],
    ),
    "the bias of Linear(7, 4)": (lambda: drawn().bias, [[0.077647, 0.814139, -0.770975, 1.120297]]),
    "Linear": (lambda: linear(1, 10), [[3.849948, 9.50499, 2.38029, 5.572587, 5.668391]]),
    "Linear of three axes": (lambda: linear(1, 3, 10)[:, 0], [[4.351459, 8.782808, 3.935711, 3.03171, 8.014219]]),
    "Sequential": (lambda: sequential()[0], [3.296263, 0.057031, 2.97568, -4.618432, -0.902491]),
    "LayerNorm1d": (lambda: nn.LayerNorm1d(3)(integers(3, 3))[0], [-0.06525002, -1.1908097, 1.2560595]),
    "SoftmaxLoss": (
        lambda: nn.SoftmaxLoss()(integers(3, 11), labels(3, 11)),
        3.3196716,
    ),
    "ResidualBlock": (
        lambda: published(2, lambda: ResidualBlock(15, 10, nn.LayerNorm1d, 0.5), 1, 15)[0, :8],
        [0.0, 1.358399, 0.0, 1.384224, 0.0, 0.0, 0.255451, 0.077662],
    ),
    "MLPResNet with dropout": (
        lambda: published(4, lambda: MLPResNet(10, 5, 2, 5, nn.LayerNorm1d, 0.5), 2, 10),
        [[3.046162, 1.44972, -1.921363, 0.021816, -0.433953], [3.489114, 1.820994, -2.111306, 0.226388, -1.029428]],
    ),
    "MLPResNet": (
        lambda: published(4, lambda: MLPResNet(15, 25, 5, 14, nn.BatchNorm1d, 0.0), 2, 15)[:, :4],
        [[0.92448235, -2.745743, -1.5077105, 1.130784], [0.6653336, -2.4708004, 2.0572243, -1.0791507]],
    ),
    "ResNet9": (
        lambda: images()[:, :4],
        [[-1.8912625, 0.64833605, 1.9400386, 1.1435282], [-0.2905612, -0.4147861, 0.90268034, 0.46530387]],
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers_come_out(name):
    compute, expected = PUBLISHED[name]
    np.testing.assert_allclose(compute().numpy(), expected, rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: ResidualBlock(15, 2, nn.BatchNorm1d), 111),
        (lambda: ResidualBlock(784, 100, nn.LayerNorm1d), 159_452),
        (lambda: MLPResNet(150, 100, 5, 10, nn.LayerNorm1d), 68_360),
        (lambda: MLPResNet(10, 100, 1, 100, nn.BatchNorm1d), 21_650),
        (ResNet9, 431_946),
    ],
)
def test_published_sizes_come_out(make, size):
    assert sum(p.size for p in make().parameters()) == size
