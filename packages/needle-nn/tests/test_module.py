"""Module: what it finds in its attributes, its switches, its state."""

import copy
import pickle

import numpy as np
import pytest

import needle as ndl
from needle import nn


class Scale(nn.Module):
    """y = x * factor + shift; `factor` is trained, `shift` is a buffer"""

    def __init__(self, n):
        super().__init__()
        self.factor = nn.Parameter(ndl.ones(n))
        self.shift = ndl.zeros(n)

    def forward(self, x):
        return x * self.factor + self.shift


class Nest(nn.Module):
    """One of everything that can hold parameters"""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(ndl.zeros(1))
        self.child = Scale(2)
        self.listed = [Scale(3), nn.Parameter(ndl.zeros(4))]
        self.tupled = (nn.Parameter(ndl.zeros(5)), "text", 3)
        self.named = {"b": Scale(6), "a": {"deep": [nn.Parameter(ndl.zeros(7))]}}
        self.again = self.child
        self.nothing = None
        self.last = nn.Parameter(ndl.zeros(8))


NAMES = "first child.factor listed.0.factor listed.1 tupled.0 named.b.factor named.a.deep.0 last".split()


def test_parameters_in_the_order_of_the_attributes_each_once():
    nest = Nest()
    assert [name for name, _ in nest.named_parameters()] == NAMES
    assert [p.size for p in nest.parameters()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(type(p) is nn.Parameter and p.requires_grad for p in nest.parameters())
    assert [name for name, _ in nest.named_buffers()] == ["child.shift", "listed.0.shift", "named.b.shift"]
    assert [name for name, _ in nest.named_modules()] == ["", "child", "listed.0", "named.b"]
    assert nest.children() == [nest.child, nest.listed[0], nest.named["b"]]


def test_attributes_may_be_replaced():
    nest = Nest()
    nest.child = nn.Linear(2, 2)
    del nest.again
    nest.listed = []
    nest.first = None
    assert [name for name, _ in nest.named_parameters()][:3] == ["child.weight", "child.bias", "tupled.0"]
    layers = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    layers.modules = [nn.Linear(2, 5)]
    assert layers(ndl.ones(1, 2)).shape == (1, 5)
    assert [p.shape for p in layers.parameters()] == [(2, 5), (1, 5)]


def test_a_module_may_know_its_parent():
    nest = Nest()
    nest.child.parent = nest
    assert [name for name, _ in nest.named_parameters()] == NAMES
    assert "parent: ..." in repr(nest)
    assert not nest.eval().child.training


def test_parameter_shares_the_data_it_is_made_of():
    source = ndl.ones(3)
    parameter = nn.Parameter(source)
    assert isinstance(parameter, ndl.Tensor) and parameter.requires_grad and not source.requires_grad
    source.realize_cached_data()[0] = 5
    assert parameter.tolist() == [5, 1, 1]
    assert repr(parameter).startswith("needle.Tensor(")


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match=r"Module\.forward"):
        nn.Module()(1)


def test_training_is_switched_in_the_whole_tree():
    nest = Nest()
    assert nest.eval() is nest
    assert [m.training for _, m in nest.named_modules()] == [False] * 4
    assert nest.train() is nest
    assert [m.training for _, m in nest.named_modules()] == [True] * 4


def test_a_subclass_may_forget_super():
    class Bare(nn.Module):
        def __init__(self):
            self.w = nn.Parameter(ndl.ones(1))

    assert Bare().training and len(Bare().parameters()) == 1 and not Bare().eval().training


def test_zero_grad():
    layer = nn.Linear(2, 3)
    layer(ndl.ones(1, 2)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    layer.zero_grad()
    assert all(p.grad is None for p in layer.parameters())


def test_containers():
    layers = nn.ModuleList([nn.Linear(2, 3), nn.ReLU()])
    assert layers.append(nn.Linear(3, 4)) is layers
    assert layers.extend([nn.Tanh()]) is layers
    layers[1] = nn.Sigmoid()
    assert len(layers) == 4 and [type(m).__name__ for m in layers] == ["Linear", "Sigmoid", "Linear", "Tanh"]
    assert [name for name, _ in layers.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    chain = nn.Sequential(*layers)
    assert len(chain) == 4 and chain[0] is layers[0] and list(chain) == list(layers)
    assert nn.Sequential()(3) == 3 and len(nn.ModuleList()) == 0


# ---- State --------------------------------------------------------------------------


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_state_goes_from_one_module_to_another():
    source, target = network(), network()
    x = ndl.init.randn(6, 3)
    source(x)  # the running statistics move
    kept = target.parameters()
    target.load_state_dict(source.state_dict())
    np.testing.assert_array_equal(target.eval()(x).numpy(), source.eval()(x).numpy())
    assert all(a is b for a, b in zip(kept, target.parameters(), strict=True))
    assert list(source.state_dict()) == (
        "0.weight 0.bias 1.weight 1.bias 1.running_mean 1.running_var 3.weight 3.bias".split()
    )


def test_loading_writes_into_the_arrays_that_are_there():
    """Whoever holds a parameter's data, a tied layer or an optimizer, sees the new values."""
    layer = nn.Linear(2, 2)
    data = layer.weight.realize_cached_data()
    layer.load_state_dict({"weight": np.full((2, 2), 3.0), "bias": np.zeros((1, 2))})
    assert layer.weight.realize_cached_data() is data and data.numpy().tolist() == [[3, 3], [3, 3]]


def test_loading_returns_the_names_that_differ():
    layer, extra = nn.Linear(2, 2), {"weight": np.ones((2, 2)), "other": np.ones(1)}
    found = layer.load_state_dict(extra, strict=False)
    assert found == (["bias"], ["other"]) and found.missing_keys == ["bias"] and found.unexpected_keys == ["other"]
    for kind in (ValueError, RuntimeError):
        with pytest.raises(kind, match="missing: bias; unexpected: other"):
            layer.load_state_dict(extra)


def test_a_state_is_a_copy():
    layer = nn.Linear(2, 2)
    state, before = layer.state_dict(), layer.weight.numpy()
    layer.weight.realize_cached_data()[...] = 9
    np.testing.assert_array_equal(state["weight"].numpy(), before)
    assert not state["weight"].requires_grad and type(state["weight"]) is ndl.Tensor
    layer.load_state_dict(state)
    state["weight"].realize_cached_data()[...] = 7
    np.testing.assert_array_equal(layer.weight.numpy(), before)


FORMS = {"NumPy": np.asarray, "Tensor": ndl.Tensor, "NDArray": ndl.NDArray, "list": np.ndarray.tolist}


@pytest.mark.parametrize("form", FORMS)
def test_a_state_may_hold_anything_array_like(form):
    layer, form = nn.Linear(2, 2), FORMS[form]
    layer.load_state_dict({"weight": form(np.arange(4.0).reshape(2, 2)), "bias": form(np.ones((1, 2)))})
    assert layer.weight.tolist() == [[0, 1], [2, 3]] and layer.weight.dtype == "float32"


def changed(**changes):
    state = {name: value.numpy() for name, value in network().state_dict().items()}
    for name, value in changes.items():
        name = name[1:].replace("_", ".", 1)
        if value is None:
            del state[name]
        else:
            state[name] = value
    return state


def zeros(*shape):
    return np.zeros(shape, "float32")


BAD_STATES = [
    ({"_0_weight": None}, "Sequential.load_state_dict: missing: 0.weight"),
    ({"_0_weight": None, "_1_running_var": None}, "Sequential.load_state_dict: missing: 0.weight, 1.running_var"),
    ({"_7_bias": zeros(1)}, "Sequential.load_state_dict: unexpected: 7.bias"),
    ({"_0_bias": zeros(4)}, "Sequential.load_state_dict: other shapes: 0.bias (4,) instead of (1, 4)"),
    ({"_3_weight": zeros(2, 4)}, "Sequential.load_state_dict: other shapes: 3.weight (2, 4) instead of (4, 2)"),
    (
        {"_0_weight": None, "_7_bias": zeros(1), "_0_bias": zeros(4), "_3_bias": zeros()},
        "Sequential.load_state_dict: missing: 0.weight; unexpected: 7.bias;"
        " other shapes: 0.bias (4,) instead of (1, 4), 3.bias () instead of (1, 2)",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_STATES, ids=[message for _, message in BAD_STATES])
def test_a_state_that_does_not_fit_changes_nothing(changes, message):
    model = network()
    before = [value.numpy() for value in model.state_dict().values()]
    with pytest.raises(ValueError) as caught:
        model.load_state_dict(changed(**changes))
    assert str(caught.value) == message
    for a, b in zip(before, model.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a, b.numpy())


def test_two_tensors_of_one_name_are_refused():
    model = nn.Module()
    model.a, model.named = Scale(2), {"a.factor": nn.Parameter(ndl.ones(1))}
    assert list(model.state_dict()) == ["a.factor", "a.shift", "named.a.factor"]
    model.named = {1: nn.Parameter(ndl.ones(1)), "1": nn.Parameter(ndl.ones(1))}
    with pytest.raises(ValueError, match=r"Module: two tensors have the name named\.1"):
        model.state_dict()


def test_not_strict_takes_what_fits_by_name_but_no_other_shapes():
    model, state = network(), changed(_0_weight=None, _7_bias=zeros(1))
    before = model[0].weight.numpy()
    model.load_state_dict(state, strict=False)
    np.testing.assert_array_equal(model[0].weight.numpy(), before)
    np.testing.assert_array_equal(model[3].weight.numpy(), state["3.weight"])
    with pytest.raises(ValueError, match=r"3.bias \(3,\) instead of \(1, 2\)"):
        model.load_state_dict(changed(_3_bias=zeros(3)), strict=False)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight


COPIES = {"itself": lambda m: m, "deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}


@pytest.mark.parametrize("how", COPIES)
def test_tied_parameters_are_one(how):
    tied = COPIES[how](Tied())
    assert list(tied.state_dict()) == ["a.weight"] and tied.a.weight is tied.b.weight


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_are_alike_and_independent(how):
    model, x = network(), ndl.init.randn(5, 3)
    model(x).sum().backward()
    model.eval()
    other = COPIES[how](model)
    assert not other.training and repr(other) == repr(model)
    np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())
    other[0].weight.realize_cached_data()[...] = 0
    assert model[0].weight.numpy().any()
    assert all(type(p) is nn.Parameter and p.requires_grad for p in other.parameters())


def test_to_moves_everything_and_keeps_the_parameters():
    model, x = network(), np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    model(ndl.Tensor(x)).sum().backward()
    expected, kept = model.eval()(ndl.Tensor(x)).numpy(), model.parameters()
    assert model.to(ndl.cpu_numpy()) is model
    assert {str(t.device) for t in model.state_dict().values()} == {"cpu_numpy()"}
    assert {str(p.grad.device) for p in model.parameters()} == {"cpu_numpy()"}
    assert all(a is b and a.requires_grad for a, b in zip(kept, model.parameters(), strict=True))
    found = model(ndl.Tensor(x, device=ndl.cpu_numpy()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    model.train()(ndl.Tensor(x, device=ndl.cpu_numpy())).sum().backward()
    assert {str(p.grad.device) for p in model.parameters()} == {"cpu_numpy()"}


def test_names_with_a_prefix_and_of_one_module_alone():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model.scale = nn.Parameter(ndl.ones(1))
    assert [name for name, _ in model.named_parameters("net", recurse=False)] == ["net.scale"]
    assert model.parameters(recurse=False) == [model.scale] and model.buffers(recurse=False) == []
    assert next(name for name, _ in model.named_parameters(prefix="a")) == "a.0.weight"
    assert [name for name, _ in model[1].named_buffers("b", recurse=False)] == ["b.running_mean", "b.running_var"]
    assert len(model.parameters()) == 5 and model.to(memory_format=None, non_blocking=True) is model


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(4, 3), nn.Linear(3, 4)
        self.head.weight = self.embedding.weight


def test_a_state_may_hold_a_tied_weight_under_each_of_its_names():
    """As PyTorch's states do: under both names, under either; not with different numbers."""
    model = Decoder()
    weight, bias = np.arange(12, dtype="float32").reshape(4, 3), model.head.bias.numpy()
    for names in (["embedding.weight", "head.weight"], ["head.weight"], ["embedding.weight"]):
        nn.init.zeros_(model.embedding.weight)
        model.load_state_dict({"head.bias": bias, **dict.fromkeys(names, weight)})
        np.testing.assert_array_equal(model.embedding.weight.numpy(), weight)
    for wrong, message in {
        "unexpected: head.weight": {"embedding.weight": weight, "head.weight": weight + 1},
        "missing: embedding.weight; unexpected: other": {"other": weight},
        r"other shapes: embedding.weight \(3, 4\) instead": {"head.weight": weight.T},
    }.items():
        with pytest.raises(ValueError, match=wrong):
            model.load_state_dict({"head.bias": bias, **message})
