"""needle.compat, and the table of docs/from_pytorch.md: both meanings of every line, on Needle and on PyTorch."""

import re
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import needle as ndl
from needle import _hints
from needle.autograd import follows_torch
from needle_ndarray.testing import each

PAGE = Path(__file__).resolve().parents[3] / "docs" / "from_pytorch.md"
LINE = re.compile(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \| `(.+?)` \|", re.MULTILINE)
TABLE = LINE.findall(PAGE.read_text()) if PAGE.exists() else []


def show(value, t):
    """A result as the page has it: lists for tensors, tuples, numbers to three places."""
    if isinstance(value, t.Tensor):
        return show(value.tolist(), t)
    if isinstance(value, tuple):
        inner = ", ".join(show(part, t) for part in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(show(part, t) for part in value)}]"
    return repr(round(value, 3)) if isinstance(value, float) else repr(value)


def meaning(expression, t):
    """What an expression of the table gives with one of the two frameworks."""
    m = t.tensor([[1.0, 5.0], [7.0, 3.0], [2.0, 4.0]])
    space = {"t": t, "np": np, "m": m, "v": t.tensor([1.0, 3.0]), "p": t.tensor([1.0], requires_grad=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return show(eval(expression, space), t)
        except Exception as error:
            return type(error).__name__


def test_the_table_is_there():
    assert len(TABLE) > 20 and len({row[0] for row in TABLE}) == len(TABLE)


@each("row", TABLE)
def test_the_table_says_what_needle_does(row):
    expression, _, here, within = row
    assert meaning(expression, ndl) == here
    with ndl.compat("torch"):
        if "pool2d" in expression and find_spec("needle_nn") is None:
            within = "ModuleNotFoundError"  # images as PyTorch has them are needle.nn's
        assert meaning(expression, ndl) == within
    assert meaning(expression, ndl) == here


@pytest.mark.parity
@each("row", TABLE)
def test_the_table_says_what_pytorch_does(row):
    torch = pytest.importorskip("torch")
    shown = (
        meaning(row[0], torch).replace("torch.Size([", "(").replace("])", ")")
        if ".shape" in row[0]
        else meaning(row[0], torch)
    )
    assert shown == row[1]


IMAGE, KERNEL = np.arange(32.0).reshape(1, 2, 4, 4), np.ones((3, 2, 2, 2))
IMAGES = {
    "conv2d": lambda t, x, w: t.conv2d(x, w, stride=2),
    "conv1d": lambda t, x, w: t.conv1d(x[:, :, 0], w[:, :, 0]),
    "conv_transpose2d": lambda t, x, w: t.conv_transpose2d(x, w.transpose(0, 1)),
    "max_pool2d": lambda t, x, w: t.max_pool2d(x, 2, stride=1),
    "layer_norm": lambda t, x, w: t.layer_norm(x, (4, 4)),
}


@pytest.mark.parity
@each("name", list(IMAGES))
def test_functions_of_images_take_pytorch_s_layout(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("needle_nn")
    with ndl.compat("torch"):
        ours = IMAGES[name](ndl, ndl.tensor(IMAGE), ndl.tensor(KERNEL))
    theirs = IMAGES[name](torch, torch.tensor(IMAGE), torch.tensor(KERNEL))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-6)


# ---- The switch -------------------------------------------------------------------------------------------


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_a_with_holds_for_its_body_and_thread():
    assert not follows_torch()
    with ndl.compat("torch") as mode:
        assert follows_torch() and not in_a_thread(follows_torch) and repr(mode) == "needle.compat('torch')"
        with ndl.compat("needle"):
            assert not follows_torch()
        assert follows_torch()
    assert not follows_torch()


def test_a_call_holds_for_the_process():
    try:
        ndl.compat("torch")
        assert follows_torch() and in_a_thread(follows_torch)
        with ndl.compat("needle"):
            assert not follows_torch() and in_a_thread(follows_torch)
        assert follows_torch()
    finally:
        ndl.compat("needle")
    assert not follows_torch() and not in_a_thread(follows_torch)


def test_other_meanings_are_refused():
    with pytest.raises(ValueError, match=r"compat: 'jax': expected 'torch' or 'needle'"):
        ndl.compat("jax")
    with pytest.raises(ValueError, match=r"expected no_grad, lazy, anomaly or torch"):
        ndl.autograd.set_mode("other", 1)


def test_a_captured_function_knows_its_meaning():
    @ndl.capture
    def spread(x):
        return x.var()

    x = ndl.tensor([1.0, 3.0])
    with ndl.no_grad():
        for _ in range(4):
            assert spread(x).item() == 1.0
        with ndl.compat("torch"):
            assert [spread(x).item() for _ in range(4)] == [2.0] * 4
        assert spread(x).item() == 1.0 and not spread.refusals


def test_subclasses_of_tensor_are_trained():
    class Weight(ndl.Tensor):
        pass

    with ndl.compat("torch"):
        assert Weight([1.0]).requires_grad and not ndl.Tensor([1.0]).requires_grad


def test_gradients_add_up_and_have_a_graph_where_asked_for():
    with ndl.compat("torch"):
        x = ndl.tensor([3.0], requires_grad=True)
        (x**2).sum().backward(create_graph=True)
        first = x.grad
        assert first.requires_grad
        x.grad = None
        first.backward(retain_graph=True)
        assert x.grad.tolist() == [2.0]
        x.grad = None
        (x**2).sum().backward()
        (x**2).sum().backward(accumulate=False)
        assert x.grad.tolist() == [6.0]
        x.grad.zero_()
        (x**2).backward(gradient=ndl.tensor([2.0]))
        assert x.grad.tolist() == [12.0]


# ---- A gradient that nobody used --------------------------------------------------------------------------


@pytest.fixture
def told():
    """The warnings that a test has seen, in a process that has not warned yet."""
    before = set(_hints.told)
    _hints.told.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen
    _hints.told.update(before)


def steps(*between, n=3):
    w, x = (
        ndl.tensor([n], requires_grad=True) for n in (2.0, 5.0)
    )  # x requires a gradient, which nobody ever looks at
    for i in range(n):
        (w * x * (i + 1)).sum().backward()
        for action in between:
            action(w)
    return w


def test_a_gradient_that_goes_unread_is_told_once(told):
    steps()
    assert len(told) == 1 and "test_compat.py" in told[0].filename
    assert re.search(
        r"backward\(\) replaces a \.grad that nobody has read .* backward\(accumulate=True\)", str(told[0].message)
    )


def set_none(w):
    w.grad = None


@pytest.mark.parametrize(
    "use", [lambda w: w.grad, set_none, lambda w: ndl.autograd.with_gradients([w])], ids=["read", "reset", "step"]
)
def test_one_look_at_any_gradient_is_enough(use, told):
    """x, an input that happens to require a gradient, is nobody's concern where w is trained."""
    steps(use)
    assert not told


def test_accumulating_replaces_nothing(told):
    w = ndl.Tensor([2.0])
    for _ in range(3):
        (w * w).sum().backward(accumulate=True)
    with ndl.compat("torch"):
        steps()
    assert not told and w.grad.tolist() == [12.0]
