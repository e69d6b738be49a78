"""What PyTorch's users write, and what errors inside a model say."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import needle as ndl
from needle import nn

# ---- Lists that next() walks along ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["parameters", "buffers", "children"])
def test_lists_answer_to_next(method):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    found = getattr(model, method)()
    assert isinstance(found, list) and next(getattr(model, method)()) is found[0]
    assert [next(found) for _ in found] == list(found)
    with pytest.raises(StopIteration):
        next(found)
    assert len(found) == len(found + []) and copy.copy(found) == found == list(found)


def test_parameters_are_a_list_for_everybody():
    model = nn.Linear(2, 3)
    params = model.parameters()
    assert params[0] is model.weight and params[::-1] == [model.bias, model.weight]
    ndl.optim.SGD(params)
    assert repr(params) == repr(list(params))


# ---- Sequential with names --------------------------------------------------------------------------------------


def layers():
    return OrderedDict(fc1=nn.Linear(2, 3), act=nn.ReLU(), fc2=nn.Linear(3, 1))


COPIES = {"itself": lambda m: m, "deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", [OrderedDict, dict])
def test_sequential_of_a_dict(kind, how):
    net = COPIES[how](nn.Sequential(kind(layers())))
    assert list(net.state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert [name for name, _ in net.named_modules()] == ["", "fc1", "act", "fc2"]
    assert net.fc1 is net[0] is net.modules[0] and len(net) == 3 and list(net)[1] is net.act
    assert net(ndl.ones(5, 2)).shape == (5, 1)
    assert "fc2: Linear(in_features=3, out_features=1)" in repr(net)


def test_a_named_layer_may_be_replaced():
    net = nn.Sequential(layers())
    net.fc2 = nn.Linear(3, 7)
    assert net(ndl.ones(1, 2)).shape == (1, 7) and net[2] is net.fc2 and len(net.parameters()) == 4
    net.modules = [nn.Linear(2, 5)]
    assert list(net.state_dict()) == ["0.weight", "0.bias"] and not hasattr(net, "fc1")


SEQUENTIAL = {
    "a list": (lambda: nn.Sequential([nn.ReLU()]), TypeError, r"layer 0 is a list, .*: Sequential\(\*layers\)"),
    "a class": (lambda: nn.Sequential(nn.ReLU(), nn.Tanh), TypeError, r"layer 1 is the class Tanh, .*: Tanh\(\.\.\.\)"),
    "a number": (lambda: nn.Sequential(3), TypeError, "layer 0 is a int, expected a Module or a function"),
    "a dotted name": (lambda: nn.Sequential({"a.b": nn.ReLU()}), ValueError, "cannot have the name 'a.b'"),
    "a taken name": (lambda: nn.Sequential({"forward": nn.ReLU()}), ValueError, "cannot have the name 'forward'"),
}


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_sequential_names_the_mistake(name):
    make, kind, message = SEQUENTIAL[name]
    with pytest.raises(kind, match=f"^Sequential: .*{message}"):
        make()


# ---- Where in the model -----------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.linear1 = nn.Linear(*sizes)
        self.named = {"second": nn.Linear(4, 4)}

    def forward(self, x):
        return self.named["second"](self.linear1(x))


class Model(nn.Module):
    def __init__(self, wrong=2):
        super().__init__()
        self.blocks = [Block((5 if i == wrong else 4, 4)) for i in range(4)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def notes(function):
    with pytest.raises(ValueError) as caught:
        function()
    return caught.value.__notes__


X = ndl.Tensor(np.ones((2, 4), "float32"))
PLACES = {
    "a list": (lambda: Model()(X), "in blocks.2.linear1 (Linear)"),
    "nested": (lambda: nn.Sequential(nn.Identity(), Model(0))(X), "in 1.blocks.0.linear1 (Linear)"),
    "residual": (lambda: nn.Residual(nn.Sequential(nn.ReLU(), nn.Linear(3, 4)))(X), "in fn.1 (Linear)"),
    "named": (lambda: nn.Sequential({"fc": nn.Linear(3, 4)})(X), "in fc (Linear)"),
    "a layer alone": (lambda: nn.Linear(3, 4)(X), "in Linear"),
    "an op": (lambda: nn.Sequential(nn.MSELoss(), nn.ReLU())[0](X, X[:1]), "in MSELoss"),
    "by keyword": (lambda: Model()(x=X), "in blocks.2.linear1 (Linear)"),
    "in evaluation": (lambda: Model().eval()(X), "in blocks.2.linear1 (Linear)"),
    "summary": (lambda: Model().summary((2, 4)), "in blocks.2.linear1 (Linear)"),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_error_says_where_in_the_model(name):
    make, place = PLACES[name]
    assert notes(make) == [place]


def test_one_error_raised_twice_has_one_place():
    """An object that is raised again is not told twice where it is."""
    kept = ValueError("of mine")

    class Fails(nn.Module):
        def forward(self, x):
            raise kept

    model = nn.Sequential(nn.ReLU(), Fails())
    for _ in range(3):
        assert notes(lambda: model(X)) == ["in 1 (Fails)"]
    kept.add_note("another note")
    assert notes(lambda: model(X)) == ["in 1 (Fails)", "another note"]


def test_types_and_texts_of_errors_stay():
    class Odd(Exception):
        __slots__ = ()

    for error in (KeyError("k"), StopIteration(3), ZeroDivisionError(), Odd("o"), OSError(2, "no")):

        class Fails(nn.Module):
            def forward(self, x, error=error):
                raise error

        with pytest.raises(type(error)) as caught:
            nn.Sequential(Fails())(X)
        assert caught.value is error and caught.value.__notes__ == ["in 0 (Fails)"]


def test_an_error_that_takes_no_notes():
    class Frozen(Exception):
        def __setattr__(self, name, value):
            raise TypeError("frozen")

    class Fails(nn.Module):
        def forward(self, x):
            raise Frozen("as it was")

    with pytest.raises(Frozen, match="as it was"):
        nn.Sequential(Fails())(X)


def test_a_module_that_is_nobodys_member():
    hidden = nn.Linear(3, 4)

    class Uses(nn.Module):
        def forward(self, x):
            return hidden(x)

    assert notes(lambda: nn.Sequential(Uses())(X)) == ["in Linear"]
