"""The same values and gradients as PyTorch's layers, with the same weights."""

import numpy as np
import pytest
from layer_table import ROWS

import needle as ndl

torch = pytest.importorskip("torch")
tn = torch.nn

pytestmark = pytest.mark.parity

BY_ID = {row.id: row for row in ROWS}

# How a weight of ours looks in PyTorch.
TRANSPOSED = (1, 0)
OIHW = (
    3,
    2,
    0,
    1,
)  # (KH, KW, in, out) -> (out, in, KH, KW); the same for the transposed convolution: (in, out, KH, KW)
OIK = (2, 1, 0)
OIDHW = (4, 3, 0, 1, 2)


def as_torch(array):
    return torch.tensor(np.ascontiguousarray(array))


def rename(name):
    """rnn_cells.1.W_ih -> weight_ih_l1, and so on."""
    cell, _, part = name.rpartition(".")
    part = part.replace("W_", "weight_")
    return f"{part}_l{cell.rpartition('.')[2]}" if cell else part


def move(array, order):
    return array.transpose(order) if order and array.ndim == len(order) else array


class Twin:
    """A layer of PyTorch for a row: `order` of the weight's axes there, `names` of the parameters, `call` of the layer"""

    def __init__(self, make, order=None, names=rename, call=None):
        self.make, self.order, self.names = make, order, names
        self.call = call or (lambda layer, *xs: layer(*xs))

    def load(self, layer):
        """A module with the state of ours; {our name: its parameter}."""
        twin = self.make().double()
        pairs = {}
        with torch.no_grad():
            for name, value in layer._tensors():
                find = twin.get_parameter if value.requires_grad else twin.get_buffer
                theirs = find(self.names(name))
                theirs.copy_(as_torch(move(value.numpy(), self.order)).reshape(theirs.shape))
                pairs[name] = theirs
        return twin, pairs


def same(name):
    return name


def biased(layer, x):
    """PyTorch puts the unbiased variance into its running one: (n - 1) / n of it is ours."""
    if not layer.training:
        return layer(x)
    running, before, n = layer.running_var.clone(), layer.running_var * 0.9, x.numel() / x.shape[1]
    y = tn.functional.batch_norm(x, layer.running_mean, running, layer.weight, layer.bias, True, 0.1, layer.eps)
    layer.running_var.copy_(before + (running - before) * (n - 1) / n)
    return y


def inner(name):
    weight = "parametrizations.weight.original"
    return {"module.bias": "bias", "direction": f"{weight}1", "length": f"{weight}0"}[name]


TWINS = {
    "Identity": Twin(tn.Identity),
    "Linear": Twin(lambda: tn.Linear(3, 4), TRANSPOSED),
    "Linear/no bias": Twin(lambda: tn.Linear(3, 4, bias=False), TRANSPOSED),
    "Linear/three axes": Twin(lambda: tn.Linear(3, 4), TRANSPOSED),
    "Linear/one axis": Twin(lambda: tn.Linear(3, 4), TRANSPOSED),
    "Embedding": Twin(lambda: tn.Embedding(5, 3)),
    "EmbeddingBag": Twin(lambda: tn.EmbeddingBag(5, 3)),
    "EmbeddingBag/sum": Twin(lambda: tn.EmbeddingBag(5, 3, mode="sum")),
    "Flatten": Twin(tn.Flatten),
    "ReLU": Twin(tn.ReLU),
    "LeakyReLU": Twin(lambda: tn.LeakyReLU(0.2)),
    "Sigmoid": Twin(tn.Sigmoid),
    "Tanh": Twin(tn.Tanh),
    "GELU": Twin(tn.GELU),
    "SiLU": Twin(tn.SiLU),
    "Softmax": Twin(lambda: tn.Softmax(-1)),
    "Softmax/axis 0": Twin(lambda: tn.Softmax(0)),
    "Sequential": Twin(lambda: tn.Sequential(tn.Linear(3, 5), tn.ReLU(), tn.Linear(5, 2)), TRANSPOSED, same),
    "BatchNorm1d": Twin(lambda: tn.BatchNorm1d(4), call=biased),
    "BatchNorm1d/three axes": Twin(lambda: tn.BatchNorm1d(4), call=biased),
    "BatchNorm2d": Twin(lambda: tn.BatchNorm2d(4), call=biased),
    "LayerNorm1d": Twin(lambda: tn.LayerNorm(4)),
    "LayerNorm1d/three axes": Twin(lambda: tn.LayerNorm(4)),
    "RMSNorm": Twin(lambda: tn.RMSNorm(4, eps=1e-5)),
    "GroupNorm": Twin(lambda: tn.GroupNorm(2, 4)),
    "GroupNorm/flat": Twin(lambda: tn.GroupNorm(2, 4)),
    "InstanceNorm": Twin(lambda: tn.InstanceNorm2d(4)),
    "InstanceNorm/affine": Twin(lambda: tn.InstanceNorm1d(4, affine=True)),
    "WeightNorm": Twin(lambda: tn.utils.parametrizations.weight_norm(tn.Linear(3, 4)), TRANSPOSED, inner),
    "Conv": Twin(lambda: tn.Conv2d(4, 3, 3, padding=1), OIHW),
    "Conv/stride 2, no bias": Twin(lambda: tn.Conv2d(4, 3, 5, 2, 2, bias=False), OIHW),
    "Conv/even kernel": Twin(lambda: tn.Conv2d(4, 3, 2), OIHW),
    "Conv2d": Twin(lambda: tn.Conv2d(4, 3, (3, 2)), OIHW),
    "Conv2d/all settings": Twin(lambda: tn.Conv2d(4, 6, 3, 2, 2, 2, 2), OIHW),
    "Conv3d": Twin(lambda: tn.Conv3d(4, 3, (2, 3, 1)), OIDHW),
    "Conv3d/all settings": Twin(lambda: tn.Conv3d(4, 6, 3, 2, 2, 2, 2, bias=False), OIDHW),
    "ConvTranspose3d": Twin(lambda: tn.ConvTranspose3d(4, 3, (2, 1, 3)), OIDHW),
    "ConvTranspose3d/all settings": Twin(lambda: tn.ConvTranspose3d(4, 6, 3, 2, 1, 1, 2), OIDHW),
    "MaxPool3d": Twin(lambda: tn.MaxPool3d(3, 2, 1)),
    "AvgPool3d": Twin(lambda: tn.AvgPool3d(3, 2, 1)),
    "AdaptiveAvgPool3d": Twin(lambda: tn.AdaptiveAvgPool3d((2, 2, 3))),
    "BatchNorm3d": Twin(lambda: tn.BatchNorm3d(4), call=biased),
    "Conv1d": Twin(lambda: tn.Conv1d(4, 3, 3), OIK),
    "Conv1d/all settings": Twin(lambda: tn.Conv1d(4, 6, 3, 2, 1, 2, 2, bias=False), OIK),
    "ConvTranspose2d": Twin(lambda: tn.ConvTranspose2d(4, 3, 3), OIHW),
    "ConvTranspose2d/by position": Twin(lambda: tn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, False, 2), OIHW),
    "ConvTranspose2d/stride 2": Twin(lambda: tn.ConvTranspose2d(4, 3, 3, 2, 1, 1), OIHW),
    "MaxPool2d": Twin(lambda: tn.MaxPool2d(2)),
    "MaxUnpool1d": Twin(lambda: tn.MaxUnpool1d(2)),
    "MaxUnpool2d": Twin(lambda: tn.MaxUnpool2d(2)),
    "MaxPool2d/overlapping": Twin(lambda: tn.MaxPool2d(3, 2, 1)),
    "AvgPool2d": Twin(lambda: tn.AvgPool2d(2)),
    "AvgPool2d/overlapping": Twin(lambda: tn.AvgPool2d(3, 2, 1)),
    "AdaptiveAvgPool2d": Twin(lambda: tn.AdaptiveAvgPool2d(1)),
    "AdaptiveAvgPool2d/uneven": Twin(lambda: tn.AdaptiveAvgPool2d((4, 2))),
    "RNNCell": Twin(lambda: tn.RNNCell(3, 4), TRANSPOSED),
    "RNNCell/relu, no bias": Twin(lambda: tn.RNNCell(3, 4, False, "relu"), TRANSPOSED),
    "GRUCell": Twin(lambda: tn.GRUCell(3, 4), TRANSPOSED),
    "LSTMCell": Twin(lambda: tn.LSTMCell(3, 4), TRANSPOSED),
    "RNN": Twin(lambda: tn.RNN(3, 4, 2), TRANSPOSED),
    "RNN/from zeros": Twin(lambda: tn.RNN(3, 4), TRANSPOSED),
    "GRU": Twin(lambda: tn.GRU(3, 4, 2, bias=False), TRANSPOSED),
    "LSTM": Twin(lambda: tn.LSTM(3, 4, 2), TRANSPOSED),
    "LSTM/from zeros": Twin(lambda: tn.LSTM(3, 4, bias=False), TRANSPOSED),
    "SoftmaxLoss": Twin(tn.CrossEntropyLoss),
    "SoftmaxLoss/three axes": Twin(tn.CrossEntropyLoss, call=lambda loss, x, y: loss(x.swapaxes(1, 2), y)),
    "MSELoss": Twin(tn.MSELoss),
    "MSELoss/sum": Twin(lambda: tn.MSELoss(reduction="sum")),
    "MSELoss/none": Twin(lambda: tn.MSELoss(reduction="none")),
    "L1Loss": Twin(tn.L1Loss),
    "HuberLoss": Twin(tn.HuberLoss),
    "HuberLoss/PyTorch's order": Twin(lambda: tn.HuberLoss("sum", 0.5)),
    "HuberLoss/delta": Twin(lambda: tn.HuberLoss("sum", 0.5)),
    "BCEWithLogitsLoss": Twin(tn.BCEWithLogitsLoss),
}


def both_ways(name):
    """lstm_cells.3.W_ih -> weight_ih_l1_reverse"""
    cell, _, part = name.rpartition(".")
    i = int(cell.rpartition(".")[2])
    return f"{part.replace('W_', 'weight_')}_l{i // 2}{'_reverse' * (i % 2)}"


def weights(*numbers):
    return torch.tensor(np.array(numbers), dtype=torch.float64)


POINTWISE = "ReLU6 SELU Mish Softsign LogSigmoid Hardsigmoid Hardswish Tanhshrink Softshrink Hardshrink Softmin GLU PReLU".split()
TWINS |= {name: Twin(getattr(tn, name)) for name in POINTWISE}
TWINS["Softmin"] = Twin(lambda: tn.Softmin(-1))
LOSSES = "BCELoss SoftMarginLoss GaussianNLLLoss HingeEmbeddingLoss TripletMarginLoss PoissonNLLLoss".split()
TWINS |= {name: Twin(getattr(tn, name)) for name in LOSSES}
TWINS |= {
    "Bilinear": Twin(lambda: tn.Bilinear(3, 2, 4)),
    "CosineSimilarity": Twin(tn.CosineSimilarity),
    "PairwiseDistance": Twin(tn.PairwiseDistance),
    "ELU": Twin(lambda: tn.ELU(0.7)),
    "CELU": Twin(lambda: tn.CELU(0.7)),
    "GELU/tanh": Twin(lambda: tn.GELU("tanh")),
    "Softplus": Twin(lambda: tn.Softplus(2.0)),
    "Hardtanh": Twin(lambda: tn.Hardtanh(-0.5, 0.8)),
    "Threshold": Twin(lambda: tn.Threshold(0.1, -2.0)),
    "LogSoftmax": Twin(lambda: tn.LogSoftmax(1)),
    "PReLU/channels": Twin(lambda: tn.PReLU(4)),
    "LayerNorm": Twin(lambda: tn.LayerNorm(4)),
    "LayerNorm/two axes": Twin(lambda: tn.LayerNorm((3, 4))),
    "LayerNorm/plain": Twin(lambda: tn.LayerNorm(4, elementwise_affine=False)),
    "LayerNorm/no bias": Twin(lambda: tn.LayerNorm(4, bias=False)),
    "RMSNorm/two axes": Twin(lambda: tn.RMSNorm((3, 4), eps=1e-5)),
    "BatchNorm1d/plain": Twin(lambda: tn.BatchNorm1d(4, affine=False, track_running_stats=False)),
    "InstanceNorm2d": Twin(lambda: tn.InstanceNorm2d(4)),
    "InstanceNorm1d": Twin(lambda: tn.InstanceNorm1d(4)),
    "Conv2d/same": Twin(lambda: tn.Conv2d(4, 3, 3, padding="same"), OIHW),
    "Conv2d/reflect": Twin(lambda: tn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), OIHW),
    "Conv1d/same": Twin(lambda: tn.Conv1d(4, 3, 2, padding="same"), OIK),
    "Conv1d/circular": Twin(lambda: tn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"), OIK),
    "ConvTranspose1d": Twin(lambda: tn.ConvTranspose1d(4, 3, 3), OIK),
    "MaxPool1d": Twin(lambda: tn.MaxPool1d(3, 2, 1)),
    "AvgPool1d": Twin(lambda: tn.AvgPool1d(2)),
    "MaxPool2d/ceil": Twin(lambda: tn.MaxPool2d(2, ceil_mode=True)),
    "AvgPool2d/inside": Twin(lambda: tn.AvgPool2d(3, 1, 1, count_include_pad=False)),
    "AdaptiveAvgPool1d": Twin(lambda: tn.AdaptiveAvgPool1d(3)),
    "AdaptiveMaxPool1d": Twin(lambda: tn.AdaptiveMaxPool1d(3)),
    "AdaptiveMaxPool2d": Twin(lambda: tn.AdaptiveMaxPool2d((4, 2))),
    "Flatten/some axes": Twin(lambda: tn.Flatten(0, 1)),
    "Unflatten": Twin(lambda: tn.Unflatten(1, (2, -1))),
    "ZeroPad1d": Twin(lambda: tn.ZeroPad1d((1, 2))),
    "ZeroPad2d": Twin(lambda: tn.ZeroPad2d(1)),
    "ConstantPad1d": Twin(lambda: tn.ConstantPad1d(1, 3.0)),
    "ConstantPad2d": Twin(lambda: tn.ConstantPad2d((0, 1, 2, 0), 3.0)),
    "ReflectionPad1d": Twin(lambda: tn.ReflectionPad1d(2)),
    "ReflectionPad2d": Twin(lambda: tn.ReflectionPad2d(2)),
    "ReplicationPad1d": Twin(lambda: tn.ReplicationPad1d(2)),
    "ReplicationPad2d": Twin(lambda: tn.ReplicationPad2d(1)),
    "Upsample": Twin(lambda: tn.Upsample(scale_factor=2)),
    "Upsample/linear": Twin(lambda: tn.Upsample(scale_factor=2, mode="linear", align_corners=True)),
    "UpsamplingNearest2d": Twin(lambda: tn.UpsamplingNearest2d(scale_factor=3)),
    "UpsamplingBilinear2d": Twin(lambda: tn.UpsamplingBilinear2d(size=(2, 5))),
    "PixelShuffle": Twin(lambda: tn.PixelShuffle(2)),
    "PixelUnshuffle": Twin(lambda: tn.PixelUnshuffle(2)),
    "Unfold": Twin(lambda: tn.Unfold((3, 2))),
    "RNN/both ways, batch first": Twin(
        lambda: tn.RNN(3, 4, 2, bidirectional=True, batch_first=True), TRANSPOSED, both_ways
    ),
    "GRU/both ways": Twin(lambda: tn.GRU(3, 4, bidirectional=True), TRANSPOSED, both_ways),
    "LSTM/both ways": Twin(lambda: tn.LSTM(3, 4, 2, bidirectional=True), TRANSPOSED, both_ways),
    "MultiheadAttention": Twin(lambda: tn.MultiheadAttention(6, 2), TRANSPOSED, same),
    "MultiheadAttention/widths": Twin(
        lambda: tn.MultiheadAttention(6, 2, kdim=5, vdim=3, batch_first=True), TRANSPOSED, same
    ),
    "TransformerEncoderLayer": Twin(
        lambda: tn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), TRANSPOSED, same
    ),
    "TransformerEncoderLayer/norm first": Twin(
        lambda: tn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", norm_first=True, batch_first=True), TRANSPOSED, same
    ),
    "TransformerEncoder": Twin(
        lambda: tn.TransformerEncoder(tn.TransformerEncoderLayer(6, 2, 8, 0.0), 2, tn.LayerNorm(6)), TRANSPOSED, same
    ),
    "TransformerDecoderLayer": Twin(
        lambda: tn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True), TRANSPOSED, same
    ),
    "TransformerDecoder": Twin(
        lambda: tn.TransformerDecoder(tn.TransformerDecoderLayer(6, 2, 8, 0.0), 2, tn.LayerNorm(6)), TRANSPOSED, same
    ),
    "CrossEntropyLoss": Twin(tn.CrossEntropyLoss),
    "CrossEntropyLoss/places": Twin(lambda: tn.CrossEntropyLoss(reduction="none")),
    "CrossEntropyLoss/weights, smooth": Twin(
        lambda: tn.CrossEntropyLoss(weights(0.5, 1, 2, 0.25, 1.5), label_smoothing=0.1), names=same
    ),
    "CrossEntropyLoss/probabilities": Twin(lambda: tn.CrossEntropyLoss(reduction="sum")),
    "NLLLoss": Twin(lambda: tn.NLLLoss(weights(0.5, 1, 2, 0.25, 1.5)), names=same),
    "SmoothL1Loss": Twin(lambda: tn.SmoothL1Loss(beta=0.5)),
    "BCEWithLogitsLoss/weights": Twin(
        lambda: tn.BCEWithLogitsLoss(weights(1, 1, 1, 1), pos_weight=weights(1, 1, 1, 1)), names=same
    ),
    "KLDivLoss": Twin(lambda: tn.KLDivLoss(reduction="batchmean")),
    "CosineEmbeddingLoss": Twin(lambda: tn.CosineEmbeddingLoss(0.1)),
    "MarginRankingLoss": Twin(lambda: tn.MarginRankingLoss(0.2)),
}

#: Layers in which PyTorch has numbers of float32 even where data is float64.
ROUNDED = {"Hardsigmoid", "CELU"}

#: Rows that PyTorch has no layer for, or only with other random numbers; layer_table.py's references check them.
NO_TWIN = {
    "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
    "Flatten/flat", "Residual", "MultiHeadAttention", "MultiHeadAttention/causal, dropout",
    "AttentionLayer", "AttentionLayer/of others", "TransformerLayer", "Transformer", "Transformer/batch first",
}  # fmt: skip


def test_every_row_has_a_twin_or_is_listed():
    assert set(TWINS) | NO_TWIN == set(BY_ID) and not set(TWINS) & NO_TWIN


def leaves(values):
    return [leaf for part in values for leaf in leaves(part)] if isinstance(values, (tuple, list)) else [values]


def tree(function, x):
    return tuple([tree(function, part) for part in x]) if isinstance(x, tuple) else function(x)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("id", TWINS)
def test_like_pytorch(id, training):
    row, twin = BY_ID[id], TWINS[id]
    layer = row.build().train(training)
    other, pairs = twin.load(layer)
    other.train(training)
    arrays = row.arrays()
    ours = [tree(lambda a: ndl.Tensor(a, dtype=str(a.dtype)), a) for a in arrays]
    theirs = [tree(lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"), a) for a in arrays]
    found, expected = leaves(layer(*ours)), leaves(twin.call(other, *theirs))
    sum((y * y).sum() for y in found).backward()
    sum((y * y).sum() for y in expected).backward()

    near = 1e-6 if id in ROUNDED else 1e-9

    def compare(what, a, b):
        np.testing.assert_allclose(a.numpy(), b, rtol=near, atol=near / 100, err_msg=what)

    for y, wanted in zip(found, expected, strict=True):
        compare("value", y, wanted.detach().numpy())
    for i, (x, wanted) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        if wanted.requires_grad:
            compare(f"gradient of input {i}", x.grad, wanted.grad.numpy())
    back = tuple(np.argsort(twin.order)) if twin.order else None
    for name, value in layer._tensors():
        theirs = pairs[name]
        wanted = theirs.grad if theirs.requires_grad else theirs
        assert theirs.requires_grad == value.requires_grad
        moved = move(wanted.detach().numpy(), back)
        compare(name, value.grad if theirs.requires_grad else value, moved.reshape(value.shape))


@pytest.mark.parametrize("causal", [True, False])
def test_attention_like_pytorch(causal):
    """With as many keys as queries, as PyTorch aligns its causal mask elsewhere."""
    from needle import nn

    arrays = [np.random.default_rng(i).standard_normal((2, 3, 5, 4)) for i in range(3)]
    ours = [ndl.Tensor(a, dtype="float64") for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, _ = nn.MultiHeadAttention(causal=causal)(*ours, need_probabilities=False)
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=causal)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-11), ("float32", 3e-5)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_like_pytorch(kind, dtype, near):
    """Sizes that fill no tile and several tasks, all times, and all gradients."""
    from needle import nn

    layer = getattr(nn, kind)(13, 37, 2, dtype=dtype)
    twin = getattr(tn, kind)(13, 37, 2).to(getattr(torch, dtype))
    with torch.no_grad():
        for name, value in layer._tensors():
            twin.get_parameter(rename(name)).copy_(as_torch(value.numpy().T))
    x = np.random.default_rng(0).standard_normal((11, 29, 13)).astype(dtype)
    ours, theirs = ndl.Tensor(x, dtype=dtype), torch.tensor(x, requires_grad=True)
    found, expected = leaves(layer(ours)), leaves(twin(theirs))
    sum((y * y).mean() for y in found).backward()
    sum((y * y).mean() for y in expected).backward()
    grads = [(ours.grad, theirs.grad)]
    grads += [
        (p.grad, as_torch(twin.get_parameter(rename(name)).grad.numpy().T)) for name, p in layer.named_parameters()
    ]
    for a, b in [*zip(found, expected, strict=True), *grads]:
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=near, atol=near)
