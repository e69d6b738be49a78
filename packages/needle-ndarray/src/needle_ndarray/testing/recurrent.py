"""The contract of the recurrent verbs: cells and sequences, forward and backward.

An oracle takes the operands of a verb as values that carry their error (`oracle.Near`), the states it starts from among them,
and returns the results likewise.
"""

from typing import Any

import numpy as np
import pytest

from needle_ndarray.backend import UNARY
from needle_ndarray.testing.cases import FLOATS, KINDS, Suite, plain
from needle_ndarray.testing.network import VIEWS
from needle_ndarray.testing.oracle import Near, assert_same, assert_within
from needle_ndarray.testing.tables import each

# ---- Cells ------------------------------------------------------------------------------------------------------------


def lstm_cell(x, y, bias, c) -> list[Near]:
    i, f, g, o = (x + (y if bias is None else y + bias)).parts(4)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * c + i * g
    return [o * new.tanh(), new, Near.joined([i, f, g, o])]


def lstm_cell_grad(dy, dh, dc, gates, c, c_out) -> list[Near]:
    i, f, g, o = gates.parts(4)
    d, t = dy + dh, c_out.tanh()
    e = dc + d * o * (1 - t * t)
    ds = [e * g * i * (1 - i), e * c * f * (1 - f), e * i * (1 - g * g), d * t * o * (1 - o)]
    return [Near.joined(ds), e * f]


def gru_cell(x, y, bias, h) -> list[Near]:
    (x_r, x_z, x_n), (y_r, y_z, m) = x.parts(3), (y if bias is None else y + bias).parts(3)
    r, z = (x_r + y_r).sigmoid(), (x_z + y_z).sigmoid()
    n = (x_n + r * m).tanh()
    return [n + z * (h - n), Near.joined([r, z, n, m])]


def gru_cell_grad(dy, dh, h, gates) -> list[Near]:
    r, z, n, m = gates.parts(4)
    d = dy + dh
    dn = d * (1 - z) * (1 - n * n)
    dz, dr = d * (h - n) * z * (1 - z), dn * m * r * (1 - r)
    return [Near.joined([dr, dz, dn]), Near.joined([dr, dz, dn * r]), d * z]


# ---- Sequences --------------------------------------------------------------------------------------------------------


def _transposed(a: Near) -> Near:
    return Near(a.value.T, a.dtype, a.error.T)


def _stacked(parts: list[Near]) -> Near:
    return Near.joined(parts, np.stack, 0)


def lstm(x, weight, bias, h, c) -> list[Near]:
    """From states h[0] and c[0]; every state, and every gate."""
    states, gates = [(h[0], c[0])], []
    for t in range(len(x.value)):
        new_h, new_c, gate = lstm_cell(x[t], states[-1][0] @ weight, bias, states[-1][1])
        states.append((new_h, new_c))
        gates.append(gate)
    return [_stacked([h for h, _ in states]), _stacked([c for _, c in states]), *_all(gates, x, weight)]


def _all(gates, x, weight) -> list[Near]:
    return [_stacked(gates) if gates else Near(np.zeros((0, x.value.shape[1], 4 * len(weight.value))), x.dtype)]


def lstm_grad(dy, weight, c, gates, dh, dc) -> list[Near]:
    ds: list[Near] = []
    for t in reversed(range(len(dy.value))):
        each, dc = lstm_cell_grad(dy[t], dh, dc, gates[t], c[t], c[t + 1])
        ds.insert(0, each)
        dh = each @ _transposed(weight)
    return [*_all(ds, dy, weight), dh, dc]


def gru(x, weight, bias, h) -> list[Near]:
    states, gates = [h[0]], []
    for t in range(len(x.value)):
        new, gate = gru_cell(x[t], states[-1] @ weight, bias, states[-1])
        states.append(new)
        gates.append(gate)
    return [_stacked(states), *_all(gates, x, weight)]


def gru_grad(dy, weight, h, gates, dh) -> list[Near]:
    dx: list[Near] = []
    ds: list[Near] = []
    for t in reversed(range(len(dy.value))):
        of_x, of_s, dh = gru_cell_grad(dy[t], dh, h[t], gates[t])
        dx.insert(0, of_x)
        ds.insert(0, of_s)
        dh = dh + of_s @ _transposed(weight)
    empty = Near(gates.value[..., : weight.value.shape[1]], dy.dtype)
    return [_stacked(dx) if dx else empty, _stacked(ds) if ds else empty, dh]


def rnn(op, x, weight, bias, h) -> list[Near]:
    states = [h[0]]
    for t in range(len(x.value)):
        y = states[-1] @ weight
        sums = x[t] + (y if bias is None else y + bias)
        states.append(sums.tanh() if op.name == "tanh" else _relu(sums))
    return [_stacked(states)]


def _relu(a: Near) -> Near:
    return Near(np.maximum(a.value, 0), a.dtype, a.error)


def rnn_grad(op, dy, weight, h, dh) -> list[Near]:
    ds: list[Near] = []
    for t in reversed(range(len(dy.value))):
        y = h[t + 1]
        each = (dy[t] + dh) * (1 - y * y if op.name == "tanh" else np.where(y.value > 0, 1.0, 0.0))
        ds.insert(0, each)
        dh = each @ _transposed(weight)
    return [_stacked(ds) if ds else dy, dh]


# ---- The tests --------------------------------------------------------------------------------------------------------

#: Of each verb: its oracle, the shapes of its operands and of its results; "=" before a result that begins as an operand of the
#: oracle. A shape is times, rows and columns: "T+ B n" has T + 1 times, "B 4n" none, "4n" is a vector.
VERBS: dict[str, Any] = {
    "lstm_cell": (lstm_cell, "B 4n,B 4n,4n,B n", "B n,B n,B 4n"),
    "lstm_cell_grad": (lstm_cell_grad, "B n,B n,B n,B 4n,B n,B n", "B 4n,B n"),
    "gru_cell": (gru_cell, "B 3n,B 3n,3n,B n", "B n,B 4n"),
    "gru_cell_grad": (gru_cell_grad, "B n,B n,B n,B 4n", "B 3n,B 3n,B n"),
    "lstm": (lstm, "T B 4n,n 4n,4n", "=T+ B n,=T+ B n,T B 4n"),
    "lstm_grad": (lstm_grad, "T B n,n 4n,T+ B n,T B 4n", "T B 4n,=B n,=B n"),
    "gru": (gru, "T B 3n,n 3n,3n", "=T+ B n,T B 4n"),
    "gru_grad": (gru_grad, "T B n,n 3n,T+ B n,T B 4n", "T B 3n,T B 3n,=B n"),
    "rnn": (rnn, "T B n,n n,n", "=T+ B n"),
    "rnn_grad": (rnn_grad, "T B n,n n,T+ B n", "T B n,=B n"),
}
CELLS = [verb for verb in VERBS if "cell" in verb]
FORWARD = [verb for verb in VERBS if not verb.endswith("grad")]
#: (T, B, n): one of each, tiles that are not full, several of them, more rows than go together, none, work for threads.
SIZES = [
    (1, 1, 1),
    (3, 2, 5),
    (2, 7, 16),
    (2, 9, 33),
    (4, 25, 17),
    (2, 60, 3),
    (0, 2, 3),
    (2, 0, 3),
    (2, 2, 0),
    (2, 50, 70),
]


def shape_of(text: str, sizes: tuple[int, int, int]) -> tuple[int, ...]:
    times, batch, n = sizes
    known = {"T": times, "T+": times + 1, "B": batch, **{f"{k or ''}n": (k or 1) * n for k in (0, 3, 4)}}
    return tuple(known[word] for word in text.split())


class RecurrentSuite(Suite):
    dtypes = pytest.mark.parametrize("dtype", FLOATS)

    def recurrent_case(self, verb, dtype, sizes, kind="compact", bias=True, kept=True, op="tanh", make=plain):
        """Every call of the verb on operands and results in that kind of view, against the oracle."""
        oracle, given, wanted = VERBS[verb]
        out = kind if KINDS[kind].writable else "compact"
        operands = [self.operand(kind, dtype, shape_of(s, sizes), i, make) for i, s in enumerate(given.split(","))]
        if not bias:
            operands[2] = None, None
        arrays, values = [a for a, _ in operands], [v for _, v in operands]
        results = wanted.split(",")
        starts: list[Any] = [
            plain(dtype, shape_of(s[1:], sizes), 50 + i) if s[0] == "=" else None for i, s in enumerate(results)
        ]
        nears = [v if v is None else Near(v, dtype) for v in [*values, *[s for s in starts if s is not None]]]
        ops = [UNARY[op]] if verb.startswith("rnn") else []
        with np.errstate(all="ignore"):
            expected = oracle(*ops, *nears)
        if not kept:  # gates are the last result, and c is one state instead of all
            results, expected, starts = results[:-1], expected[:-1], starts[:-1]
        if not kept and verb == "lstm":
            starts[1], expected[1] = starts[1][:1], expected[1][-1:]
        for name, call in self.calls(verb).items():
            canvases = [
                self.canvas(out, near.value.shape, dtype, start) for near, start in zip(expected, starts, strict=True)
            ]
            call(*ops, *arrays, *[canvas.out for canvas in canvases], *([] if kept else [None]))
            for i, (canvas, near) in enumerate(zip(canvases, expected, strict=True)):
                assert_within(canvas.result(), near.value, near.error, f"{name}, result {i}:")

    @each("sizes", SIZES)
    @dtypes
    @pytest.mark.parametrize("verb", VERBS)
    def test_recurrent_shapes(self, verb, dtype, sizes):
        self.recurrent_case(verb, dtype, sizes)
        if verb in FORWARD:
            self.recurrent_case(verb, dtype, sizes, bias=False)
        if verb.startswith("rnn"):
            self.recurrent_case(verb, dtype, sizes, op="relu")

    @each("kind", VIEWS)
    @dtypes
    @pytest.mark.parametrize("verb", VERBS)
    def test_recurrent_views(self, verb, dtype, kind):
        self.recurrent_case(verb, dtype, (3, 5, 7), kind)

    @each("kind", ["compact", "sliced"])
    @dtypes
    @pytest.mark.parametrize("verb", [verb for verb in FORWARD if verb != "rnn"])
    def test_gates_that_are_not_kept(self, verb, dtype, kind):
        self.recurrent_case(verb, dtype, (4, 9, 5), kind, kept=False)

    @dtypes
    @pytest.mark.parametrize("verb", VERBS)
    def test_recurrent_large_values(self, verb, dtype):
        """Gates that are 0 or 1 to the last bit: nothing overflows on the way."""
        self.recurrent_case(verb, dtype, (2, 3, 9), make=lambda *case: plain(*case) * np.array(300, dtype))

    @each("kind", ["compact", "sliced", "transposed"])
    @dtypes
    def test_lstm_cell_in_place(self, dtype, kind):
        """Gates over the sums of the input, or of the state; the new c over the old one, and so its gradient."""
        (batch, n), shape = (6, 11), (6, 44)
        x, y, c = plain(dtype, shape, 1), plain(dtype, shape, 2), plain(dtype, (batch, n), 3)
        expected = lstm_cell(Near(x, dtype), Near(y, dtype), None, Near(c, dtype))
        for name, call in self.calls("lstm_cell").items():
            for over_x in (True, False):
                gates, cell = self.canvas(kind, shape, dtype, x if over_x else y), self.canvas(kind, c.shape, dtype, c)
                h = self.canvas(kind, c.shape, dtype)
                call(
                    *([gates.out, self.array(y)] if over_x else [self.array(x), gates.out]),
                    None,
                    cell.out,
                    h.out,
                    cell.out,
                    gates.out,
                )
                for canvas, near in zip((h, cell, gates), expected, strict=True):
                    assert_within(canvas.result(), near.value, near.error, name)
        saved, new = plain(dtype, shape, 4), plain(dtype, (batch, n), 5)
        dy, dh, dc = (plain(dtype, (batch, n), salt) for salt in (6, 7, 8))
        near_ds, near_dc = lstm_cell_grad(*[Near(v, dtype) for v in (dy, dh, dc, saved, c, new)])
        for name, call in self.calls("lstm_cell_grad").items():
            ds, place = self.canvas(kind, shape, dtype), self.canvas(kind, c.shape, dtype, dc)
            call(*map(self.array, (dy, dh)), place.out, *map(self.array, (saved, c, new)), ds.out, place.out)
            assert_within(ds.result(), near_ds.value, near_ds.error, name)
            assert_within(place.result(), near_dc.value, near_dc.error, name)

    @each("kind", ["compact", "sliced"])
    @dtypes
    def test_gru_cell_grad_in_place(self, dtype, kind):
        batch, n = 5, 13
        dy, dh, h = (plain(dtype, (batch, n), salt) for salt in (1, 2, 3))
        gates = plain(dtype, (batch, 4 * n), 4)
        *_, near = gru_cell_grad(*[Near(v, dtype) for v in (dy, dh, h, gates)])
        for name, call in self.calls("gru_cell_grad").items():
            place = self.canvas(kind, h.shape, dtype, dh)
            others = [self.canvas("compact", (batch, 3 * n), dtype).out for _ in range(2)]
            call(self.array(dy), place.out, *map(self.array, (h, gates)), *others, place.out)
            assert_within(place.result(), near.value, near.error, name)

    @dtypes
    def test_nan_stays_in_its_row(self, dtype):
        """A NaN in one row of the batch is in all later states of that row, and in no other row."""
        x, weight = plain(dtype, (4, 30, 20), 1), plain(dtype, (5, 20), 2)
        x[1, 13, 3] = np.nan
        for call in self.calls("lstm").values():
            h, c, gates = [
                self.canvas("compact", s, dtype, np.zeros(s, dtype)) for s in ((5, 30, 5), (5, 30, 5), (4, 30, 20))
            ]
            call(self.array(x), self.array(weight), None, h.out, c.out, gates.out)
            wrong = np.isnan(h.result()).any(-1)
            expected = np.zeros((5, 30), bool)
            expected[2:, 13] = True
            assert_same(wrong, expected)
