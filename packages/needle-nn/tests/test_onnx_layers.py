"""Every layer, every model and every recipe of the command, in onnxruntime as in Needle, for batches of several sizes."""

import numpy as np
import onnx
import pytest
from layer_table import ROWS
from onnx_helpers import BATCHES, export, nodes, resized, same

import needle as ndl
from needle import nn
from needle_nn.models import GPT, GPT2, LanguageModel, LeNet, Llama, MLPResNet, ResNet9, VisionTransformer, resnet18

#: Layers whose batch is not the first axis: (time, batch, ...), or that have none.
AXES = {"RNN": 1, "GRU": 1, "LSTM": 1, "Transformer": 1, "Transformer/batch first": 0, "Linear/one axis": None}
AXES |= {"MultiheadAttention": 1, "TransformerEncoder": 1, "TransformerDecoder": 1}
AXES |= {"MultiheadAttention/widths": 0, "RNN/both ways, batch first": 0}
#: Layers that write at positions which depend on the input.
WRITING = {"MaxUnpool1d", "MaxUnpool2d"}


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_layer(row, tmp_path):
    if row.name in WRITING:
        with pytest.raises(ndl.onnx.ExportError, match=r"SetItem at positions that depend on the input; at .*\.py:"):
            export(row.build(dtype="float32"), tuple(row.arrays("float32")), tmp_path)
        return
    layer, arrays = row.build(dtype="float32"), tuple(row.arrays("float32"))
    axis = AXES.get(row.id, AXES.get(row.name, 0))
    before = {name: value.numpy() for name, value in layer.state_dict().items()}
    _, run = export(layer, arrays, tmp_path, dynamic_batch=axis is not None, batch_axis=axis)
    assert layer.training
    assert {name: value.numpy().tobytes() for name, value in layer.state_dict().items()} == {
        name: value.tobytes() for name, value in before.items()
    }
    layer.eval()
    same(layer, run, arrays)
    for n in BATCHES if axis is not None else ():
        same(layer, run, tuple([resized(a, n, axis) for a in arrays]))


def language(kind):
    return lambda: LanguageModel(8, 30, 16, 2, kind, num_head=2, dim_head=4, seq_len=6)


def normal(*shape):
    return lambda rng, n: rng.standard_normal((n, *shape)).astype("float32")


def ids(length, axis):
    return lambda rng, n: rng.integers(0, 30, (n, length) if axis == 0 else (length, n))


#: name: the model, an input for n examples, the axis of the batch, and nodes that must not be there
MODELS = {
    "MLPResNet": (lambda: MLPResNet(20, 16), normal(20), 0, "Transpose Sqrt"),
    "MLPResNet/layer norm": (lambda: MLPResNet(20, 16, norm=nn.LayerNorm1d), normal(20), 0, "ReduceMean"),
    "LeNet": (lambda: LeNet(12), normal(1, 12, 12), 0, "Transpose Identity"),
    "ResNet9": (ResNet9, normal(3, 32, 32), 0, "Transpose Sqrt Mul"),
    "GPT": (lambda: GPT(30, 16, 32, 2, 4, dropout=0.1), ids(10, 0), 0, "Dropout"),
    "GPT/untied": (lambda: GPT(30, 16, 32, 2, 4, tied=False), ids(10, 0), 0, "Dropout"),
    "GPT2": (lambda: GPT2(30, 16, 32, 2, 4), ids(10, 0), 0, "Dropout"),
    "Llama": (lambda: Llama(30, 16, 32, 48, 2, 4, 2), ids(10, 0), 0, "Dropout"),
    "ResNet": (lambda: resnet18(num_classes=5), normal(3, 32, 32), 0, "Transpose Sqrt Mul"),
    "VisionTransformer": (lambda: VisionTransformer(32, 8, 2, 4, 32, 64, 5), normal(3, 32, 32), 0, "Dropout"),
    "LanguageModel/rnn": (language("rnn"), ids(6, 1), 1, "MatMul"),
    "LanguageModel/lstm": (language("lstm"), ids(6, 1), 1, "MatMul"),
    "LanguageModel/gru": (language("gru"), ids(6, 1), 1, "MatMul"),
    "LanguageModel/transformer": (language("transformer"), ids(6, 1), 1, "Dropout"),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name, tmp_path):
    make, draw, axis, absent = MODELS[name]
    np.random.seed(0)  # noqa: NPY002  what weights are drawn from
    model, rng = make(), np.random.default_rng(1)
    path, run = export(model, ndl.Tensor(draw(rng, 2)), tmp_path, batch_axis=axis)
    model.eval()
    for n in BATCHES:
        same(model, run, (draw(rng, n),))
    assert not set(absent.split()) & set(nodes(path))
    stored = {x.name for x in onnx.load(path).graph.initializer}
    named = {name for name, _ in model.named_parameters()}
    joined = {part for name in stored for part in name.split("+")}
    assert named <= joined, "weights have the names that they have in the state_dict"


def test_every_model_is_here():
    from needle_nn import models

    parts = {"ResidualBlock", "ConvBN", "load_pretrained", "resnet18", "resnet50", "vit_b_16"}
    assert {name.split("/")[0] for name in MODELS} == set(models.__all__) - parts


def test_tied_weights_are_stored_once(tmp_path):
    path, run = export(model := GPT(500, 8, 32, 1, 2), np.array([[1, 2, 3]]), tmp_path)
    same(model.eval(), run, (np.array([[3, 4, 400], [1, 1, 0]]),))
    stored = onnx.load(path).graph.initializer
    assert [list(x.dims) for x in stored if 500 in x.dims] == [[500, 32]]


CELLS = {
    "recurrent layer of computed weights": lambda m, x: ndl.lstm(x, m.w * 2.0, m.u * 0.5, m.b + 1.0, m.b)[0],
    "one of two states": lambda m, x: ndl.gru(x, m.w[:, :12], m.u[:, :12], h0=x[0][:, :4] * 0.1),
}


@pytest.mark.parametrize("name", CELLS)
def test_recurrent_ops(name, tmp_path):
    from onnx_helpers import Apply

    rng = np.random.default_rng(0)
    draw = [nn.Parameter(ndl.Tensor(rng.uniform(-0.5, 0.5, shape))) for shape in ((5, 16), (4, 16), (16,))]
    model = Apply(CELLS[name], **dict(zip("wub", draw, strict=True)))
    _, run = export(model, x := rng.standard_normal((3, 2, 5)).astype("float32"), tmp_path, batch_axis=1)
    for n in BATCHES:
        same(model, run, (resized(x, n, 1),))
