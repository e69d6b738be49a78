"""Convolution against loops and finite differences; the LSTM and attention against NumPy; a transformer layer by its properties."""

import numpy as np

import needle as ndl
from needle_nn.learning.expect import Checks, Wrong, array, close, same, slope, true
from needle_nn.nn import Embedding, Linear
from needle_nn.optim import Adam

checks = Checks()
RNG = np.random.default_rng(0)


def tensor(values, requires_grad=False):
    return ndl.Tensor(np.asarray(values, np.float32), requires_grad=requires_grad)


# ---- Convolution ----

FORMS = [((2, 5, 5, 3), (3, 3, 3, 2), 1, 0), ((1, 6, 5, 2), (3, 3, 2, 4), 1, 1), ((2, 7, 6, 1), (2, 2, 1, 3), 2, 1)]


def reference(x, weight, stride, padding):
    """The formula, a window at a time"""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    k = weight.shape[0]
    rows, columns = (range(0, n - k + 1, stride) for n in x.shape[1:3])
    windows = [[np.tensordot(x[:, i : i + k, j : j + k], weight, 3) for j in columns] for i in rows]
    return np.array(windows).transpose(2, 0, 1, 3)


def called(name, stride, padding):
    return f"{name}, stride {stride}, padding {padding}"


@checks("conv: no padding", "windows[n, i, j] = x[n, i:i+K, j:j+K], then np.tensordot over the last three axes")
def conv_plain(student):
    conv(student, *FORMS[0])


@checks("conv: padding", "np.pad of the two middle axes")
def conv_padding(student):
    conv(student, *FORMS[1])


@checks("conv: stride", "windows begin at i * stride; (n - K) // stride + 1 of them")
def conv_stride(student):
    conv(student, *FORMS[2])


def conv(student, shape, kernel, stride, padding):
    x, weight = RNG.normal(size=shape), RNG.normal(size=kernel)
    given = student.conv(x.copy(), weight.copy(), stride=stride, padding=padding)
    close(called("conv(x, weight)", stride, padding), given, reference(x, weight, stride, padding))


def conv_gradient(student, shape, kernel, stride, padding, which):
    x, weight = RNG.normal(size=shape), RNG.normal(size=kernel)
    g = RNG.normal(size=reference(x, weight, stride, padding).shape)
    given = student.conv_gradients(g.copy(), x.copy(), weight.copy(), stride=stride, padding=padding)
    true("conv_gradients: expected a pair of arrays", isinstance(given, (tuple, list)) and len(given) == 2)
    expected = slope(lambda *a: float((reference(*a, stride, padding) * g).sum()), (x, weight), which)
    close(called(("gradient of x", "gradient of weight")[which], stride, padding), given[which], expected, 1e-3)


@checks("conv_gradients: of the weight", "windows (N OH OW, K K C) transposed, times out_grad (N OH OW, F)")
def conv_weight(student):
    for form in FORMS:
        conv_gradient(student, *form, 1)


@checks(
    "conv_gradients: of the image",
    "for each k, l: padded_grad[:, k::stride, l::stride] += out_grad @ weight[k, l].T; cut the padding off",
)
def conv_image(student):
    for form in FORMS:
        conv_gradient(student, *form, 0)


# ---- LSTM ----

WEIGHTS = [RNG.normal(size=s) * 0.7 for s in ((3, 8), (2, 8), (8,))]
STATE = [RNG.normal(size=(4, 2)) for _ in range(2)]
XS = RNG.normal(size=(5, 4, 3))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(x, h, c, W_ih, W_hh, bias):
    i, f, g, o = np.split(x @ W_ih + h @ W_hh + bias, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def lstm_steps(X, h, c, *weights):
    steps = []
    for x in X:
        h, c = lstm_step(x, h, c, *weights)
        steps.append(h)
    return np.array(steps), h, c


@checks("lstm_cell", "ndl.ops.split(sums.reshape((B, 4, H)), 1) gives the four parts")
def lstm_cell(student):
    given = student.lstm_cell(*map(tensor, (XS[0], *STATE, *WEIGHTS)))
    for name, got, expected in zip(("h'", "c'"), given, lstm_step(XS[0], *STATE, *WEIGHTS), strict=True):
        close(name, got, expected)


@checks("lstm: five steps", "a loop over X[t]; ndl.ops.stack puts the states side by side")
def lstm(student):
    given = student.lstm(*map(tensor, (XS, *STATE, *WEIGHTS)))
    for name, got, expected in zip(("all states", "h", "c"), given, lstm_steps(XS, *STATE, *WEIGHTS), strict=True):
        close(name, got, expected)


@checks("lstm: gradients through time", "everything in tensors: no .numpy() and no .data on the way")
def lstm_gradient(student):
    arrays = (XS, *STATE, *WEIGHTS)
    tensors = [tensor(a, requires_grad=True) for a in arrays]
    (student.lstm(*tensors)[0] ** 2).sum().backward()
    for i, name in enumerate(("X", "h", "c", "W_ih", "W_hh", "bias")):
        true(f"{name}.grad is None: the states do not depend on it in the graph", tensors[i].grad is not None)
        close(f"{name}.grad", tensors[i].grad, slope(lambda *a: float((lstm_steps(*a)[0] ** 2).sum()), arrays, i), 2e-3)


# ---- Attention ----


def attend(q, k, v, causal):
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@checks("attention", "q @ k.swapaxes(2, 3) / D**0.5, ndl.softmax along the last axis, times v")
def attention(student):
    q, k, v = RNG.normal(size=(3, 2, 3, 5, 4)) * 2
    close("attention(q, k, v)", student.attention(*map(tensor, (q, k, v))), attend(q, k, v, False))


@checks("attention: causal", "add -1e9 to the scores above the diagonal, before the softmax")
def attention_causal(student):
    q, k, v = RNG.normal(size=(3, 2, 3, 5, 4)) * 2
    close(
        "attention(q, k, v, causal=True)",
        student.attention(*map(tensor, (q, k, v)), causal=True),
        attend(q, k, v, True),
    )


# ---- A transformer layer ----


def layer(student):
    np.random.seed(0)  # noqa: NPY002
    return student.TransformerLayer(8, num_head=2, dim_head=4, hidden_size=16)


@checks(
    "TransformerLayer: shape and parameters",
    "projections q, k, v (features, heads * dim_head), out; two norms; Linear, ReLU, Linear",
)
def transformer_shape(student):
    made, x = layer(student), tensor(RNG.normal(size=(2, 5, 8)))
    same("shape of the result", tuple(made(x).shape), (2, 5, 8))
    square = sum(1 for p in made.parameters() if tuple(p.shape) == (8, 8))
    same("parameters of shape (8, 8): q, k, v and out", square, 4)
    wide = sorted(tuple(p.shape) for p in made.parameters() if sorted(p.shape)[-1] == 16 and min(p.shape) == 8)
    same("weights of the two Linear", wide, [(8, 16), (16, 8)])


@checks("TransformerLayer: causal", "attention(..., causal=True)")
def transformer_causal(student):
    made, x = layer(student), RNG.normal(size=(1, 6, 8))
    changed = x.copy()
    changed[0, 4:] = RNG.normal(size=(2, 8))  # adding a constant would be undone by the norm
    close(
        "positions 0 to 3 after a change of 4 and 5",
        made(tensor(changed)).numpy()[0, :4],
        made(tensor(x)).numpy()[0, :4],
        1e-5,
    )
    true("position 5 does not see a change of 4: is there attention?", sees(made, x, 4, 5))


def sees(made, x, source, target):
    changed = x.copy()
    changed[0, source, 0] += 1
    return np.abs(made(tensor(changed)).numpy()[0, target] - made(tensor(x)).numpy()[0, target]).max() > 1e-4


@checks(
    "TransformerLayer: residual paths",
    "x + attention part, then + perceptron part: with weights of 0 the layer returns x",
)
def transformer_residual(student):
    made, x = layer(student), RNG.normal(size=(2, 5, 8))
    for p in made.parameters():
        p.data = p.data * 0.0
    close("with all parameters 0", made(tensor(x)), x)


@checks("TransformerLayer: gradients reach every parameter", "no .numpy() and no .data in forward")
def transformer_gradients(student):
    made = layer(student)
    (made(tensor(RNG.normal(size=(2, 5, 8)))) ** 2).sum().backward()
    missing = [tuple(p.shape) for p in made.parameters() if p.grad is None or not p.grad.numpy().any()]
    same("shapes of parameters without a gradient, or with one of zeros", missing, [])


@checks("it learns to look back", "all checks above first")
def learns(student):
    """Each position has to name the token that the one before it has: only attention can bring it there."""
    np.random.seed(1)  # noqa: NPY002
    rng = np.random.default_rng(3)
    tokens, places = Embedding(6, 16), Embedding(8, 16)
    blocks = [student.TransformerLayer(16, num_head=2, dim_head=8, hidden_size=32) for _ in range(2)]
    head = Linear(16, 6)
    params = [p for m in (tokens, places, *blocks, head) for p in m.parameters()]
    optimizer = Adam(params, lr=0.01)

    def logits(ids):
        x = tokens(ndl.Tensor(ids, requires_grad=False)) + places(ndl.Tensor(np.arange(8), requires_grad=False))
        for block in blocks:
            x = block(x)
        return head(x)[:, 1:]

    for _ in range(150):
        ids = rng.integers(0, 6, (32, 8))
        ndl.ops.cross_entropy(logits(ids).reshape((-1, 6)), ids[:, :-1].reshape(-1)).backward()
        optimizer.step()
    ids = rng.integers(0, 6, (64, 8))
    right = float(np.mean(array("logits", logits(ids)).argmax(-1) == ids[:, :-1]))
    if right < 0.9:
        raise Wrong(f"after 150 steps: expected 90% of the tokens right, given {right:.0%}")
