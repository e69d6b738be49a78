"""What every layer computes, in NumPy, by its definition: the references of layer_table.py.

A reference takes the state ({dotted name: array} before the call), whether the layer is in training, and the inputs. It may draw
from NumPy's global generator, which stands where it stood before the layer's own call.
"""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import math

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def erf(x):
    return np.vectorize(math.erf)(x)


def linear(p, x, prefix=""):
    return x @ p[prefix + "weight"] + p.get(prefix + "bias", 0)


def mlp(p, training, x):
    return linear(p, np.maximum(linear(p, x, "0."), 0), "2.")


def drop(x, p, training):
    return x * (np.random.rand(*x.shape) <= 1 - p) / (1 - p) if training and p else x


def normal(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def batch_norm(p, training, x):
    axes = tuple(i for i in range(x.ndim) if i != 1)
    wide = (-1,) + (1,) * (x.ndim - 2)
    mean, var = (p["running_mean"], p["running_var"]) if not training else (x.mean(axes), x.var(axes))
    y = (x - mean.reshape(wide)) / np.sqrt(var.reshape(wide) + 1e-5)
    return y * p["weight"].reshape(wide) + p["bias"].reshape(wide)


def layer_norm(p, x, prefix=""):
    return normal(x, -1) * p[prefix + "weight"] + p[prefix + "bias"]


def group_norm(groups, p, training, x):
    y = normal(x.reshape(x.shape[0], groups, -1), -1).reshape(x.shape)
    if "weight" not in p:
        return y
    wide = (-1,) + (1,) * (x.ndim - 2)
    return y * p["weight"].reshape(wide) + p["bias"].reshape(wide)


def rms_norm(p, training, x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["weight"]


def weight_norm(p, training, x):
    v = p["direction"]
    return x @ (v / np.linalg.norm(v, axis=0, keepdims=True) * p["length"]) + p["module.bias"]


def conv2d(p, x, stride=1, padding=0, dilation=1, groups=1):
    """NCHW, by the definition: one product per place of the kernel"""
    w, (s, d) = p["weight"], (stride, dilation)
    kh, kw, c, f = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    oh, ow = ((n - d * (k - 1) - 1) // s + 1 for n, k in zip(x.shape[2:], (kh, kw), strict=True))
    parts = []
    for g in range(groups):
        xs, ws = x[:, g * c : (g + 1) * c], w[..., g * f // groups : (g + 1) * f // groups]
        parts.append(
            sum(
                np.einsum("nchw,cf->nfhw", xs[:, :, u * d : u * d + s * oh : s, v * d : v * d + s * ow : s], ws[u, v])
                for u in range(kh)
                for v in range(kw)
            )
        )
    return np.concatenate(parts, 1) + p.get("bias", np.zeros(f))[:, None, None]


def conv1d(p, x, **sizes):
    tall = {**p, "weight": p["weight"][None]}
    padding = sizes.pop("padding", 0)
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))[:, :, None]
    return conv2d(tall, x, **sizes)[:, :, 0]


def conv_transpose2d(p, x, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """NCHW, by the definition: every input pixel adds its kernel"""
    kh, kw, c, f = p["weight"].shape  # (KH, KW, out / groups, in)
    w = np.zeros(((kh - 1) * dilation + 1, (kw - 1) * dilation + 1, c, f))
    w[::dilation, ::dilation] = p["weight"]
    n, _, h, width = x.shape
    full = [(m - 1) * stride + k + output_padding for m, k in zip((h, width), w.shape[:2], strict=True)]
    y = np.zeros((n, groups, c, *full))
    xs, ws = x.reshape(n, groups, f // groups, h, width), w.reshape(*w.shape[:3], groups, f // groups)
    for i in range(h):
        for j in range(width):
            kernel = np.einsum("ngf,uvcgf->ngcuv", xs[..., i, j], ws)
            y[..., i * stride : i * stride + w.shape[0], j * stride : j * stride + w.shape[1]] += kernel
    cut = slice(padding, -padding or None)
    y = y.reshape(n, groups * c, *full)[:, :, cut, cut]
    return y + p.get("bias", np.zeros(groups * c))[:, None, None]


def pool(reduce, x, size, stride=None, padding=0, value=0.0):
    s = size if stride is None else stride
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=value)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::s, ::s]
    return reduce(windows, axis=(-2, -1))


def adaptive(rows, columns, p, training, x):
    def edges(n, m):
        return [(i * n // m, math.ceil((i + 1) * n / m)) for i in range(m)]

    cells = [
        [x[:, :, a:b, c:d].mean((2, 3)) for c, d in edges(x.shape[3], columns)] for a, b in edges(x.shape[2], rows)
    ]
    return np.array(cells).transpose(2, 3, 0, 1)


def sums(p, x, h, prefix=""):
    part = {k.removeprefix(prefix): v for k, v in p.items() if k.startswith(prefix)}
    zero = np.zeros(part["W_ih"].shape[1])
    return x @ part["W_ih"] + part.get("bias_ih", zero), h @ part["W_hh"] + part.get("bias_hh", zero)


def rnn_step(p, x, h, prefix="", f=np.tanh):
    return f(sum(sums(p, x, h, prefix)))


def gru_step(p, x, h, prefix=""):
    (a, b, c), (d, e, f) = (np.split(part, 3, -1) for part in sums(p, x, h, prefix))
    r, z = sigmoid(a + d), sigmoid(b + e)
    return (1 - z) * np.tanh(c + r * f) + z * h


def lstm_step(p, x, state, prefix=""):
    h, c = state
    i, f, g, o = np.split(sum(sums(p, x, h, prefix)), 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def over_time(step, name, layers, hidden):
    """Time outside, layers inside: the other way round than the module."""

    def run(p, training, x, h0=None):
        h = list(np.zeros((layers, x.shape[1], hidden)) if h0 is None else h0)
        ys = []
        for y in x:
            for i in range(layers):
                h[i] = y = step(p, y, h[i], f"{name}.{i}.")
            ys.append(y)
        return np.array(ys), np.array(h)

    return run


def lstm(layers, hidden):
    def run(p, training, x, h0=None, c0=None):
        h, c = (np.zeros((layers, x.shape[1], hidden)) if s is None else s.copy() for s in (h0, c0))
        ys = []
        for y in x:
            for i in range(layers):
                h[i], c[i] = lstm_step(p, y, (h[i], c[i]), f"lstm_cells.{i}.")
                y = h[i]
            ys.append(y.copy())
        return np.array(ys), (h, c)

    return run


def attention(q, k, v, causal=False, p=0.0, training=False):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores + np.triu(np.full(scores.shape[-2:], -np.inf), 1 + k.shape[-2] - q.shape[-2])
    weights = drop(softmax(scores), p, training)
    return weights @ v, weights


def attention_layer(p, training, q, k=None, v=None, heads=2, causal=True, prefix="", dropout=0.0):
    def project(x, which):
        y = layer_norm(p, x, f"{prefix}prenorm_{which}.") @ p[f"{prefix}{which}_projection.weight"]
        return y.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    k, v = (q if x is None else x for x in (k, v))
    y = attention(project(q, "q"), project(k, "k"), project(v, "v"), causal, dropout, training)[0]
    return y.swapaxes(1, 2).reshape(*q.shape[:2], -1) @ p[f"{prefix}out_projection.weight"]


def transformer_layer(p, training, x, prefix="", dropout=0.0):
    x = x + drop(attention_layer(p, training, x, prefix=f"{prefix}attention.", dropout=dropout), dropout, training)
    y = np.maximum(linear(p, layer_norm(p, x, f"{prefix}mlp.0."), f"{prefix}mlp.1."), 0)
    return x + drop(linear(p, drop(y, dropout, training), f"{prefix}mlp.4."), dropout, training)


def transformer(batch_first):
    def run(p, training, x):
        y = x if batch_first else x.swapaxes(0, 1)
        y = y + p["embedding.weight"][: y.shape[1]]
        for i in range(2):
            y = transformer_layer(p, training, y, f"layers.{i}.")
        return y if batch_first else y.swapaxes(0, 1), np.zeros(x.shape)

    return run


def cross_entropy(p, training, x, y):
    flat = x.reshape(-1, x.shape[-1])
    return -np.log(softmax(flat))[np.arange(len(flat)), y.reshape(-1).astype(int)].mean()


def huber(delta, d):
    return np.where(abs(d) <= delta, d * d / 2, delta * (abs(d) - delta / 2))


def bce(x, y):
    return -y * np.log(sigmoid(x)) - (1 - y) * np.log(1 - sigmoid(x))


def of_x(function):
    return lambda p, training, *xs: function(*xs)


def keep(function):
    """A reference for which training makes no difference."""
    return lambda p, training, *xs: function(p, *xs)
