"""Every layer of layer_table.py: values, gradients, devices; what one call does not show; what is refused."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import doctest
import importlib
import math
import pkgutil

import numpy as np
import pytest
from layer_references import attention
from layer_table import NOT_LAYERS, ROWS

import needle as ndl
import needle_nn.models
import needle_nn.nn
from needle import nn
from needle.nn import functional
from needle.testing import check_gradients

DEVICES = {"cpu": ndl.cpu, "cpu_numpy": ndl.cpu_numpy} | ({"cuda": ndl.cuda} if ndl.cuda().enabled() else {})
each_row = pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
each_mode = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
each_device = pytest.mark.parametrize("device", DEVICES)


def tree(function, *values):
    """A function of every leaf of nested tuples."""
    if isinstance(values[0], (tuple, list)):
        return tuple([tree(function, *parts) for parts in zip(*values, strict=True)])
    return function(*values)


def leaves(values):
    return [leaf for part in values for leaf in leaves(part)] if isinstance(values, (tuple, list)) else [values]


def tensors(arrays, device=None):
    return tree(lambda a: ndl.Tensor(a, device=device, dtype=str(a.dtype)), tuple(arrays))


def run(layer, inputs, seed=7):
    np.random.seed(seed)
    return layer(*inputs)


def test_every_export_is_in_the_table():
    assert {row.name for row in ROWS} | NOT_LAYERS == set(
        nn.__all__ if hasattr(nn, "__all__") else needle_nn.nn.__all__
    )
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert all(isinstance(row.make(device=None, dtype="float32"), getattr(nn, row.name)) for row in ROWS)


@each_device
@each_mode
@each_row
def test_forward(row, training, device):
    layer = row.build(device=DEVICES[device]()).train(training)
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    found = run(layer, tensors(row.arrays(), DEVICES[device]()))
    np.random.seed(7)
    expected = row.reference(state, training, *row.arrays())
    assert tree(lambda y: y.shape, found) == row.outputs

    def same(y, wanted):
        assert y.dtype == "float64" and y.device == DEVICES[device]()
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-9, atol=1e-11)

    for y, wanted in zip(leaves(found), leaves(expected), strict=True):
        same(y, wanted)


@each_mode
@each_row
def test_gradients_of_inputs_and_parameters(row, training):
    layer = row.build().train(training)
    owners = dict(layer.named_modules())
    names = [name for name, _ in layer.named_parameters()]
    arrays = tensors(row.arrays())
    given = leaves(arrays)

    def function(*args):
        flat = iter(args)
        inputs = tree(lambda _: next(flat), arrays)
        for name in names:  # any attribute may be replaced, by a tensor of the graph too
            owner, _, attribute = name.rpartition(".")
            setattr(owners[owner], attribute, next(flat))
        return leaves(run(layer, inputs))

    parameters = [ndl.Tensor(p.numpy(), dtype="float64") for p in layer.parameters()]
    assert any(x.requires_grad for x in (*given, *parameters))
    check_gradients(function, *given, *parameters, order=1)


#: Functions that are put together of others, and the shapes of what they take.
COMPOSED = {
    "conv3d": (lambda x, w, b: functional.conv3d(x, w, b, 2, 1, 1, 2), [(1, 2, 3, 3, 3), (2, 1, 2, 2, 2), (2,)]),
    "conv_transpose3d": (
        lambda x, w: functional.conv_transpose3d(x, w, None, 2, 1),
        [(1, 2, 2, 3, 2), (2, 1, 3, 2, 2)],
    ),
    "avg_pool3d": (lambda x: functional.avg_pool3d(x, 2, 1, 1), [(1, 1, 3, 4, 3)]),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 2, 1, return_indices=True)[0], [(1, 2, 4, 4)]),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_derivatives_of_the_second_order(name):
    function, shapes = COMPOSED[name]
    rng = np.random.default_rng(0)
    inputs = [ndl.Tensor(rng.standard_normal(shape), dtype="float64") for shape in shapes]
    check_gradients(lambda *xs: function(*xs) ** 2, *inputs, order=2)


@each_row
def test_float32_agrees_on_every_device(row):
    """Values and gradients; float32 in, float32 out."""
    results = []
    for device in (ndl.cpu(), ndl.cpu_numpy()):
        layer = row.build(device, "float32")
        inputs = tensors(row.arrays("float32"), device)
        outputs = leaves(run(layer, inputs))
        sum((y * y).sum() for y in outputs).backward()
        wanted = [x for x in (*leaves(inputs), *layer.parameters()) if x.requires_grad]
        found = [*outputs, *[x.grad for x in wanted if x.grad is not None], *dict(layer.named_buffers()).values()]
        assert {str(y.dtype) for y in found} == {"float32"}
        assert {str(y.device) for y in found} == {str(device)}
        results.append([y.numpy() for y in found])
    scale = max(1.0, *[abs(a).max() for a in results[0]])  # some gradients are 0 but for rounding
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * scale)


@each_row
def test_float64_goes_through_a_float32_layer(row):
    """As with NumPy, where data is float64 unless somebody says otherwise."""
    layer = row.build(dtype="float32")
    found, expected = run(layer, tensors(row.arrays())), run(row.build(), tensors(row.arrays()))
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
    sum((y * y).sum() for y in leaves(found)).backward()
    assert all(p.grad.dtype == "float32" for p in layer.parameters())


@each_row
def test_lazy_mode_gives_the_same(row):
    eager = run(row.build(), tensors(row.arrays()))
    with ndl.lazy_mode():
        lazy = run(row.build(), tensors(row.arrays()))
    for a, b in zip(leaves(eager), leaves(lazy), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


# ---- Behaviour that one call does not show --------------------------------------------------------------------------


def test_linear_takes_a_flat_bias():
    layer = nn.Linear(3, 2)
    layer.bias = nn.Parameter(layer.bias.reshape(2))
    x = ndl.Tensor(np.ones((4, 3)))
    np.testing.assert_allclose(layer(x).numpy(), x.numpy() @ layer.weight.numpy() + layer.bias.numpy(), rtol=1e-6)


def test_embedding_takes_whole_floats():
    layer = nn.Embedding(5, 3)
    ids = np.array([[0, 4], [1, 1]])
    np.testing.assert_array_equal(layer(ndl.Tensor(ids.astype("float32"))).numpy(), layer.weight.numpy()[ids])
    with pytest.raises(IndexError):
        layer(ndl.Tensor([0.5]))
    with pytest.raises(IndexError):
        layer(ndl.Tensor([5]))


def test_dropout_keeps_the_mean_and_leaves_evaluation_alone():
    layer, x = nn.Dropout(0.25), ndl.ones(200, 200)
    np.random.seed(0)
    y = layer(x).numpy()
    np.testing.assert_allclose(np.unique(y), [0, 1 / 0.75], rtol=1e-6)
    assert abs((y == 0).mean() - 0.25) < 0.01
    assert layer.eval()(x) is x


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 2, 5)])
def test_running_statistics_are_biased(shape):
    layer = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(3, momentum=0.3, dtype="float64")
    kept = layer.running_mean
    mean, var = np.zeros(3), np.ones(3)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(seed, 2, shape)
        layer(ndl.Tensor(x, dtype="float64"))
        mean, var = 0.7 * mean + 0.3 * x.mean(axes), 0.7 * var + 0.3 * x.var(axes)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(layer.running_var.numpy(), var, rtol=1e-12)
    layer.eval()(ndl.Tensor(x, dtype="float64"))
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-12)
    assert layer.running_mean is kept and not kept.requires_grad


@pytest.mark.parametrize("causal", [True, False])
def test_attention_without_probabilities_is_the_same(causal):
    layer = nn.MultiHeadAttention(causal=causal, dropout=0.5)
    arrays = [np.random.default_rng(i).standard_normal((2, 3, 4, 5)).astype("float32") for i in range(3)]
    q, k, v = tensors(arrays)
    np.random.seed(0)
    result, probabilities = layer(q, k, v)
    np.random.seed(0)
    np.testing.assert_allclose(layer(q, k, v, need_probabilities=False)[0].numpy(), result.numpy(), rtol=1e-6)
    assert (probabilities.numpy() == 0).sum() > (2 * 3 * 6 if causal else 0)  # dropped ones too
    result, probabilities = layer.eval()(q, k, v)
    fused, nothing = layer(q, k, v, need_probabilities=False)
    assert nothing is None and type(fused.op).__name__ == "Attention"
    np.testing.assert_allclose(fused.numpy(), result.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.numpy(), attention(*arrays, causal=causal)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probabilities.numpy().sum(-1), 1, rtol=1e-6)
    assert ((probabilities.numpy()[..., 0, 1:] == 0).all()) == causal


def test_attention_layer_is_fused_exactly_where_nothing_is_dropped(monkeypatch):
    calls = []
    fused = ndl.ops.scaled_dot_product_attention
    monkeypatch.setattr(ndl.ops, "scaled_dot_product_attention", lambda *a, **k: calls.append(a) or fused(*a, **k))
    x = ndl.ones(1, 3, 6)
    nn.AttentionLayer(6, 2, 4)(x)
    nn.AttentionLayer(6, 2, 4, dropout=0.5).eval()(x)
    assert len(calls) == 2
    nn.AttentionLayer(6, 2, 4, dropout=0.5)(x)
    assert len(calls) == 2


def test_a_state_can_be_handed_on():
    """Two halves of a sequence, the state carried over, are the whole."""
    x = ndl.Tensor(np.random.default_rng(0).standard_normal((6, 2, 3)), dtype="float64")
    for layer in (
        nn.RNN(3, 4, 2, dtype="float64"),
        nn.GRU(3, 4, 2, dtype="float64"),
        nn.LSTM(3, 4, 2, dtype="float64"),
    ):
        whole, last = layer(x)
        first, state = layer(x[:2])
        second, end = layer(x[2:], state)
        np.testing.assert_allclose(ndl.concatenate([first, second]).numpy(), whole.numpy(), rtol=1e-12)
        for a, b in zip(leaves(end), leaves(last), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_cells_start_from_zeros():
    x, zero = ndl.ones(2, 3), ndl.zeros(2, 4)
    for cell in (nn.RNNCell(3, 4), nn.GRUCell(3, 4)):
        np.testing.assert_array_equal(cell(x).numpy(), cell(x, zero).numpy())
    cell = nn.LSTMCell(3, 4)
    for a, b in zip(cell(x), cell(x, (zero, zero)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_losses_of_extreme_logits_are_finite():
    x = ndl.Tensor([-1e4, -1.0, 0.0, 1e4])
    loss = nn.BCEWithLogitsLoss("none")(x, ndl.Tensor([1.0, 0.0, 0.25, 1.0]))
    np.testing.assert_allclose(loss.numpy(), [1e4, math.log1p(math.exp(-1)), math.log(2), 0], rtol=1e-6)
    loss.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [-1, 1 / (1 + math.e), 0.25, 0], rtol=1e-6)
    logits = ndl.Tensor([[1e4, -1e4], [3.0, 3.0]])
    assert nn.SoftmaxLoss()(logits, ndl.Tensor([0, 1])).item() == pytest.approx(math.log(2) / 2)


def test_weight_norm_starts_as_the_layer_it_wraps():
    layer, x = nn.Conv(2, 3, 3), ndl.init.randn(1, 2, 5, 5)
    before = layer(x).numpy()
    wrapped = nn.WeightNorm(layer)
    np.testing.assert_allclose(wrapped(x).numpy(), before, rtol=1e-5, atol=1e-6)
    assert wrapped.length.shape == (1, 1, 1, 3)
    assert list(wrapped.state_dict()) == ["module.bias", "direction", "length"]
    wrapped.direction.data = wrapped.direction.data * 5  # only its direction counts
    np.testing.assert_allclose(wrapped(x).numpy(), before, rtol=1e-5, atol=1e-6)


# ---- What is refused --------------------------------------------------------------------------

ones = ndl.ones
BAD_CALLS = [
    (lambda: nn.Linear(3, 2)(ones(4, 5)), "Linear: input has shape (4, 5), expected (..., 3)"),
    (lambda: nn.LayerNorm1d(3)(ones(4, 5)), "LayerNorm1d: input has shape (4, 5), expected (..., 3)"),
    (lambda: nn.RMSNorm(3)(ones(5)), "RMSNorm: input has shape (5,), expected (..., 3)"),
    (lambda: nn.BatchNorm1d(3)(ones(4, 5)), "BatchNorm1d: input has shape (4, 5), expected (N, 3, ...)"),
    (lambda: nn.BatchNorm2d(3)(ones(4, 3)), "BatchNorm2d: input has shape (4, 3), expected (N, 3, H, W)"),
    (lambda: nn.GroupNorm(1, 4)(ones(2, 3, 5)), "GroupNorm: input has shape (2, 3, 5), expected (N, 4, ...)"),
    (lambda: nn.InstanceNorm(4)(ones(2)), "InstanceNorm: input has shape (2,), expected (N, 4, ...)"),
    (lambda: nn.Conv(3, 4, 3)(ones(2, 8, 8, 3)), "Conv: input has shape (2, 8, 8, 3), expected (N, 3, H, W)"),
    (lambda: nn.Conv2d(3, 4, 3)(ones(3, 8, 8)), "Conv2d: input has shape (3, 8, 8), expected (N, 3, H, W)"),
    (lambda: nn.Conv1d(3, 4, 3)(ones(2, 8, 3)), "Conv1d: input has shape (2, 8, 3), expected (N, 3, L)"),
    (
        lambda: nn.ConvTranspose2d(3, 4, 3)(ones(2, 4, 8, 8)),
        "ConvTranspose2d: input has shape (2, 4, 8, 8), expected (N, 3, H, W)",
    ),
    (lambda: nn.MaxPool2d(2)(ones(8, 8)), "MaxPool2d: input has shape (8, 8), expected (N, C, H, W)"),
    (lambda: nn.AvgPool2d(2)(ones(8, 8)), "AvgPool2d: input has shape (8, 8), expected (N, C, H, W)"),
    (lambda: nn.AdaptiveAvgPool2d(2)(ones(8)), "AdaptiveAvgPool2d: input has shape (8,), expected (N, C, H, W)"),
    (lambda: nn.RNNCell(3, 4)(ones(2, 5)), "RNNCell: input has shape (2, 5), expected (..., 3)"),
    (lambda: nn.RNNCell(3, 4)(ones(2, 3), ones(3, 4)), "RNNCell: state has shape (3, 4), expected (2, 4)"),
    (lambda: nn.LSTM(3, 4)(ones(2, 3)), "LSTM: input has shape (2, 3), expected (T, B, 3)"),
    (lambda: nn.RNN(3, 4, 2)(ones(5, 2, 3), ones(1, 2, 4)), "RNN: state has shape (1, 2, 4), expected (2, 2, 4)"),
    (lambda: nn.AttentionLayer(6, 2, 4)(ones(3, 6)), "AttentionLayer: input has shape (3, 6), expected (B, T, 6)"),
    (
        lambda: nn.Transformer(6, 8, 1, num_head=1, dim_head=2, sequence_len=4)(ones(5, 1, 6)),
        "Transformer: 5 steps, but sequence_len is 4",
    ),
    (lambda: nn.MSELoss()(ones(2, 3), ones(3)), "MSELoss: prediction has shape (2, 3), the target (3,)"),
    (lambda: nn.SoftmaxLoss()(ones(2, 3), ones(3)), "labels (3,) do not fit logits (2, 3)"),
    (lambda: nn.Dropout(1.0), "Dropout: p = 1.0: expected a number from 0, below 1"),
    (lambda: nn.GroupNorm(3, 4), "GroupNorm: 4 channels do not make 3 groups"),
    (lambda: nn.Conv2d(4, 6, 3, groups=4), "Conv2d: 4 and 6 channels do not make 4 groups"),
    (lambda: nn.Conv(3, 4, (3, 2)), "Conv: kernel_size (3, 2): expected a square one; Conv2d takes any"),
    (lambda: nn.RNNCell(3, 4, nonlinearity="cos"), "RNNCell: nonlinearity 'cos': expected 'tanh' or 'relu'"),
    (lambda: nn.L1Loss("all"), "L1Loss: reduction 'all': expected 'mean', 'sum' or 'none'"),
    (lambda: nn.HuberLoss(0), "HuberLoss: delta 0: expected a number above 0"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS, ids=[message for _, message in BAD_CALLS])
def test_refuses_with_one_line_that_names_both_sides(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)


MODULES = [
    f"{package.__name__}.{info.name}"
    for package in (needle_nn.nn, needle_nn.models)
    for info in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0 and failed == 0


def test_places_of_a_pooling_are_in_the_image():
    """Where all of a window is -inf, padding is as large as the image: the place is the first that is none."""
    x = ndl.Tensor(np.full((1, 1, 5, 4), -np.inf))
    _, where = functional.max_pool2d(x, 2, 2, 1, 2, return_indices=True)
    assert where.numpy().tolist() == [[[[5, 5], [5, 5], [13, 13]]]]  # rows 1, 1, 3 and column 1, of 4 columns
