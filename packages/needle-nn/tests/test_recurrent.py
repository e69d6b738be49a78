"""Recurrent layers as one op: the same numbers as step by step, and step by step where a cell is not a plain one."""

import numpy as np
import pytest

import needle as ndl
from needle import nn, ops
from needle.autograd import find_topo_sort
from needle.testing import check_gradients
from needle_nn.nn.cells import _METHODS


def subclass(cell):
    """A cell that does the same, but says that it has methods of its own."""
    return type(f"My{cell.__name__}", (cell,), {})


LAYERS = {
    "RNN": lambda **d: nn.RNN(5, 7, 2, **d),
    "RNN/relu": lambda **d: nn.RNN(5, 7, 2, nonlinearity="relu", **d),
    "GRU": lambda **d: nn.GRU(5, 7, 2, **d),
    "GRU/no bias": lambda **d: nn.GRU(5, 7, 2, bias=False, **d),
    "LSTM": lambda **d: nn.LSTM(5, 7, 2, **d),
    "LSTM/no bias": lambda **d: nn.LSTM(5, 7, 1, bias=False, **d),
}
each_layer = pytest.mark.parametrize("name", LAYERS)
each_device = pytest.mark.parametrize("device", ["cpu", "cpu_numpy"])


def cells(layer):
    return next(value for name, value in layer.__dict__.items() if name.endswith("_cells"))


def states(layer, batch, dtype, device, seed=3):
    rng = np.random.default_rng(seed)
    made = [
        ndl.Tensor(rng.standard_normal((len(cells(layer)), batch, 7)), dtype=dtype, device=device)
        for _ in range(1 + isinstance(layer, nn.LSTM))
    ]
    return tuple(made) if len(made) == 2 else made[0]


def leaves(value):
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def run(layer, x, h):
    """Results, and the gradients of x, of the states and of every parameter, for a loss that sees every result."""
    results = leaves(layer(x, h))
    rng = np.random.default_rng(9)
    out_grads = [ndl.Tensor(rng.standard_normal(y.shape), device=y.device, dtype=y.dtype) for y in results]
    wanted = [x, *([] if h is None else leaves(h)), *layer.parameters()]
    grads = ndl.autograd.gradients(results, wanted, out_grads)
    return [t.numpy() for t in (*results, *grads)]


def ops_in(tensor):
    return [type(node.op).__name__ for node in find_topo_sort([tensor]) if node.op is not None]


@each_layer
@each_device
@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-12), ("float32", 2e-5)])
def test_one_op_gives_what_steps_give(name, device, dtype, near):
    layer = LAYERS[name](dtype=dtype, device=getattr(ndl, device)())
    x = ndl.Tensor(np.random.default_rng(1).standard_normal((9, 4, 5)), dtype=dtype, device=getattr(ndl, device)())
    for h in (None, states(layer, 4, dtype, getattr(ndl, device)())):
        fused = run(layer, x, h)
        for cell in cells(layer):
            cell.__class__ = subclass(type(cell))
        steps = run(layer, x, h)
        for cell in cells(layer):
            cell.__class__ = type(cell).__base__
        for a, b in zip(fused, steps, strict=True):
            assert a.dtype == b.dtype == dtype
            np.testing.assert_allclose(a, b, rtol=near, atol=near)


@each_layer
def test_a_layer_is_one_node(name):
    layer = LAYERS[name]()
    y = layer(ndl.ones(6, 3, 5))[0]
    assert ops_in(y).count(name.split("/")[0]) == len(cells(layer)) and len(ops_in(y)) < 10


@each_layer
def test_gradients(name):
    layer = LAYERS[name](dtype="float64")
    x = ndl.Tensor(np.random.default_rng(1).standard_normal((3, 2, 5)), dtype="float64")
    h = states(layer, 2, "float64", ndl.cpu())
    check_gradients(lambda x, *h: leaves(layer(x, h if len(h) == 2 else h[0])), x, *leaves(h), order=2)


@each_layer
def test_nothing_is_kept_without_gradients(name, monkeypatch):
    layer = LAYERS[name]()
    kept = []
    compute = ops.recurrent._Recurrent.compute

    def noting(self, *inputs):
        kept.append(compute(self, *inputs))
        return kept[-1]

    for op in (ops.RNN, ops.GRU, ops.LSTM):
        monkeypatch.setattr(op, "compute", noting)
    x = ndl.Tensor(np.ones((4, 2, 5)), requires_grad=False)
    with ndl.no_grad():
        y, _ = layer(x)
    assert {len(entries) for entries in kept} == {3 if isinstance(layer, nn.LSTM) else 2}
    np.testing.assert_array_equal(y.numpy(), layer(x)[0].numpy())
    assert len(kept[-1]) > 3 or isinstance(layer, nn.RNN)


def test_the_gates_stay_until_backward(monkeypatch):
    """Large layers whose last states nobody holds: were the gates dropped, the layer would be computed twice."""
    calls = []
    compute = ops.recurrent._Recurrent.compute
    monkeypatch.setattr(ops.LSTM, "compute", lambda self, *inputs: (calls.append(1), compute(self, *inputs))[1])
    x, w_ih, w_hh = (ndl.init.randn(*s, requires_grad=True) for s in ((20, 10, 40), (40, 200), (50, 200)))
    y = ops.lstm(x, w_ih, w_hh)[0]
    ((y + 1.0) * 2.0 + 1.0).sum().backward()
    nn.LSTM(40, 50, 2)(x)[0].sum().backward()
    assert len(calls) == 3


def test_gradients_of_the_biases_are_their_own():
    layer = nn.LSTM(3, 4)
    layer(ndl.ones(5, 2, 3))[0].sum().backward()
    cell = layer.lstm_cells[0]
    before = cell.bias_hh.grad.numpy()
    np.testing.assert_array_equal(cell.bias_ih.grad.numpy(), before)
    cell.bias_ih.grad.realize_cached_data()[...] = 0.0
    np.testing.assert_array_equal(cell.bias_hh.grad.numpy(), before)


# ---- Cells of one's own -----------------------------------------------------------------------------------------------


class Peephole(nn.LSTMCell):
    """The forget gate sees c."""

    def step(self, projected, state):
        h, c = state
        i, f, g, o = self.parts(projected + self.recur(h))
        c = ops.sigmoid(f + c) * c + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c


def test_a_cell_may_be_replaced():
    layer, x = nn.LSTM(3, 4, 2), ndl.init.randn(6, 2, 3)
    plain = layer(x)[0].numpy()
    mine = Peephole(3, 4)
    mine.load_state_dict(layer.lstm_cells[0].state_dict())
    layer.lstm_cells[0] = mine
    y = layer(x)[0]
    assert ops_in(y).count("LSTM") == 1 and not np.array_equal(y.numpy(), plain)
    h, c = ndl.zeros(2, 4), ndl.zeros(2, 4)
    for x_t in ops.split(x, 0):
        h, c = mine(x_t, (h, c))
    below = nn.LSTM(3, 4)
    below.lstm_cells[0] = mine
    np.testing.assert_allclose(below(x)[1][0].numpy()[0], h.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", sorted(_METHODS))
def test_a_method_of_a_cell_may_be_replaced(method):
    layer = nn.GRU(3, 4)
    cell, calls = layer.gru_cells[0], []
    own = getattr(cell, method)
    setattr(cell, method, lambda *args: (calls.append(method), own(*args))[1])
    y = layer(ndl.ones(5, 2, 3))[0]
    assert "GRU" not in ops_in(y)
    assert calls or method == "forward"


def test_weights_may_be_anything_that_computes():
    """W_hh as a function of another parameter: the gradient goes on to that."""
    layer = nn.RNN(3, 4, dtype="float64")
    half = nn.Parameter(ndl.init.randn(4, 4, dtype="float64"))
    layer.rnn_cells[0].W_hh = half * 2.0
    layer(ndl.ones(5, 2, 3, dtype="float64"))[0].sum().backward()
    assert half.grad.shape == (4, 4) and np.abs(half.grad.numpy()).min() > 0


def test_hooks_see_the_gradient_of_a_weight():
    layer, seen = nn.GRU(3, 4), []
    layer.gru_cells[0].W_hh.register_hook(lambda grad: seen.append(grad.shape))
    layer(ndl.ones(5, 2, 3))[0].sum().backward()
    assert seen == [(4, 12)]


@pytest.mark.parametrize("drop", ["bias_ih", "bias_hh"])
def test_one_bias_may_be_missing(drop):
    layer = nn.GRU(3, 4, dtype="float64")
    x = ndl.Tensor(np.random.default_rng(1).standard_normal((5, 2, 3)), dtype="float64")
    setattr(layer.gru_cells[0], drop, None)
    fused = layer(x)[0].numpy()
    layer.gru_cells[0].__class__ = subclass(nn.GRUCell)
    np.testing.assert_allclose(fused, layer(x)[0].numpy(), rtol=1e-12)


def test_dtypes_mix_as_everywhere():
    layer, x = nn.LSTM(3, 4), ndl.Tensor(np.ones((5, 2, 3)), dtype="float64")
    y, (h, c) = layer(x)
    assert y.dtype == h.dtype == c.dtype == "float64"
    y.sum().backward()
    assert layer.lstm_cells[0].W_ih.grad.dtype == "float32"


one = ndl.ones
BAD = [
    (lambda: ops.lstm(one(0, 2, 3), one(3, 8), one(2, 8)), "lstm: input has shape (0, 2, 3), expected (T, B, input), T > 0"),
    (lambda: ops.lstm(one(2, 3), one(3, 8), one(2, 8)), "lstm: input has shape (2, 3), expected (T, B, input), T > 0"),
    (lambda: ops.lstm(one(4, 2, 3), one(3, 6), one(2, 8)), "lstm: W_ih has shape (3, 6), expected (3, 8)"),
    (lambda: ops.gru(one(4, 2, 3), one(3, 6), one(2, 8)), "gru: W_hh has shape (2, 8), expected (2, 6)"),
    (lambda: ops.gru(one(4, 2, 3), one(3, 6), one(2, 6), None, one(5)), "gru: bias_hh has shape (5,), expected (6,)"),
    (lambda: ops.lstm(one(4, 2, 3), one(3, 8), one(2, 8), c0=one(1, 2)), "lstm: c0 has shape (1, 2), expected (2, 2)"),
    (lambda: ops.rnn(one(4, 2, 3), one(3, 2), one(2, 2), nonlinearity="a"), "rnn: nonlinearity 'a': expected 'tanh' or 'relu'"),
    (lambda: nn.LSTM(3, 4)(one(4, 2, 3), (one(1, 2, 4), one(1, 3, 4))), "LSTM: state has shape (1, 3, 4), expected (1, 2, 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_refuses(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
