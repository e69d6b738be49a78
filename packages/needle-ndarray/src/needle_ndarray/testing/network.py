"""The contract of the fused verbs of networks: norms, cross-entropy and attention, forward and backward.

An oracle returns, for every result, its value in wider precision and what the verb may be off; the rules are in `oracle`.
"""

from typing import Any

import numpy as np
import pytest

from needle_ndarray.testing.cases import FLOATS, KINDS, SHAPE, Suite, plain
from needle_ndarray.testing.oracle import (
    WIDER,
    assert_same,
    assert_within,
    attention_errors,
    exp_bound,
    norm_bound,
    sum_bound,
)
from needle_ndarray.testing.tables import each

EPS = 1e-5
Pairs = list[tuple[np.ndarray, np.ndarray]]  # of every result: the value, and the error allowed


def wide(*arrays: Any) -> list:
    return [None if x is None else x.astype(WIDER[x.dtype.name]) for x in arrays]


# ---- Norms ------------------------------------------------------------------------------------------------------------


def _moments(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x - mean, variance, and the largest distance from the mean in standard deviations."""
    centred = x - x.mean(axes, keepdims=True)
    var = (centred * centred).mean(axes, keepdims=True)
    spread = np.abs(centred).max(axes, keepdims=True, initial=0) / np.sqrt(var + EPS)
    return centred, var, spread


def _norm(x: np.ndarray, weight: Any, bias: Any, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    centred, var, spread = _moments(wide(x)[0], axes)
    w, b = (np.asarray(default) if v is None else wide(v)[0] for v, default in ((weight, 1.0), (bias, 0.0)))
    y = centred / np.sqrt(var + EPS) * w + b
    return y, norm_bound(x.dtype, spread, np.abs(w) + np.abs(b))


def _norm_grad(
    grad: np.ndarray, x_hat: np.ndarray, scale: np.ndarray, spread: np.ndarray, weight: Any, axes: tuple, dtype: Any
) -> Pairs:
    """dx = scale (g - mean g - x^ mean(g x^)), dweight and dbias; errors of x^ enter every term."""
    w = np.asarray(1.0) if weight is None else wide(weight)[0]
    rows = tuple(range(x_hat.ndim - 1))
    g = wide(grad)[0] * w
    dx = scale * (g - g.mean(axes, keepdims=True) - x_hat * (g * x_hat).mean(axes, keepdims=True))
    means = np.abs(g).mean(axes, keepdims=True) + np.abs(g * x_hat).mean(axes, keepdims=True)
    dweight, dbias = (wide(grad)[0] * x_hat).sum(rows), wide(grad)[0].sum(rows)
    off = norm_bound(dtype, spread, np.abs(grad)) * np.ones(x_hat.shape)
    return [
        (dx, norm_bound(dtype, spread, scale * (np.abs(g) + (1 + np.abs(x_hat)) * means))),
        (dweight, off.sum(rows) + sum_bound(grad * x_hat, rows, dtype)),
        (dbias, sum_bound(grad, rows, dtype)),
    ]


def layer_norm(x, weight, bias, eps) -> Pairs:
    return [_norm(x, weight, bias, (-1,))]


def layer_norm_grad(grad, x, weight, eps) -> Pairs:
    centred, var, spread = _moments(wide(x)[0], (-1,))
    scale = 1 / np.sqrt(var + eps)
    return _norm_grad(grad, centred * scale, scale, spread, weight, (-1,), x.dtype)


def batch_norm(x, weight, bias, eps) -> Pairs:
    axes = tuple(range(x.ndim - 1))
    y = _norm(x, weight, bias, axes)
    centred, var, _ = _moments(wide(x)[0], axes)
    eps, var, rows = np.finfo(x.dtype).eps, var.reshape(x.shape[-1]), max(x.size // x.shape[-1], 1)
    farthest = np.abs(centred).max(axes, initial=0)
    return [
        y,
        (wide(x)[0].mean(axes), sum_bound(x, axes, x.dtype) / rows),
        (var, sum_bound(centred**2, axes, x.dtype) / rows + 8 * eps * np.sqrt(var) * farthest),
    ]


def batch_norm_grad(grad, x, mean, var, weight, eps) -> Pairs:
    """With the statistics as they are given, rounded."""
    x_wide, m, v = wide(x, mean, var)
    scale, axes = 1 / np.sqrt(v + eps), tuple(range(x.ndim - 1))
    x_hat = (x_wide - m) * scale
    spread = np.abs(x_hat).max(axes, keepdims=True, initial=0)
    return _norm_grad(grad, x_hat, scale, spread, weight, axes, x.dtype)


# ---- Cross-entropy ----------------------------------------------------------------------------------------------------


def _logits(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """logits - max, their softmax, and 1 at the labels."""
    x = wide(logits)[0]
    shifted = x - x.max(-1, keepdims=True)
    e = np.exp(shifted)
    return shifted, e / e.sum(-1, keepdims=True), np.arange(x.shape[-1]) == labels[..., None]


def cross_entropy(logits, labels) -> Pairs:
    shifted, _, hot = _logits(logits, labels)
    picked = np.where(hot, shifted, 0).sum(-1)
    return [(np.log(np.exp(shifted).sum(-1)) - picked, exp_bound(logits.dtype, picked))]


def cross_entropy_grad(grad, logits, labels) -> Pairs:
    shifted, p, hot = _logits(logits, labels)
    g = np.abs(wide(grad)[0])[..., None]
    with np.errstate(all="ignore"):
        error = np.where(p > 0, exp_bound(logits.dtype, shifted) * p, 0) + np.finfo(logits.dtype).eps * hot
    return [((p - hot) * wide(grad)[0][..., None], 2 * g * (error + np.finfo(logits.dtype).tiny))]


# ---- Attention --------------------------------------------------------------------------------------------------------


def _weights(q, k, mask, causal, scale) -> tuple[np.ndarray, np.ndarray]:
    """softmax of the scores, 0 where there is nothing to see; -inf stands for what cannot be seen."""
    scores = scale * (wide(q)[0] @ np.swapaxes(wide(k)[0], -1, -2))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        t, s = scores.shape[-2:]
        scores = np.where(np.arange(s) <= np.arange(t)[:, None] + (s - t), scores, -np.inf)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total), scores


def attention(q, k, v, mask, causal, scale) -> Pairs:
    p, scores = _weights(q, k, mask, causal, scale)
    return [(p @ wide(v)[0], attention_errors(q, k, v, None, mask, scale, scores, p)[0])]


def attention_grad(grad, q, k, v, mask, causal, scale) -> Pairs:
    p, scores = _weights(q, k, mask, causal, scale)
    g, q_wide, k_wide, v_wide = wide(grad, q, k, v)
    dp = g @ np.swapaxes(v_wide, -1, -2)
    ds = scale * p * (dp - (p * dp).sum(-1, keepdims=True))
    results = ds @ k_wide, np.swapaxes(ds, -1, -2) @ q_wide, np.swapaxes(p, -1, -2) @ g
    return list(zip(results, attention_errors(q, k, v, grad, mask, scale, scores, p)[1:], strict=True))


# ---- The tests --------------------------------------------------------------------------------------------------------

NORMS: dict[str, Any] = {"layer_norm": layer_norm, "layer_norm_grad": layer_norm_grad}
NORMS |= {"batch_norm": batch_norm, "batch_norm_grad": batch_norm_grad}
ENTROPIES: dict[str, Any] = {"cross_entropy": cross_entropy, "cross_entropy_grad": cross_entropy_grad}
ATTENTIONS: dict[str, Any] = {"attention": attention, "attention_grad": attention_grad}
ORACLES = {**NORMS, **ENTROPIES, **ATTENTIONS}

VIEWS = "compact transposed sliced negative flipped offset broadcast_rows broadcast_columns broadcast_scalar".split()
#: One row, one column, no rows, rows that fill no vector, steps that are not full, rows longer than a step, work for threads.
ROWS = [(1, 1), (4, 1), (1, 40), (0, 5), (2, 0, 5), (5, 33), (130, 3), (67, 64), (3, 2, 2100), (3, 9001), (700, 90)]
#: (leading axes, tq, tk, d, dv): one query, blocks that are not full, more keys than queries and the other way round.
SEQUENCES = [
    ((), 1, 1, 1, 1),
    ((2,), 5, 5, 3, 4),
    ((2, 3), 1, 40, 8, 8),
    ((2,), 1, 7, 67, 139),  # one query: whole vectors and what is left of rows
    ((2,), 1, 5, 0, 2),
    ((2,), 1, 5, 3, 0),
    ((), 64, 64, 16, 16),
    ((2,), 65, 130, 7, 5),
    ((1, 2), 130, 33, 9, 12),
    ((3,), 140, 140, 24, 24),
    ((0, 2), 4, 4, 3, 3),
    ((2,), 0, 4, 3, 2),
    ((2,), 4, 0, 3, 2),
    ((2,), 4, 5, 0, 2),
    ((2,), 4, 5, 3, 0),
]
#: Logits of a row and its label.
HARD = {
    "+1e4": ([1e4, 1e4, 1e4 - 1], 0),
    "-1e4": ([-1e4, -1e4 + 1, -1e4], 1),
    "far from the label": ([1e4, -1e4, 0.0], 1),
    "-inf elsewhere": ([0.0, -np.inf, 1.0], 0),
    "-inf at the label": ([0.0, -np.inf, 1.0], 1),
    "all -inf": ([-np.inf, -np.inf], 0),
    "+inf": ([np.inf, 1.0], 1),
    "nan": ([np.nan, 1.0], 1),
    "one class": ([3.0], 0),
    "one class, large": ([-1e4], 0),
    "certain": ([100.0, 0.0, 0.0], 0),
}


class NetworkSuite(Suite):
    dtypes = pytest.mark.parametrize("dtype", FLOATS)

    def check(self, verb, arrays, values, out="compact"):
        """Call with arrays (and numbers), compare every result with the oracle's for the same values; what each call gave."""
        with np.errstate(all="ignore"):
            expected = ORACLES[verb](*values)
        dtype = next(v.dtype.name for v in values if isinstance(v, np.ndarray))
        every = []
        for name, call in self.calls(verb).items():
            canvases = [self.canvas(out, exact.shape, dtype) for exact, _ in expected]
            call(*arrays, *[canvas.out for canvas in canvases])
            got = [canvas.result() for canvas in canvases]
            for i, (result, (exact, bound)) in enumerate(zip(got, expected, strict=True)):
                assert_within(result, exact, bound, f"{name}, result {i}:")
            every.append(got)
        return every

    def norm_case(self, verb, x, kind="compact", affine=True, out="compact", make=plain):
        """Operands of a norm, x in values or a shape, every one in that kind of view."""
        shape, dtype = x
        a, x = self.operand(kind, dtype, shape, 1, make)
        vectors = [self.operand(kind, dtype, shape[-1:], salt, plain) if affine else (None, None) for salt in (2, 3)]
        g = self.operand(kind, dtype, shape, 4, plain)
        (w, w_values), (b, b_values) = vectors
        if verb in ("layer_norm", "batch_norm"):
            arrays, values = [a, w, b, EPS], [x, w_values, b_values, EPS]
        elif verb == "layer_norm_grad":
            arrays, values = [g[0], a, w, EPS], [g[1], x, w_values, EPS]
        else:
            axes = tuple(range(x.ndim - 1))
            statistics = [s.astype(dtype) for s in (wide(x)[0].mean(axes), wide(x)[0].var(axes))] if x.size else []
            statistics = statistics or [plain(dtype, shape[-1:], 5), plain(dtype, shape[-1:], 6) ** 2]
            arrays = [g[0], a, *map(self.array, statistics), w, EPS]
            values = [g[1], x, *statistics, w_values, EPS]
        return self.check(verb, arrays, values, out)

    @each("kind", VIEWS)
    @dtypes
    @pytest.mark.parametrize("verb", NORMS)
    def test_norm_views(self, verb, dtype, kind):
        for affine in (True, False):
            self.norm_case(verb, (SHAPE, dtype), kind, affine, kind if KINDS[kind].writable else "compact")

    @each("shape", ROWS)
    @dtypes
    @pytest.mark.parametrize("verb", NORMS)
    @pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
    def test_norm_shapes(self, verb, dtype, shape):
        self.norm_case(verb, (shape, dtype))
        if shape[0] == 67:
            self.norm_case(verb, (shape, dtype), "transposed", out="sliced")

    @each("shape", [(6, 50), (300, 4), (50, 2500)])
    @dtypes
    @pytest.mark.parametrize("verb", NORMS)
    def test_norm_far_from_zero(self, verb, dtype, shape):
        """Mean 1e4, deviation 1, and an outlier first."""

        def make(dtype, shape, salt):
            x = plain(dtype, shape, salt) + np.array(1e4, dtype)
            x.reshape(-1)[0] = 0
            return x

        self.norm_case(verb, (shape, dtype), make=make)
        self.norm_case(verb, (shape, dtype), make=lambda *case: plain(*case) + np.array(1e4, dtype))

    @dtypes
    @pytest.mark.parametrize("verb", NORMS)
    def test_norm_of_constants(self, verb, dtype):
        every = self.norm_case(verb, ((5, 70), dtype), make=lambda dtype, shape, salt: np.full(shape, 0.1, dtype))
        for got in every if not verb.endswith("grad") else []:
            assert_same(got[0], np.broadcast_to(plain(dtype, (70,), 3), (5, 70)), signs=False)  # the bias, exactly

    @dtypes
    def test_nan_and_infinity_stay_in_their_row(self, dtype):
        x = plain(dtype, (5, 40))
        x[1, 3], x[3, 0] = np.nan, np.inf
        for verb, wrong in (("layer_norm", ([1, 3],)), ("batch_norm", (slice(None), [0, 3]))):
            expected = np.zeros(x.shape, bool)
            expected[wrong] = True
            for call in self.calls(verb).values():
                out = self.canvas("compact", x.shape, dtype)
                statistics = [self.canvas("compact", (40,), dtype).out for _ in range(2 if verb == "batch_norm" else 0)]
                call(self.array(x), None, None, EPS, out.out, *statistics)
                assert_same(~np.isfinite(out.result()), expected)

    # ---- Cross-entropy ----------------------------------------------------------------------------------------------

    def entropy_case(self, verb, logits, labels, out="compact", kind="compact"):
        """Logits and labels with their values; gradients of the losses in that kind of view."""
        arrays, values = [logits[0], labels[0]], [logits[1], labels[1]]
        if verb.endswith("grad"):
            g = self.operand(kind, logits[1].dtype.name, logits[1].shape[:-1], 7, plain)
            arrays, values = [g[0], *arrays], [g[1], *values]
        return self.check(verb, arrays, values, out)

    def labels(self, shape, classes, kind="compact"):
        def make(base):
            return np.random.default_rng(3).integers(0, classes, base)

        return self.view(kind, make, shape)

    @each("kind", VIEWS)
    @dtypes
    @pytest.mark.parametrize("verb", ENTROPIES)
    def test_entropy_views(self, verb, dtype, kind):
        logits = self.operand(kind, dtype, SHAPE, 1, lambda dtype, shape, salt: plain(dtype, shape, salt, 5))
        out = kind if KINDS[kind].writable else "compact"
        self.entropy_case(verb, logits, self.labels(SHAPE[:-1], SHAPE[-1], kind), out, kind)

    @each("shape", [(1,), (17,), (3, 1), (2, 3, 31), (0, 4), (2, 0, 4), (3, 1024), (5, 2500), (900, 30)])
    @dtypes
    @pytest.mark.parametrize("verb", ENTROPIES)
    def test_entropy_shapes(self, verb, dtype, shape):
        x = plain(dtype, shape, 1, 3)
        self.entropy_case(verb, (self.array(x), x), self.labels(shape[:-1], shape[-1]))

    @each("name", HARD)
    @dtypes
    @pytest.mark.parametrize("verb", ENTROPIES)
    def test_entropy_of_special_values(self, verb, dtype, name):
        row, label = HARD[name]
        x, labels = np.array([row, row], dtype), np.array([label, label])
        self.entropy_case(verb, (self.array(x), x), (self.array(labels), labels))

    # ---- Attention --------------------------------------------------------------------------------------------------

    def mask(self, kind, dtype, shape):
        """A mask and its values; `row` is one row for all queries."""
        if kind == "none":
            return None, None
        if kind == "row":
            return self.view("broadcast_rows", lambda base: np.random.default_rng(1).random(base) < 0.7, shape)
        return self.operand("compact", "bool" if kind == "bool" else dtype, shape, 9, plain)

    def heads(self, kind, dtype, shape, salt):
        """Any kind of view; `heads` is (B, H, T, D) of a (B, T, H, D) memory, `swapped` has the last two axes swapped."""
        if kind in ("heads", "swapped"):
            i, j = (-3, -2) if kind == "heads" else (-2, -1)
            base = np.ascontiguousarray(np.swapaxes(plain(dtype, shape, salt), i, j))
            return self.array(base).swapaxes(i, j), np.swapaxes(base, i, j)
        return self.operand(kind, dtype, shape, salt, plain)

    def attention_case(self, verb, dtype, sizes, mask=(None, None), causal=False, kind="compact", out="compact"):
        lead, t, s, d, e = sizes
        scale = 0.7 / max(d, 1) ** 0.5
        operands = [self.heads(kind, dtype, (*lead, *each), i) for i, each in enumerate([(t, d), (s, d), (s, e)])]
        if verb.endswith("grad"):
            operands = [self.heads(kind, dtype, (*lead, t, e), 4), *operands]
        arrays, values = zip(*operands, mask, strict=True)
        return self.check(verb, [*arrays, causal, scale], [*values, causal, scale], out)

    @each("mask, causal", [("none", 0), ("none", 1), ("bool", 0), ("float", 1), ("row", 0)])
    @each("sizes", SEQUENCES)
    @dtypes
    @pytest.mark.parametrize("verb", ATTENTIONS)
    def test_attention(self, verb, dtype, sizes, mask, causal):
        lead, t, s, _, _ = sizes
        self.attention_case(verb, dtype, sizes, self.mask(mask, dtype, (*lead, t, s)), bool(causal))

    @each("kind", [*VIEWS, "heads", "swapped"])
    @dtypes
    @pytest.mark.parametrize("verb", ATTENTIONS)
    def test_attention_views(self, verb, dtype, kind):
        lead, t, s, d, e = (2, 3), 7, 9, 5, 4
        mask = "compact" if kind in ("heads", "swapped") else kind
        for values in (
            self.operand(mask, dtype, (*lead, t, s), 9, plain),
            self.operand(mask, "bool", (*lead, t, s), 9, plain),
        ):
            out = kind if kind in KINDS and KINDS[kind].writable else "compact"
            self.attention_case(verb, dtype, (lead, t, s, d, e), values, kind == "offset", kind, out)

    @each("mask", ["bool", "-inf"])
    @dtypes
    def test_rows_with_nothing_to_see(self, dtype, mask):
        """Rows of zeros, and no gradient through them; the other rows are as ever."""
        allowed = plain("bool", (2, 70, 40), 3)
        allowed[:, ::3] = False
        values = allowed if mask == "bool" else np.where(allowed, 0, -np.inf).astype(dtype)
        sizes = ((2,), 70, 40, 6, 5)
        for verb in ATTENTIONS:
            for got in self.attention_case(verb, dtype, sizes, (self.array(values), values)):
                assert not got[0][:, ::3].any()  # out, or dq

    @each("t, s", [(5, 2), (140, 20), (2, 5), (3, 200)])
    @dtypes
    def test_causal_of_other_lengths(self, dtype, t, s):
        """The last query sees every key; with fewer keys than queries the first ones see none."""
        for verb in ATTENTIONS:
            for got in self.attention_case(verb, dtype, ((2,), t, s, 4, 3), causal=True):
                assert not got[0][:, : max(t - s, 0)].any()

    @dtypes
    def test_large_scores(self, dtype):
        q = np.array([[1e4, 0], [-1e4, 0], [0, 0]], dtype)
        k, v = np.array([[1, 0], [-1, 0]], dtype), np.array([[1.0], [2.0]], dtype)
        for call in self.calls("attention").values():
            canvas = self.canvas("compact", (3, 1), dtype)
            call(*map(self.array, (q, k, v)), None, False, 1.0, canvas.out)
            assert_same(canvas.result(), np.array([[1.0], [2.0], [1.5]], dtype))
