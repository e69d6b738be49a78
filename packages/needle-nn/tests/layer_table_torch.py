"""Layers and losses that came with PyTorch's names; see layer_table.py."""

import math

import numpy as np
from layer_references import (
    attention,
    conv1d,
    conv2d,
    conv_transpose2d,
    drop,
    erf,
    gru_step,
    huber,
    keep,
    layer_norm,
    linear,
    lstm_step,
    normal,
    of_x,
    pool,
    rnn_step,
    sigmoid,
    softmax,
)
from layer_row import Row, plain

from needle import Tensor, nn

IMAGE, SEQUENCE = (2, 4, 6, 5), (2, 4, 7)
IDS = np.array([[1, 0, 4], [4, 4, 2]])
RNG = np.random.default_rng(5)
SHARES = RNG.uniform(0.05, 0.95, (3, 4))
SIGNS = np.array([[1, -1, 1, -1], [-1, 1, 1, 1], [1, 1, -1, -1]])
LABELS = np.array([1, 0, -100, 4, 4, 2])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.25, 1.5])


def pointwise(id, make, function, shape=(3, 4)):
    return Row(id, plain(make), (shape,), shape, of_x(function))


def given(array, made):
    """Weights of a loss."""
    return Tensor(array, **made, requires_grad=False)


def softplus(x):
    return np.logaddexp(x, 0)


def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def glu(x):
    a, b = np.split(x, 2, -1)
    return a * sigmoid(b)


def padded(mode, *widths, **more):
    return of_x(lambda x: np.pad(x, ((0, 0), (0, 0), *widths), mode, **more))


def adaptive_max(x, rows, columns):
    def edges(n, m):
        return [(i * n // m, math.ceil((i + 1) * n / m)) for i in range(m)]

    cells = [[x[:, :, a:b, c:d].max((2, 3)) for c, d in edges(x.shape[3], columns)] for a, b in edges(x.shape[2], rows)]
    return np.array(cells).transpose(2, 3, 0, 1)


def pool1d(reduce, x, size, stride=None, padding=0, value=0.0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)), constant_values=value)
    return reduce(np.lib.stride_tricks.sliding_window_view(x, size, axis=2)[:, :, :: stride or size], axis=-1)


def inside_average(x, size, padding):
    """Windows at every place, padding not counted."""
    return pool(np.mean, x, size, 1, padding) / pool(np.mean, np.ones_like(x), size, 1, padding)


def bilinear(p, x1, x2):
    return np.einsum("...i,kij,...j->...k", x1, p["weight"], x2) + p["bias"]


def cosine(a, b, axis):
    return (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))


def transposed1d(p, x):
    """(N, C, L) as an image of one row"""
    k = p["weight"].shape[0]
    square = np.zeros((k, *p["weight"].shape))
    square[0] = p["weight"]
    return conv_transpose2d({**p, "weight": square}, x[:, :, None])[:, :, 0]


def dropped_channels(x, training):
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return x * drop(np.ones(shape), 0.3, training)


CORNERS = np.array([[[[0, 3], [13, 10]]], [[[5, 2], [12, 15]]]])


def unpooled(x, indices, size=(4, 4)):
    y = np.zeros((*x.shape[:2], size[0] * size[1]))
    np.put_along_axis(y, indices.reshape(*x.shape[:2], -1), x.reshape(*x.shape[:2], -1), 2)
    return y.reshape(*x.shape[:2], *size)


def alpha_dropped(x, p, training):
    if not training:
        return x
    low = -1.0507009873554805 * 1.6732632423543772
    m = np.random.rand(*x.shape) <= 1 - p  # noqa: NPY002  what the layer draws from
    a = ((1 - p) * (1 + p * low**2)) ** -0.5
    return a * np.where(m, x, low) - a * p * low


# ---- Recurrent, in both directions --------------------------------------------------------------------------------------


def both_ways(step, name, layers, states=1, batch_first=False):
    def way(p, i, x):
        h = np.zeros((states, x.shape[1], 4))
        ys = []
        for row in x[:: -1 if i % 2 else 1]:
            found = step(p, row, tuple(h) if states > 1 else h[0], f"{name}.{i}.")
            h = np.array(found) if states > 1 else found[None]
            ys.append(h[0])
        return np.array(ys)[:: -1 if i % 2 else 1], h

    def run(p, training, x):
        y, last = x.swapaxes(0, 1) if batch_first else x, []
        for layer in range(layers):
            parts = [way(p, 2 * layer + i, y) for i in range(2)]
            y = np.concatenate([part[0] for part in parts], -1)
            last += [part[1] for part in parts]
        kinds = tuple(np.array(last).swapaxes(0, 1))
        return y.swapaxes(0, 1) if batch_first else y, kinds if states > 1 else kinds[0]

    return run


# ---- Attention ----------------------------------------------------------------------------------------------------------


def multihead(p, q, k, v, heads=2, prefix="", **how):
    """(B, T, E) each -> (B, T, E), probabilities of every head"""
    part = {key.removeprefix(prefix): value for key, value in p.items() if key.startswith(prefix)}
    n = q.shape[-1]
    if "in_proj_weight" in part:
        weights = np.split(part["in_proj_weight"], 3, -1)
    else:
        weights = [part[f"{which}_proj_weight"] for which in "qkv"]
    biases = np.split(part.get("in_proj_bias", np.zeros(3 * n)), 3)
    projected = [x @ w + b for x, w, b in zip((q, k, v), weights, biases, strict=True)]
    y, probabilities = attention(*[x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in projected], **how)
    y = y.swapaxes(1, 2).reshape(*q.shape[:2], n)
    return linear(part, y, "out_proj."), probabilities


def batch_second(*xs):
    return [x.swapaxes(0, 1) for x in xs]


def multihead_row(p, q, k, v):
    y, probabilities = multihead(p, *batch_second(q, k, v))
    return y.swapaxes(0, 1), probabilities.mean(1)


def feed_forward(p, x, prefix, f):
    return linear(p, f(linear(p, x, f"{prefix}linear1.")), f"{prefix}linear2.")


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def encoder_layer(p, x, prefix=""):
    """Normalised after each part, (B, T, E)"""
    x = layer_norm(p, x + multihead(p, x, x, x, prefix=f"{prefix}self_attn.")[0], f"{prefix}norm1.")
    return layer_norm(p, x + feed_forward(p, x, prefix, relu), f"{prefix}norm2.")


def encoder_layer_norm_first(p, x):
    y = layer_norm(p, x, "norm1.")
    x = x + multihead(p, y, y, y, prefix="self_attn.")[0]
    return x + feed_forward(p, layer_norm(p, x, "norm2."), "", gelu)


def decoder_layer(p, x, memory, prefix=""):
    x = layer_norm(p, x + multihead(p, x, x, x, prefix=f"{prefix}self_attn.")[0], f"{prefix}norm1.")
    y = multihead(p, x, memory, memory, prefix=f"{prefix}multihead_attn.")[0]
    x = layer_norm(p, x + y, f"{prefix}norm2.")
    return layer_norm(p, x + feed_forward(p, x, prefix, relu), f"{prefix}norm3.")


def two(layer):
    return lambda p, *xs: layer(p, layer(p, *xs, prefix="layers.0."), *xs[1:], prefix="layers.1.")


def last_norm(layer):
    return lambda p, *xs: layer_norm(p, two(layer)(p, *batch_second(*xs)), "norm.").swapaxes(0, 1)


# ---- Losses -------------------------------------------------------------------------------------------------------------


def weighted(x, y, smooth=0.0):
    """Class weights, labels of -100 left out, smoothing: the sum of losses and that of the weights"""
    log_p, total, counted = np.log(softmax(x)), 0.0, 0.0
    for row, label in zip(log_p, y, strict=True):
        if label >= 0:
            even = -(WEIGHTS * row).sum() * smooth / len(row)
            total, counted = total - (1 - smooth) * WEIGHTS[label] * row[label] + even, counted + WEIGHTS[label]
    return total, counted


def bce(p, y):
    return -y * np.log(p) - (1 - y) * np.log(1 - p)


def cosine_loss(a, b, y):
    c = cosine(a, b, -1)
    return np.where(y == 1, 1 - c, np.maximum(c - 0.1, 0)).mean()


def distance(a, b):
    return np.linalg.norm(a - b + 1e-6, axis=-1)


ROWS = [
    Row("Bilinear", lambda **d: nn.Bilinear(3, 2, 4, **d), ((5, 3), (5, 2)), (5, 4), keep(bilinear)),
    Row("Dropout1d", plain(lambda: nn.Dropout1d(0.3)), (SEQUENCE,), SEQUENCE, lambda p, t, x: dropped_channels(x, t)),
    Row("Dropout2d", plain(lambda: nn.Dropout2d(0.3)), (IMAGE,), IMAGE, lambda p, t, x: dropped_channels(x, t)),
    Row("AlphaDropout", plain(lambda: nn.AlphaDropout(0.3)), ((4, 5),), (4, 5), lambda p, t, x: alpha_dropped(x, 0.3, t)),
    Row(
        "CosineSimilarity",
        plain(nn.CosineSimilarity),
        ((3, 4), (3, 4)),
        (3,),
        of_x(lambda a, b: cosine(a, b, 1)),
    ),
    Row("PairwiseDistance", plain(nn.PairwiseDistance), ((3, 4), (3, 4)), (3,), of_x(distance)),
    # ---- Functions of one number
    pointwise("ReLU6", nn.ReLU6, lambda x: np.clip(x, 0, 6)),
    pointwise("ELU", lambda: nn.ELU(0.7), lambda x: elu(x, 0.7)),
    pointwise("CELU", lambda: nn.CELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0) / 0.7))),
    pointwise("SELU", nn.SELU, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    pointwise(
        "GELU/tanh",
        lambda: nn.GELU("tanh"),
        lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    pointwise("Mish", nn.Mish, lambda x: x * np.tanh(softplus(x))),
    pointwise("Softplus", lambda: nn.Softplus(2.0), lambda x: softplus(2 * x) / 2),
    pointwise("Softsign", nn.Softsign, lambda x: x / (1 + abs(x))),
    pointwise("LogSigmoid", nn.LogSigmoid, lambda x: np.log(sigmoid(x))),
    pointwise("Hardsigmoid", nn.Hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    pointwise("Hardswish", nn.Hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    pointwise("Hardtanh", lambda: nn.Hardtanh(-0.5, 0.8), lambda x: np.clip(x, -0.5, 0.8)),
    pointwise("Tanhshrink", nn.Tanhshrink, lambda x: x - np.tanh(x)),
    pointwise("Softshrink", nn.Softshrink, lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
    pointwise("Hardshrink", nn.Hardshrink, lambda x: np.where(abs(x) > 0.5, x, 0)),
    pointwise("Threshold", lambda: nn.Threshold(0.1, -2.0), lambda x: np.where(x > 0.1, x, -2.0)),
    pointwise("Softmin", nn.Softmin, lambda x: softmax(-x)),
    pointwise("LogSoftmax", lambda: nn.LogSoftmax(dim=1), lambda x: np.log(softmax(x))),
    Row("GLU", plain(nn.GLU), ((3, 4),), (3, 2), of_x(glu)),
    Row("PReLU", lambda **d: nn.PReLU(**d), ((3, 4),), (3, 4), keep(lambda p, x: np.where(x > 0, x, p["weight"] * x))),
    Row(
        "PReLU/channels",
        lambda **d: nn.PReLU(4, **d),
        (SEQUENCE,),
        SEQUENCE,
        keep(lambda p, x: np.where(x > 0, x, p["weight"][:, None] * x)),
    ),
    # ---- Normalisation
    Row("LayerNorm", lambda **d: nn.LayerNorm(4, **d), ((5, 4),), (5, 4), keep(layer_norm)),
    Row(
        "LayerNorm/two axes",
        lambda **d: nn.LayerNorm((3, 4), **d),
        ((2, 3, 4),),
        (2, 3, 4),
        keep(lambda p, x: normal(x, (1, 2)) * p["weight"] + p["bias"]),
    ),
    Row(
        "LayerNorm/plain",
        plain(lambda: nn.LayerNorm(4, elementwise_affine=False)),
        ((5, 4),),
        (5, 4),
        of_x(lambda x: normal(x, -1)),
    ),
    Row(
        "LayerNorm/no bias",
        lambda **d: nn.LayerNorm(4, bias=False, **d),
        ((5, 4),),
        (5, 4),
        keep(lambda p, x: normal(x, -1) * p["weight"]),
    ),
    Row(
        "RMSNorm/two axes",
        lambda **d: nn.RMSNorm((3, 4), **d),
        ((2, 3, 4),),
        (2, 3, 4),
        keep(lambda p, x: x / np.sqrt((x * x).mean((1, 2), keepdims=True) + 1e-5) * p["weight"]),
    ),
    Row(
        "BatchNorm1d/plain",
        lambda **d: nn.BatchNorm1d(4, affine=False, track_running_stats=False, **d),
        ((5, 4),),
        (5, 4),
        of_x(lambda x: normal(x, 0)),
    ),
    Row("InstanceNorm2d", lambda **d: nn.InstanceNorm2d(4, **d), (IMAGE,), IMAGE, of_x(lambda x: normal(x, (2, 3)))),
    Row("InstanceNorm1d", lambda **d: nn.InstanceNorm1d(4, **d), (SEQUENCE,), SEQUENCE, of_x(lambda x: normal(x, 2))),
    # ---- Convolution and pooling
    Row(
        "Conv2d/same",
        lambda **d: nn.Conv2d(4, 3, 3, padding="same", **d),
        (IMAGE,),
        (2, 3, 6, 5),
        keep(lambda p, x: conv2d(p, x, padding=1)),
    ),
    Row(
        "Conv2d/reflect",
        lambda **d: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect", **d),
        (IMAGE,),
        (2, 3, 6, 5),
        keep(lambda p, x: conv2d(p, np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect"))),
    ),
    Row(
        "Conv1d/same",
        lambda **d: nn.Conv1d(4, 3, 2, padding="same", **d),
        (SEQUENCE,),
        (2, 3, 7),
        keep(lambda p, x: conv1d(p, np.pad(x, ((0, 0), (0, 0), (0, 1))))),
    ),
    Row(
        "Conv1d/circular",
        lambda **d: nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular", **d),
        (SEQUENCE,),
        (2, 3, 7),
        keep(lambda p, x: conv1d(p, np.pad(x, ((0, 0), (0, 0), (1, 1)), "wrap"))),
    ),
    Row(
        "ConvTranspose1d",
        lambda **d: nn.ConvTranspose1d(4, 3, 3, **d),
        (SEQUENCE,),
        (2, 3, 9),
        keep(transposed1d),
    ),
    Row(
        "MaxPool1d",
        plain(lambda: nn.MaxPool1d(3, 2, 1)),
        (SEQUENCE,),
        (2, 4, 4),
        of_x(lambda x: pool1d(np.max, x, 3, 2, 1, -np.inf)),
    ),
    Row("AvgPool1d", plain(lambda: nn.AvgPool1d(2)), (SEQUENCE,), (2, 4, 3), of_x(lambda x: pool1d(np.mean, x, 2))),
    Row(
        "MaxPool2d/ceil",
        plain(lambda: nn.MaxPool2d(2, ceil_mode=True)),
        (IMAGE,),
        (2, 4, 3, 3),
        of_x(lambda x: pool(np.max, np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=-np.inf), 2)),
    ),
    Row(
        "AvgPool2d/inside",
        plain(lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False)),
        (IMAGE,),
        IMAGE,
        of_x(lambda x: inside_average(x, 3, 1)),
    ),
    Row(
        "AdaptiveAvgPool1d",
        plain(lambda: nn.AdaptiveAvgPool1d(3)),
        (SEQUENCE,),
        (2, 4, 3),
        of_x(lambda x: np.stack([x[..., 0:3].mean(-1), x[..., 2:5].mean(-1), x[..., 4:7].mean(-1)], -1)),
    ),
    Row("MaxUnpool2d", plain(lambda: nn.MaxUnpool2d(2)), ((2, 1, 2, 2), CORNERS), (2, 1, 4, 4), of_x(unpooled)),
    Row(
        "MaxUnpool1d",
        plain(lambda: nn.MaxUnpool1d(2)),
        ((2, 1, 2), CORNERS[:, :, 0] % 4),
        (2, 1, 4),
        of_x(lambda x, i: unpooled(x[:, :, None], i[:, :, None], (1, 4))[:, :, 0]),
    ),
    Row(
        "AdaptiveMaxPool1d",
        plain(lambda: nn.AdaptiveMaxPool1d(3)),
        (SEQUENCE,),
        (2, 4, 3),
        of_x(lambda x: np.stack([x[..., 0:3].max(-1), x[..., 2:5].max(-1), x[..., 4:7].max(-1)], -1)),
    ),
    Row(
        "AdaptiveMaxPool2d",
        plain(lambda: nn.AdaptiveMaxPool2d((4, 2))),
        (IMAGE,),
        (2, 4, 4, 2),
        of_x(lambda x: adaptive_max(x, 4, 2)),
    ),
    # ---- Shapes
    Row("Flatten/some axes", plain(lambda: nn.Flatten(0, 1)), ((2, 3, 4),), (6, 4), of_x(lambda x: x.reshape(6, 4))),
    Row("Unflatten", plain(lambda: nn.Unflatten(1, (2, -1))), ((3, 4),), (3, 2, 2), of_x(lambda x: x.reshape(3, 2, 2))),
    Row("ZeroPad1d", plain(lambda: nn.ZeroPad1d((1, 2))), (SEQUENCE,), (2, 4, 10), padded("constant", (1, 2))),
    Row("ZeroPad2d", plain(lambda: nn.ZeroPad2d(1)), (IMAGE,), (2, 4, 8, 7), padded("constant", (1, 1), (1, 1))),
    Row(
        "ConstantPad1d",
        plain(lambda: nn.ConstantPad1d(1, 3.0)),
        (SEQUENCE,),
        (2, 4, 9),
        padded("constant", (1, 1), constant_values=3.0),
    ),
    Row(
        "ConstantPad2d",
        plain(lambda: nn.ConstantPad2d((0, 1, 2, 0), 3.0)),
        (IMAGE,),
        (2, 4, 8, 6),
        padded("constant", (2, 0), (0, 1), constant_values=3.0),
    ),
    Row("ReflectionPad1d", plain(lambda: nn.ReflectionPad1d(2)), (SEQUENCE,), (2, 4, 11), padded("reflect", (2, 2))),
    Row("ReflectionPad2d", plain(lambda: nn.ReflectionPad2d(2)), (IMAGE,), (2, 4, 10, 9), padded("reflect", (2, 2), (2, 2))),
    Row("ReplicationPad1d", plain(lambda: nn.ReplicationPad1d(2)), (SEQUENCE,), (2, 4, 11), padded("edge", (2, 2))),
    Row("ReplicationPad2d", plain(lambda: nn.ReplicationPad2d(1)), (IMAGE,), (2, 4, 8, 7), padded("edge", (1, 1), (1, 1))),
    Row(
        "Upsample",
        plain(lambda: nn.Upsample(scale_factor=2)),
        (IMAGE,),
        (2, 4, 12, 10),
        of_x(lambda x: x.repeat(2, 2).repeat(2, 3)),
    ),
    Row(
        "Upsample/linear",
        plain(lambda: nn.Upsample(scale_factor=2, mode="linear", align_corners=True)),
        ((2, 1, 3),),
        (2, 1, 6),
        of_x(lambda x: np.stack([np.interp(np.linspace(0, 2, 6), range(3), row) for row in x[:, 0]])[:, None]),
    ),
    Row(
        "UpsamplingNearest2d",
        plain(lambda: nn.UpsamplingNearest2d(scale_factor=3)),
        ((1, 2, 2, 2),),
        (1, 2, 6, 6),
        of_x(lambda x: x.repeat(3, 2).repeat(3, 3)),
    ),
    Row(
        "UpsamplingBilinear2d",
        plain(lambda: nn.UpsamplingBilinear2d(size=(2, 5))),
        ((1, 1, 2, 3),),
        (1, 1, 2, 5),
        of_x(lambda x: np.stack([np.interp(np.linspace(0, 2, 5), range(3), row) for row in x[0, 0]])[None, None]),
    ),
    Row(
        "PixelShuffle",
        plain(lambda: nn.PixelShuffle(2)),
        (IMAGE,),
        (2, 1, 12, 10),
        of_x(lambda x: x.reshape(2, 1, 2, 2, 6, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 12, 10)),
    ),
    Row(
        "PixelUnshuffle",
        plain(lambda: nn.PixelUnshuffle(2)),
        ((2, 1, 4, 6),),
        (2, 4, 2, 3),
        of_x(lambda x: np.stack([x[:, 0, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)),
    ),
    Row(
        "Unfold",
        plain(lambda: nn.Unfold((3, 2))),
        (IMAGE,),
        (2, 24, 16),
        of_x(
            lambda x: np.stack([x[:, :, u : u + 4, v : v + 4] for u in range(3) for v in range(2)], 2).reshape(2, 24, 16)
        ),
    ),
    # ---- Recurrent
    Row(
        "RNN/both ways, batch first",
        lambda **d: nn.RNN(3, 4, 2, bidirectional=True, batch_first=True, **d),
        ((2, 5, 3),),
        ((2, 5, 8), (4, 2, 4)),
        both_ways(rnn_step, "rnn_cells", 2, batch_first=True),
    ),
    Row(
        "GRU/both ways",
        lambda **d: nn.GRU(3, 4, bidirectional=True, **d),
        ((5, 2, 3),),
        ((5, 2, 8), (2, 2, 4)),
        both_ways(gru_step, "gru_cells", 1),
    ),
    Row(
        "LSTM/both ways",
        lambda **d: nn.LSTM(3, 4, 2, bidirectional=True, **d),
        ((5, 2, 3),),
        ((5, 2, 8), ((4, 2, 4), (4, 2, 4))),
        both_ways(lstm_step, "lstm_cells", 2, 2),
    ),
    # ---- Attention
    Row(
        "MultiheadAttention",
        lambda **d: nn.MultiheadAttention(6, 2, **d),
        ((3, 2, 6), (5, 2, 6), (5, 2, 6)),
        ((3, 2, 6), (2, 3, 5)),
        keep(multihead_row),
    ),
    Row(
        "MultiheadAttention/widths",
        lambda **d: nn.MultiheadAttention(6, 2, kdim=5, vdim=3, batch_first=True, **d),
        ((2, 3, 6), (2, 4, 5), (2, 4, 3)),
        ((2, 3, 6), (2, 3, 4)),
        keep(lambda p, *x: (lambda y, w: (y, w.mean(1)))(*multihead(p, *x))),
    ),
    Row(
        "TransformerEncoderLayer",
        lambda **d: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True, **d),
        ((2, 3, 6),),
        (2, 3, 6),
        keep(encoder_layer),
    ),
    Row(
        "TransformerEncoderLayer/norm first",
        lambda **d: nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", norm_first=True, batch_first=True, **d),
        ((2, 3, 6),),
        (2, 3, 6),
        keep(encoder_layer_norm_first),
    ),
    Row(
        "TransformerEncoder",
        lambda **d: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0, **d), 2, nn.LayerNorm(6, **d)),
        ((3, 2, 6),),
        (3, 2, 6),
        keep(last_norm(encoder_layer)),
    ),
    Row(
        "TransformerDecoderLayer",
        lambda **d: nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True, **d),
        ((2, 3, 6), (2, 4, 6)),
        (2, 3, 6),
        keep(decoder_layer),
    ),
    Row(
        "TransformerDecoder",
        lambda **d: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, 0.0, **d), 2, nn.LayerNorm(6, **d)),
        ((3, 2, 6), (4, 2, 6)),
        (3, 2, 6),
        keep(last_norm(decoder_layer)),
    ),
    # ---- Losses
    Row(
        "CrossEntropyLoss",
        plain(nn.CrossEntropyLoss),
        ((6, 5), LABELS),
        (),
        of_x(lambda x, y: -np.log(softmax(x))[[0, 1, 3, 4, 5], [1, 0, 4, 4, 2]].mean()),
    ),
    Row(
        "CrossEntropyLoss/places",
        plain(lambda: nn.CrossEntropyLoss(reduction="none")),
        ((2, 5, 3), IDS),
        (2, 3),
        of_x(lambda x, y: -np.take_along_axis(np.log(softmax(x, 1)), y.astype(int)[:, None], 1)[:, 0]),
    ),
    Row(
        "CrossEntropyLoss/weights, smooth",
        lambda **d: nn.CrossEntropyLoss(given(WEIGHTS, d), label_smoothing=0.1),
        ((6, 5), LABELS),
        (),
        of_x(lambda x, y: np.divide(*weighted(x, y, 0.1))),
    ),
    Row(
        "CrossEntropyLoss/probabilities",
        plain(lambda: nn.CrossEntropyLoss(reduction="sum")),
        ((3, 4), SHARES),
        (),
        of_x(lambda x, y: -(y * np.log(softmax(x))).sum()),
    ),
    Row(
        "NLLLoss",
        lambda **d: nn.NLLLoss(given(WEIGHTS, d)),
        ((6, 5), LABELS),
        (),
        of_x(lambda x, y: -sum(WEIGHTS[i] * x[r, i] for r, i in enumerate(y) if i >= 0) / WEIGHTS[y[y >= 0]].sum()),
    ),
    Row(
        "SmoothL1Loss",
        plain(lambda: nn.SmoothL1Loss(beta=0.5)),
        ((3, 4), (3, 4)),
        (),
        of_x(lambda x, y: huber(0.5, x - y).mean() / 0.5),
    ),
    Row("BCELoss", plain(nn.BCELoss), (SHARES, SHARES[::-1].copy()), (), of_x(lambda p, y: bce(p, y).mean())),
    Row(
        "BCEWithLogitsLoss/weights",
        lambda **d: nn.BCEWithLogitsLoss(weight=given(SHARES[0], d), pos_weight=given(WEIGHTS[:4], d)),
        ((3, 4), SHARES),
        (),
        of_x(
            lambda x, y: (
                SHARES[0] * (-WEIGHTS[:4] * y * np.log(sigmoid(x)) - (1 - y) * np.log(1 - sigmoid(x)))
            ).mean()
        ),
    ),
    Row(
        "KLDivLoss",
        plain(lambda: nn.KLDivLoss("batchmean")),
        ((3, 4), SHARES),
        (),
        of_x(lambda x, y: (y * (np.log(y) - x)).sum() / 3),
    ),
    Row("SoftMarginLoss", plain(nn.SoftMarginLoss), ((3, 4), SIGNS), (), of_x(lambda x, y: softplus(-y * x).mean())),
    Row(
        "PoissonNLLLoss",
        plain(nn.PoissonNLLLoss),
        ((3, 4), SHARES),
        (),
        of_x(lambda x, y: (np.exp(x) - y * x).mean()),
    ),
    Row(
        "GaussianNLLLoss",
        plain(nn.GaussianNLLLoss),
        ((3, 4), (3, 4), SHARES),
        (),
        of_x(lambda x, y, v: ((np.log(v) + (x - y) ** 2 / v) / 2).mean()),
    ),
    Row(
        "CosineEmbeddingLoss",
        plain(lambda: nn.CosineEmbeddingLoss(0.1)),
        ((3, 4), (3, 4), SIGNS[:, 0].copy()),
        (),
        of_x(cosine_loss),
    ),
    Row(
        "MarginRankingLoss",
        plain(lambda: nn.MarginRankingLoss(0.2)),
        ((4,), (4,), SIGNS[0]),
        (),
        of_x(lambda a, b, y: np.maximum(0.2 - y * (a - b), 0).mean()),
    ),
    Row(
        "HingeEmbeddingLoss",
        plain(nn.HingeEmbeddingLoss),
        ((3, 4), SIGNS),
        (),
        of_x(lambda x, y: np.where(y == 1, x, np.maximum(1 - x, 0)).mean()),
    ),
    Row(
        "TripletMarginLoss",
        plain(nn.TripletMarginLoss),
        ((3, 4), (3, 4), (3, 4)),
        (),
        of_x(lambda a, p, n: np.maximum(distance(a, p) - distance(a, n) + 1, 0).mean()),
    ),
]  # fmt: skip
