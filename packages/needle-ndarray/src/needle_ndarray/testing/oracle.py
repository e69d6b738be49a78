"""What is right, and how near to it a result has to be. The only place with tolerances.

- arithmetic, comparisons, rounding, integers: the very bits of NumPy, signs of zeros included;
- mathematical functions: at most ULPS units in the last place from a result in wider precision;
- activations made of several: a few eps of their largest term;
- float sums: an error that grows with log n; products of n factors: with n;
- matrix products: the classic bound eps * k * (|a| @ |b|);
- convolutions and pooled means: the same, over the terms of each sum;
- softmax and its relatives: a few eps, plus what rounding a - max must cost;
- norms: a few eps of the largest distance from the mean, which x - x0 may be rounded by;
- attention: what the errors of its products come to, step by step;
- recurrent layers: the same, by values that carry their error along (`Near`).
"""

import math
from typing import Any

import numpy as np

ULPS = 4

WIDER = {"float32": np.float64, "float64": np.longdouble}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _erf(x: np.ndarray) -> np.ndarray:
    flat = [math.erf(v) for v in np.asarray(x, np.float64).ravel()]
    return np.array(flat).reshape(x.shape).astype(x.dtype)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    """The distribution function of the standard normal distribution."""
    return (1 + _erf(x * np.sqrt(x.dtype.type(0.5)))) / 2


#: Computed in wider precision, compared in units in the last place.
MATH: dict[str, Any] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "power": np.power,
    "log2": np.log2,
    "log10": np.log10,
    "tan": np.tan,
    "asin": np.asin,
    "acos": np.acos,
    "atan": np.atan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.asinh,
    "acosh": np.acosh,
    "atanh": np.atanh,
    "atan2": np.atan2,
    "hypot": np.hypot,
    "tanh_grad": lambda a, b: a * (1 - b * b),
    "sigmoid_grad": lambda a, b: a * b * (1 - b),
}

#: Products and sums of the above: (value, magnitude) in wider precision, which may be off by 8 eps of the magnitude.
COMPOSED: dict[str, Any] = {
    "gelu": lambda x: (x * _normal_cdf(x), np.abs(x)),
    "silu": lambda x: (x * _sigmoid(x), np.abs(x)),
    "gelu_grad": lambda a, x: (
        a * (_normal_cdf(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
        np.abs(a) * (1 + np.abs(x)),
    ),
    "logaddexp": lambda a, b: (np.logaddexp(a, b), np.abs(np.maximum(a, b)) + 1),
    "silu_grad": lambda a, x: (a * _sigmoid(x) * (1 + x * (1 - _sigmoid(x))), np.abs(a) * (1 + np.abs(x))),
}

#: Ops whose NumPy function has another name or rule; every other one is np.<name>.
EXACT: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "relu_grad": lambda a, b: np.where(b > 0, a, a.dtype.type(0)),
    "round": np.rint,
}
ROUNDING = ("floor", "ceil", "trunc", "round")
#: Of two zeros, either is the larger one: NumPy itself gives one or the other depending on the position.
EITHER_ZERO = ("maximum", "minimum", "relu", "max", "min")


def assert_same(got: np.ndarray, expected: np.ndarray, signs: bool = True, context: str = "") -> None:
    """The same dtype, shape and values; NaN equals NaN, and -0.0 is not 0.0 where `signs`."""
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype, f"{context} dtype {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{context} shape {got.shape}, expected {expected.shape}"
    wrong = got != expected
    if got.dtype.kind == "f":
        wrong &= ~(np.isnan(got) & np.isnan(expected))
        if signs:
            wrong |= (np.signbit(got) != np.signbit(expected)) & ~np.isnan(expected)
    _report(wrong, got, expected, context)


def assert_within(got: np.ndarray, expected: np.ndarray, bound: Any, context: str = "") -> None:
    """|got - expected| <= bound, elementwise; NaN and infinities must be the same ones."""
    assert got.shape == expected.shape, f"{context} shape {got.shape}, expected {expected.shape}"
    with np.errstate(all="ignore"):
        rounded = np.asarray(expected).astype(got.dtype)
        finite = np.isfinite(rounded)
        near = np.abs(got - expected) <= bound
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    _report(~np.where(finite, near | same, same), got, expected, context)


def assert_ulps(got: np.ndarray, wide: np.ndarray, limit: float = ULPS, context: str = "") -> None:
    """At most `limit` units in the last place of `wide`, and zeros of the same sign where the result is 0 exactly."""
    with np.errstate(all="ignore"):
        rounded = wide.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(wide.dtype)
    assert_within(got, wide, limit * unit, context)
    zero = wide == 0
    _report(zero & (np.signbit(got) != np.signbit(wide)), got, wide, f"{context} sign of zero:")


def assert_op(op: Any, got: np.ndarray, *inputs: np.ndarray) -> None:
    """A result of an elementwise op of the table, for inputs of the dtype it computes in."""
    name, first = op.name, inputs[0]
    context = f"{name} of {first.dtype}:"
    with np.errstate(all="ignore"):
        if name in MATH and first.dtype.kind == "f":
            wide = MATH[name](*[x.astype(WIDER[first.dtype.name]) for x in inputs])
            return assert_ulps(got, wide, context=context)
        if name in COMPOSED:
            wide, magnitude = COMPOSED[name](*[x.astype(WIDER[first.dtype.name]) for x in inputs])
            kind = np.finfo(got.dtype)
            edge = np.isfinite(got) & (np.abs(wide) <= kind.max * (1 + 8 * wide.dtype.type(kind.eps)))
            wide = np.where(edge, np.clip(wide, kind.min, kind.max), wide)  # rounding alone makes it infinite
            return assert_within(got, wide, 8 * kind.eps * magnitude + kind.smallest_subnormal, context)
        if name in ROUNDING and first.dtype.kind != "f":
            expected = first
        else:
            expected = (EXACT.get(name) or getattr(np, name))(*inputs)
    assert_same(got, expected, signs=name not in EITHER_ZERO, context=context)


def sum_bound(a: np.ndarray, axes: tuple[int, ...], dtype: str) -> np.ndarray:
    """What a pairwise or blocked sum may be off: eps * (32 + log2 n) * sum |a|."""
    n = math.prod([a.shape[i] for i in axes])
    magnitude = np.sum(np.abs(a.astype(np.float64)), axis=axes)
    return np.finfo(dtype).eps * (32 + math.log2(max(n, 1))) * magnitude


def product_bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What a matrix product may be off: eps * k * (|a| @ |b|)."""
    eps = np.finfo(a.dtype).eps
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    return eps * max(a.shape[-1], 1) * magnitude


def exp_bound(dtype: Any, shifted: np.ndarray) -> np.ndarray:
    """What log sum e^(a - max) or, relatively, e^(a - max) / sum may be off: eps * (8 + |a - max|)."""
    return np.finfo(dtype).eps * (8 + np.abs(shifted))


def norm_bound(dtype: Any, spread: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """What (x - mean) / deviation may be off, times the magnitude it is multiplied by: 8 * eps * (1 + spread).

    `spread` is the largest distance from the mean in deviations: x - x0 and the mean of it are rounded at that size.
    """
    return 8 * np.finfo(dtype).eps * (1 + spread) * magnitude


def attention_errors(q: Any, k: Any, v: Any, grad: Any, mask: Any, scale: float, scores: Any, p: Any) -> list:
    """What the result and dq, dk, dv (where a grad is given) may be off, for weights p = softmax(scores).

    A score is a product of d terms; a weight is off by twice the largest error of its row's scores, relatively, and by
    what e^(score - max) and the sum cost; every further product adds eps times its terms.
    """
    eps, tiny = np.finfo(q.dtype).eps, np.finfo(q.dtype).tiny
    q, k, v = (np.abs(x.astype(np.float64)) for x in (q, k, v))
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    seen = ~np.isneginf(scores)
    size = np.abs(scale) * (q @ np.swapaxes(k, -1, -2)) + np.where(seen, np.abs(scores), 0)
    size = size + (0 if mask is None or mask.dtype == bool else np.where(seen, np.abs(mask), 0))
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    depth = np.where(seen, np.abs(scores - np.where(seen.any(-1, keepdims=True), top, 0)), 0)
    weight = np.where(seen, eps * ((d + 4) * size + depth), 0).max(-1, keepdims=True, initial=0)
    weight = 2 * weight + 8 * eps  # relative error of every weight of the row
    p = p.astype(np.float64) + tiny
    errors = [(weight + eps * (s + 4)) * (p @ v)]
    if grad is not None:
        g = np.abs(grad.astype(np.float64))
        dp = g @ np.swapaxes(v, -1, -2)
        ds = np.abs(scale) * p * (dp + (p * dp).sum(-1, keepdims=True))
        ds_error = ds * (2 * weight + eps * (e + s + 8))
        errors += [ds_error @ k + eps * (s + 4) * (ds @ k)]
        errors += [np.swapaxes(ds_error + eps * (t + 4) * ds, -1, -2) @ q]
        errors += [np.swapaxes(p * (weight + eps * (t + 4)), -1, -2) @ g]
    return errors


class Near:
    """A value in wider precision and what a result in `dtype` may be off: +, -, *, @, tanh and sigmoid carry both along.

    Every step adds a rounding of each of its terms, so their order is free; functions add ULPS, and the error of their argument
    times the slope.
    """

    __array_ufunc__ = None  # NumPy leaves `array + Near` to us

    def __init__(self, value: Any, dtype: Any, error: Any = 0.0):
        self.value, self.dtype = np.asarray(value).astype(WIDER[np.dtype(dtype).name]), np.dtype(dtype)
        self.error, self.eps = error + np.zeros(self.value.shape), np.finfo(dtype).eps

    def _made(self, value: np.ndarray, carried: Any, terms: Any) -> "Near":
        return Near(value, self.dtype, carried + self.eps * terms + np.finfo(self.dtype).tiny)

    def _other(self, other: Any) -> "Near":
        return other if isinstance(other, Near) else Near(other, self.dtype)

    def __add__(self, other: Any) -> "Near":
        b = self._other(other)
        return self._made(self.value + b.value, self.error + b.error, np.abs(self.value) + np.abs(b.value))

    def __neg__(self) -> "Near":
        return Near(-self.value, self.dtype, self.error)

    def __sub__(self, other: Any) -> "Near":
        return self + -self._other(other)

    def __rsub__(self, other: Any) -> "Near":
        return self._other(other) + -self

    def __mul__(self, other: Any) -> "Near":
        b = self._other(other)
        carried = self.error * (np.abs(b.value) + b.error) + np.abs(self.value) * b.error
        return self._made(self.value * b.value, carried, np.abs(self.value * b.value))

    def __matmul__(self, other: Any) -> "Near":
        b = self._other(other)
        carried = self.error @ (np.abs(b.value) + b.error) + np.abs(self.value) @ b.error
        k = max(self.value.shape[-1], 1)
        return self._made(self.value @ b.value, carried, k * (np.abs(self.value) @ np.abs(b.value)))

    def __getitem__(self, key: Any) -> "Near":
        return Near(self.value[key], self.dtype, self.error[key])

    def tanh(self) -> "Near":
        y = np.tanh(self.value)
        return self._made(y, (1 - y * y + self.error) * self.error, ULPS * np.abs(y))

    def sigmoid(self) -> "Near":
        y = _sigmoid(self.value)
        return self._made(y, (y * (1 - y) + self.error) * self.error, ULPS * y)

    def parts(self, count: int) -> list["Near"]:
        """The gates that lie side by side along the last axis."""
        n = self.value.shape[-1] // count
        return [self[..., i * n : (i + 1) * n] for i in range(count)]

    @staticmethod
    def joined(parts: list["Near"], join: Any = np.concatenate, axis: int = -1) -> "Near":
        return Near(join([p.value for p in parts], axis), parts[0].dtype, join([p.error for p in parts], axis))


def terms_bound(dtype: str, terms: int, magnitude: Any) -> Any:
    """What a sum of products in any order may be off, when |a| and |b| in place of a and b give `magnitude`."""
    return np.finfo(dtype).eps * max(int(terms), 1) * magnitude


def _report(wrong: np.ndarray, got: np.ndarray, expected: np.ndarray, context: str) -> None:
    """Fail with the number of wrong elements and the first of them."""
    if not np.any(wrong):
        return
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    raise AssertionError(
        f"{context} {np.count_nonzero(wrong)} of {wrong.size} elements are wrong, first at {at}:"
        f" {got[at]!r}, expected {expected[at]!r}"
    )
