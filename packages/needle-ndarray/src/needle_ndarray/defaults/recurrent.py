"""Recurrent layers: cells out of elementwise verbs, sequences out of matmul and the cells."""

from typing import Any, TypeAlias

from needle_ndarray.backend import CELL, UNARY, Backend, Op
from needle_ndarray.ndarray import NDArray

Maybe: TypeAlias = Any  # an NDArray, or None with the ops that have none: which these are, no type says


def biased(y: NDArray, bias: Maybe) -> NDArray:
    return y if bias is None else y + bias


def side_by_side(a: NDArray, count: int) -> list[NDArray]:
    """(..., count n) -> the parts (..., n), views"""
    *_, wide = a.shape
    n = wide // count
    return [a[..., k * n : (k + 1) * n] for k in range(count)]


def put_side_by_side(backend: Backend, parts: list[NDArray], out: NDArray) -> None:
    for part, place in zip(parts, side_by_side(out, len(parts)), strict=True):
        backend.copy(part, place)


def lstm_cell(
    backend: Backend, x: NDArray, y: NDArray, bias: Maybe, c: NDArray, h_out: NDArray, c_out: NDArray, gates: Maybe
) -> None:
    i, f, g, o = side_by_side(x + biased(y, bias), 4)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    backend.copy(f * c + i * g, c_out)
    backend.copy(o * c_out.tanh(), h_out)
    if gates is not None:
        put_side_by_side(backend, [i, f, g, o], gates)


def lstm_cell_grad(
    backend: Backend,
    dy: NDArray,
    dh: NDArray,
    dc: NDArray,
    gates: NDArray,
    c: NDArray,
    c_out: NDArray,
    ds: NDArray,
    dc_out: NDArray,
) -> None:
    i, f, g, o = side_by_side(gates, 4)
    d, t = dy + dh, c_out.tanh()
    e = dc + d * o * (1 - t * t)
    put_side_by_side(backend, [e * g * i * (1 - i), e * c * f * (1 - f), e * i * (1 - g * g), d * t * o * (1 - o)], ds)
    backend.copy(e * f, dc_out)


def gru_cell(backend: Backend, x: NDArray, y: NDArray, bias: Maybe, h: NDArray, h_out: NDArray, gates: Maybe) -> None:
    x_r, x_z, x_n = side_by_side(x, 3)
    y_r, y_z, m = side_by_side(biased(y, bias), 3)
    r, z = (x_r + y_r).sigmoid(), (x_z + y_z).sigmoid()
    n = (x_n + r * m).tanh()
    backend.copy(n + z * (h - n), h_out)
    if gates is not None:
        put_side_by_side(backend, [r, z, n, m], gates)


def gru_cell_grad(
    backend: Backend,
    dy: NDArray,
    dh: NDArray,
    h: NDArray,
    gates: NDArray,
    dx: NDArray,
    ds: NDArray,
    dh_out: NDArray,
) -> None:
    r, z, n, m = side_by_side(gates, 4)
    d = dy + dh
    dn = d * (1 - z) * (1 - n * n)
    dz, dr = d * (h - n) * z * (1 - z), dn * m * r * (1 - r)
    put_side_by_side(backend, [dr, dz, dn], dx)
    put_side_by_side(backend, [dr, dz, dn * r], ds)
    backend.copy(d * z, dh_out)


def cell(
    backend: Backend,
    op: Op,
    x: NDArray,
    y: NDArray,
    bias: Maybe,
    state: NDArray,
    h_out: NDArray,
    c_out: Maybe,
    gates: Maybe,
) -> None:
    if op.name == "lstm_cell":
        lstm_cell(backend, x, y, bias, state, h_out, c_out, gates)
    else:
        gru_cell(backend, x, y, bias, state, h_out, gates)


def cell_grad(
    backend: Backend,
    op: Op,
    dy: NDArray,
    dh: NDArray,
    dc: Maybe,
    gates: NDArray,
    state: NDArray,
    c_out: Maybe,
    dx: Maybe,
    ds: NDArray,
    dstate: NDArray,
) -> None:
    if op.name == "lstm_cell":
        lstm_cell_grad(backend, dy, dh, dc, gates, state, c_out, ds, dstate)
    else:
        gru_cell_grad(backend, dy, dh, state, gates, dx, ds, dstate)


def sequence(backend: Backend, op: Op, x: NDArray, weight: NDArray, bias: Any, h: NDArray, c: Any, gates: Any) -> None:
    for t in range(x.shape[0]):
        y, kept = h[t] @ weight, None if gates is None else gates[t]
        if op.name == "lstm":
            now, then = (c[0], c[0]) if gates is None else (c[t], c[t + 1])
            backend.cell(CELL["lstm_cell"], x[t], y, bias, now, h[t + 1], then, kept)
        elif op.name == "gru":
            backend.cell(CELL["gru_cell"], x[t], y, bias, h[t], h[t + 1], None, kept)
        else:
            backend.unary(UNARY[op.name.removeprefix("rnn_")], x[t] + biased(y, bias), h[t + 1])


def sequence_grad(
    backend: Backend,
    op: Op,
    dy: NDArray,
    weight: NDArray,
    h: Any,
    c: Any,
    gates: Any,
    dx: Any,
    ds: NDArray,
    dh: NDArray,
    dc: Any,
) -> None:
    for t in reversed(range(dy.shape[0])):
        if op.name == "lstm":
            backend.cell_grad(CELL["lstm_cell"], dy[t], dh, dc, gates[t], c[t], c[t + 1], None, ds[t], dc)
        elif op.name == "gru":
            backend.cell_grad(CELL["gru_cell"], dy[t], dh, None, gates[t], h[t], None, dx[t], ds[t], dh)
        else:
            d, y = dy[t] + dh, h[t + 1]
            backend.copy(d * (1 - y * y) if op.name == "rnn_tanh" else d.where(y > 0, 0.0), ds[t])
        from_state = ds[t] @ weight.T
        backend.copy(dh + from_state if op.name == "gru" else from_state, dh)
