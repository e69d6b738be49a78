"""Recurrent layers over a whole sequence, forward and backward: each one verb of the backend.

`x` (T, B, gates H) is the part of the gates' preactivations that comes from the input, for all times. The weight (H, gates H) and
the bias (gates H,), or None, are those of the state. States are (T + 1, B, H), the first of them the start.

>>> from needle_ndarray import ones, zeros
>>> h, c, gates = lstm(ones((5, 2, 12)), ones((3, 12)), None, zeros((2, 3)), zeros((2, 3)))
>>> h.shape, c.shape, gates.shape
((6, 2, 3), (6, 2, 3), (5, 2, 12))
"""

from needle_ndarray.backend import SEQUENCE, Op
from needle_ndarray.ndarray import NDArray
from needle_ndarray.rules import RULES


def lstm(
    x: NDArray, weight: NDArray, bias: NDArray | None, h0: NDArray, c0: NDArray, keep: bool = True
) -> tuple[NDArray, NDArray, NDArray | None]:
    """i, f, g, o = x + (h W + bias); c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'), for all times.

    Parameters
    ----------
    x, weight, bias : NDArray (T, B, 4H), (H, 4H), and (4H,) or None
    h0, c0 : NDArray (B, H), the start
    keep : whether a gradient will be asked for

    Returns
    -------
    h, c (T + 1, B, H) and gates (T, B, 4H), activated; without keep c is (1, B, H), the last one, and gates None
    """
    rule = RULES["lstm" if keep else "lstm_inference"]
    x, weight, bias, h, c, *kept = rule.prepare(x, weight, bias, h0, c0)
    h[0], c[0] = h0, c0
    gates = kept[0] if keep else None
    h.backend.sequence(SEQUENCE["lstm"], x, weight, bias, h, c, gates)
    return h, c, gates


def lstm_grad(
    grad: NDArray, weight: NDArray, c: NDArray, gates: NDArray, dh: NDArray | None = None, dc: NDArray | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """(dx, dh0, dc0) of lstm; dx is the gradient of h W as well.

    Parameters
    ----------
    grad : NDArray (T, B, H), of h[1:]
    weight, c, gates : as in the forward pass
    dh, dc : NDArray (B, H), what comes to the last h and c from elsewhere; None for 0
    """
    gates, grad, weight, c, ds, dh0, dc0 = RULES["lstm_grad"].prepare(gates, grad, weight, c, dh, dc)
    dh0[...], dc0[...] = 0 if dh is None else dh, 0 if dc is None else dc
    ds.backend.sequence_grad(SEQUENCE["lstm"], grad, weight, None, c, gates, None, ds, dh0, dc0)
    return ds, dh0, dc0


def gru(
    x: NDArray, weight: NDArray, bias: NDArray | None, h0: NDArray, keep: bool = True
) -> tuple[NDArray, NDArray | None]:
    """r, z = s(x + (h W + bias)), n = tanh(x + r (h W + bias)), h' = n + z (h - n), for all times.

    Parameters
    ----------
    x, weight, bias : NDArray (T, B, 3H), (H, 3H), and (3H,) or None; gates r, z, n
    h0 : NDArray (B, H), the start
    keep : whether a gradient will be asked for

    Returns
    -------
    h (T + 1, B, H) and gates (T, B, 4H): r, z, n and the state's part of n; None without keep
    """
    x, weight, bias, h, *kept = RULES["gru" if keep else "gru_inference"].prepare(x, weight, bias, h0)
    h[0] = h0
    gates = kept[0] if keep else None
    h.backend.sequence(SEQUENCE["gru"], x, weight, bias, h, None, gates)
    return h, gates


def gru_grad(
    grad: NDArray, weight: NDArray, h: NDArray, gates: NDArray, dh: NDArray | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """(dx, ds, dh0) of gru; ds is the gradient of h W + bias.

    Parameters
    ----------
    grad : NDArray (T, B, H), of h[1:]
    weight, h, gates : as in the forward pass
    dh : NDArray (B, H), what comes to the last h from elsewhere; None for 0
    """
    gates, grad, weight, h, dx, ds, dh0 = RULES["gru_grad"].prepare(gates, grad, weight, h, dh)
    dh0[...] = 0 if dh is None else dh
    ds.backend.sequence_grad(SEQUENCE["gru"], grad, weight, h, None, gates, dx, ds, dh0, None)
    return dx, ds, dh0


def rnn(x: NDArray, weight: NDArray, bias: NDArray | None, h0: NDArray, nonlinearity: str = "tanh") -> NDArray:
    """h' = tanh(x + (h W + bias)), or relu, for all times: (T, B, H), (H, H), (H,) or None, (B, H) -> h (T + 1, B, H)"""
    op = _nonlinearity("rnn", nonlinearity)
    x, weight, bias, h = RULES["rnn"].prepare(x, weight, bias, h0)
    h[0] = h0
    h.backend.sequence(op, x, weight, bias, h, None, None)
    return h


def rnn_grad(
    grad: NDArray, weight: NDArray, h: NDArray, dh: NDArray | None = None, nonlinearity: str = "tanh"
) -> tuple[NDArray, NDArray]:
    """(dx, dh0) of rnn, for grad (T, B, H) that of h[1:] and dh (B, H) what comes to the last h from elsewhere."""
    op = _nonlinearity("rnn_grad", nonlinearity)
    grad, weight, h, ds, dh0 = RULES["rnn_grad"].prepare(grad, weight, h, dh)
    dh0[...] = 0 if dh is None else dh
    ds.backend.sequence_grad(op, grad, weight, h, None, None, None, ds, dh0, None)
    return ds, dh0


def _nonlinearity(what: str, name: str) -> Op:
    if name not in ("tanh", "relu"):
        raise ValueError(f"{what}: nonlinearity {name!r}: expected 'tanh' or 'relu'")
    return SEQUENCE[f"rnn_{name}"]


__all__ = ["lstm", "lstm_grad", "gru", "gru_grad", "rnn", "rnn_grad"]
