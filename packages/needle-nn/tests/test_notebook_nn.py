"""What a notebook shows of modules, loaders and training: well-formed, escaped, nothing drawn or computed for it."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from needle_nn import notebook
from needle_nn.training import Trainer, accuracy
from needle_nn.training.history import History


def digits(**settings):
    return ndl.data.DataLoader(ndl.data.DigitsDataset(), batch_size=64, **settings)


MODULES = [
    (nn.Linear(3, 2), ["Linear", "in_features=3", "weight", "(3, 2)", "8 parameters"]),
    (nn.ReLU(), ["ReLU"]),
    (
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()),
        ["28 parameters", "running_mean", "saved buffer", "0: "],
    ),
    (nn.Transformer(8, 16, 2, num_head=2, dim_head=4), ["parameters", "MultiHeadAttention"]),
    (nn.LSTM(3, 4, num_layers=2), ["lstm_cells", "W_ih"]),
]


@pytest.mark.parametrize(("module", "words"), MODULES, ids=[type(module).__name__ for module, _ in MODULES])
def test_module(module, words):
    page = module._repr_html_()
    ET.fromstring(page)
    assert [word for word in words if word not in page] == []


def test_levels_fold():
    deep = nn.Sequential(nn.Residual(nn.Sequential(nn.Residual(nn.Linear(2, 2)))))
    opened = [node.get("open") for node in ET.fromstring(deep._repr_html_()).iter("details")]
    assert opened == ["open", "open", None, None, None]


def test_shared_parts_and_frozen_parameters_are_told():
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad = False
    page = nn.Sequential(layer, layer)._repr_html_()
    assert page.count("shown above") == 1
    assert page.count("frozen") == 1


def test_a_module_that_holds_itself_ends():
    module = nn.Sequential(nn.ReLU())
    module.again = module
    assert "shown above" in module._repr_html_()


def test_large_modules_are_cut():
    page = nn.Sequential(*[nn.Linear(1, 1) for _ in range(500)])._repr_html_()
    assert page.count("<b>Linear</b>") < notebook.MOST
    assert "more</div>" in page


def test_names_are_escaped():
    class Named(nn.Module):
        def extra_repr(self):
            return "<script>&"

    page = Named()._repr_html_()
    assert "(&lt;script&gt;&amp;)" in page


LOADERS = [
    ({}, ["DigitsDataset of 1,437 items", '<td style="text-align:left">23</td>', "SequentialSampler"]),
    ({"shuffle": True, "seed": 3, "drop_last": True}, ["shuffled", "dropped where short", ">22<", ">3<"]),
    ({"num_workers": 2, "dtype": "float64"}, [">2<", "float64"]),
]


@pytest.mark.parametrize(("settings", "words"), LOADERS, ids=[str(list(settings)) for settings, _ in LOADERS])
def test_loader(settings, words):
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    page = digits(**settings)._repr_html_()
    ET.fromstring(page)
    assert [word for word in words if word not in page] == []
    if not settings:
        assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def test_loader_of_a_stream():
    class Stream(ndl.data.IterableDataset):
        def __iter__(self):
            raise AssertionError("nobody asked for items")

    page = ndl.data.DataLoader(Stream())._repr_html_()
    assert "unknown" in page
    assert "as the dataset gives items" in page


def test_training():
    model = nn.Linear(64, 10)
    trainer = Trainer(model, ndl.optim.SGD(model.parameters()), nn.SoftmaxLoss(), metrics={"accuracy": accuracy})
    assert "no epoch so far" in trainer._repr_html_()
    last = trainer.fit(digits(), epochs=2, valid=digits())
    assert [row["epoch"] for row in trainer.history] == [1, 2]
    assert trainer.history[-1].items() >= last.items()
    page = trainer._repr_html_()
    ET.fromstring(page)
    assert page.count("<svg") == 2  # loss and accuracy
    assert "currentColor" in page


def test_rows_of_a_file():
    rows = [
        {"kind": "epoch", "epoch": 1, "step": 5, "loss": 2.0},
        {"kind": "epoch", "epoch": 2, "step": 10, "loss": float("nan")},
    ]
    ET.fromstring(History(rows)._repr_html_())
