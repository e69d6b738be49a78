"""Recurrent layers as functions of arrays: what they accept, what they say, and that the sequence is its cells."""

import numpy as np
import pytest

import needle_ndarray as nd

ARRAYS = {
    "x": ((4, 3, 8), "float32"),
    "s64": ((4, 3, 8), "float64"),
    "s6": ((4, 3, 6), "float32"),
    "flat": ((12, 8), "float32"),
    "w": ((2, 8), "float32"),
    "w6": ((2, 6), "float32"),
    "w2": ((2, 2), "float32"),
    "w64": ((2, 8), "float64"),
    "b": ((8,), "float32"),
    "b6": ((6,), "float32"),
    "h": ((3, 2), "float32"),
    "h1": ((1, 2), "float32"),
    "g": ((4, 3, 2), "float32"),
    "c": ((5, 3, 2), "float32"),
    "i": ((4, 3, 8), "int64"),
}
#: (call, the error and its one line)
ERRORS = [
    ("lstm([1.0], w, b, h, h)", "TypeError: lstm: x: expected an NDArray, got list"),
    ("lstm(i, w, b, h, h)", "TypeError: lstm: x is int64, expected float32 or float64"),
    ("lstm(flat, w, b, h, h)", "ValueError: lstm: x has shape (12, 8), expected (T, B, 4H)"),
    ("lstm(s6, w, b, h, h)", "ValueError: lstm: x has shape (4, 3, 6), expected (T, B, 4H)"),
    ("lstm(x, w6, b, h, h)", "ValueError: lstm: weight has shape (2, 6), expected (2, 8) as x is (4, 3, 8)"),
    ("lstm(x, w, b6, h, h)", "ValueError: lstm: bias has shape (6,), expected (8,) as x is (4, 3, 8)"),
    ("lstm(x, w, b, h1, h)", "ValueError: lstm: h0 has shape (1, 2), expected (3, 2) as x is (4, 3, 8)"),
    ("lstm(x, w, b, h, None)", "TypeError: lstm: c0: expected an NDArray, got NoneType"),
    ("lstm(x, w64, b, h, h)", "TypeError: lstm: weight is float64, expected float32"),
    ("lstm(x, there(w), b, h, h)", "ValueError: lstm: weight is on cpu_numpy(), x on cpu(); move it with .to(device)"),
    ("lstm_grad(h, w, c, x)", "ValueError: lstm_grad: grad has shape (3, 2), expected (4, 3, 2) as gates is (4, 3, 8)"),
    ("lstm_grad(g, w, g, x)", "ValueError: lstm_grad: c has shape (4, 3, 2), expected (5, 3, 2) as gates is (4, 3, 8)"),
    ("lstm_grad(g, w, c, x, dc=h1)", "ValueError: lstm_grad: dc has shape (1, 2), expected (3, 2) as gates is (4, 3, 8)"),
    ("lstm_grad(g, w, c, None)", "TypeError: lstm_grad: gates: expected an NDArray, got NoneType"),
    ("gru(x, w, b, h)", "ValueError: gru: x has shape (4, 3, 8), expected (T, B, 3H)"),
    ("gru(s6, w, b6, h)", "ValueError: gru: weight has shape (2, 8), expected (2, 6) as x is (4, 3, 6)"),
    ("gru_grad(g, w, c, x)", "ValueError: gru_grad: weight has shape (2, 8), expected (2, 6) as gates is (4, 3, 8)"),
    ("gru_grad(g, w6, g, x)", "ValueError: gru_grad: h has shape (4, 3, 2), expected (5, 3, 2) as gates is (4, 3, 8)"),
    ("rnn(h, w2, None, h)", "ValueError: rnn: x has shape (3, 2), expected (T, B, H)"),
    ("rnn(g, w, None, h)", "ValueError: rnn: weight has shape (2, 8), expected (2, 2) as x is (4, 3, 2)"),
    ("rnn(g, w2, None, h, 'cos')", "ValueError: rnn: nonlinearity 'cos': expected 'tanh' or 'relu'"),
    ("rnn_grad(g, w2, g)", "ValueError: rnn_grad: h has shape (4, 3, 2), expected (5, 3, 2) as grad is (4, 3, 2)"),
    ("rnn_grad(s64, w2, g)", "ValueError: rnn_grad: weight has shape (2, 2), expected (8, 8) as grad is (4, 3, 8)"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", ERRORS, ids=[call for call, _ in ERRORS])
def test_errors(call, message):
    made = {name: nd.ones(shape, dtype) for name, (shape, dtype) in ARRAYS.items()}
    functions = {name: getattr(nd, name) for name in nd.recurrent.__all__}
    with pytest.raises(Exception) as caught:
        eval(call, {"there": lambda a: a.to("cpu_numpy"), **functions, **made})
    assert f"{type(caught.value).__name__}: {caught.value}" == message


def test_a_state_can_be_handed_on(device):
    """Two halves of a sequence, the states carried over, are the whole; backward likewise."""
    rng = np.random.default_rng(0)
    x, weight, bias, h0, c0, grad = (
        nd.array(rng.normal(size=s), "float64", device) for s in ((6, 3, 20), (5, 20), (20,), (3, 5), (3, 5), (6, 3, 5))
    )
    h, c, gates = nd.lstm(x, weight, bias, h0, c0)
    first = nd.lstm(x[:2], weight, bias, h0, c0)
    second = nd.lstm(x[2:], weight, bias, first[0][-1], first[1][-1])
    np.testing.assert_array_equal(second[0].numpy(), h[2:].numpy())
    np.testing.assert_array_equal(second[1].numpy(), c[2:].numpy())
    whole = nd.lstm_grad(grad, weight, c, gates)
    late = nd.lstm_grad(grad[2:], weight, second[1], second[2])
    early = nd.lstm_grad(grad[:2], weight, first[1], first[2], *late[1:])
    for a, b in zip(early[1:], whole[1:], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-14)


def test_inputs_stay_as_they_are(device):
    """The states and gradients to start from are copied, not written to."""
    h0 = nd.ones((3, 2), device=device)
    h, c, gates = nd.lstm(nd.ones((4, 3, 8), device=device), nd.ones((2, 8), device=device), None, h0, h0)
    nd.lstm_grad(nd.ones((4, 3, 2), device=device), nd.ones((2, 8), device=device), c, gates, h0, h0)
    assert (h0 == 1).all() and (h[0] == 1).all()
