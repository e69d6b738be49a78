"""Recurrent layers: one op for one layer and a whole sequence.

The products with the input and the gradients of the weights are one matrix product each, for all time steps; only what depends on
the last state goes from step to step. Gates lie side by side: W_ih (input, gates H), W_hh (H, gates H), biases (gates H,).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from needle.autograd import Tensor, array_api, as_constant, get_default_dtype, is_grad_enabled, result_dtype
from needle.ops.conversion import astype
from needle.ops.functions import relu, sigmoid, tanh
from needle.ops.fused import FusedTupleOp
from needle.ops.shapes import reshape, split, stack


class _Recurrent(FusedTupleOp):
    """What the layers share. Inputs: x (T, B, input), the states at the start, W_ih, W_hh, and both biases or none.

    Results: h at all time steps (T, B, H), and the last states. Kept for the gradient, where one is recorded: what the
    kernels return.
    """

    states = 1
    results = 2
    keep = True
    forward: ClassVar[Callable[..., Any]]
    backward: ClassVar[Callable[..., Any]]
    step: ClassVar[Callable[..., Any]]

    def compute(self, x, *inputs):
        start, (w_ih, w_hh, *biases) = inputs[: self.states], inputs[self.states :]
        preactivations = (_rows(x) @ w_ih).reshape((*x.shape[:2], w_ih.shape[1]))
        h, *kept = self.forward(preactivations, w_hh, biases, start)
        last = [h, *kept][: self.states]
        return h[1:], *[s[-1] for s in last], *([h, *kept] if self.keep else [])

    def compute_gradient(self, out_grads, kept, x, *inputs):
        w_ih, w_hh, *biases = inputs[self.states :]
        dx, ds, *start = self.backward(out_grads, kept, w_hh)
        one = dx is ds
        dx, ds, h = _rows(dx), _rows(ds), _rows(kept[0][:-1])
        db = [dx.sum(0)] if biases else []
        if biases:  # its own memory even where it is the same: gradients may be changed in place
            db.append(db[0].copy() if one else ds.sum(0))
        return (dx @ w_ih.T).reshape(x.shape), *start, _rows(x).T @ dx, h.T @ ds, *db

    def composed(self, x, *inputs):
        state, (w_ih, w_hh, *biases) = list(inputs[: self.states]), inputs[self.states :]
        b_ih, b_hh = biases or (0.0, 0.0)
        every = []
        for preactivations in split(x @ w_ih + b_ih, 0):
            state = self.step(preactivations, state[0] @ w_hh + b_hh, *state)
            every.append(state[0])
        return stack(every, 0), *state


class RNN(_Recurrent):
    """h' = tanh(x W_ih + b_ih + h W_hh + b_hh), or relu;  ds = dh' (1 - h'^2), or dh' where h' > 0;  dh = ds W_hh^T"""

    def __init__(self, nonlinearity: str = "tanh") -> None:
        self.nonlinearity = nonlinearity

    def forward(self, preactivations: Any, w_hh: Tensor, biases: Any, start: Any) -> Any:
        return (array_api.rnn(preactivations, w_hh, _total(biases), *start, self.nonlinearity),)

    def backward(self, out_grads: Any, kept: Any, w_hh: Tensor) -> Any:
        dy, dh = out_grads
        ds, dh = array_api.rnn_grad(dy, w_hh, *kept, dh, self.nonlinearity)
        return ds, ds, dh

    def step(self, from_x: Any, from_h: Any, h: Any) -> Any:
        return [(tanh if self.nonlinearity == "tanh" else relu)(from_x + from_h)]


class GRU(_Recurrent):
    """r, z = s(x W + h U), n = tanh(x W_n + r (h U_n)), h' = n + z (h - n);  dn = dh' (1 - z) (1 - n^2),
    dz = dh' (h - n) z (1 - z), dr = dn (h U_n) r (1 - r);  dh = dh' z + (dr, dz, dn r) U^T"""

    def forward(self, preactivations: Any, w_hh: Tensor, biases: Any, start: Any) -> Any:
        if biases:
            preactivations += biases[0]
        return array_api.gru(preactivations, w_hh, biases[1] if biases else None, *start, self.keep)

    def backward(self, out_grads: Any, kept: Any, w_hh: Tensor) -> Any:
        dy, dh = out_grads
        return array_api.gru_grad(dy, w_hh, *kept, dh)

    def step(self, from_x: Any, from_h: Any, h: Any) -> Any:
        (x_r, x_z, x_n), (h_r, h_z, h_n) = _parts(from_x, 3), _parts(from_h, 3)
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        n = tanh(x_n + r * h_n)
        return [n + z * (h - n)]


class LSTM(_Recurrent):
    """i, f, g, o = x W_ih + b_ih + h W_hh + b_hh, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c');  with the activated gates
    dc' += dh' o (1 - tanh(c')^2), ds = dc' g i (1 - i), dc' c f (1 - f), dc' i (1 - g^2), dh' tanh(c') o (1 - o);
    dc = dc' f, dh = ds W_hh^T"""

    states = 2
    results = 3

    def forward(self, preactivations: Any, w_hh: Tensor, biases: Any, start: Any) -> Any:
        return array_api.lstm(preactivations, w_hh, _total(biases), *start, self.keep)

    def backward(self, out_grads: Any, kept: Any, w_hh: Tensor) -> Any:
        (dy, dh, dc), (_, c, gates) = out_grads, kept
        ds, dh, dc = array_api.lstm_grad(dy, w_hh, c, gates, dh, dc)
        return ds, ds, dh, dc

    def step(self, from_x: Any, from_h: Any, h: Any, c: Any) -> Any:
        i, f, g, o = _parts(from_x + from_h, 4)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return [sigmoid(o) * tanh(c), c]


def _rows(a):
    """(T, B, n) -> (T B, n)"""
    return a.reshape((a.shape[0] * a.shape[1], a.shape[2]))


def _total(biases):
    return biases[0] + biases[1] if biases else None


def _parts(preactivations, gates):
    """(B, gates H) -> one (B, H) for each gate"""
    b, wide = preactivations.shape
    return split(reshape(preactivations, (b, gates, wide // gates)), 1)


# ---- The functions --------------------------------------------------------------------------


def _run(op, gates, x, start, weights, biases):
    """The results of a layer; a state, or one bias of two, that is None is zeros."""
    name = type(op).__name__.lower()
    if x.ndim != 3 or x.shape[0] == 0:
        raise ValueError(f"{name}: input has shape {x.shape}, expected (T, B, input), T > 0")
    biases = [] if biases[0] is None and biases[1] is None else biases
    n = weights[1].shape[0]
    state, vector = (x.shape[1], n), (gates * n,)
    shapes = [state] * op.states + [(x.shape[2], gates * n), (n, gates * n), vector, vector]
    labels = ["h0", "c0"][: op.states] + ["W_ih", "W_hh", "bias_ih", "bias_hh"]
    inputs = [x]
    for part, shape, label in zip((*start, *weights, *biases), shapes, labels, strict=False):
        made = array_api.zeros(shape, x.dtype, x.device) if part is None else part
        inputs.append(as_constant(made, x, name))
        if inputs[-1].shape != shape:
            raise ValueError(f"{name}: {label} has shape {inputs[-1].shape}, expected {shape}")
    dtypes = [t.dtype for t in inputs]
    if dtypes.count(x.dtype) < len(inputs) or not x.dtype.is_float:
        dtype = result_dtype(*dtypes)
        inputs = [astype(t, dtype if dtype.is_float else get_default_dtype()) for t in inputs]
    op.keep = is_grad_enabled() and any(t.requires_grad for t in inputs)
    return op(*inputs)[: op.results]


def lstm(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`LSTM` over time: (T, B, input) -> h at all time steps (T, B, H), and the last h and c (B, H).

    Parameters
    ----------
    w_ih, w_hh : (input, 4H), (H, 4H); gates i, f, g, o
    bias_ih, bias_hh : (4H,), or None
    h0, c0 : (B, H), or None for zeros

    >>> import needle as ndl
    >>> y, h, c = lstm(ndl.ones(5, 2, 4), ndl.ones(4, 12), ndl.ones(3, 12))
    >>> y.shape, h.shape, c.shape
    ((5, 2, 3), (2, 3), (2, 3))
    """
    return _run(LSTM(), 4, x, (h0, c0), (w_ih, w_hh), (bias_ih, bias_hh))


def gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    h0: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`GRU` over time: (T, B, input) -> h at all time steps (T, B, H), and the last one (B, H).

    Parameters
    ----------
    w_ih, w_hh : (input, 3H), (H, 3H); gates r, z, n
    bias_ih, bias_hh : (3H,), or None
    h0 : (B, H), or None for zeros
    """
    return _run(GRU(), 3, x, (h0,), (w_ih, w_hh), (bias_ih, bias_hh))


def rnn(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    h0: Tensor | None = None,
    nonlinearity: str = "tanh",
) -> tuple[Tensor, Tensor]:
    """`RNN` over time: (T, B, input) -> h at all time steps (T, B, H), and the last one (B, H).

    Parameters
    ----------
    w_ih, w_hh : (input, H), (H, H)
    bias_ih, bias_hh : (H,), or None
    h0 : (B, H), or None for zeros
    nonlinearity : "tanh" or "relu"
    """
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"rnn: nonlinearity {nonlinearity!r}: expected 'tanh' or 'relu'")
    return _run(RNN(nonlinearity), 1, x, (h0,), (w_ih, w_hh), (bias_ih, bias_hh))
