"""Recurrent layers over a whole sequence, forward and backward: each one verb of the backend.

`sums` (T, B, gates H) is the part of the gates' sums that comes from the input, x W_ih, for all times. The weight (H, gates H) and
the bias (gates H,), or None, are those of the state. States are (T + 1, B, H), the first of them the start.

>>> from needle_ndarray import ones, zeros
>>> h, c, gates = lstm(ones((5, 2, 12)), ones((3, 12)), None, zeros((2, 3)), zeros((2, 3)))
>>> h.shape, c.shape, gates.shape
((6, 2, 3), (6, 2, 3), (5, 2, 12))
"""

from typing import Any

from needle_ndarray.backend import SEQUENCE, Op
from needle_ndarray.creation import empty
from needle_ndarray.fused import _floats, _like
from needle_ndarray.ndarray import NDArray


def lstm(
    sums: NDArray, weight: NDArray, bias: NDArray | None, h0: NDArray, c0: NDArray, keep: bool = True
) -> tuple[NDArray, NDArray, NDArray | None]:
    """i, f, g, o = sums + (h W + bias); c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'), for all times.

    Parameters
    ----------
    sums, weight, bias : NDArray (T, B, 4H), (H, 4H), and (4H,) or None
    h0, c0 : NDArray (B, H), the start
    keep : whether a gradient will be asked for

    Returns
    -------
    h, c (T + 1, B, H) and gates (T, B, 4H), activated; without keep c is (1, B, H), the last one, and gates None
    """
    times, batch, n = _sizes("lstm", sums, weight, 4)
    _like("lstm", sums, (4 * n,), **_given(bias=bias))
    h = _states("lstm", sums, (times + 1, batch, n), h0=h0)
    c = _states("lstm", sums, (times + 1 if keep else 1, batch, n), c0=c0)
    gates = empty((times, batch, 4 * n), sums.dtype, sums.device) if keep else None
    h.backend.sequence(SEQUENCE["lstm"], sums, weight, bias, h, c, gates)
    return h, c, gates


def lstm_grad(
    grad: NDArray, weight: NDArray, c: NDArray, gates: NDArray, dh: NDArray | None = None, dc: NDArray | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """(dsums, dh0, dc0) of lstm; dsums is the gradient of h W as well.

    Parameters
    ----------
    grad : NDArray (T, B, H), of h[1:]
    weight, c, gates : as in the forward pass
    dh, dc : NDArray (B, H), what comes to the last h and c from elsewhere; None for 0
    """
    times, batch, n = _sizes("lstm_grad", gates, weight, 4, "gates")
    _like("lstm_grad", gates, (times, batch, n), grad=grad)
    _like("lstm_grad", gates, (times + 1, batch, n), c=c)
    ds = empty(gates.shape, gates.dtype, gates.device)
    dh0 = _start("lstm_grad", gates, (batch, n), dh=dh)
    dc0 = _start("lstm_grad", gates, (batch, n), dc=dc)
    ds.backend.sequence_grad(SEQUENCE["lstm"], grad, weight, None, c, gates, None, ds, dh0, dc0)
    return ds, dh0, dc0


def gru(
    sums: NDArray, weight: NDArray, bias: NDArray | None, h0: NDArray, keep: bool = True
) -> tuple[NDArray, NDArray | None]:
    """r, z = s(sums + (h W + bias)), n = tanh(sums + r (h W + bias)), h' = n + z (h - n), for all times.

    Parameters
    ----------
    sums, weight, bias : NDArray (T, B, 3H), (H, 3H), and (3H,) or None; gates r, z, n
    h0 : NDArray (B, H), the start
    keep : whether a gradient will be asked for

    Returns
    -------
    h (T + 1, B, H) and gates (T, B, 4H): r, z, n and the state's part of n; None without keep
    """
    times, batch, n = _sizes("gru", sums, weight, 3)
    _like("gru", sums, (3 * n,), **_given(bias=bias))
    h = _states("gru", sums, (times + 1, batch, n), h0=h0)
    gates = empty((times, batch, 4 * n), sums.dtype, sums.device) if keep else None
    h.backend.sequence(SEQUENCE["gru"], sums, weight, bias, h, None, gates)
    return h, gates


def gru_grad(
    grad: NDArray, weight: NDArray, h: NDArray, gates: NDArray, dh: NDArray | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """(dsums, ds, dh0) of gru; ds is the gradient of h W + bias.

    Parameters
    ----------
    grad : NDArray (T, B, H), of h[1:]
    weight, h, gates : as in the forward pass
    dh : NDArray (B, H), what comes to the last h from elsewhere; None for 0
    """
    times, batch, n = _sizes("gru_grad", gates, weight, 4, "gates", 3)
    _like("gru_grad", gates, (times, batch, n), grad=grad)
    _like("gru_grad", gates, (times + 1, batch, n), h=h)
    dx, ds = (empty((times, batch, 3 * n), gates.dtype, gates.device) for _ in range(2))
    dh0 = _start("gru_grad", gates, (batch, n), dh=dh)
    ds.backend.sequence_grad(SEQUENCE["gru"], grad, weight, h, None, gates, dx, ds, dh0, None)
    return dx, ds, dh0


def rnn(sums: NDArray, weight: NDArray, bias: NDArray | None, h0: NDArray, nonlinearity: str = "tanh") -> NDArray:
    """h' = tanh(sums + (h W + bias)), or relu, for all times: (T, B, H), (H, H), (H,) or None, (B, H) -> h (T + 1, B, H)"""
    op = _nonlinearity("rnn", nonlinearity)
    times, batch, n = _sizes("rnn", sums, weight, 1)
    _like("rnn", sums, (n,), **_given(bias=bias))
    h = _states("rnn", sums, (times + 1, batch, n), h0=h0)
    h.backend.sequence(op, sums, weight, bias, h, None, None)
    return h


def rnn_grad(
    grad: NDArray, weight: NDArray, h: NDArray, dh: NDArray | None = None, nonlinearity: str = "tanh"
) -> tuple[NDArray, NDArray]:
    """(dsums, dh0) of rnn, for grad (T, B, H) that of h[1:] and dh (B, H) what comes to the last h from elsewhere."""
    op = _nonlinearity("rnn_grad", nonlinearity)
    times, batch, n = _sizes("rnn_grad", grad, weight, 1, "grad")
    _like("rnn_grad", grad, (times + 1, batch, n), h=h)
    ds = empty(grad.shape, grad.dtype, grad.device)
    dh0 = _start("rnn_grad", grad, (batch, n), dh=dh)
    ds.backend.sequence_grad(op, grad, weight, h, None, None, None, ds, dh0, None)
    return ds, dh0


# ---- Arguments -------------------------------------------------------------------------------------------------------


def _given(**arrays: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: a for name, a in arrays.items() if a is not None}


def _sizes(what: str, sums: Any, weight: Any, gates: int, name: str = "sums", columns: int = 0) -> tuple[int, int, int]:
    """T, B and H of (T, B, gates H) sums and a weight (H, gates H), or (H, columns H)."""
    if _floats(what, name, sums) is not sums:
        raise TypeError(f"{what}: {name}: {sums.dtype}, expected float32 or float64")
    if sums.ndim != 3 or sums.shape[2] % gates:
        wanted = f"(T, B, {gates} H)" if gates > 1 else "(T, B, H)"
        raise ValueError(f"{what}: {name} has shape {sums.shape}, expected {wanted}")
    times, batch, wide = sums.shape
    _like(what, sums, (wide // gates, wide // gates * (columns or gates)), weight=weight)
    return times, batch, wide // gates


def _states(what: str, like: NDArray, shape: tuple[int, int, int], **start: Any) -> NDArray:
    """Room for the states, the first of them filled in."""
    _like(what, like, shape[1:], **start)
    states = empty(shape, like.dtype, like.device)
    states[0] = next(iter(start.values()))
    return states


def _start(what: str, like: NDArray, shape: tuple[int, int], **given: Any) -> NDArray:
    """A copy of a gradient to begin with, or zeros for None."""
    made = empty(shape, like.dtype, like.device)
    value = next(iter(given.values()))
    if value is None:
        made.fill(0)
    else:
        _like(what, like, shape, **given)
        made[...] = value
    return made


def _nonlinearity(what: str, name: str) -> Op:
    if name not in ("tanh", "relu"):
        raise ValueError(f"{what}: nonlinearity {name!r}: expected 'tanh' or 'relu'")
    return SEQUENCE[f"rnn_{name}"]


__all__ = "lstm lstm_grad gru gru_grad rnn rnn_grad".split()
