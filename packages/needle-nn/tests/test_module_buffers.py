"""Buffers: which Tensors of a module are its state, and that a state always loads again."""

import copy
import pickle

import numpy as np
import pytest

import needle as ndl
from needle import nn, optim
from needle_nn.checkpoint import load, save
from needle_nn.data import DataLoader, NDArrayDataset
from needle_nn.training import Trainer

X = np.random.RandomState(0).randn(4, 3).astype("float32")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.start()

    def start(self): ...

    def forward(self, x):
        y = self.layer(x)
        self.keep(x, y)
        return y

    def keep(self, x, y): ...


def case(start=lambda self: None, keep=lambda self, x, y: None):
    return type("Case", (Base,), {"start": start, "keep": keep})


def sets(**values):
    def start(self):
        for name, value in values.items():
            setattr(self, name, value() if callable(value) else value)

    return start


class Statistics(Base):
    """A batch norm as students write it; the mean keeps the graph of the batch."""

    def start(self):
        self.running_mean = ndl.init.zeros(3)

    def keep(self, x, y):
        self.running_mean = 0.9 * self.running_mean + 0.1 * y.sum((0,)) / x.shape[0]


def appends(self, x, y):
    self.saved.append(y)


def fills(self, x, y):
    self.saved = []
    for part in (x, y):
        self.saved.append(part)


def twice(self, x, y):
    self.last = self.mean  # the object that is a buffer, under a second name
    self.mean = self.mean + 0


#: {case: (class, buffers in its state)}: the same before and after any number of calls.
CASES = {
    "an input is kept": (case(keep=lambda self, x, y: setattr(self, "h", x)), []),
    "an input is kept, None before": (case(sets(h=None), lambda self, x, y: setattr(self, "h", ndl.relu(x))), []),
    "an output is kept": (case(sets(h=None), lambda self, x, y: setattr(self, "h", y)), []),
    "detached": (case(sets(h=None), lambda self, x, y: setattr(self, "h", y.detach())), []),
    "a list is kept": (case(keep=lambda self, x, y: setattr(self, "h", [x, y])), []),
    "a dict is kept": (case(keep=lambda self, x, y: setattr(self, "h", {"x": x, "y": (y,)})), []),
    "a list is filled": (case(keep=fills), []),
    "a list of __init__ is appended to": (case(sets(saved=list), appends), []),
    "an underscore": (case(sets(_h=ndl.zeros(3)), lambda self, x, y: setattr(self, "_h", x)), []),
    "running statistics": (Statistics, ["running_mean"]),
    "a Tensor": (case(sets(mean=lambda: ndl.zeros(3))), ["mean"]),
    "a Tensor that needs a gradient": (case(sets(mean=lambda: ndl.Tensor([1.0]))), ["mean"]),
    "a Tensor computed of one": (case(sets(mean=lambda: ndl.Tensor([1.0]) * 0.1)), ["mean"]),
    "a list of Tensors": (case(sets(means=lambda: [ndl.zeros(3), ndl.Tensor([1.0]) * 2])), ["means.0", "means.1"]),
    "a dict of Tensors": (case(sets(means=lambda: {"a": ndl.zeros(3)})), ["means.a"]),
    "replaced by a number's worth": (
        case(sets(count=lambda: ndl.zeros(1)), lambda self, x, y: setattr(self, "count", self.count + 1)),
        ["count"],
    ),
    "a second name for a buffer": (case(sets(last=None, mean=lambda: ndl.zeros(3)), twice), ["mean"]),
    "another module's attribute": (case(keep=lambda self, x, y: setattr(self.layer, "input", x)), []),
    "registered": (case(lambda self: self.register_buffer("mean", ndl.zeros(3))), ["mean"]),
    "registered, underscore": (case(lambda self: self.register_buffer("_mean", ndl.zeros(3))), ["_mean"]),
    "registered, replaced": (
        case(
            lambda self: self.register_buffer("mean", ndl.zeros(3)), lambda self, x, y: setattr(self, "mean", y.sum(0))
        ),
        ["mean"],
    ),
    "registered, not persistent": (case(lambda self: self.register_buffer("mean", ndl.zeros(3), persistent=False)), []),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_what_is_in_the_state(name, lazy, grad, monkeypatch):
    cls, buffers = CASES[name]
    filled = name == "a list of __init__ is appended to"
    if filled and not grad:  # without a graph it needs an underscore
        cls = case(sets(_saved=list), lambda self, x, y: self._saved.append(y))
    monkeypatch.setattr(ndl.autograd, "LAZY_MODE", lazy)
    model = cls()
    expected = {"layer.weight", "layer.bias", *buffers}
    for _ in range(3):
        assert set(model.state_dict()) == expected
        with ndl.set_grad_enabled(grad):
            model(ndl.Tensor(X, requires_grad=False))
    state = model.state_dict()
    assert set(state) == expected
    copies = () if filled else (copy.deepcopy(model), pickle.loads(pickle.dumps(cls_copy(model))))  # have no graph
    for other in (cls(), model, *copies):
        other.load_state_dict(state)
        assert set(other.state_dict()) == expected


def cls_copy(model):
    """A module of a class that can be pickled, with the attributes of another."""
    other = Base()
    other.__dict__.update(copy.deepcopy(model).__dict__)
    return other


def test_a_kept_tensor_does_not_stop_a_run_from_resuming(tmp_path):
    cls = CASES["an input is kept, None before"][0]

    def trainer():
        np.random.seed(0)  # noqa: NPY002
        model = cls()
        return Trainer(model, optim.Adam(model.parameters()), nn.SoftmaxLoss())

    data = DataLoader(NDArrayDataset(X, np.array([0, 1, 2, 0])), 2)
    whole, cut = trainer(), trainer()
    whole.fit(data, 2)
    cut.fit(data, 1)
    again = trainer()
    again.load_state_dict(cut.state_dict())
    again.fit(data, 2)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    save(tmp_path / "m.safetensors", whole.model.state_dict())
    cls().load_state_dict(load(tmp_path / "m.safetensors"))


def test_set_from_outside():
    model = Base()
    model.mean = ndl.zeros(2)
    model.loss = model(ndl.Tensor(X)).sum()  # has a graph
    assert [name for name, _ in model.named_buffers()] == ["mean"]
    model(ndl.Tensor(X))
    model.h = ndl.zeros(1)
    del model.h
    assert [b.shape for b in model.buffers()] == [(2,)]


def test_what_forward_kept_may_become_a_buffer():
    cls, _ = CASES["an input is kept"]
    model = cls()
    model(ndl.Tensor(X))
    assert list(model.named_buffers()) == []
    model.h = ndl.zeros(1)
    assert [name for name, _ in model.named_buffers()] == ["h"]


def test_layers_made_in_forward_have_their_buffers():
    class Late(nn.Module):
        def forward(self, x):
            self.norm = nn.BatchNorm1d(3)
            return self.norm(x)

    model = Late()
    model(ndl.Tensor(X))
    assert [name for name, _ in model.named_buffers()] == ["norm.running_mean", "norm.running_var"]


def test_everything_is_moved():
    """Buffers beside the state, and what is only kept, are on the new device too."""
    model = case(
        lambda self: self.register_buffer("mean", ndl.zeros(3), persistent=False),
        lambda self, x, y: setattr(self, "h", x),
    )()
    model(ndl.Tensor(X))
    model.to(ndl.cpu_numpy())
    assert [str(t.device) for t in (model.mean, model.h, model.layer.weight)] == ["cpu_numpy()"] * 3
    assert [name for name, _ in model.named_buffers()] == ["mean"]


def test_states_of_before_load():
    """They may hold what was kept by `forward` and is no buffer any more."""
    cls, _ = CASES["an input is kept"]
    model = cls()
    model(ndl.Tensor(X))
    old = {**model.state_dict(), "h": np.zeros((9, 9))}
    model.load_state_dict(old)
    np.testing.assert_array_equal(model.h.numpy(), X)
    with pytest.raises(ValueError, match=r"^Case\.load_state_dict: unexpected: h$"):
        cls().load_state_dict(old)
    cls().load_state_dict(old, strict=False)


REGISTER = {
    "a name with dots": (lambda m: m.register_buffer("a.b", ndl.zeros(1)), ValueError, "name 'a.b': expected a text"),
    "no name": (lambda m: m.register_buffer("", ndl.zeros(1)), ValueError, "name '': expected a text without dots"),
    "swapped": (lambda m: m.register_buffer(ndl.zeros(1), "a"), ValueError, r"expected a text without dots"),
    "taken": (lambda m: m.register_buffer("layer", ndl.zeros(1)), ValueError, "there is an attribute layer already"),
    "a method": (lambda m: m.register_buffer("forward", None), ValueError, "there is an attribute forward already"),
    "an array": (lambda m: m.register_buffer("a", X), TypeError, "a is a ndarray, expected a Tensor"),
    "a Parameter": (
        lambda m: m.register_buffer("a", nn.Parameter(ndl.zeros(1))),
        TypeError,
        "a is a Parameter, expected a Tensor that is no Parameter",
    ),
}


@pytest.mark.parametrize("name", REGISTER)
def test_register_buffer_refuses(name):
    make, kind, message = REGISTER[name]
    with pytest.raises(kind, match=rf"^Base\.register_buffer: .*{message}"):
        make(Base())


def test_a_buffer_may_come_later():
    model = Base()
    model.register_buffer("mean", None)
    assert "mean" not in model.state_dict()
    model.mean = ndl.zeros(2)
    assert "mean" in model.state_dict()
    model.register_buffer("mean", ndl.zeros(3), persistent=False)
    assert "mean" not in model.state_dict() and model.mean.shape == (3,)


def test_a_state_must_be_a_dict():
    with pytest.raises(TypeError, match=r"^Base\.load_state_dict: expected a dict, got str$"):
        Base().load_state_dict("model.safetensors")
