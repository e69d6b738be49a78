"""The NumPy backend: the whole interface in a few lines a verb. It is the oracle the other backends are checked against."""

from typing import Any

import numpy as np

from needle_ndarray.backend import Backend, Op
from needle_ndarray.buffer import Buffer
from needle_ndarray.random import philox_normal, philox_uniform


def erf(x: np.ndarray) -> np.ndarray:
    """2/sqrt(pi) * integral of e^(-t^2) from 0 to x: its power series for |x| < 2.2, the continued fraction of erfc beyond."""
    t = np.asarray(x, np.float64)
    small = np.clip(t, -2.2, 2.2)
    term = total = small.copy()
    for n in range(1, 60):
        term = -term * small * small / n
        total = total + term / (2 * n + 1)
    far = np.maximum(np.abs(t), 2.2)
    fraction = far.copy()
    for k in range(100, 0, -1):
        fraction = far + 0.5 * k / fraction
    tail = 1 - np.exp(-far * far) / (np.sqrt(np.pi) * fraction)
    return np.where(np.isnan(t), t, np.where(np.abs(t) < 2.2, 2 / np.sqrt(np.pi) * total, np.copysign(tail, t)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def widened(f: Any) -> Any:
    """f of a float32 array as a double, rounded once: NumPy's own float32 sin and exp are up to 4 ulp off."""
    return lambda x: f(x.astype(np.float64)).astype(x.dtype)


#: Where the NumPy function has another name or rule; every other op of the table is np.<name>.
SPECIAL: dict[str, Any] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.where(x <= 0, x.dtype.type(0), x),
    "round": np.rint,
    "sigmoid": widened(sigmoid),
    "erf": widened(erf),
    "sin": widened(np.sin),
    "cos": widened(np.cos),
}
KEPT_FOR_INTEGERS = ("floor", "ceil", "trunc", "round")


view = np.asarray  # an NDArray on the host as a numpy.ndarray on the same memory


class NumPyBackend(Backend):
    """Every verb by the NumPy function of the same meaning."""

    name = "cpu_numpy"

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(np.empty(max(nbytes, 1), np.uint8))

    def from_host(self, values: np.ndarray, out: Any) -> None:
        view(out)[...] = values

    def to_host(self, a: Any) -> np.ndarray:
        return view(a).copy(order="C")

    def fill(self, out: Any, value: Any) -> None:
        view(out)[...] = value

    def copy(self, a: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            np.copyto(view(out), view(a), casting="unsafe")

    def unary(self, op: Op, a: Any, out: Any) -> None:
        x = view(a)
        with np.errstate(all="ignore"):
            if op.name in KEPT_FOR_INTEGERS and x.dtype.kind != "f":
                view(out)[...] = x
            else:
                view(out)[...] = SPECIAL.get(op.name, getattr(np, op.name, None))(x)

    def binary(self, op: Op, a: Any, b: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            view(out)[...] = getattr(np, op.name)(view(a), view(b))

    def where(self, condition: Any, a: Any, b: Any, out: Any) -> None:
        view(out)[...] = np.where(view(condition), view(a), view(b))

    def reduce(self, op: Op, a: Any, axes: tuple[int, ...], out: Any) -> None:
        x = view(a)
        wide = {"dtype": np.float64} if op.result == "sum" and x.dtype.kind == "f" else {}
        with np.errstate(all="ignore"):
            view(out)[...] = getattr(np, op.name)(x, axis=axes, **wide)

    def arg_reduce(self, op: Op, a: Any, axis: int, out: Any) -> None:
        view(out)[...] = getattr(np, op.name)(view(a), axis=axis)

    def scan(self, op: Op, a: Any, axis: int, out: Any) -> None:
        with np.errstate(all="ignore"):
            view(out)[...] = getattr(np, op.name)(view(a), axis=axis)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            view(out)[...] = np.matmul(view(a), view(b))

    def take(self, a: Any, index: Any, out: Any) -> None:
        view(out)[...] = view(a)[view(index)]

    def put(self, a: Any, index: Any, values: Any) -> None:
        view(a)[view(index)] = view(values)

    def scatter_add(self, a: Any, index: Any, values: Any) -> None:
        with np.errstate(all="ignore"):
            np.add.at(view(a), view(index), view(values))

    def random(self, op: Op, seed: int, counter: int, out: Any) -> None:
        make = philox_uniform if op.name == "uniform" else philox_normal
        view(out)[...] = make(seed, counter, out.size, out.dtype.numpy).reshape(out.shape)
