"""The NumPy backend: the whole interface in a few lines a verb. It is the oracle the other backends are checked against."""

import math
from typing import Any

import numpy as np

from needle_ndarray.backend import Backend, Op
from needle_ndarray.buffer import Buffer
from needle_ndarray.halves import bfloat16_words, shared_words, widened
from needle_ndarray.random import philox_normal, philox_uniform

erf = np.vectorize(math.erf, otypes=[np.float64])  # the one function NumPy lacks


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), by e^-|x|, which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (1 + small)


def in_double(f: Any) -> Any:
    """f of float32 arrays as doubles, rounded once: NumPy's own float32 sin and exp are up to 4 ulp off."""
    return lambda *x: f(*[a.astype(np.float64) for a in x]).astype(x[0].dtype)


def normal_cdf(x: np.ndarray) -> np.ndarray:
    """The distribution function of the standard normal distribution."""
    return 0.5 * (1 + erf(x * math.sqrt(0.5)))


def silu_grad(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    s = sigmoid(x)
    return grad * (s * (1 + x * (1 - s)))


#: Functions whose float32 form NumPy computes with vector code of several units in the last place.
WIDENED = "log2 log10 tan asin acos atan sinh cosh asinh acosh atanh atan2 hypot logaddexp".split()

#: Where the NumPy function has another name or rule; every other op of the table is np.<name>.
SPECIAL: dict[str, Any] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.where(x <= 0, x.dtype.type(0), x),
    "round": np.rint,
    "sigmoid": in_double(sigmoid),
    "erf": in_double(erf),
    "gelu": in_double(lambda x: x * normal_cdf(x)),
    "silu": in_double(lambda x: x * sigmoid(x)),
    "sin": in_double(np.sin),
    "cos": in_double(np.cos),
    "relu_grad": lambda a, b: np.where(b > 0, a, a.dtype.type(0)),
    "tanh_grad": lambda a, b: a * ((1 - b) * (1 + b)),
    "sigmoid_grad": lambda a, b: a * (b * (1 - b)),
    "gelu_grad": in_double(lambda a, b: a * (normal_cdf(b) + b * np.exp(b * b * -0.5) / math.sqrt(2 * math.pi))),
    "silu_grad": in_double(silu_grad),
    **{name: in_double(getattr(np, name)) for name in WIDENED},
}
WIDER = {"f": np.float64, "d": np.longdouble}  # what float sums are made in; those of integers in int64
KEPT_FOR_INTEGERS = ("floor", "ceil", "trunc", "round")


view = np.asarray  # an NDArray on the host as a numpy.ndarray on the same memory


class NumPyBackend(Backend):
    """Every verb by the NumPy function of the same meaning."""

    name = "cpu_numpy"

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(np.empty(max(nbytes, 1), np.uint8))

    def from_host(self, values: np.ndarray, out: Any) -> None:
        shared_words(out)[...] = values

    def to_host(self, a: Any) -> np.ndarray:
        return shared_words(a).copy(order="C")

    def fill(self, out: Any, value: Any) -> None:
        with np.errstate(all="ignore"):
            shared_words(out)[...] = bfloat16_words(value) if out.dtype == "bfloat16" else value

    def copy(self, a: Any, out: Any) -> None:
        given = shared_words(a)
        with np.errstate(all="ignore"):
            if a.dtype != out.dtype and a.dtype.is_half:  # by way of float32, as C converts it
                given = widened(given) if a.dtype == "bfloat16" else given.astype(np.float32)
            if a.dtype != out.dtype == "bfloat16":
                given = bfloat16_words(given)
            if out.dtype == "uint8" and given.dtype.kind == "f":
                # by way of int32, and beyond it 0, where NumPy does as the machine
                given = np.where((given >= -(2.0**31)) & (given < 2.0**31), given, 0).astype(np.int32)
            np.copyto(shared_words(out), given, casting="unsafe")

    def unary(self, op: Op, a: Any, out: Any) -> None:
        x = view(a)
        with np.errstate(all="ignore"):
            if op.name in KEPT_FOR_INTEGERS and x.dtype.kind != "f":
                view(out)[...] = x
            else:
                view(out)[...] = (SPECIAL.get(op.name) or getattr(np, op.name))(x)

    def binary(self, op: Op, a: Any, b: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            view(out)[...] = (SPECIAL.get(op.name) or getattr(np, op.name))(view(a), view(b))

    def where(self, condition: Any, a: Any, b: Any, out: Any) -> None:
        view(out)[...] = np.where(view(condition), view(a), view(b))

    def reduce(self, op: Op, a: Any, out: Any, axes: tuple[int, ...]) -> None:
        x = view(a)
        wide = {"dtype": WIDER.get(x.dtype.char, np.int64)} if op.result == "sum" else {}
        with np.errstate(all="ignore"):
            view(out)[...] = getattr(np, op.name)(x, axis=axes, keepdims=out.ndim == x.ndim, **wide)

    def arg_reduce(self, op: Op, a: Any, out: Any, axis: int) -> None:
        view(out)[...] = getattr(np, op.name)(view(a), axis=axis)

    def scan(self, op: Op, a: Any, out: Any, axis: int) -> None:
        with np.errstate(all="ignore"):
            view(out)[...] = getattr(np, op.name)(view(a), axis=axis)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            view(out)[...] = np.matmul(view(a), view(b))

    def take(self, a: Any, index: Any, out: Any) -> None:
        shared_words(out)[...] = shared_words(a)[view(index)]

    def scatter(self, op: Op, a: Any, index: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            if op.name == "put":
                shared_words(out)[view(index)] = shared_words(a)
            else:
                np.add.at(view(out), view(index), view(a))

    def random(self, op: Op, out: Any, seed: int, counter: int) -> None:
        make = philox_uniform if op.name == "uniform" else philox_normal
        view(out)[...] = make(seed, counter, out.size, out.dtype.numpy).reshape(out.shape)
