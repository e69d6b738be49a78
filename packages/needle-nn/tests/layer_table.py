"""Every layer and loss: how it is made, what it takes and gives, and what it computes, written once more in NumPy."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from layer_references import (
    adaptive,
    attention,
    attention_layer,
    batch_norm,
    bce,
    conv1d,
    conv2d,
    conv_transpose2d,
    cross_entropy,
    drop,
    erf,
    group_norm,
    gru_step,
    huber,
    keep,
    layer_norm,
    linear,
    lstm,
    lstm_step,
    mlp,
    of_x,
    over_time,
    pool,
    rms_norm,
    rnn_step,
    sigmoid,
    softmax,
    transformer,
    transformer_layer,
    weight_norm,
)

from needle import nn


class Row(NamedTuple):
    id: str
    make: Callable[..., nn.Module]  # takes device and dtype
    inputs: tuple[Any, ...]  # shapes of normal numbers, tuples of these, or arrays; ints are held constant
    outputs: Any  # a shape, or nested tuples of shapes
    reference: Callable[..., Any]

    @property
    def name(self):
        return self.id.split("/")[0]

    def build(self, device=None, dtype="float64", seed=0):
        """The layer; parameters that start as ones and zeros get values of their own."""
        np.random.seed(seed)
        layer = self.make(device=device, dtype=dtype)
        rng = np.random.default_rng(seed)
        state = {name: value.numpy() for name, value in layer.state_dict().items()}
        fresh = {name: a + rng.uniform(0.1, 0.6, a.shape) for name, a in state.items() if np.ptp(a) == 0 or a.size == 1}
        layer.load_state_dict({**state, **fresh})
        return layer

    def arrays(self, dtype="float64", seed=1):
        """The inputs; a tuple of shapes becomes a tuple of arrays."""
        rng = np.random.default_rng(seed)

        def fill(x):
            if isinstance(x, tuple) and isinstance(x[0], tuple):
                return tuple([fill(part) for part in x])
            x = rng.standard_normal(x) if isinstance(x, tuple) else x
            return x.astype(dtype) if x.dtype.kind == "f" else x

        return [fill(x) for x in self.inputs]


def plain(make):
    """A layer that has neither device nor dtype."""
    return lambda device, dtype: make()


IDS = np.array([[1, 0, 4], [4, 4, 2]])
PROBABILITIES = np.random.default_rng(5).uniform(0.05, 0.95, (3, 4))
IMAGE = (2, 4, 6, 5)

ROWS = [
    Row("Identity", plain(nn.Identity), ((2, 3),), (2, 3), of_x(lambda x: x)),
    Row("Linear", lambda **d: nn.Linear(3, 4, **d), ((2, 3),), (2, 4), keep(linear)),
    Row("Linear/no bias", lambda **d: nn.Linear(3, 4, bias=False, **d), ((2, 3),), (2, 4), keep(linear)),
    Row("Linear/three axes", lambda **d: nn.Linear(3, 4, **d), ((2, 5, 3),), (2, 5, 4), keep(linear)),
    Row("Linear/one axis", lambda **d: nn.Linear(3, 4, **d), ((3,),), (4,), keep(lambda p, x: linear(p, x)[0])),
    Row("Embedding", lambda **d: nn.Embedding(5, 3, **d), (IDS,), (2, 3, 3), keep(lambda p, i: p["weight"][i])),
    Row("Dropout", plain(lambda: nn.Dropout(0.3)), ((4, 5),), (4, 5), lambda p, t, x: drop(x, 0.3, t)),
    Row("Flatten", plain(nn.Flatten), ((2, 3, 4),), (2, 12), of_x(lambda x: x.reshape(2, 12))),
    Row("Flatten/flat", plain(nn.Flatten), ((2,),), (2, 1), of_x(lambda x: x.reshape(2, 1))),
    Row("ReLU", plain(nn.ReLU), ((3, 4),), (3, 4), of_x(lambda x: np.maximum(x, 0))),
    Row("LeakyReLU", plain(lambda: nn.LeakyReLU(0.2)), ((3, 4),), (3, 4), of_x(lambda x: np.where(x > 0, x, 0.2 * x))),
    Row("Sigmoid", plain(nn.Sigmoid), ((3, 4),), (3, 4), of_x(sigmoid)),
    Row("Tanh", plain(nn.Tanh), ((3, 4),), (3, 4), of_x(np.tanh)),
    Row("GELU", plain(nn.GELU), ((3, 4),), (3, 4), of_x(lambda x: x * (1 + erf(x / math.sqrt(2))) / 2)),
    Row("SiLU", plain(nn.SiLU), ((3, 4),), (3, 4), of_x(lambda x: x * sigmoid(x))),
    Row("Softmax", plain(nn.Softmax), ((3, 4),), (3, 4), of_x(softmax)),
    Row("Softmax/axis 0", plain(lambda: nn.Softmax(0)), ((3, 4),), (3, 4), of_x(lambda x: softmax(x, 0))),
    Row(
        "Sequential",
        lambda **d: nn.Sequential(nn.Linear(3, 5, **d), nn.ReLU(), nn.Linear(5, 2, **d)),
        ((4, 3),),
        (4, 2),
        mlp,
    ),
    Row(
        "Residual",
        lambda **d: nn.Residual(nn.Linear(3, 3, **d)),
        ((4, 3),),
        (4, 3),
        keep(lambda p, x: x + linear(p, x, "fn.")),
    ),
    # ---- Normalisation
    Row("BatchNorm1d", lambda **d: nn.BatchNorm1d(4, **d), ((5, 4),), (5, 4), batch_norm),
    Row("BatchNorm1d/three axes", lambda **d: nn.BatchNorm1d(4, **d), ((3, 4, 2),), (3, 4, 2), batch_norm),
    Row("BatchNorm2d", lambda **d: nn.BatchNorm2d(4, **d), (IMAGE,), IMAGE, batch_norm),
    Row("LayerNorm1d", lambda **d: nn.LayerNorm1d(4, **d), ((5, 4),), (5, 4), keep(layer_norm)),
    Row("LayerNorm1d/three axes", lambda **d: nn.LayerNorm1d(4, **d), ((2, 5, 4),), (2, 5, 4), keep(layer_norm)),
    Row("RMSNorm", lambda **d: nn.RMSNorm(4, **d), ((2, 5, 4),), (2, 5, 4), rms_norm),
    Row("GroupNorm", lambda **d: nn.GroupNorm(2, 4, **d), (IMAGE,), IMAGE, lambda *a: group_norm(2, *a)),
    Row("GroupNorm/flat", lambda **d: nn.GroupNorm(2, 4, **d), ((3, 4),), (3, 4), lambda *a: group_norm(2, *a)),
    Row("InstanceNorm", lambda **d: nn.InstanceNorm(4, **d), (IMAGE,), IMAGE, lambda *a: group_norm(4, *a)),
    Row(
        "InstanceNorm/affine",
        lambda **d: nn.InstanceNorm(4, affine=True, **d),
        ((2, 4, 3),),
        (2, 4, 3),
        lambda *a: group_norm(4, *a),
    ),
    Row("WeightNorm", lambda **d: nn.WeightNorm(nn.Linear(3, 4, **d)), ((2, 3),), (2, 4), weight_norm),
    # ---- Convolution and pooling
    Row("Conv", lambda **d: nn.Conv(4, 3, 3, **d), (IMAGE,), (2, 3, 6, 5), keep(lambda p, x: conv2d(p, x, padding=1))),
    Row(
        "Conv/stride 2, no bias",
        lambda **d: nn.Conv(4, 3, 5, 2, bias=False, **d),
        (IMAGE,),
        (2, 3, 3, 3),
        keep(lambda p, x: conv2d(p, x, 2, 2)),
    ),
    Row(
        "Conv/even kernel",
        lambda **d: nn.Conv(4, 3, 2, **d),
        (IMAGE,),
        (2, 3, 5, 4),
        keep(conv2d),
    ),
    Row("Conv2d", lambda **d: nn.Conv2d(4, 3, (3, 2), **d), (IMAGE,), (2, 3, 4, 4), keep(conv2d)),
    Row(
        "Conv2d/all settings",
        lambda **d: nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, **d),
        (IMAGE,),
        (2, 6, 3, 3),
        keep(lambda p, x: conv2d(p, x, 2, 2, 2, 2)),
    ),
    Row("Conv1d", lambda **d: nn.Conv1d(4, 3, 3, **d), ((2, 4, 7),), (2, 3, 5), keep(conv1d)),
    Row(
        "Conv1d/all settings",
        lambda **d: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2, bias=False, **d),
        ((2, 4, 7),),
        (2, 6, 3),
        keep(lambda p, x: conv1d(p, x, stride=2, padding=1, dilation=2, groups=2)),
    ),
    Row(
        "ConvTranspose2d",
        lambda **d: nn.ConvTranspose2d(4, 3, 3, **d),
        (IMAGE,),
        (2, 3, 8, 7),
        keep(conv_transpose2d),
    ),
    Row(
        "ConvTranspose2d/stride 2",
        lambda **d: nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1, **d),
        (IMAGE,),
        (2, 3, 12, 10),
        keep(lambda p, x: conv_transpose2d(p, x, 2, 1, 1)),
    ),
    Row("MaxPool2d", plain(lambda: nn.MaxPool2d(2)), (IMAGE,), (2, 4, 3, 2), of_x(lambda x: pool(np.max, x, 2))),
    Row(
        "MaxPool2d/overlapping",
        plain(lambda: nn.MaxPool2d(3, stride=2, padding=1)),
        (IMAGE,),
        (2, 4, 3, 3),
        of_x(lambda x: pool(np.max, x, 3, 2, 1, -np.inf)),
    ),
    Row("AvgPool2d", plain(lambda: nn.AvgPool2d(2)), (IMAGE,), (2, 4, 3, 2), of_x(lambda x: pool(np.mean, x, 2))),
    Row(
        "AvgPool2d/overlapping",
        plain(lambda: nn.AvgPool2d(3, stride=2, padding=1)),
        (IMAGE,),
        (2, 4, 3, 3),
        of_x(lambda x: pool(np.mean, x, 3, 2, 1)),
    ),
    Row(
        "AdaptiveAvgPool2d",
        plain(lambda: nn.AdaptiveAvgPool2d(1)),
        (IMAGE,),
        (2, 4, 1, 1),
        of_x(lambda x: x.mean((2, 3), keepdims=True)),
    ),
    Row(
        "AdaptiveAvgPool2d/uneven",
        plain(lambda: nn.AdaptiveAvgPool2d((4, 2))),
        (IMAGE,),
        (2, 4, 4, 2),
        lambda *a: adaptive(4, 2, *a),
    ),
    # ---- Recurrent
    Row("RNNCell", lambda **d: nn.RNNCell(3, 4, **d), ((2, 3), (2, 4)), (2, 4), keep(rnn_step)),
    Row(
        "RNNCell/relu, no bias",
        lambda **d: nn.RNNCell(3, 4, bias=False, nonlinearity="relu", **d),
        ((2, 3), (2, 4)),
        (2, 4),
        keep(lambda p, x, h: rnn_step(p, x, h, f=lambda s: np.maximum(s, 0))),
    ),
    Row("GRUCell", lambda **d: nn.GRUCell(3, 4, **d), ((2, 3), (2, 4)), (2, 4), keep(gru_step)),
    Row("LSTMCell", lambda **d: nn.LSTMCell(3, 4, **d), ((2, 3), ((2, 4), (2, 4))), ((2, 4), (2, 4)), keep(lstm_step)),
    Row(
        "RNN",
        lambda **d: nn.RNN(3, 4, 2, **d),
        ((5, 2, 3), (2, 2, 4)),
        ((5, 2, 4), (2, 2, 4)),
        over_time(rnn_step, "rnn_cells", 2, 4),
    ),
    Row(
        "RNN/from zeros",
        lambda **d: nn.RNN(3, 4, **d),
        ((5, 2, 3),),
        ((5, 2, 4), (1, 2, 4)),
        over_time(rnn_step, "rnn_cells", 1, 4),
    ),
    Row(
        "GRU",
        lambda **d: nn.GRU(3, 4, 2, bias=False, **d),
        ((5, 2, 3), (2, 2, 4)),
        ((5, 2, 4), (2, 2, 4)),
        over_time(gru_step, "gru_cells", 2, 4),
    ),
    Row(
        "LSTM",
        lambda **d: nn.LSTM(3, 4, 2, **d),
        ((5, 2, 3), ((2, 2, 4), (2, 2, 4))),
        ((5, 2, 4), ((2, 2, 4), (2, 2, 4))),
        lambda p, t, x, s: lstm(2, 4)(p, t, x, *s),
    ),
    Row(
        "LSTM/from zeros",
        lambda **d: nn.LSTM(3, 4, bias=False, **d),
        ((5, 2, 3),),
        ((5, 2, 4), ((1, 2, 4), (1, 2, 4))),
        lstm(1, 4),
    ),
    # ---- Attention
    Row(
        "MultiHeadAttention",
        lambda **d: nn.MultiHeadAttention(**d),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
        ((2, 2, 3, 4), (2, 2, 3, 5)),
        of_x(attention),
    ),
    Row(
        "MultiHeadAttention/causal, dropout",
        lambda **d: nn.MultiHeadAttention(causal=True, dropout=0.3, **d),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
        ((2, 2, 3, 4), (2, 2, 3, 5)),
        lambda p, t, *x: attention(*x, causal=True, p=0.3, training=t),
    ),
    Row(
        "AttentionLayer",
        lambda **d: nn.AttentionLayer(6, 2, 4, **d),
        ((2, 3, 6),),
        (2, 3, 6),
        attention_layer,
    ),
    Row(
        "AttentionLayer/of others",
        lambda **d: nn.AttentionLayer(6, 2, 4, k_features=5, v_features=3, out_features=7, causal=False, **d),
        ((2, 3, 6), (2, 4, 5), (2, 4, 3)),
        (2, 3, 7),
        lambda *a: attention_layer(*a, causal=False),
    ),
    Row(
        "TransformerLayer",
        lambda **d: nn.TransformerLayer(6, 2, 4, 8, dropout=0.2, **d),
        ((2, 3, 6),),
        (2, 3, 6),
        lambda *a: transformer_layer(*a, dropout=0.2),
    ),
    Row(
        "Transformer",
        lambda **d: nn.Transformer(6, 8, 2, num_head=2, dim_head=4, sequence_len=9, **d),
        ((5, 2, 6),),
        ((5, 2, 6), (5, 2, 6)),
        transformer(False),
    ),
    Row(
        "Transformer/batch first",
        lambda **d: nn.Transformer(6, 8, 2, num_head=2, dim_head=4, sequence_len=5, batch_first=True, **d),
        ((2, 5, 6),),
        ((2, 5, 6), (2, 5, 6)),
        transformer(True),
    ),
    # ---- Losses
    Row("SoftmaxLoss", plain(nn.SoftmaxLoss), ((6, 5), IDS.reshape(-1)), (), cross_entropy),
    Row("SoftmaxLoss/three axes", plain(nn.SoftmaxLoss), ((2, 3, 5), IDS), (), cross_entropy),
    Row("MSELoss", plain(nn.MSELoss), ((3, 4), (3, 4)), (), of_x(lambda x, y: ((x - y) ** 2).mean())),
    Row("MSELoss/sum", plain(lambda: nn.MSELoss("sum")), ((3, 4), (3, 4)), (), of_x(lambda x, y: ((x - y) ** 2).sum())),
    Row("MSELoss/none", plain(lambda: nn.MSELoss("none")), ((3, 4), (3, 4)), (3, 4), of_x(lambda x, y: (x - y) ** 2)),
    Row("L1Loss", plain(nn.L1Loss), ((3, 4), (3, 4)), (), of_x(lambda x, y: abs(x - y).mean())),
    Row("HuberLoss", plain(nn.HuberLoss), ((3, 4), (3, 4)), (), of_x(lambda x, y: huber(1.0, x - y).mean())),
    Row(
        "HuberLoss/delta",
        plain(lambda: nn.HuberLoss(0.5, "sum")),
        ((3, 4), (3, 4)),
        (),
        of_x(lambda x, y: huber(0.5, x - y).sum()),
    ),
    Row(
        "BCEWithLogitsLoss",
        plain(nn.BCEWithLogitsLoss),
        ((3, 4), PROBABILITIES),
        (),
        of_x(lambda x, y: bce(x, y).mean()),
    ),
]

#: Exported, but nothing one calls with a tensor; tested in test_module.py.
NOT_LAYERS = {"Module", "Parameter", "ModuleList", "summary"}
