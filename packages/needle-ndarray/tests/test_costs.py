"""Floating-point operations and bytes of verbs: exact by hand for known calls, and a formula for every verb."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.capture.costs import FLOPS, flops, traffic
from needle_ndarray.capture.verbs import ARGUMENTS
from needle_ndarray.listening import VERBS, is_listened_to, listening
from needle_ndarray.numpy_backend import NumPyBackend

F4, I8 = 4, 8  # bytes


class Notes:
    """Writes (verb, flops, bytes) down and runs the verb; verbs inside of it are part of it."""

    numbers = False

    def __init__(self, backend, found):
        self.backend, self.found, self.depth = backend, found, 0

    def heard(self, verb, args):
        if self.depth or verb == "share":
            return False
        self.depth += 1
        try:
            result = getattr(self.backend, verb)(*args)
        finally:
            self.depth -= 1
        self.found.append((verb, flops(verb, args), traffic(verb, args)))
        return True if result is None else result

    def allocated(self, buffer):
        return buffer


def costs(function):
    found = []
    with listening(lambda backend: Notes(backend, found)):
        function()
    return found


def ones(*shape, dtype="float32", device=None):
    return nd.ones(shape, dtype, device)


A, B, ROW, COLUMN = ones(6, 5), ones(6, 5), ones(5), ones(6)
X, W = ones(2, 8, 8, 4), ones(3, 3, 4, 6)
Q, K = ones(2, 7, 3), ones(2, 9, 3)
INDEX, LABELS = nd.array([0, 2, 2], "int64"), nd.array([0, 1, 2, 3, 4, 0], "int64")

CASES = {
    "add": (lambda: A + B, [("binary", 30, 3 * 30 * F4)]),
    "a broadcast row is read once": (lambda: A + ROW, [("binary", 30, (30 + 5 + 30) * F4)]),
    "exp": (lambda: A.exp(), [("unary", 30, 2 * 30 * F4)]),
    "comparison": (lambda: A < B, [("binary", 30, 2 * 30 * F4 + 30)]),
    "float64": (lambda: ones(4, dtype="float64").exp(), [("fill", 0, 32), ("unary", 4, 64)]),
    "sum": (lambda: A.sum(0), [("reduce", 30, (30 + 5) * F4)]),
    "argmax": (lambda: nd.argmax(A, 0), [("arg_reduce", 30, 30 * F4 + 5 * I8)]),
    "cumsum": (lambda: nd.cumsum(A, 0), [("scan", 30, 2 * 30 * F4)]),
    "copy": (lambda: A.copy(), [("copy", 0, 2 * 30 * F4)]),
    "matmul": (lambda: A @ B.T, [("matmul", 2 * 6 * 6 * 5, (30 + 30 + 36) * F4)]),
    "batched matmul": (
        lambda: Q @ K.permute((0, 2, 1)), [("matmul", 2 * 2 * 7 * 9 * 3, (42 + 54 + 126) * F4)],
    ),
    "linear": (lambda: nd.linear(A, ones(5, 3), ones(3)),
               [("fill", 0, 60), ("fill", 0, 12), ("linear", 6 * 3 * (2 * 5 + 1), (30 + 15 + 3 + 18) * F4)]),
    "take": (lambda: nd.take(A, INDEX, axis=0), [("take", 0, 2 * 15 * F4 + 3 * I8)]),
    "conv2d": (lambda: nd.conv2d(X, W, padding=1),
               [("conv2d", 2 * (2 * 8 * 8 * 6) * (3 * 3 * 4), (X.size + W.size + 2 * 8 * 8 * 6) * F4)]),
    "conv2d with stride": (lambda: nd.conv2d(X, W, stride=2),
                           [("conv2d", 2 * (2 * 3 * 3 * 6) * (3 * 3 * 4), (X.size + W.size + 2 * 3 * 3 * 6) * F4)]),
    "max_pool2d": (lambda: nd.max_pool2d(X, 2), [("pool2d", 2 * 4 * 4 * 4 * 4, (X.size + 2 * 4 * 4 * 4) * F4)]),
    "softmax": (lambda: nd.softmax(A), [("rows", 5 * 30, 2 * 30 * F4)]),
    "softmax_grad": (lambda: nd.softmax_grad(A, A), [("rows_grad", 4 * 30, 3 * 30 * F4)]),
    "logsumexp_grad": (
        lambda: nd.logsumexp_grad(COLUMN, A, COLUMN, -1), [("rows_grad", 3 * 30, (30 + 30 + 6 + 6) * F4)],
    ),
    "cross_entropy": (lambda: nd.cross_entropy(A, LABELS), [("cross_entropy", 4 * 30, 30 * F4 + 6 * I8 + 6 * F4)]),
    "attention": (lambda: nd.attention(Q, K, K),
                  [("attention", 2 * 7 * 9 * (2 * 3 + 2 * 3 + 6), (42 + 54 + 54 + 42) * F4)]),
    "causal attention": (lambda: nd.attention(Q, Q, Q, causal=True),
                         [("attention", 2 * 28 * (2 * 3 + 2 * 3 + 6), 4 * 42 * F4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_costs_by_hand(name):
    function, expected = CASES[name]
    assert costs(function) == expected


def test_every_verb_has_a_formula():
    assert set(FLOPS) == set(ARGUMENTS) == set(VERBS)
    assert (flops("to_host", (A,)), traffic("to_host", (A,))) == (0, 120)


STEPS = {"sgd": (2, 0), "sgd with momentum": (4, 1), "adam": (12, 2)}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_optimizers(name):
    each, states = STEPS[name]
    p, g, m, v = ([ones(4, 5), ones(7)] for _ in range(4))
    if name == "adam":
        found = costs(lambda: nd.adam_step(p, g, m, v, lr=0.1))
    else:
        found = costs(lambda: nd.sgd_step(p, g, m if states else None, lr=0.1, momentum=0.9 if states else 0))
    arrays = 1 + 2 * (1 + states)  # gradients are read; parameters and states are read and written
    assert found == [("step", each * 27, arrays * 27 * F4)]


def test_a_backend_that_is_loaded_meanwhile_is_heard(monkeypatch):
    class Own(NumPyBackend):
        name = "own"

    monkeypatch.setattr(nd.devices, "_registered", dict(nd.devices._registered))
    device = nd.devices.register("own", Own)
    try:
        assert costs(lambda: ones(3, device=device))[-1] == ("fill", 0, 12)
        assert device.backend.listener is None and "fill" not in vars(device.backend)
    finally:
        nd.devices._devices.pop("own")


def test_one_listener_at_a_time():
    with listening(lambda backend: Notes(backend, [])):
        assert is_listened_to()
        with pytest.raises(RuntimeError, match="recorded or profiled already"), listening(None):
            pass
        assert is_listened_to()
    assert not is_listened_to()


@pytest.mark.parametrize("device", ["cpu", "cpu_numpy"])
def test_values_come_through_a_listener(device):
    a, values = nd.array(np.arange(6.0).reshape(2, 3), "float64", device=nd.devices.device(device)).T, []
    assert costs(lambda: values.append(a.numpy())) == [("to_host", 0, 48)]
    assert np.array_equal(values[0], a.numpy())
    assert costs(lambda: values.append(a[1, 1].item())) == []  # a number is no verb, unless a listener asks for it
    assert values[1] == 4
