"""needle.compat("torch") for layers and optimizers, and the second table of docs/from_pytorch.md, on Needle and on PyTorch."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what weights are drawn from)

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import needle as ndl
from needle import nn, optim

PAGE = Path(__file__).resolve().parents[3] / "docs" / "from_pytorch.md"
LINE = re.compile(r"^\| [^`|]+ \| `(.+?)` \| `(.+?)` \| `(.+?)` \| `(.+?)` \|", re.MULTILINE)
TABLE = LINE.findall(PAGE.read_text()) if PAGE.exists() else []


def show(value):
    """A result as the page has it: numbers to three places, or as they are where that would be 0."""
    if hasattr(value, "tolist"):
        return show(value.tolist())
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(show, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return repr(round(value, 3) or value) if isinstance(value, float) else repr(value)


def meaning(expression, t):
    m = t.tensor([[1.0, 5.0], [7.0, 3.0], [2.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return show(eval(expression, {"t": t, "m": m, "p": t.tensor([1.0], requires_grad=True)}))
        except Exception as error:
            return type(error).__name__


def test_the_table_is_there():
    assert len(TABLE) > 10


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_table_says_what_needle_does(row):
    expression, _, here, within = row
    assert meaning(expression, ndl) == here
    with ndl.compat("torch"):
        assert meaning(expression, ndl) == within
    assert meaning(expression, ndl) == here


@pytest.mark.parity
@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_table_says_what_pytorch_does(row):
    assert meaning(row[0], pytest.importorskip("torch")) == row[1]


@pytest.mark.parametrize(
    ("make", "fan"),
    [
        (lambda: nn.Linear(64, 100), 64),
        (lambda: nn.Conv2d(8, 64, 3), 72),
        (lambda: nn.Conv1d(16, 64, 4), 64),
        (lambda: nn.ConvTranspose2d(64, 8, 3), 72),
    ],
)
def test_first_weights(make, fan):
    """U(-b, b) with b = 1 / sqrt(fan in), the biases too."""
    np.random.seed(0)
    with ndl.compat("torch"):
        layer = make()
    bound = fan**-0.5
    for p, near in ((layer.weight, 0.02), (layer.bias, 0.5)):
        assert p.requires_grad and abs(p.numpy()).max() <= bound
        assert p.numpy().std() == pytest.approx(bound / np.sqrt(3), rel=near)
    np.random.seed(0)
    first = make().weight.numpy()
    np.random.seed(0)
    assert np.array_equal(first, make().weight.numpy()) and abs(first.std() * np.sqrt(3) / bound - 1) > 0.05


def test_numbers_that_are_given_stay():
    w = ndl.Tensor([1.0], requires_grad=True)
    with ndl.compat("torch"):
        assert optim.Adam([w], lr=0.01).lr == 0.01 and optim.AdamW([w]).lr == 0.001 and optim.SGD([w]).lr == 0.001
        assert optim.SGD([w], momentum=0.5, dampening=0.25).dampening == 0.25
        assert optim.SGD([w], momentum=0.5, unbiased=True).dampening is None
    assert optim.Adam([w]).lr == 0.01 and type(optim.Adam([w]).lr) is float


def test_a_program_with_two_losses_accumulates():
    model = nn.Linear(2, 1)
    with ndl.compat("torch"):
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        model(ndl.ones(1, 2)).sum().backward()
        model(ndl.ones(1, 2)).sum().backward()
        assert model.weight.grad.tolist() == [[2.0], [2.0]]
