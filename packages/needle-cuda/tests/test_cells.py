"""Cells of recurrent networks against their formulas in wider precision, in every kind of view, results on top of inputs too."""

import numpy as np
import pytest

from needle_ndarray.devices import device
from needle_ndarray.ndarray import make_array
from needle_ndarray.testing.calls import call
from needle_ndarray.testing.cases import plain
from needle_ndarray.testing.oracle import WIDER, assert_within

FLOATS = ["float32", "float64"]
KINDS = ["dense", "strided", "turned", "reversed"]
SIZES = [(1, 1), (3, 5), (33, 20), (0, 4), (4, 0), (7, 300)]


def place(host, kind):
    """An array of these values, lying in memory as the kind says."""
    on = device("cuda")
    if kind == "turned":
        return make_array(np.ascontiguousarray(host.T), host.dtype.name, on).T
    if kind == "strided":
        return make_array(np.repeat(host, 2, axis=-1), host.dtype.name, on)[..., ::2]
    if kind == "reversed":
        return make_array(np.ascontiguousarray(host[::-1]), host.dtype.name, on)[::-1]
    return make_array(host, host.dtype.name, on)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def gates_of(a, count):
    return [a[:, k * (a.shape[1] // count) : (k + 1) * (a.shape[1] // count)] for k in range(count)]


def lstm_cell(x, y, bias, c):
    i, f, g, o = gates_of(x + (y + bias), 4)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    state = f * c + i * g
    return o * np.tanh(state), state, np.concatenate([i, f, g, o], 1)


def lstm_cell_grad(dy, dh, dc, gates, c, c_out):
    (i, f, g, o), d, t = gates_of(gates, 4), dy + dh, np.tanh(c_out)
    dt = dc + d * o * (1 - t * t)
    return np.concatenate(
        [dt * g * i * (1 - i), dt * c * f * (1 - f), dt * i * (1 - g * g), d * t * o * (1 - o)], 1
    ), dt * f


def gru_cell(x, y, bias, h):
    (xr, xz, xn), (r, z, m) = gates_of(x, 3), gates_of(y + bias, 3)
    r, z = sigmoid(xr + r), sigmoid(xz + z)
    n = np.tanh(xn + r * m)
    return n + z * (h - n), np.concatenate([r, z, n, m], 1)


def gru_cell_grad(dy, dh, h, gates):
    (r, z, n, m), d = gates_of(gates, 4), dy + dh
    dn, dz = d * (1 - z) * (1 - n * n), d * (h - n) * z * (1 - z)
    dr = dn * m * r * (1 - r)
    return np.concatenate([dr, dz, dn], 1), np.concatenate([dr, dz, dn * r], 1), d * z


#: (formula, widths of the inputs in units of the state, widths of the results); None is the bias.
CELLS = {
    "lstm_cell": (lstm_cell, [4, 4, None, 1], [1, 1, 4]),
    "lstm_cell_grad": (lstm_cell_grad, [1, 1, 1, 4, 1, 1], [4, 1]),
    "gru_cell": (gru_cell, [3, 3, None, 1], [1, 4]),
    "gru_cell_grad": (gru_cell_grad, [1, 1, 1, 4], [3, 3, 1]),
}


def inputs(name, dtype, size):
    rows, n = size
    hosts = []
    for salt, width in enumerate(CELLS[name][1]):
        shape = (CELLS[name][1][0] * n,) if width is None else (rows, width * n)
        hosts.append(plain(dtype, shape, salt))
    if name.endswith("grad"):
        at = CELLS[name][1].index(4)
        hosts[at] = sigmoid(hosts[at])  # gates are between 0 and 1
    return hosts


def check(name, got, hosts):
    """A few eps of the largest number that enters: the formulas have some ten steps."""
    dtype = hosts[0].dtype
    expected = CELLS[name][0](*[x.astype(WIDER[dtype.name]) for x in hosts])
    top = 1 + max([np.abs(x).max(initial=0) for x in hosts]) ** 2
    for i, (result, exact) in enumerate(zip(got, expected, strict=True)):
        assert_within(result, exact, 8 * np.finfo(dtype).eps * top, f"{name}, result {i}:")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CELLS)
def test_cells(name, dtype, size, kind):
    backend, hosts = device("cuda").backend, inputs(name, dtype, size)
    results = [place(np.full((size[0], width * size[1]), np.nan, dtype), kind) for width in CELLS[name][2]]
    given = [place(x, kind if x.ndim == 2 or kind == "strided" else "dense") for x in hosts]
    call(backend, name, *given, *results)
    check(name, [backend.to_host(each) for each in results], hosts)


@pytest.mark.parametrize("name", ["lstm_cell", "gru_cell"])
def test_without_bias_and_gates(name):
    backend, hosts = device("cuda").backend, inputs(name, "float32", (5, 6))
    hosts[2] = np.zeros_like(hosts[2])
    given = [place(x, "dense") for x in hosts]
    results = [backend._empty((5, width * 6), "float32") for width in CELLS[name][2][:-1]]
    call(backend, name, given[0], given[1], None, given[3], *results, None)
    expected = CELLS[name][0](*[x.astype(np.float64) for x in hosts])
    for result, exact in zip(results, expected, strict=False):
        assert_within(backend.to_host(result), exact, 1e-6, name)


@pytest.mark.parametrize(
    "name, pairs",  # (result, the input that it lies on)
    [("lstm_cell", {2: 0, 1: 3}), ("lstm_cell", {2: 1}), ("lstm_cell_grad", {1: 2}), ("gru_cell_grad", {2: 1})],
)
def test_results_on_top_of_inputs(name, pairs):
    backend, hosts = device("cuda").backend, inputs(name, "float32", (33, 20))
    given = [place(x, "dense") for x in hosts]
    widths = CELLS[name][2]
    results = [
        given[pairs[i]] if i in pairs else backend._empty((33, widths[i] * 20), "float32") for i in range(len(widths))
    ]
    call(backend, name, *given, *results)
    check(name, [backend.to_host(each) for each in results], hosts)


def test_extreme_sums_and_nan_stay_in_their_element():
    backend = device("cuda").backend
    x = np.zeros((1, 8), np.float32)
    x[0] = [1e4, np.nan, -1e4, 0, 1e4, 0, -1e4, 0]  # of two cells: i, f, g, o
    zero, c = np.zeros((1, 8), np.float32), np.ones((1, 2), np.float32)
    h, state, gates = (backend._empty((1, n), "float32") for n in (2, 2, 8))
    call(backend, "lstm_cell", place(x, "dense"), place(zero, "dense"), None, place(c, "dense"), h, state, gates)
    got = backend.to_host(gates)[0]
    assert np.array_equal(got[[0, 2, 4, 6]], [1, 0, 1, 0]) and np.isnan(got[1])
    assert np.isfinite(backend.to_host(h)[0, 0]) and np.isnan(backend.to_host(h)[0, 1])
