"""Optimizer steps as functions: what they accept, what they say, and that writes are counted."""

# ruff: noqa: E501  (a row of the table is one line)

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing.calls import call

MOVE = "on cpu_numpy(), parameter 0 on cpu(); move it with .to(device)"
WIDE = "the target of shape (2, 3) is a broadcast view (strides (0, 1))"
#: (call, the error and its one line); p, g, u are float32 (2, 3)
ERRORS = [
    ("sgd_step(p, [g], lr=1)", "TypeError: sgd_step: expected lists of NDArrays, got NDArray"),
    ("sgd_step([p], None, lr=1)", "TypeError: sgd_step: expected lists of NDArrays, got NoneType"),
    ("sgd_step([p], [], lr=1)", "ValueError: sgd_step: 1 parameters, but 0 gradients"),
    ("sgd_step([p], [g], [], lr=1)", "ValueError: sgd_step: 1 parameters, but 0 states"),
    ("sgd_step([p], [g], [None], lr=1, momentum=0.5)", "TypeError: sgd_step: state 0: expected an NDArray, got NoneType"),
    ("sgd_step([p], [None], lr=1)", "TypeError: sgd_step: gradient 0: expected an NDArray, got NoneType"),
    ("sgd_step([3], [g], lr=1)", "TypeError: sgd_step: parameter 0: expected an NDArray, got int"),
    ("sgd_step([p, i], [g, i], lr=1)", "TypeError: sgd_step: parameter 1 is int32, expected float32 or float64"),
    ("sgd_step([p], [g64], lr=1)", "TypeError: sgd_step: gradient 0 is float64, expected float32"),
    ("sgd_step([p], [g.T], lr=1)", "ValueError: sgd_step: gradient 0 has shape (3, 2), expected (2, 3) as parameter 0 is (2, 3)"),
    ("sgd_step([p], [g], [u[:1]], lr=1)", "ValueError: sgd_step: state 0 has shape (1, 3), expected (2, 3) as parameter 0 is (2, 3)"),
    ("sgd_step([p], [there(g)], lr=1)", "ValueError: sgd_step: gradient 0 is " + MOVE),
    ("sgd_step([p, there(p)], [g, g], lr=1)", "ValueError: sgd_step: parameter 1 is " + MOVE),
    ("sgd_step([wide], [g], lr=1)", "ValueError: sgd_step: parameter 0: " + WIDE),
    ("sgd_step([p], [g], [wide], lr=1)", "ValueError: sgd_step: state 0: " + WIDE),
    ("sgd_step([p], [g], lr='a')", "ValueError: sgd_step: lr = 'a': expected a number"),
    ("sgd_step([p], [g], lr=nd.nan)", "ValueError: sgd_step: lr = nan: expected a number"),
    ("sgd_step([p], [g], lr=1, momentum=0.9)", "ValueError: sgd_step: momentum = 0.9, but no velocities u"),
    ("sgd_step([p], [g], [u], lr=1, correction=0)", "ValueError: sgd_step: correction = 0: it divides"),
    ("adam_step([p], [g], None, [u], lr=1)", "TypeError: adam_step: expected lists of NDArrays, got NoneType"),
    ("adam_step([p], [g], [u], [], lr=1)", "ValueError: adam_step: 1 parameters, but 0 states"),
    ("adam_step([p], [g], [u], [u], lr=1, correction2=0)", "ValueError: adam_step: correction2 = 0: it divides"),
    ("adam_step([p], [g], [u], [u], lr=1, eps=None)", "ValueError: adam_step: eps = None: expected a number"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", ERRORS, ids=[call for call, _ in ERRORS])
def test_errors(call, message):
    p, g, u = (nd.ones((2, 3)) for _ in range(3))
    names = {"p": p, "g": g, "u": u, "i": p.astype("int32"), "g64": g.astype("float64")}
    names["wide"] = nd.ones(3).broadcast_to((2, 3))
    functions = {"sgd_step": nd.sgd_step, "adam_step": nd.adam_step, "there": lambda a: a.to("cpu_numpy")}
    version = p._handle.version
    with pytest.raises(Exception) as caught:
        eval(call, {"nd": nd, **functions, **names})
    assert f"{type(caught.value).__name__}: {caught.value}" == message
    assert p._handle.version == version and p.tolist() == nd.ones((2, 3)).tolist()


def arrays(device, *shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [nd.array(rng.normal(size=shape), dtype, device) for shape in shapes]


def test_writes_are_counted(device):
    """Autograd asks a buffer when it was written."""
    p, g, m, v = arrays(device, *[(3, 4)] * 4)
    v = abs(v)
    for step, written in (
        (lambda: nd.sgd_step([p], [g], [m], lr=0.1, momentum=0.9), [p, m]),
        (lambda: nd.adam_step([p], [g], [m], [v], lr=0.1), [p, m, v]),
        (lambda: nd.sgd_step([p], [g], lr=0.1), [p]),
    ):
        clock, unread = nd.next_version(), g._handle.version
        address = p._handle.ptr()
        step()
        assert all(a._handle.version > clock for a in written)
        assert g._handle.version == unread and p._handle.ptr() == address


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shared_memory(device, dtype):
    """Gradients are read before anything is written; parameters that share memory are taken one after the other."""
    (flat,) = arrays(device, (40,), dtype=dtype)
    before = flat.numpy()
    nd.sgd_step([flat[:20], flat[20:]], [flat[20:], flat[10:30][::-1]], lr=0.5)
    expected = before.copy()
    expected[:20] -= before.dtype.type(0.5) * before[20:]
    expected[20:] -= before.dtype.type(0.5) * before[10:30][::-1]
    np.testing.assert_array_equal(flat.numpy(), expected)
    (p,) = arrays(device, (5,), dtype=dtype)
    before = p.numpy()
    nd.sgd_step([p, p], [p, p], lr=0.25)
    np.testing.assert_array_equal(
        p.numpy(), before - before.dtype.type(0.25) * before - before.dtype.type(0.25) * before
    )


def test_borrowed_memory():
    """Two NDArrays over one NumPy array know nothing of each other."""
    host = np.arange(6, dtype=np.float32)
    nd.sgd_step([nd.from_numpy(host[:4])], [nd.from_numpy(host[2:])], lr=1)
    assert host.tolist() == [-2, -2, -2, -2, 4, 5]


def test_numbers_of_numpy(device):
    """Learning rates come from schedules written in NumPy, too."""
    p, g = arrays(device, (4,), (4,))
    twin = p.copy()
    nd.sgd_step([p], [g], lr=np.float32(0.5))
    nd.sgd_step([twin], [g], lr=np.array(0.5))
    assert p.tolist() == twin.tolist() and p.dtype == "float32"


# ---- Verbs of the CPU called past the checks -----------------------------------------------------------------------------

f32, f64, few = nd.ones((3, 4)), nd.ones((3, 4), "float64"), nd.ones((2, 4))
huge = nd.ones(()).broadcast_to((2**30, 2**29))
SGD, ADAM = (0.1, 0.9, 0.9, 0.0, 0.0, False, 1.0), (0.1, 0.9, 0.999, 1e-8, 0.0, False, 1.0, 1.0)
HOSTILE = {
    "fewer gradients": ("sgd_step", ([f32, f32], [f32], None, *SGD)),
    "fewer states": ("sgd_step", ([f32], [f32], [], *SGD)),
    "no lists": ("sgd_step", (f32, f32, None, *SGD)),
    "no gradients": ("sgd_step", ([f32], None, None, *SGD)),
    "no parameters": ("sgd_step", (None, [f32], None, *SGD)),
    "None among them": ("sgd_step", ([f32], [None], None, *SGD)),
    "a number among them": ("sgd_step", ([3], [f32], None, *SGD)),
    "small gradient": ("sgd_step", ([f32], [few], None, *SGD)),
    "small state": ("sgd_step", ([f32], [f32], [few], *SGD)),
    "transposed": ("sgd_step", ([f32], [f32.T], None, *SGD)),
    "other dtype": ("sgd_step", ([f32], [f64], None, *SGD)),
    "ints": ("sgd_step", ([f32.astype("int64")], [f32.astype("int64")], None, *SGD)),
    "another device": ("sgd_step", ([f32], [nd.ones((3, 4), device="cpu_numpy")[:2]], None, *SGD)),
    "beyond any memory": ("sgd_step", ([huge], [huge], None, *SGD)),
    "no m": ("adam_step", ([f32], [f32], None, [f32], *ADAM)),
    "no v": ("adam_step", ([f32], [f32], [f32], None, *ADAM)),
    "small v": ("adam_step", ([f32], [f32], [f32], [few], *ADAM)),
    "v of another dtype": ("adam_step", ([f32], [f32], [f32], [f64], *ADAM)),
    "no number": ("adam_step", ([f32], [f32], [f32], [f32], "a", *ADAM[1:])),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_verbs_guard_the_memory(name):
    verb, args = HOSTILE[name]
    with pytest.raises((ValueError, TypeError, MemoryError)):
        call(nd.cpu().backend, verb, *args)
    assert f32.tolist() == nd.ones((3, 4)).tolist()
