"""Convolution and pooling as functions: arguments, dtypes, errors with their numbers; PyTorch as a second oracle."""

# ruff: noqa: E501  (a row of the table is one line)
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.geometry import Geometry
from needle_ndarray.testing.convolution import CONVOLUTIONS, POOLINGS
from needle_ndarray.testing.oracle import assert_within


def floats(*shape, dtype="float32", device=None, salt=0):
    return nd.array(np.random.default_rng(salt).normal(size=shape), dtype, device)


# ---- Arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, full",
    [
        ({"stride": 2}, {"stride": (2, 2)}),
        ({"stride": [2, 1]}, {"stride": (2, 1)}),
        ({"padding": 1}, {"padding": ((1, 1), (1, 1))}),
        ({"padding": (1, 2)}, {"padding": ((1, 1), (2, 2))}),
        ({"padding": [[1, 0], (2, 3)]}, {"padding": ((1, 0), (2, 3))}),
        ({"dilation": np.int64(2)}, {"dilation": (2, 2)}),
    ],
    ids=str,
)
def test_short_forms(given, full, device):
    x, weight = floats(2, 7, 8, 4, device=device), floats(3, 3, 4, 5, device=device)
    short, long = nd.conv2d(x, weight, **given), nd.conv2d(x, weight, **full)
    assert np.array_equal(short.numpy(), long.numpy())
    wide = np.pad(x.numpy(), ((0, 0), *full.get("padding", ((0, 0), (0, 0))), (0, 0)))
    assert np.array_equal(
        nd.conv2d(
            nd.array(wide, "float32", device), weight, **{k: v for k, v in full.items() if k != "padding"}
        ).numpy(),
        short.numpy(),
    )


def test_pooling_windows_touch_by_default(device):
    x = floats(2, 6, 9, 3, device=device)
    for pool in (nd.max_pool2d, nd.avg_pool2d):
        assert np.array_equal(pool(x, (2, 3)).numpy(), pool(x, (2, 3), (2, 3), 0).numpy())
        assert pool(x, (2, 3)).shape == (2, 3, 3, 3)


@pytest.mark.parametrize(
    "left, right, result",
    [
        ("float32", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("int32", "float32", "float64"),
        ("int32", "int64", "float64"),
        ("bool", "bool", "float32"),
        ("bool", "float32", "float32"),
    ],
)
def test_dtypes(left, right, result, device):
    x = nd.array(np.arange(50).reshape(1, 5, 5, 2) % 3, left, device)
    weight = nd.array(np.arange(36).reshape(3, 3, 2, 2) % 4, right, device)
    y = nd.conv2d(x, weight)
    assert y.dtype == result
    exact = nd.conv2d(x.astype("float64"), weight.astype("float64"))
    assert np.array_equal(y.numpy(), exact.numpy())  # small integers: no rounding
    assert nd.conv2d_input_grad(y, weight, x.shape).dtype == result
    assert nd.conv2d_weight_grad(x, y, weight.shape).dtype == result
    assert nd.max_pool2d(x, 2).dtype == nd.avg_pool2d(x, 2).dtype == (left if "float" in left else x.exp().dtype)


def test_channels_first_memory(device):
    """The NHWC view of an NCHW array, as course code makes it."""
    x = floats(2, 4, 6, 7, device=device)
    weight = floats(3, 3, 4, 5, device=device)
    view = x.permute((0, 2, 3, 1))
    assert np.array_equal(nd.conv2d(view, weight, 1, 1).numpy(), nd.conv2d(view.copy(), weight, 1, 1).numpy())


@pytest.mark.parametrize("blas", ["scipy-openblas32", "numpy"])
def test_without_blas(blas):
    """Where there is no BLAS, the defaults do what needs it."""
    code = """if True:
        import numpy as np, needle_ndarray as nd
        x, w = nd.array(np.arange(600).reshape(1, 5, 5, 24) % 7), nd.array(np.arange(216 * 3).reshape(3, 3, 24, 3) % 5)
        y = nd.conv2d(x, w, 2, 1)
        print(y.sum().item(), nd.conv2d_input_grad(y, w, x.shape, 2, 1).sum().item(),
              nd.conv2d_weight_grad(x, y, w.shape, 2, 1).sum().item(), nd.conv2d(x, w[:1, :1]).sum().item())
    """
    env = {**os.environ, "NEEDLE_BLAS": blas}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    x, w = np.arange(600.0).reshape(1, 5, 5, 24) % 7, np.arange(648.0).reshape(3, 3, 24, 3) % 5
    there = nd.device("cpu_numpy")
    a, b = nd.array(x, "float64", there), nd.array(w, "float64", there)
    y = nd.conv2d(a, b, 2, 1)
    expected = [
        y.sum(),
        nd.conv2d_input_grad(y, b, x.shape, 2, 1).sum(),
        nd.conv2d_weight_grad(a, y, w.shape, 2, 1).sum(),
        nd.conv2d(a, b[:1, :1]).sum(),
    ]
    assert [float(part) for part in done.stdout.split()] == pytest.approx([e.item() for e in expected], rel=1e-5)


# ---- Errors -----------------------------------------------------------------------------------------------------------

X, W, G = "floats(2, 5, 6, 4)", "floats(3, 3, 4, 8)", "floats(2, 3, 4, 8)"
ERRORS = [
    (f"nd.conv2d({X}, {W}, stride=0)", "ValueError: conv2d: stride 0: expected 1 to 2147483647"),
    (f"nd.conv2d({X}, {W}, stride=(1, -2))", "ValueError: conv2d: stride (1, -2): expected 1 to 2147483647"),
    (f"nd.conv2d({X}, {W}, stride=2**70)", "ValueError: conv2d: stride 1180591620717411303424: expected 1 to 2147483647"),
    (f"nd.conv2d({X}, {W}, stride=1.5)", "TypeError: conv2d: stride 1.5: expected an int or a pair of ints"),
    (f"nd.conv2d({X}, {W}, stride=(1, 2, 3))", "TypeError: conv2d: stride (1, 2, 3): expected an int or a pair of ints"),
    (f"nd.conv2d({X}, {W}, dilation=0)", "ValueError: conv2d: dilation 0: expected 1 to 2147483647"),
    (f"nd.conv2d({X}, {W}, padding=-1)", "ValueError: conv2d: padding -1: expected 0 to 2147483647"),
    (f"nd.conv2d({X}, {W}, padding='same')", "TypeError: conv2d: padding 'same': expected an int or a pair of ints"),
    (f"nd.conv2d({X}, {W}, padding=((1, 1), (-1, 1)))", "ValueError: conv2d: padding (-1, 1): expected 0 to 2147483647"),
    (f"nd.conv2d({X}, {W}, groups=0)", "ValueError: conv2d: groups 0: expected 1 to 2147483647"),
    (f"nd.conv2d({X}, {W}, groups=3)", "ValueError: conv2d: 4 channels and weight (3, 3, 4, 8) in 3 groups: expected a weight (3, 3, 4 / 3, a multiple of 3)"),
    (f"nd.conv2d({X}, floats(3, 3, 5, 8))", "ValueError: conv2d: 4 channels and weight (3, 3, 5, 8) in 1 groups: expected a weight (3, 3, 4 / 1, a multiple of 1)"),
    (f"nd.conv2d({X}, floats(3, 7, 4, 8))", "ValueError: conv2d: a window of (3, 7) does not fit a padded image of (5, 6)"),
    (f"nd.conv2d({X}, {W}, dilation=3, padding=((1, 0), (0, 1)))", "ValueError: conv2d: a window of (3, 3) (dilated: (7, 7)) does not fit a padded image of (6, 7)"),
    (f"nd.conv2d({X}, floats(0, 3, 4, 8))", "ValueError: conv2d: a window of (0, 3) does not fit a padded image of (5, 6)"),
    (f"nd.conv2d({X}, {W}, padding=2**31 - 1)", "ValueError: shape (2, 4294967297, 4294967298, 8): more elements than 64 bits can address"),
    (f"nd.conv2d({X}, {W}, dilation=2**31 - 1)", "ValueError: conv2d: a window of (3, 3) (dilated: (4294967295, 4294967295)) does not fit"),
    (f"nd.conv2d({X}[0], {W})", "ValueError: conv2d: x has shape (5, 6, 4), expected (N, H, W, C)"),
    (f"nd.conv2d({X}.numpy(), {W})", "TypeError: conv2d: x: expected an NDArray, got ndarray"),
    (f"nd.conv2d({X}, floats(3, 3, 4, 8, device='cpu_numpy'))", "ValueError: conv2d: weight is on cpu_numpy(), x on cpu(); move it with .to(device)"),
    (f"nd.conv2d_input_grad({G}, {W}, (2, 5, 7, 4))", "ValueError: conv2d_input_grad: grad has shape (2, 3, 4, 8), expected (2, 3, 5, 8)"),
    (f"nd.conv2d_input_grad({G}, {W}, (2, 5, 6))", "TypeError: conv2d_input_grad: shape of x (2, 5, 6): expected 4 ints"),
    (f"nd.conv2d_input_grad({G}, {W}, (2, -5, 6, 4))", "ValueError: conv2d_input_grad: shape of x (2, -5, 6, 4): expected 0 or more"),
    (f"nd.conv2d_input_grad({G}, {W}, (2, 2**60, 6, 4))", "ValueError: conv2d_input_grad: shape of x (2, 1152921504606846976, 6, 4): expected 0 or more, below 2^60"),
    (f"nd.conv2d_input_grad({G}, {W}, (2**70, 5, 6, 4))", "ValueError: conv2d_input_grad: grad has shape (2, 3, 4, 8), expected (1180591620717411303424, 3, 4, 8)"),
    (f"nd.conv2d_weight_grad({X}, {G}, (3, 3, 4, 9))", "ValueError: conv2d_weight_grad: grad has shape (2, 3, 4, 8), expected (2, 3, 4, 9)"),
    (f"nd.max_pool2d({X}, 0)", "ValueError: max_pool2d: size 0: expected 1 to 2147483647"),
    (f"nd.max_pool2d({X}, 6)", "ValueError: max_pool2d: a window of (6, 6) does not fit a padded image of (5, 6)"),
    (f"nd.max_pool2d({X}, 2**31)", "ValueError: max_pool2d: size 2147483648: expected 1 to 2147483647"),
    (f"nd.avg_pool2d({X}, 2, 0)", "ValueError: avg_pool2d: stride 0: expected 1 to 2147483647"),
    (f"nd.avg_pool2d({X}, 2, 1, None)", "TypeError: avg_pool2d: padding None: expected an int or a pair of ints"),
    (f"nd.max_pool2d_grad(floats(2, 2, 3, 4), {X}, 3, 2)", "ValueError: max_pool2d_grad: grad has shape (2, 2, 3, 4), expected (2, 2, 2, 4)"),
    ("nd.avg_pool2d_grad(floats(2, 2, 3, 4), (2, 5, 6, 4), 3, 2)", "ValueError: avg_pool2d_grad: grad has shape (2, 2, 3, 4), expected (2, 2, 2, 4)"),
]  # fmt: skip


@pytest.mark.parametrize("code, message", ERRORS, ids=[code for code, _ in ERRORS])
def test_errors_say_the_numbers(code, message):
    with pytest.raises((ValueError, TypeError, MemoryError)) as caught:
        eval(code, {"nd": nd, "floats": floats})
    assert re.match(re.escape(message), f"{type(caught.value).__name__}: {caught.value}")


# ---- PyTorch ----------------------------------------------------------------------------------------------------------


def _torch_padded(torch, x, padding, value=0.0):
    (top, bottom), (left, right) = padding
    return torch.nn.functional.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom), value=value)


@pytest.mark.parity
@pytest.mark.parametrize("name", [n for n, g in CONVOLUTIONS.items() if 0 not in g.x + g.weight])
def test_convolution_as_pytorch(name):
    torch = pytest.importorskip("torch")
    g = CONVOLUTIONS[name]
    x, weight, grad = (torch.randn(shape, dtype=torch.float64) for shape in (g.x, g.weight, g.y))
    x.requires_grad_(), weight.requires_grad_()
    y = torch.nn.functional.conv2d(
        _torch_padded(torch, x, g.padding), weight.permute(3, 2, 0, 1), None, g.stride, 0, g.dilation, g.groups
    )
    y.permute(0, 2, 3, 1).backward(grad)
    a, b, c = (nd.array(t.detach().numpy(), "float64") for t in (x, weight, grad))
    got = [
        nd.conv2d(a, b, *g.convolution),
        nd.conv2d_input_grad(c, b, g.x, *g.convolution),
        nd.conv2d_weight_grad(a, c, g.weight, *g.convolution),
    ]
    for mine, theirs in zip(got, (y.permute(0, 2, 3, 1), x.grad, weight.grad), strict=True):
        assert_within(mine.numpy(), theirs.detach().numpy(), 1e-11, name)


@pytest.mark.parity
@pytest.mark.parametrize("name", [n for n, g in POOLINGS.items() if 0 not in g.x and n != "windows of padding"])
def test_pooling_as_pytorch(name):
    torch = pytest.importorskip("torch")
    g = POOLINGS[name]
    for pool, value in (("max_pool2d", -np.inf), ("avg_pool2d", 0.0)):
        x, grad = torch.randint(-3, 3, g.x).double().requires_grad_(), torch.randn(g.y, dtype=torch.float64)
        y = getattr(torch.nn.functional, pool)(_torch_padded(torch, x, g.padding, value), g.size, g.stride)
        y.permute(0, 2, 3, 1).backward(grad)
        a, c = nd.array(x.detach().numpy(), "float64"), nd.array(grad.numpy(), "float64")
        back = nd.max_pool2d_grad(c, a, *g.pooling) if pool == "max_pool2d" else nd.avg_pool2d_grad(c, g.x, *g.pooling)
        for mine, theirs in ((getattr(nd, pool)(a, *g.pooling), y.permute(0, 2, 3, 1)), (back, x.grad)):
            assert_within(mine.numpy(), theirs.detach().numpy(), 1e-12, pool)


def test_a_geometry_that_was_refused_divides_by_nothing():
    """The numbers are those of C: one that was never set, or was refused, must not be a zero."""
    at = Geometry.__new__(Geometry)
    assert at.places((5, 5), (3, 3)) == (3, 3)
    for wrong in ({"stride": 0}, {"stride": (1, 0)}, {"groups": 0}, {"dilation": [0, 1]}, {"padding": (-1, 1)}):
        with pytest.raises(ValueError, match=r"expected [01] to 2147483647"):
            at.__init__("conv2d", **wrong)
        assert at.places((5, 5), (3, 3)) == (3, 3) and at.convolved((1, 5, 5, 2), (3, 3, 2, 4)) == (1, 3, 3, 4)
    for image, window in (((2**63 - 1, 1), (1, 1)), ((5, 5), (2**62, 1))):
        with pytest.raises(ValueError, match="more than 64 bits can count"):
            at.places(image, window)
