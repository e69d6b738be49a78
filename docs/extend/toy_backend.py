"""A complete backend: a device with memory of its own, whose instructions are NumPy's.

Every verb works in three steps: see the inputs, compute, store the result. Replace NumPy by the library of your
device, then the verbs that matter by kernels of your own.
"""

import math

import numpy as np

from needle_ndarray import Backend, next_version
from needle_ndarray.halves import bfloat16_words, widened
from needle_ndarray.random import philox_normal, philox_uniform


class Block:
    """Memory of the device. NDArray asks for its size and address, and when it was last written."""

    def __init__(self, nbytes):
        self.memory = np.empty(nbytes, np.uint8)
        self.nbytes = nbytes
        self.version = 0

    def ptr(self):
        return self.memory.ctypes.data

    def mark_written(self):
        self.version = next_version()


def see(a):
    """The elements of an NDArray: shape, strides and offset say where they lie in its block."""
    size = a.dtype.itemsize
    strides = [step * size for step in a.strides]
    return np.ndarray(a.shape, a.dtype.storage, a._handle.memory, a.offset * size, strides)


def wide(function):
    """float32 by way of float64: at most 4 units in the last place are allowed, and this leaves half a one."""
    return lambda *x: function(*[a.astype(np.float64) for a in x]).astype(x[0].dtype)


def kept_if_integer(function):
    return lambda x: function(x) if x.dtype.kind == "f" else x


def sigmoid(x):
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


below = np.vectorize(lambda x: math.erfc(x * -math.sqrt(0.5)) / 2, otypes=[np.float64])  # x, of a normal distribution
#: Ops that NumPy calls differently, or does not have; every other op of the table is np.<name>.
INSTRUCTIONS = {
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "rsqrt": wide(lambda x: 1 / np.sqrt(x)),
    "sigmoid": wide(sigmoid),
    "erf": wide(np.vectorize(math.erf, otypes=[np.float64])),
    "gelu": wide(lambda x: x * below(x)),
    "silu": wide(lambda x: x * sigmoid(x)),
    "sin": wide(np.sin),
    "cos": wide(np.cos),
    "floor": kept_if_integer(np.floor),
    "ceil": kept_if_integer(np.ceil),
    "trunc": kept_if_integer(np.trunc),
    "round": kept_if_integer(np.rint),
    "relu_grad": lambda a, b: np.where(b > 0, a, a.dtype.type(0)),
    "tanh_grad": lambda a, b: a * ((1 - b) * (1 + b)),
    "sigmoid_grad": lambda a, b: a * (b * (1 - b)),
    "gelu_grad": wide(lambda a, b: a * (below(b) + b * np.exp(b * b * -0.5) / math.sqrt(2 * math.pi))),
    "silu_grad": wide(lambda a, b: a * sigmoid(b) * (1 + b * (1 - sigmoid(b)))),
}


def instruction(op):
    return INSTRUCTIONS.get(op.name) or getattr(np, op.name)


def store(values, out):
    if out.dtype == "bfloat16" and values.dtype != np.uint16:  # which are the words of another one
        values = bfloat16_words(values)
    with np.errstate(all="ignore"):  # a cast that overflows is no error
        np.copyto(see(out), values, casting="unsafe")


class ToyBackend(Backend):
    """Required verbs only: softmax and its relatives are composed of them."""

    name = "toy"
    interface_version = 2

    def allocate(self, nbytes):
        return Block(nbytes)

    def from_host(self, values, out):
        store(values, out)

    def to_host(self, a):
        return see(a).copy(order="C")

    def fill(self, out, value):
        store(np.asarray(value), out)

    def copy(self, a, out):
        store(widened(see(a)) if "bfloat16" == a.dtype != out.dtype else see(a), out)

    @np.errstate(all="ignore")
    def unary(self, op, a, out):
        store(instruction(op)(see(a)), out)

    @np.errstate(all="ignore")
    def binary(self, op, a, b, out):
        store(instruction(op)(see(a), see(b)), out)

    def where(self, condition, a, b, out):
        store(np.where(see(condition), see(a), see(b)), out)

    @np.errstate(all="ignore")
    def reduce(self, op, a, out, axes):
        # NumPy adds pairwise along the last axis of a compact array: so move what is summed there.
        n = math.prod(a.shape[axis] for axis in axes)
        rows = np.ascontiguousarray(np.moveaxis(see(a), axes, range(-len(axes), 0))).reshape(*out.shape, n)
        store(instruction(op)(rows, axis=-1), out)

    def arg_reduce(self, op, a, out, axis):
        store(instruction(op)(see(a), axis=axis), out)

    @np.errstate(all="ignore")
    def scan(self, op, a, out, axis):
        store(instruction(op)(see(a), axis=axis), out)

    @np.errstate(all="ignore")
    def matmul(self, a, b, out):
        store(np.matmul(see(a), see(b)), out)

    def take(self, a, index, out):
        store(see(a)[see(index)], out)

    @np.errstate(all="ignore")
    def scatter(self, op, a, index, out):
        if op.name == "put":
            see(out)[see(index)] = see(a)
        else:
            np.add.at(see(out), see(index), see(a))

    def random(self, op, out, seed, counter):
        draw = {"uniform": philox_uniform, "normal": philox_normal}[op.name]
        store(draw(seed, counter, out.size, out.dtype.numpy).reshape(out.shape), out)
