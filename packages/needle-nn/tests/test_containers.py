"""What modules and containers can do besides holding parameters: hooks, casts, walks; dicts and lists of parts; initial values."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import copy
import math
import pickle

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle.nn import functional as F
from needle.nn import init, utils


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4)), nn.Linear(4, 2))


# ---- Walks ------------------------------------------------------------


def test_modules_of_a_sequential_are_its_layers_and_called_all_there_are():
    net = network()
    assert isinstance(net.modules, tuple) and len(net.modules) == 3 and net.modules[0] is net[0]
    assert [type(m).__name__ for m in net.modules()] == [
        "Sequential",
        "Linear",
        "Sequential",
        "ReLU",
        "BatchNorm1d",
        "Linear",
    ]
    assert [m is w for m, w in zip(copy.deepcopy(net).modules(), net.modules(), strict=True)] == [False] * 6
    assert len(pickle.loads(pickle.dumps(net)).modules()) == 6

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.again = net, net

    model = Model()
    assert next(iter(model.modules())) is model and len(model.modules()) == 7
    assert [name for name, _ in model.named_children()] == ["net"] and model.children() == [net]


def test_parts_are_found_by_name():
    net = network()
    assert net.get_submodule("1.1") is net[1][1] and net.get_submodule("") is net
    assert net.get_parameter("0.bias") is net[0].bias
    assert net.get_buffer("1.1.running_mean") is net[1][1].running_mean
    with pytest.raises(AttributeError, match=r"Sequential: no parameter '0.wait'; there are 0.weight, 0.bias"):
        net.get_parameter("0.wait")


def test_apply_goes_from_the_inside_out():
    seen = []
    net = network()
    assert net.apply(lambda module: seen.append(module)) is net
    assert seen == [net[0], net[1][0], net[1][1], net[1], net[2], net]


def test_parameters_can_be_frozen():
    net = network()
    assert net.requires_grad_(False) is net
    assert not any(p.requires_grad for p in net.parameters())
    net[2].requires_grad_()
    net(ndl.ones(5, 3)).sum().backward()
    assert net[0].weight.grad is None and net[2].weight.grad is not None


# ---- Casts ------------------------------------------------------------


def test_casts_keep_the_objects():
    net = network()
    net(ndl.ones(5, 3)).sum().backward()
    before = net.parameters()
    assert net.double() is net
    assert all(p is q for p, q in zip(net.parameters(), before, strict=True))
    tensors = [*net.parameters(), *net.buffers(), *[p.grad for p in net.parameters()]]
    assert {str(t.dtype) for t in tensors} == {"float64"}
    net(ndl.Tensor(np.ones((5, 3)), dtype="float64")).sum().backward()
    assert str(net.float()[0].weight.dtype) == "float32" == str(net[0].weight.grad.dtype)
    assert net.to(ndl.cpu_numpy(), "float64")[0].weight.device == ndl.cpu_numpy()
    assert net.to(ndl.ones(1))[0].weight.device == ndl.cpu() and str(net[0].weight.dtype) == "float32"
    assert net.to("cpu_numpy").cpu()[0].weight.device == ndl.cpu()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: net.to("int64"), "Sequential.to: dtype int64: expected float32 or float64"),
        (lambda net: net.to("gpu"), "Sequential.to: 'gpu': expected a device, as needle.cpu(), or a dtype"),
        (lambda net: net.register_forward_hook(3), "a forward hook is a function, got a int"),
        (
            lambda net: net.register_parameter("x", ndl.ones(1)),
            "register_parameter: x is a Tensor, expected a Parameter",
        ),
        (lambda net: net.add_module("x", ndl.ones(1)), "add_module: x is a Tensor, expected a Module"),
        (lambda net: nn.ModuleDict({"a": ndl.ones(1)}), "ModuleDict: a is a Tensor, expected a Module"),
        (lambda net: nn.ModuleDict({"a.b": net}), "ModuleDict: name 'a.b': expected a text without dots"),
        (lambda net: nn.ParameterList([3.0]), "ParameterList: entry 0 is a float, expected a Parameter or a Tensor"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(TypeError) as caught:
        call(network())
    assert message in str(caught.value) and "\n" not in str(caught.value)


# ---- Hooks ------------------------------------------------------------


def test_hooks_see_and_replace():
    layer, seen = nn.Linear(2, 2), []
    x = ndl.ones(1, 2)
    plain = layer(x).numpy()
    with layer.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape)):
        layer.register_forward_hook(lambda module, args, y: seen.append(y.shape))
        assert np.array_equal(layer(x).numpy(), plain) and seen == [(1, 2), (1, 2)]
    layer.register_forward_pre_hook(lambda module, args: args[0] * 0)
    handle = layer.register_forward_hook(lambda module, args, y: y + 1, prepend=True)
    np.testing.assert_allclose(layer(x).numpy(), layer.bias.numpy() + 1, rtol=1e-6)
    handle.remove()
    handle.remove()
    np.testing.assert_allclose(layer(x).numpy(), layer.bias.numpy(), rtol=1e-6)
    assert len(seen) == 4, "the first hook has gone with its block"


def test_hooks_with_names():
    class Scaled(nn.Module):
        def forward(self, x, by=1.0):
            return x * by

    scaled, seen = Scaled(), []
    scaled.register_forward_pre_hook(lambda m, args, kwargs: (args, {"by": 3.0}), with_kwargs=True)
    scaled.register_forward_hook(lambda m, args, kwargs, y: seen.append(kwargs), with_kwargs=True)
    assert scaled(ndl.ones(1), by=2.0).tolist() == [3.0] and seen == [{"by": 3.0}]
    assert list(scaled.state_dict()) == []


# ---- Containers ------------------------------------------------------------


def test_sequential_is_cut_appended_to_and_assigned():
    net = network()
    assert isinstance(net[:2], nn.Sequential) and net[:2][0] is net[0] and len(net[:2]) == 2
    net.append(nn.Tanh())
    net[0] = nn.Identity()
    assert [type(m).__name__ for m in net] == ["Identity", "Sequential", "Linear", "Tanh"]
    named = nn.Sequential({"a": nn.Tanh(), "b": nn.ReLU()})
    assert named[1:].b is named.b
    named[0] = nn.ReLU()
    assert isinstance(named.a, nn.ReLU)
    with pytest.raises(TypeError, match="layer 4 is the class Tanh"):
        net.append(nn.Tanh)


def test_module_dict():
    parts = nn.ModuleDict({"a": nn.Linear(2, 3)})
    parts["b"] = nn.Linear(3, 2)
    parts.update({"c": nn.ReLU()})
    assert list(parts) == list(parts.keys()) == ["a", "b", "c"] and len(parts) == 3 and "b" in parts
    assert [name for name, _ in parts.named_parameters()] == ["a.weight", "a.bias", "b.weight", "b.bias"]
    removed = parts.pop("c")
    del parts["b"]
    assert isinstance(removed, nn.ReLU) and parts.items() == {"a": parts["a"]}.items()
    with pytest.raises(NotImplementedError, match="ModuleDict: calls none of its entries"):
        parts(1)


def test_parameter_list_and_dict():
    some = nn.ParameterList([ndl.ones(2)])
    some.append(nn.Parameter(ndl.zeros(3))).extend([ndl.ones(1)])
    some[0] = ndl.zeros(2)
    assert len(some) == 3 and all(isinstance(p, nn.Parameter) for p in some)
    assert [(name, p.shape) for name, p in some.named_parameters()] == [("0", (2,)), ("1", (3,)), ("2", (1,))]
    named = nn.ParameterDict({"w": ndl.ones(2)})
    assert isinstance(named["w"], nn.Parameter) and list(named.state_dict()) == ["w"]


# ---- Initial values, parameters as a vector ------------------------------------------------------------

FILLED = {
    "zeros_": (init.zeros_, 0.0, 0.0),
    "ones_": (init.ones_, 1.0, 0.0),
    "constant_": (lambda t: init.constant_(t, 0.3), 0.3, 0.0),
    "uniform_": (lambda t: init.uniform_(t, -1, 3), 1.0, 4 / math.sqrt(12)),
    "normal_": (lambda t: init.normal_(t, 2.0, 0.5), 2.0, 0.5),
    "trunc_normal_": (lambda t: init.trunc_normal_(t, 0.0, 1.0, -1.0, 1.0), 0.0, 0.5396),
    "xavier_uniform_": (init.xavier_uniform_, 0.0, math.sqrt(2 / (90 * 200))),
    "xavier_normal_": (lambda t: init.xavier_normal_(t, 2.0), 0.0, 2 * math.sqrt(2 / (90 * 200))),
    "kaiming_uniform_": (lambda t: init.kaiming_uniform_(t, math.sqrt(5)), 0.0, math.sqrt(1 / 3 / (90 * 80))),
    "kaiming_normal_": (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), 0.0, math.sqrt(2 / (90 * 120))),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLED)
def test_initial_values(name):
    """A convolution's weight: (9, 10) times (80 in, 120 out)."""
    fill, mean, std = FILLED[name]
    np.random.seed(0)
    tensor = nn.Parameter(ndl.zeros(9, 10, 80, 120))
    memory = tensor.realize_cached_data()._handle.ptr()
    assert fill(tensor) is tensor and tensor.is_leaf() and tensor.requires_grad
    assert tensor.realize_cached_data()._handle.ptr() == memory
    assert tensor.numpy().mean() == pytest.approx(mean, abs=4e-3) and tensor.numpy().std() == pytest.approx(
        std, rel=1e-2, abs=1e-6
    )


def test_orthogonal_and_eye():
    for shape in ((6, 4), (4, 6), (2, 3, 4)):
        q = init.orthogonal_(ndl.zeros(*shape), 2.0).numpy().reshape(-1, shape[-1])
        product = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
        np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)
    np.testing.assert_array_equal(init.eye_(ndl.zeros(2, 3)).numpy(), np.eye(2, 3))


def test_data_of_a_parameter_is_written_through():
    layer = nn.Linear(3, 4)
    init.normal_(layer.weight.data, 5.0, 0.0)
    assert (layer.weight.numpy() == 5).all()


def test_vector_of_parameters():
    net = network()
    vector = utils.parameters_to_vector(net.parameters())
    other = network()
    utils.vector_to_parameters(vector, other.parameters())
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())
    vector.sum().backward()
    assert (net[0].weight.grad.numpy() == 1).all()
    with pytest.raises(ValueError, match=r"the vector has shape \(3,\), the parameters 34 numbers"):
        utils.vector_to_parameters(ndl.ones(3), net.parameters())


def test_a_padded_row_of_an_embedding_is_zero_and_stays():
    layer = nn.Embedding(5, 3, padding_idx=-1)
    assert not layer.weight.numpy()[4].any()
    layer(ndl.Tensor([[4, 1, 4]])).sum().backward()
    np.testing.assert_array_equal(layer.weight.grad.numpy()[:, 0], [0, 1, 0, 0, 0])
    frozen = nn.Embedding.from_pretrained(ndl.ones(4, 2))
    assert not frozen.weight.requires_grad and frozen(ndl.Tensor([3])).tolist() == [[1.0, 1.0]]


# ---- What is refused ------------------------------------------------------------

ones = ndl.ones
REFUSED = [
    (lambda: F.linear(ones(2, 3), ones(3, 4)), "the weight of a layer is (in, out), so give layer.weight.T"),
    (lambda: F.conv2d(ones(1, 3, 8, 8), ones(5, 5, 3, 16)), "a layer holds it as (KH, KW, in, out)"),
    (lambda: F.conv2d(ones(3, 8, 8), ones(4, 3, 3, 3)), "conv2d: input has shape (3, 8, 8), expected (N, C, H, W)"),
    (lambda: F.max_pool2d(ones(1, 1, 4, 4), 2, padding=2), "max_pool2d: padding 2 is more than half of kernel_size 2"),
    (lambda: F.max_pool3d(ones(1, 1, 4, 4, 4), 2, dilation=2), "max_pool3d: dilation 2: expected 1"),
    (lambda: F.pad(ones(3), (4, 0), "reflect"), "pad: reflect padding (4, 0) of an axis of size 3: at most 2"),
    (lambda: F.pad(ones(3), (1,)), "pad: 1 numbers for 1 axes"),
    (lambda: F.pad(ones(3), (1, 0), "mirror"), "pad: mode 'mirror': expected 'constant', 'reflect'"),
    (lambda: F.interpolate(ones(1, 1, 4), 8, mode="bilinear"), "mode 'bilinear' for shape (1, 1, 4)"),
    (lambda: F.interpolate(ones(1, 1, 4)), "interpolate: expected either size or scale_factor"),
    (lambda: F.pixel_shuffle(ones(1, 3, 2, 2), 2), "pixel_shuffle: 3 channels are no multiple of 2 x 2"),
    (lambda: F.glu(ones(3)), "glu: axis -1 of shape (3,): expected an axis of even size"),
    (lambda: F.gelu(ones(3), "sigmoid"), "gelu: approximate = 'sigmoid'"),
    (lambda: F.layer_norm(ones(2, 3), (4,)), "layer_norm: input has shape (2, 3), expected (..., 4)"),
    (lambda: F.group_norm(ones(2, 3), 2), "group_norm: input has shape (2, 3)"),
    (lambda: nn.Conv2d(1, 1, 3, padding="full"), "Conv2d: padding 'full': expected numbers, 'same' or 'valid'"),
    (lambda: nn.Conv2d(1, 1, 3, 2, padding="same"), "Conv2d: padding 'same' needs stride 1, got (2, 2)"),
    (lambda: nn.Conv2d(1, 1, 3, padding_mode="mirror"), "Conv2d: padding_mode 'mirror': expected one of zeros"),
    (lambda: nn.LSTM(3, 4, dropout=1.0), "LSTM: dropout = 1.0: expected a number from 0, below 1"),
    (lambda: nn.LSTM(3, 4, batch_first=True)(ones(2, 5, 7)), "LSTM: input has shape (2, 5, 7), expected (B, T, 3)"),
    (lambda: nn.MultiheadAttention(6, 4), "MultiheadAttention: embed_dim 6 is no multiple of num_heads 4"),
    (lambda: nn.TransformerEncoderLayer(6, 2, activation="tanh"), "activation 'tanh': expected 'relu', 'gelu' or a function"),
    (lambda: nn.Embedding(4, 2, padding_idx=4), "Embedding: padding_idx 4: expected one of 4 rows"),
    (lambda: nn.KLDivLoss("all"), "KLDivLoss: reduction 'all': expected 'mean', 'batchmean', 'sum' or 'none'"),
    (lambda: nn.CrossEntropyLoss(label_smoothing=2.0), "CrossEntropyLoss: label_smoothing 2.0"),
    (lambda: nn.InstanceNorm2d(3, track_running_stats=True), "track_running_stats: expected False"),
    (lambda: init.kaiming_normal_(ones(3)), "kaiming_normal_: shape (3,): expected (in, out)"),
    (lambda: init.calculate_gain("gelu"), "calculate_gain: nonlinearity 'gelu'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refuses_in_one_line(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)
