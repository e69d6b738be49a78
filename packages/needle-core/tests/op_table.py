"""Every op of needle.ops in every form, with its NumPy twin: the table behind test_ops.py and test_parity.py.

A row is `Row(id, fn, ref, inputs)`: `fn` of Tensors and `ref` of float64 arrays do the same. The id is the name of the function
(or of the class, where there is no function), then the form: `summation/axes -1 keepdims`. Long because it is one table.
"""

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import op_table_names as names
from op_rows import TOLERANCE, Input, Row, forms, outputs, positive, real
from op_rows import call as _call

import needle as ndl
from needle import ops

__all__ = ["TOLERANCE", "outputs"]  # for the tests that read the table

# ---- Elementwise --------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[float])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


UNARY = {
    "negate": np.negative,
    "log": np.log,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "silu": lambda x: x * _sigmoid(x),
    "abs": np.abs,
    "clone": np.copy,
}
POSITIVE = {"log", "log1p", "sqrt"}
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
BROADCASTS = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1), (1, 3)),
    ((2, 3), ()),
    ((), (2, 3)),
    ((), ()),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (3,)),
    ((1,), (0, 2)),
    ((1, 1), (1,)),
]


def _domain(name):
    return positive if name in POSITIVE or name in ("divide", "power") else real


ELEMENTWISE = [
    Row(f"{name}/{shape}", _call(name), ref, (_domain(name)(*shape),))
    for (name, ref), shape in product(UNARY.items(), [(2, 3), (), (0, 3), (1, 2, 1)])
]
ELEMENTWISE += [
    Row(f"{name}/{a} {b}", _call(name), ref, (_domain(name)(*a), _domain(name)(*b)))
    for (name, ref), (a, b) in product(BINARY.items(), BROADCASTS)
]
GRADIENTS = {
    "TanhGrad": (lambda g, y: g * (1 - y * y), (-0.9, 0.9)),
    "SigmoidGrad": (lambda g, y: g * y * (1 - y), (0.1, 0.9)),
    "ReLUGrad": (lambda g, y: np.where(y > 0, g, 0), (-2, 2)),
}
ELEMENTWISE += [
    Row(
        f"{name}/{shape}",
        lambda g, y, name=name: getattr(ops, name)()(g, y),
        ref,
        (real(*shape), Input(shape, *domain)),
    )
    for (name, (ref, domain)), shape in product(GRADIENTS.items(), [(2, 3), (), (0, 3)])
]
SCALARS = [2.5, -3, 0, True, np.float32(1.5), np.float64(-0.5), np.int64(2), np.array([1.25]), np.array(0.75)]
ELEMENTWISE += [
    Row(f"{name}/{c!r}", _call(name, c), partial(ref, c=float(np.asarray(c).reshape(()))), (real(2, 3),))
    for (name, ref), c in product(
        {
            "add_scalar": lambda x, c: x + c,
            "mul_scalar": lambda x, c: x * c,
            "divide_scalar": lambda x, c: x / c,
        }.items(),
        SCALARS,
    )
    if not (name == "divide_scalar" and c is SCALARS[2])
]
ELEMENTWISE += [
    Row(f"power_scalar/{c!r}", _call("power_scalar", c), partial(lambda x, c: x**c, c=c), (positive(2, 3),))
    for c in [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7, 2.0, np.float32(2.5), np.array([3.0])]
]
ELEMENTWISE += [
    Row("power_scalar/2 of negatives", _call("power_scalar", 2), lambda x: x**2, (real(2, 3),)),
    Row("power_scalar/-3 of negatives", _call("power_scalar", -3), lambda x: x**-3, (real(2, 3),)),
    Row(
        "power/array exponent",
        lambda x: ops.power(x, np.array([2.0, 3.0, 1.0])),
        lambda x: x ** np.array([2.0, 3.0, 1.0]),
        (real(2, 3),),
    ),
    Row("power/number base", lambda x: ops.power(2.5, x), lambda x: 2.5**x, (real(2, 3),)),
    Row("divide/negatives", _call("divide"), np.divide, (real(2, 3), real(3))),
    Row("add/same tensor twice", lambda x: ops.add(x, x), lambda x: x + x, (real(2, 3),)),
    Row("multiply/same tensor twice", lambda x: ops.multiply(x, x), lambda x: x * x, (real(2, 3),)),
    Row("maximum/number", lambda x: ops.maximum(x, 0.3), lambda x: np.maximum(x, 0.3), (real(2, 3),)),
    Row("maximum/number first", lambda x: ops.maximum(0.3, x), lambda x: np.maximum(0.3, x), (real(2, 3),)),
    Row("minimum/number", lambda x: ops.minimum(x, -0.3), lambda x: np.minimum(x, -0.3), (real(2, 3),)),
]
ELEMENTWISE += forms(
    "clip",
    lambda x, low, high: np.clip(x, low, high),
    [
        ((3, 4), -0.5, 0.7),
        ((3, 4), None, 0.4),
        ((3, 4), -0.4, None),
        ((3, 4), 0, 1),
        ((3, 4), np.float64(-0.5), np.array([0.5])),
    ],
)
MASK = np.array([[True, False, True], [False, False, True]])
ELEMENTWISE += [
    Row(
        f"where/{c.shape} {a} {b}",
        partial(lambda c, a, b: ops.where(c, a, b), c),
        partial(np.where, c),
        (real(*a), real(*b)),
    )
    for c, a, b in [
        (MASK, (2, 3), (2, 3)),
        (MASK, (3,), (2, 1)),
        (MASK[0], (2, 3), ()),
        (MASK[:, :1], (), (3,)),
        (np.array(True), (2, 3), (3,)),
        (MASK[:0], (0, 3), (3,)),
        (MASK, (4, 1, 1), (2, 3)),
    ]
]
ELEMENTWISE += [
    Row("where/Tensor condition", lambda a, b: ops.where(a > b, a, b), np.maximum, (real(2, 3), real(2, 3))),
    Row("where/number taken", lambda a: ops.where(MASK, a, 0.1), lambda a: np.where(MASK, a, 0.1), (real(2, 3),)),
    Row("where/number first", lambda a: ops.where(MASK, 0.1, a), lambda a: np.where(MASK, 0.1, a), (real(2, 3),)),
    Row("where/int", lambda a: ops.where(a > 0, a, 2), lambda a: np.where(a > 0, a, 2), (real(2, 3),)),
    Row("where/int first", lambda a: ops.where(a > 0, 3, a), lambda a: np.where(a > 0, 3, a), (real(2, 3),)),
    Row("astype/float64", lambda a: ops.astype(a, a.dtype), np.copy, (real(2, 3),)),
    Row("astype/and back", lambda a: ops.astype(ops.astype(a, "float64") * 8, a.dtype), lambda a: a * 8, (real(2, 3),)),
    Row("to_device/there and back", lambda a: ops.to_device(ops.to_device(a, _other(a.device)), a.device), np.copy, (real(2, 3),)),
    Row("to_device/the same", lambda a: ops.to_device(a, a.device), np.copy, (real(2, 3),)),
    Row("to_device/None", lambda a: ops.to_device(a, None), np.copy, (real(2, 3),)),
    Row("Alias", lambda a: ops.Alias()(a), np.copy, (real(2, 3),)),
]  # fmt: skip


def _other(device):
    return ndl.cpu() if device == ndl.cpu_numpy() else ndl.cpu_numpy()


OPERATORS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "a ** b": lambda a, b: a**b,
}
ELEMENTWISE += [
    Row(f"Tensor/{op} {form}", wrapped(fn), wrapped(fn), (positive(2, 3),) * n)
    for op, fn in OPERATORS.items()
    for form, n, wrapped in [
        ("with tensors", 2, lambda fn: fn),
        ("with a number", 1, lambda fn: lambda a: fn(a, 1.7)),
        ("with a number first", 1, lambda fn: lambda a: fn(1.7, a)),
        ("with a NumPy number", 1, lambda fn: lambda a: fn(a, np.float64(1.7))),
        ("with a NumPy number first", 1, lambda fn: lambda a: fn(np.float64(1.7), a)),
        ("with an int", 1, lambda fn: lambda a: fn(a, 2)),
        ("with an int first", 1, lambda fn: lambda a: fn(3, a)),
        ("with a list", 1, lambda fn: lambda a: fn(a, [1.0, 2.0, 0.5])),
        ("with an array", 1, lambda fn: lambda a: fn(a, np.array([1.5, 2, 0.25]))),
        ("with an array first", 1, lambda fn: lambda a: fn(np.array([1.5, 2, 0.25]), a)),
        ("with an array to broadcast to", 1, lambda fn: lambda a: fn(a, np.arange(1.0, 13).reshape(2, 2, 3))),
    ]
]
ELEMENTWISE += [
    Row("Tensor/-a", lambda a: -a, np.negative, (real(2, 3),)),
    Row("Tensor/+a", lambda a: +a, np.copy, (real(2, 3),)),
    Row("Tensor/abs(a)", lambda a: abs(a), np.abs, (real(2, 3),)),
]

# ---- Reductions --------------------------------------------------------------------------

AXES: list[Any] = [None, 1, -1, (0,), (0, 2), (-1, 0), (0, 1, 2), ()]


def _logsumexp(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def _softmax(x, axis=-1):
    return np.exp(x - _logsumexp(x, axis, keepdims=True))


def _logsoftmax(x, axis=-1):
    return x - _logsumexp(x, axis, keepdims=True)


REDUCTIONS = [
    Row(f"{name}/{axes}{' keepdims' * keep}", _call(name, axes, keep), partial(ref, axis=axes, keepdims=keep), (real(2, 3, 4),))
    for (name, ref), axes, keep in product(
        {
            "summation": np.sum,
            "mean": np.mean,
            "var": np.var,
            "std": np.std,
            "max": np.max,
            "min": np.min,
            "logsumexp": _logsumexp,
        }.items(),
        AXES,
        [False, True],
    )
    if not (name == "std" and axes == ())  # sqrt at 0: infinite slope
]  # fmt: skip
REDUCTIONS += [
    Row(f"{name}/{shape} axes {axes}", _call(name, axes), partial(ref, axis=axes), (real(*shape),))
    for (name, ref), (shape, axes) in product(
        {
            "summation": np.sum,
            "max": np.max,
            "min": np.min,
            "logsumexp": _logsumexp,
            "mean": np.mean,
            "var": np.var,
        }.items(),
        [((), None), ((4,), 0), ((4,), None), ((1, 1, 3), (0, 1)), ((0, 3), 1), ((3, 1), 1), ((2, 0), (1,))],
    )
    if not (shape == (2, 0) and name != "summation")
]
REDUCTIONS += [
    Row("summation/axes 0 of nothing", _call("summation", 0), partial(np.sum, axis=0), (real(0, 3),)),
    Row("summation/list of axes", _call("summation", [0, 1]), partial(np.sum, axis=(0, 1)), (real(2, 3, 2),)),
    Row(
        "summation/by name",
        _call("summation", axes=1, keepdims=True),
        partial(np.sum, axis=1, keepdims=True),
        (real(2, 3),),
    ),
]
REDUCTIONS += [
    Row(
        f"{name}/ddof {ddof} axes {axes}",
        _call(name, axes, ddof=ddof),
        partial(ref, axis=axes, ddof=ddof),
        (real(3, 4),),
    )
    for (name, ref), ddof, axes in product({"var": np.var, "std": np.std}.items(), [1, 2], [None, 0, (0, 1)])
]
for name, ref in {"softmax": _softmax, "logsoftmax": _logsoftmax}.items():
    cases = [
        ((2, 3), -1),
        ((2, 3), 0),
        ((4,), 0),
        ((2, 3, 4), (1, 2)),
        ((2, 3), (0, 1)),
        ((2, 3), None),
        ((2, 1), 1),
        ((0, 3), 1),
    ]
    REDUCTIONS += forms(name, ref, cases)
REDUCTIONS += [
    Row("softmax/default", _call("softmax"), _softmax, (real(2, 3),)),
    Row("logsoftmax/default", _call("logsoftmax"), _logsoftmax, (real(2, 3),)),
]


def _softmax_grad(g, y, axis):
    return y * (g - np.sum(y * g, axis=axis, keepdims=True))


def _logsoftmax_grad(g, y, axis):
    return g - np.exp(y) * np.sum(g, axis=axis, keepdims=True)


def _gradient_of_logsumexp(shape, axes, keepdims):
    kept = np.empty(shape).sum(axes, keepdims=True).shape
    given = np.empty(shape).sum(axes, keepdims=keepdims).shape
    return Row(
        f"LogSumExpGrad/{shape} axes {axes}{' keepdims' * keepdims}",
        lambda g, x, y: ops.LogSumExpGrad(axes)(g, x, y),
        lambda g, x, y: g.reshape(kept) * np.exp(x - y.reshape(kept)),
        (real(*given), real(*shape), real(*given)),
    )


for shape, axes in [
    ((2, 3), -1),
    ((2, 3), 0),
    ((3, 18), 1),
    ((2, 3, 4), (1, 2)),
    ((2, 3, 2), (0, 2)),
    ((2, 3), None),
    ((0, 3), 1),
]:
    for name, ref in {"SoftmaxGrad": _softmax_grad, "LogSoftmaxGrad": _logsoftmax_grad}.items():
        op = getattr(ops, name)(axes)
        REDUCTIONS.append(Row(f"{name}/{shape} axes {axes}", op, partial(ref, axis=axes), (real(*shape), real(*shape))))
    REDUCTIONS += [_gradient_of_logsumexp(shape, axes, keepdims) for keepdims in (False, True)]
REDUCTIONS += forms(
    "cumsum",
    np.cumsum,
    [((2, 3), None), ((2, 3), 0), ((2, 3), -1), ((2, 3, 4), 1), ((4,), 0), ((0, 3), 1), ((0, 3), 0), ((1,), 0)],
)


def _sum_to(x, shape):
    wide = (1,) * (x.ndim - len(shape)) + shape
    axes = tuple(i for i, n in enumerate(wide) if n == 1 and x.shape[i] != 1)
    return x.sum(axes, keepdims=True).reshape(shape)


REDUCTIONS += forms(
    "sum_to",
    _sum_to,
    [
        ((2, 3), (3,)),
        ((2, 3), (1, 3)),
        ((2, 3), (2, 1)),
        ((2, 3), ()),
        ((2, 3), (2, 3)),
        ((4, 1, 3), (1, 1)),
        ((0, 3), (3,)),
    ],
)

REDUCTIONS += [
    Row("FitTo/shape", lambda x, y: ops.FitTo(ops.EWiseAdd())(x, y), lambda x, y: x.sum(0), (real(2, 3), real(3))),
    Row("NegateBeside/floats", lambda x, a: ops.NegateBeside()(x, a), lambda x, a: -x, (real(2, 3), real(2, 3))),
    Row("FitTo/nothing to do", lambda x, y: ops.FitTo(ops.EWiseAdd())(x, y), lambda x, y: x, (real(3), real(3))),
]

# ---- Shapes --------------------------------------------------------------------------


def _every(x, axes, d):
    """Where the elements of x go in, or come from, when d others are between them."""
    chosen = [i % x.ndim for i in (axes if isinstance(axes, tuple) else (axes,)) if -x.ndim <= i < x.ndim]
    return tuple(slice(None, None, 1 + d if i in chosen else 1) for i in range(x.ndim))


def _dilate(x, axes, d):
    out = np.zeros([n * place.step for n, place in zip(x.shape, _every(x, axes, d), strict=True)])
    out[_every(x, axes, d)] = x
    return out


SHAPES = [
    *forms("reshape", np.reshape, [
        ((2, 3), (6,)), ((2, 3), (3, 2)), ((2, 3), (-1,)), ((2, 3), (1, -1, 3)), ((), (1, 1)), ((1,), ()),
        ((0, 3), (3, 0)), ((2, 3), [6, 1]),
    ]),
    *forms("broadcast_to", np.broadcast_to, [
        ((3,), (2, 3)), ((2, 1), (2, 3)), ((), (2, 2)), ((1, 1), (3, 2, 4)), ((2, 3), (2, 3)), ((1, 3), (0, 3)), ((1,), (1, 1, 1)),
    ]),
    *forms("transpose", lambda x, axes: np.swapaxes(x, *axes or (-1, -2)), [
        ((2, 3), None), ((2, 3, 4), None), ((2, 3, 4), (0, 1)), ((2, 3, 4), (-3, 2)), ((2, 3), (1, 1)), ((2, 0), None),
    ]),
    *forms("permute", np.transpose, [
        ((2, 3, 4), (2, 0, 1)), ((2, 3, 4), (0, -1, 1)), ((2, 3), [1, 0]), ((), ()), ((2,), (0,)), ((0, 2, 3), (1, 2, 0)),
    ]),
    *forms("swapaxes", np.swapaxes, [((2, 3, 4), 0, -1), ((2, 3), 1, 1)]),
    *forms("squeeze", np.squeeze, [
        ((1, 2, 1), None), ((1, 2, 1), 0), ((1, 2, 1), -1), ((1, 2, 1), (0, 2)), ((2,), None), ((), None),
    ]),
    *forms("expand_dims", np.expand_dims, [((2, 3), 0), ((2, 3), 1), ((2, 3), -1), ((2, 3), 2), ((), 0), ((0,), -2)]),
    *forms("flip", np.flip, [
        ((2, 3),), ((2, 3), None), ((2, 3), 0), ((2, 3), -1), ((2, 3), (0, 1)), ((2, 3, 4), (0, -1)), ((0, 2), 1), ((2, 3), ()),
    ]),
    *forms("pad", lambda x, widths, value=0: np.pad(x, widths, constant_values=value), [
        ((2, 3), ((1, 2), (0, 1))), ((2,), ((0, 0),), 0), ((2,), ((3, 0),), 1.5), ((0, 2), ((1, 1), (0, 0)), 0),
        ((1, 2, 2), ((0, 0), (1, 1), (2, 0)), -1),
    ]),
    *forms("split", lambda x, axis=0: list(np.moveaxis(x, axis, 0)), [
        ((2, 3),), ((2, 3), 0), ((2, 3), 1), ((2, 3), -1), ((1, 2), 0), ((2, 3, 4), 1), ((3,), 0), ((2, 0), 0),
    ]),
]  # fmt: skip
for name, ref in {"dilate": _dilate, "undilate": lambda x, axes, d: x[_every(x, axes, d)]}.items():
    cases = [((0,), 1), ((0, 1), 2), ((-1,), 1), (1, 1), ((0, 5), 1), ((7,), 2), ((0, 1), 0)]
    SHAPES += forms(name, ref, [((2, 3), *case) for case in cases])
    SHAPES += forms(name, ref, [((4,), (0,), 1), ((0, 3), (0, 1), 1), ((5, 4), (0, 1), 1)])
SHAPES += [
    Row(
        f"{name}/{shapes} axis {axis}",
        partial(lambda name, axis, *tensors: getattr(ops, name)(tensors, axis), name, axis),
        partial(lambda name, axis, *arrays: getattr(np, name)(arrays, axis), name, axis),
        tuple(real(*shape) for shape in shapes),
    )
    for name, axis, *shapes in [
        ("stack", 0, (2, 3), (2, 3)),
        ("stack", 1, (2, 3), (2, 3), (2, 3)),
        ("stack", -1, (2, 3), (2, 3)),
        ("stack", 2, (2, 3), (2, 3)),
        ("stack", 0, (2,)),
        ("stack", 0, (), ()),
        ("stack", 1, (0, 2), (0, 2)),
        ("concatenate", 0, (2, 3), (1, 3)),
        ("concatenate", 1, (2, 3), (2, 1), (2, 2)),
        ("concatenate", -1, (2, 3), (2, 1)),
        ("concatenate", 0, (2,)),
        ("concatenate", 0, (2, 3), (0, 3)),
        ("concatenate", -2, (2, 1, 3), (2, 2, 3)),
    ]
]
SHAPES += [
    Row("stack/default", lambda *a: ops.stack(a), lambda *a: np.stack(a), (real(2), real(2))),
    Row(
        "stack/list with an array",
        lambda a: ops.stack([a, np.ones(2)], 1),
        lambda a: np.stack([a, np.ones(2)], 1),
        (real(2),),
    ),
    Row("stack/TensorTuple", lambda x: ops.stack(ops.split(x, 0), 1), np.transpose, (real(2, 3),)),
    Row("stack/twice the same", lambda a: ops.stack([a, a], 0), lambda a: np.stack([a, a]), (real(2),)),
    Row("split/one entry used", lambda x: ops.split(x, 0)[1], lambda x: x[1], (real(3, 2),)),
    Row(
        "split/entry used twice",
        lambda x: ops.split(x, 0)[1] * ops.split(x, 0)[-1],
        lambda x: x[1] * x[1],
        (real(2, 2),),
    ),
    Row("concatenate/default", lambda *a: ops.concatenate(a), lambda *a: np.concatenate(a), (real(2), real(3))),
    Row("concatenate/TensorTuple", lambda x: ops.concatenate(ops.split(x, 0), 0), np.ravel, (real(2, 3),)),
]

# ---- Tuples --------------------------------------------------------------------------


class Product(ndl.TensorOp):
    """y = t[0] t[1], of a tuple: the ops of needle.ops take tensors out of tuples instead"""

    def compute(self, pair):
        return pair[0] * pair[1]

    def gradient(self, out_grad, node):
        a, b = node.inputs[0]
        return ops.make_tuple(out_grad * b, out_grad * a)


TUPLES = [
    Row("make_tuple/as an input", lambda a, b: Product()(ops.make_tuple(a, b)), np.multiply, (real(2, 3), real(2, 3))),
    Row("split/as an input", lambda x: Product()(ops.split(x, 0)), lambda x: x[0] * x[1], (real(2, 3),)),
    Row("make_tuple/2", lambda a, b: ops.make_tuple(a, b), lambda a, b: [a, b], (real(2, 3), real(2))),
    Row("make_tuple/same twice", lambda a: ops.make_tuple(a, a), lambda a: [a, a], (real(2),)),
    Row("tuple_get_item/made", lambda a, b: ops.tuple_get_item(ops.make_tuple(a, b), 1), lambda a, b: b, (real(2), real(3))),
    Row("tuple_get_item/of split", lambda x: ops.tuple_get_item(ops.split(x, 1), 2), lambda x: x[:, 2], (real(2, 3),)),
    Row("tuple_get_item/negative", lambda x: ops.tuple_get_item(ops.split(x, 1), -1), lambda x: x[:, 2], (real(2, 3),)),
    Row("fused_add_scalars/2 5", lambda x: ops.fused_add_scalars(x, 2.0, 5.0), lambda x: [x + 2, x + 5], (real(2, 3),)),
    Row("fused_add_scalars/one used", lambda x: ops.fused_add_scalars(x, 2.0, 5.0)[1], lambda x: x + 5, (real(2, 3),)),
    Row("Tensor/tuple + tuple", lambda x: ops.split(x, 0) + ops.split(x * x, 0), lambda x: list(x + x * x), (real(2, 3),)),
]  # fmt: skip

# ---- Products --------------------------------------------------------------------------

PRODUCTS = [
    Row(f"matmul/{a} {b}", _call("matmul"), np.matmul, (real(*a), real(*b)))
    for a, b in [
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((1, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 2)),
        ((1, 1), (1, 1)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
        ((4, 2, 0), (0, 3)),
        ((0, 2, 3), (3, 4)),
        ((2, 2, 3), (3, 0)),
    ]
]


def _swapped(x, swap):
    return np.swapaxes(x, -1, -2) if swap else x


PRODUCTS += [
    Row(
        f"linear/{x} {w} {b}",
        _call("linear"),
        lambda x, w, *b: x @ w + (b[0] if b else 0),
        tuple(real(*shape) for shape in (x, w, b) if shape is not None),
    )
    for x, w, b in [
        ((2, 3), (3, 4), (4,)),
        ((2, 3), (3, 4), (1, 4)),
        ((2, 5, 3), (3, 4), (4,)),
        ((2, 5, 3), (3, 4), (1, 4)),
        ((2, 3), (3, 1), (1,)),
        ((1, 3), (3, 4), (2, 4)),
        ((2, 3), (3, 4), (1,)),
        ((2, 3), (3, 4), ()),
        ((3,), (3, 4), (4,)),
        ((0, 3), (3, 4), (4,)),
        ((2, 0), (0, 4), (4,)),
        ((2, 5, 0), (0, 4), (4,)),
        ((2, 3), (3, 4), None),
        ((2, 2, 3), (2, 3, 4), (4,)),
    ]
]

#: (m, k) and (k, n) with leading axes, each as it is or transposed
PRODUCTS += [
    Row(
        f"MatMul/transposed {ta} {tb} {lead_a} {lead_b}",
        lambda a, b, ta=ta, tb=tb: ops.MatMul((ta, tb))(a, b),
        lambda a, b, ta=ta, tb=tb: _swapped(a, ta) @ _swapped(b, tb),
        (real(*lead_a, *((3, 2) if ta else (2, 3))), real(*lead_b, *((4, 3) if tb else (3, 4)))),
    )
    for ta, tb in product([False, True], repeat=2)
    for lead_a, lead_b in [((), ()), ((2,), ()), ((), (2,)), ((2, 1), (3,))]
]
PRODUCTS += [
    Row(f"Tensor/a @ b {form}", fn, fn, (real(2, 3),))
    for form, fn in {
        "with its transpose": lambda a: a @ a.T,
        "with an array": lambda a: a @ np.arange(6.0).reshape(3, 2),
        "with a 1-d array": lambda a: a @ np.arange(3.0),
        "array first": lambda a: np.arange(4.0).reshape(2, 2) @ a,
        "1-d array first": lambda a: np.arange(2.0) @ a,
    }.items()
]
PRODUCTS += [
    Row(f"einsum/{text}", partial(ops_einsum, text), partial(np.einsum, text), tuple(real(*s) for s in shapes))
    for ops_einsum in [lambda text, *operands: ops.einsum(text, *operands)]
    for text, shapes in [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 2), (2, 2, 3)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 2), (1, 2, 2, 2)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ij->j", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii->", [(3, 3)]),
        ("iij->j", [(2, 2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("i,i->", [(3,), (3,)]),
        ("ij,ij->ij", [(2, 3), (2, 3)]),
        ("ij,j,jk->ik", [(2, 3), (3,), (3, 2)]),
        ("...ij,...jk->...ik", [(4, 2, 3), (3, 2)]),
        ("i...->...", [(2, 3, 2)]),
        ("ij,kl->il", [(2, 3), (2, 2)]),
        ("ij,ij->", [(0, 3), (0, 3)]),
        (",i->i", [(), (3,)]),
    ]
]
PRODUCTS += [
    Row("einsum/size 1 broadcasts", lambda a, b: ops.einsum("ij,ij->ij", a, b), np.multiply, (real(2, 3), real(1, 3))),
    Row("einsum/with an array", lambda a: ops.einsum("ij,j->i", a, np.ones(3)), lambda a: a.sum(1), (real(2, 3),)),
    Row("einsum/same twice", lambda a: ops.einsum("ij,ik->jk", a, a), lambda a: a.T @ a, (real(2, 3),)),
]  # fmt: skip

# ---- Indexing --------------------------------------------------------------------------

KEYS: dict[str, tuple[tuple[int, ...], Any]] = {
    "int": ((3, 4), 1),
    "negative int": ((3, 4), -1),
    "slice": ((3, 4), slice(1, 3)),
    "step": ((5, 2), slice(None, None, 2)),
    "negative step": ((5, 2), slice(None, None, -2)),
    "empty slice": ((3, 2), slice(2, 1)),
    "two slices": ((3, 4), (slice(0, 2), slice(1, None))),
    "int and slice": ((3, 4), (1, slice(None, None, 3))),
    "all ints": ((3, 4), (1, 2)),
    "None": ((3, 2), (None, slice(None), None)),
    "ellipsis": ((2, 3, 2), (..., 1)),
    "ellipsis in the middle": ((2, 3, 2), (0, ..., None)),
    "ellipsis only": ((2, 3), ...),
    "empty tuple": ((2, 3), ()),
    "list": ((3, 2), [2, 0]),
    "array": ((3, 2), np.array([2, 0])),
    "array negative": ((3, 2), np.array([-1, 0])),
    "array 2-d": ((3, 2), np.array([[2, 0], [1, 1]])),
    "array repeated": ((3, 2), np.array([1, 1, 1])),
    "two arrays": ((3, 4), (np.array([0, 2]), np.array([1, 3]))),
    "arrays that broadcast": ((3, 4), (np.array([[0], [2]]), np.array([1, 3, 3]))),
    "array and slice": ((3, 4), (slice(None), np.array([1, 3]))),
    "arrays apart": ((2, 3, 4), (np.array([0, 1]), slice(None), np.array([1, 3]))),
    "mask": ((2, 3), MASK),
    "mask of rows": ((2, 3), np.array([False, True])),
    "mask of nothing": ((2, 3), np.zeros((2, 3), bool)),
    "mask and slice": ((2, 3), (slice(None), np.array([True, False, True]))),
    "empty array": ((3, 2), np.array([], dtype=np.int64)),
}
REPEATED = {"array 2-d", "array repeated", "arrays that broadcast"}


def _put(key, a, b):
    out = a.copy()
    out[key] = b
    return out


def _assigned(key, a, b):
    """a copy of a, written to with Tensor.__setitem__"""
    out = a * 1
    out[key] = b
    return out


INDEXING = [
    Row(f"getitem/{form}", _call("getitem", key), partial(lambda key, x: x[key], key), (real(*shape),))
    for form, (shape, key) in KEYS.items()
]
INDEXING += [
    Row(
        "getitem/Tensor key",
        lambda x: ops.getitem(x, ndl.Tensor(np.array([1, 1, 0]), device=x.device)),
        lambda x: x[[1, 1, 0]],
        (real(2, 3),),
    ),
    Row("getitem/Tensor mask", lambda x: ops.getitem(x, x > 0), lambda x: x[x > 0], (real(2, 3),)),
    Row("getitem/0-d", lambda x: ops.getitem(x, ...), np.copy, (real(),)),
    Row(
        "GetItem/x[Tensor key]",
        lambda x: x[ndl.Tensor(np.array([1, 1, 0]), device=x.device)],
        lambda x: x[[1, 1, 0]],
        (real(2, 3),),
    ),
    Row("GetItem/x[Tensor mask]", lambda x: x[x > 0], lambda x: x[x > 0], (real(2, 3),)),
    Row("GetItem/x[...] of 0-d", lambda x: x[...], np.copy, (real(),)),
    Row(
        "AddAt/slice", lambda x: ops.AddAt(slice(1, 3), (4, 2))(x), lambda x: np.pad(x, ((1, 1), (0, 0))), (real(2, 2),)
    ),
    Row(
        "AddAt/repeated",
        lambda x: ops.AddAt([1, 1], (2, 2))(x),
        lambda x: np.stack([x[0] * 0, x.sum(0)]),
        (real(2, 2),),
    ),
    Row(
        "ScatterAdd/repeated",
        lambda x: ops.ScatterAdd(0, (2, 2))(x, np.array([1, 1])),
        lambda x: np.stack([x[0] * 0, x.sum(0)]),
        (real(2, 2),),
    ),
]
ASSIGNMENTS = {
    "setitem": lambda key, a, b: ops.setitem(a, key, b),
    "Tensor/a[key] = b": _assigned,
}
INDEXING += [
    Row(f"{name}/{form}", partial(fn, key), partial(_put, key), (real(*shape), real(*np.zeros(shape)[key].shape)))
    for (name, fn), (form, (shape, key)) in product(ASSIGNMENTS.items(), KEYS.items())
    if form not in REPEATED
]
INDEXING += [
    Row(
        f"setitem/{shape} at {form}",
        partial(ASSIGNMENTS["setitem"], key),
        partial(_put, key),
        (real(3, 4), real(*shape)),
    )
    for form, key, shape in [
        ("two rows", slice(0, 2), ()),
        ("two rows", slice(0, 2), (4,)),
        ("two rows", slice(0, 2), (2, 1)),
        ("two rows", slice(0, 2), (1, 4)),
        ("two rows", slice(0, 2), (1, 1, 4)),
        ("a row", 1, (1, 4)),
        ("a row", 1, (1,)),
        ("a list", [0, 2], (1, 1)),
        ("a mask", np.eye(3, 4) > 0, ()),
        ("a mask", np.eye(3, 4) > 0, (1,)),
        ("repeated places, the last counts", [1, 1], (2, 4)),
    ]
]
INDEXING += [
    Row("setitem/number", lambda a: ops.setitem(a, 0, 2.5), lambda a: _put(0, a, 2.5), (real(2, 3),)),
    Row(
        "setitem/from an array",
        lambda a: ops.setitem(a, 0, np.arange(3.0)),
        lambda a: _put(0, a, [0, 1, 2]),
        (real(2, 3),),
    ),
    Row("setitem/of itself", lambda a: ops.setitem(a, 0, a[1]), lambda a: _put(0, a, a[1]), (real(2, 3),)),
]
INDEXING += forms(
    "take",
    lambda x, index, axis: np.take(x, np.asarray(index, dtype=int), axis),
    [
        ((3, 2), [2, 0, 0], 0),
        ((3, 2), [[1, -1], [0, 0]], 1),
        ((3, 2), 1, 0),
        ((3, 2), [5, -1, 0], None),
        ((2, 3, 2), [0, 2], -2),
        ((3, 2), [], 0),
        ((4,), np.array([1.0, 3.0]), 0),
    ],
)


def _gather(x, index, axis=-1):
    """x[i, index[i, j]]: index may be smaller than x along the other axes"""
    index = np.asarray(index)
    part = x[tuple(slice(None) if i == axis % x.ndim else slice(n) for i, n in enumerate(index.shape))]
    return np.take_along_axis(part, index, axis)


INDEXING += forms(
    "gather",
    _gather,
    [
        ((2, 3), [[0, 0], [2, 1]]),
        ((2, 3), np.array([[0, 2, 2], [1, 1, 0]]), -1),
        ((2, 3), np.array([[0], [2]]), 1),
        ((2, 3), np.array([[0, 1, 1]]), 0),
        ((2, 3), np.array([[1, 0]]), 0),
        ((2, 3), np.array([[-1], [0]]), 1),
        ((4,), np.array([3, 3, 0]), 0),
        ((2, 2, 3), np.array([[[0]], [[2]]]), -1),
    ],
)
IDS = {
    "list": [1, 3, 1],
    "ints": np.array([[0, 2], [3, 3]]),
    "floats": np.array([1.0, 3.0], dtype=np.float32),
    "negative": np.array([-1, 0]),
    "one": 2,
    "none": np.array([], dtype=np.int64),
}
INDEXING += [
    Row(
        f"embedding/{form}",
        partial(lambda ids, w: ops.embedding(ids, w), ids),
        partial(lambda ids, w: w[np.asarray(ids, int)], ids),
        (real(4, 3),),
    )
    for form, ids in IDS.items()
]
INDEXING += [
    Row(
        "embedding/Tensor",
        lambda w: ops.embedding(ndl.Tensor([2.0, 0.0], device=w.device), w),
        lambda w: w[[2, 0]],
        (real(4, 3),),
    ),
    Row(
        "gather/Tensor",
        lambda x: ops.gather(x, ndl.Tensor([[1], [0]], device=x.device)),
        lambda x: x[[0, 1], [1, 0]][:, None],
        (real(2, 3),),
    ),
]

# ---- Networks --------------------------------------------------------------------------


def _pair(value):
    return value if isinstance(value, tuple) else (value, value)


def _sides(padding):
    return tuple(_pair(p) for p in _pair(padding))


def _conv2d(x, w, bias=0.0, stride=1, padding=0, dilation=1, groups=1):
    x = np.pad(x, ((0, 0), *_sides(padding), (0, 0)))
    (s, t), (d, e), (kh, kw, c, f) = _pair(stride), _pair(dilation), w.shape
    oh, ow = (x.shape[1] - d * (kh - 1) - 1) // s + 1, (x.shape[2] - e * (kw - 1) - 1) // t + 1
    out = np.zeros((x.shape[0], oh, ow, f))
    for i, j, g in product(range(kh), range(kw), range(groups)):
        part = x[:, i * d : i * d + (oh - 1) * s + 1 : s, j * e : j * e + (ow - 1) * t + 1 : t, g * c : (g + 1) * c]
        filters = slice(g * f // groups, (g + 1) * f // groups)
        out[..., filters] += part @ w[i, j, :, filters]
    return out + bias


def _conv1d(x, w, bias=0.0, stride=1, padding=0, dilation=1, groups=1):
    return _conv2d(x[:, None], w[None], bias, (1, stride), ((0, 0), _pair(padding)), (1, dilation), groups)[:, 0]


def _conv_transpose2d(x, w, bias=0.0, stride=1, padding=0, output_padding=0, dilation=1, groups=1):
    (s, t), (d, e), (kh, kw, c, f), (h, v) = _pair(stride), _pair(dilation), w.shape, x.shape[1:3]
    (top, bottom), (left, right) = _sides(padding)
    more, wider = _pair(output_padding)
    out = np.zeros(
        (x.shape[0], (h - 1) * s + d * (kh - 1) + 1 + more, (v - 1) * t + e * (kw - 1) + 1 + wider, c * groups)
    )
    for i, j, g in product(range(kh), range(kw), range(groups)):
        filters = slice(g * f // groups, (g + 1) * f // groups)
        place = (
            slice(None),
            slice(i * d, i * d + (h - 1) * s + 1, s),
            slice(j * e, j * e + (v - 1) * t + 1, t),
            slice(g * c, (g + 1) * c),
        )
        out[place] += x[..., filters] @ w[i, j, :, filters].T
    return out[:, top : out.shape[1] - bottom, left : out.shape[2] - right] + bias


def _pool(reduce, empty, x, size, stride=None, padding=0):
    (kh, kw), (s, t) = _pair(size), _pair(size if stride is None else stride)
    x = np.pad(x, ((0, 0), *_sides(padding), (0, 0)), constant_values=empty)
    oh, ow = (x.shape[1] - kh) // s + 1, (x.shape[2] - kw) // t + 1
    windows = [reduce(x[:, i * s : i * s + kh, j * t : j * t + kw], axis=(1, 2)) for i in range(oh) for j in range(ow)]
    return np.stack(windows, 1).reshape(x.shape[0], oh, ow, x.shape[3])


def _normalised(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _layer_norm(x, weight=1.0, bias=0.0, eps=1e-5):
    return _normalised(x, -1, eps) * weight + bias


def _batch_norm(x, weight=1.0, bias=0.0, eps=1e-5, axis=1):
    x = np.moveaxis(x, axis, -1)
    return np.moveaxis(_normalised(x, tuple(range(x.ndim - 1)), eps) * weight + bias, -1, axis)


def _cross_entropy(x, labels, reduction="mean", ignore_index=None, label_smoothing=0.0):
    labels = np.asarray(labels, dtype=int)
    kept = np.ones(labels.shape) if ignore_index is None else (labels != ignore_index) * 1.0
    logs = _logsoftmax(x)
    hit = np.take_along_axis(logs, np.where(kept, labels, 0)[..., None], -1)[..., 0]
    losses = -((1 - label_smoothing) * hit + label_smoothing * logs.mean(-1)) * kept
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / kept.sum()}[reduction]


def _attention(q, k, v, mask=None, causal=False, scale=None):
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    t, s = scores.shape[-2:]
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if np.asarray(mask).dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tril(np.ones((t, s), bool), s - t), scores, -np.inf)
    return _softmax(scores) @ v


def _given(name, ref, form, *inputs, **kwargs):
    return Row(f"{name}/{form}", _call(name, **kwargs), partial(ref, **kwargs), inputs)


CONVOLUTIONS: list[tuple[Any, ...]] = [
    ("plain", real(2, 4, 5, 2), real(3, 3, 2, 3)),
    ("bias", real(1, 3, 3, 2), real(2, 2, 2, 3), real(3)),
    ("padding", real(1, 3, 4, 2), real(3, 3, 2, 1), {"padding": 1}),
    ("padding of two sizes", real(1, 3, 4, 1), real(3, 2, 1, 2), {"padding": (1, 0)}),
    ("padding of four sizes", real(1, 3, 3, 1), real(2, 2, 1, 1), {"padding": ((0, 2), (1, 0))}),
    ("stride", real(1, 5, 6, 2), real(2, 3, 2, 2), {"stride": 2}),
    ("stride of two sizes", real(1, 5, 6, 1), real(2, 2, 1, 2), {"stride": (2, 3), "padding": 1}),
    ("stride beyond the kernel", real(1, 6, 6, 1), real(1, 2, 1, 1), {"stride": 3}),
    ("dilation", real(1, 5, 6, 1), real(2, 3, 1, 2), {"dilation": 2}),
    ("dilation of two sizes", real(1, 4, 6, 1), real(2, 2, 1, 1), {"dilation": (1, 3), "stride": 2, "padding": 1}),
    ("groups", real(1, 4, 4, 4), real(2, 2, 2, 6), {"groups": 2}),
    ("depthwise", real(2, 4, 3, 3), real(2, 2, 1, 3), {"groups": 3, "stride": 2, "padding": 1}),
    ("one pixel", real(1, 2, 3, 2), real(1, 1, 2, 3)),
    ("the whole image", real(1, 3, 2, 2), real(3, 2, 2, 1)),
    ("no images", real(0, 3, 3, 1), real(2, 2, 1, 2)),
]  # fmt: skip


def _forms(name, ref, forms):
    return [
        _given(
            name,
            ref,
            form,
            *[x for x in rest if isinstance(x, Input)],
            **(rest[-1] if isinstance(rest[-1], dict) else {}),
        )
        for form, *rest in forms
    ]


NETWORK = _forms("conv2d", _conv2d, CONVOLUTIONS)
NETWORK += _forms("conv", partial(_conv2d, bias=0.0), [
    ("padding 0", real(2, 4, 4, 2), real(3, 3, 2, 2), {"stride": 1, "padding": 0}),
    ("stride 2", real(1, 5, 5, 2), real(3, 3, 2, 1), {"stride": 2, "padding": 1}),
])  # fmt: skip
NETWORK += [
    Row("conv/default", _call("conv"), lambda x, w: _conv2d(x, w, padding=1), (real(1, 3, 3, 1), real(3, 3, 1, 2))),
]
NETWORK += _forms("conv1d", _conv1d, [
    ("plain", real(2, 5, 2), real(3, 2, 3)),
    ("bias", real(1, 4, 2), real(2, 2, 2), real(2)),
    ("stride padding dilation", real(1, 7, 1), real(3, 1, 2), {"stride": 2, "padding": 2, "dilation": 2}),
    ("padding before only", real(1, 4, 1), real(3, 1, 1), {"padding": (2, 0)}),
    ("groups", real(1, 4, 4), real(2, 2, 2), {"groups": 2}),
])  # fmt: skip
NETWORK += _forms("conv_transpose2d", _conv_transpose2d, [
    ("plain", real(2, 3, 2, 3), real(2, 3, 2, 3)),
    ("bias", real(1, 2, 2, 3), real(2, 2, 2, 3), real(2)),
    ("stride", real(1, 2, 3, 2), real(3, 2, 1, 2), {"stride": 2}),
    ("padding", real(1, 3, 3, 1), real(3, 3, 2, 1), {"padding": 1}),
    ("output_padding", real(1, 2, 2, 1), real(3, 3, 1, 1), {"stride": 2, "padding": 1, "output_padding": 1}),
    ("output_padding of a stride", real(1, 2, 3, 1), real(2, 2, 1, 1), {"dilation": 2, "output_padding": 1}),
    (
        "output_padding beyond the stride, cut off and zeros",
        real(1, 2, 3, 2),
        real(2, 2, 1, 2),
        {"stride": (2, 1), "padding": (1, 0), "dilation": 4, "output_padding": (3, 2)},
    ),
    (
        "output_padding within the padding",
        real(1, 3, 3, 1),
        real(2, 2, 1, 1),
        {"padding": 1, "dilation": 3, "output_padding": (1, 2)},
    ),
    ("dilation", real(1, 2, 2, 1), real(2, 2, 1, 1), {"stride": (1, 2), "dilation": 2}),
    ("groups", real(1, 2, 2, 4), real(2, 2, 1, 4), {"groups": 2}),
])  # fmt: skip
POOLS = [
    ("2", real(2, 4, 6, 2), {"size": 2}),
    ("rows and columns", real(1, 4, 5, 2), {"size": (2, 3)}),
    ("overlapping", real(1, 5, 5, 1), {"size": 3, "stride": 1}),
    ("rest left out", real(1, 5, 4, 1), {"size": 2}),
    ("padding", real(1, 4, 4, 2), {"size": 3, "stride": 2, "padding": 1}),
    ("stride beyond the window", real(1, 6, 5, 1), {"size": 2, "stride": (3, 3)}),
    ("size 1", real(1, 2, 2, 1), {"size": 1}),
    ("no images", real(0, 4, 4, 1), {"size": 2}),
]
NETWORK += _forms("max_pool2d", partial(_pool, np.max, -np.inf), POOLS)
NETWORK += _forms("avg_pool2d", partial(_pool, np.mean, 0), POOLS)
NETWORK += _forms("layer_norm", _layer_norm, [
    ("plain", real(2, 3)),
    ("weight", real(2, 3), real(3)),
    ("weight and bias", real(2, 3), real(3), real(3)),
    ("3-d, other eps", real(2, 2, 4), real(4), real(4), {"eps": 0.1}),
    ("1-d", real(4), real(4), real(4)),
    ("no rows", real(0, 3), real(3), real(3)),
])  # fmt: skip
NETWORK += _forms("batch_norm", _batch_norm, [
    ("plain", real(4, 3)),
    ("weight and bias", real(4, 3), real(3), real(3)),
    ("NCHW", real(2, 3, 2, 2), real(3), real(3)),
    ("NHWC", real(2, 2, 2, 3), real(3), real(3), {"axis": -1}),
    ("axis 0, other eps", real(2, 5), real(2), real(2), {"axis": 0, "eps": 0.1}),
])  # fmt: skip
STATISTICS = np.array([0.5, -1.0, 2.0]), np.array([0.3, 1.5, 2.0])


def _evaluated(x, weight, bias):
    mean, var = (ndl.Tensor(s, dtype=x.dtype, device=x.device, requires_grad=False) for s in STATISTICS)
    return ops.batch_norm(x, weight, bias, running_mean=mean, running_var=var, training=False)


def _evaluated_ref(x, weight, bias):
    mean, var = (s[:, None] for s in STATISTICS)
    return (x - mean) / np.sqrt(var + 1e-5) * weight[:, None] + bias[:, None]


NETWORK += [Row("batch_norm/in evaluation", _evaluated, _evaluated_ref, (real(2, 3, 4), real(3), real(3)))]
NETWORK += _forms("cross_entropy", _cross_entropy, [
    ("mean", real(4, 3), {"labels": [2, 0, 1, 1]}),
    ("sum", real(4, 3), {"labels": np.array([2, 0, 1, 1]), "reduction": "sum"}),
    ("none", real(4, 3), {"labels": np.array([2, 0, 1, 1]), "reduction": "none"}),
    ("3-d", real(2, 2, 3), {"labels": np.array([[2, 0], [1, 1]])}),
    ("1-d", real(3), {"labels": np.array(1)}),
    ("ignore_index", real(4, 3), {"labels": np.array([2, -100, 1, -100]), "ignore_index": -100}),
    ("ignore_index none", real(3, 2), {"labels": np.array([0, 1, 1]), "ignore_index": 0, "reduction": "none"}),
    ("label_smoothing", real(3, 4), {"labels": np.array([0, 3, 1]), "label_smoothing": 0.2}),
    ("float labels", real(2, 3), {"labels": np.array([1.0, 2.0], dtype=np.float32)}),
])  # fmt: skip
NETWORK += _forms("mean_squared_error", lambda a, b: np.mean((a - b) ** 2), [
    ("2-d", real(2, 3), real(2, 3)),
    ("1-d", real(5), real(5)),
    ("0-d", real(), real()),
    ("one column", real(4, 1), real(4, 1)),
])  # fmt: skip
NETWORK += _forms("scaled_dot_product_attention", _attention, [
    ("plain", real(2, 3, 4), real(2, 5, 4), real(2, 5, 2)),
    ("2-d", real(3, 2), real(4, 2), real(4, 3)),
    ("heads", real(2, 2, 3, 2), real(2, 2, 3, 2), real(2, 2, 3, 2), {"causal": True}),
    ("causal, more keys", real(1, 2, 3), real(1, 4, 3), real(1, 4, 2), {"causal": True}),
    ("scale", real(1, 2, 3), real(1, 2, 3), real(1, 2, 3), {"scale": 0.3}),
    ("bool mask", real(2, 2, 2), real(2, 3, 2), real(2, 3, 2), {"mask": MASK}),
    ("float mask", real(2, 2, 2), real(2, 3, 2), real(2, 3, 2), {"mask": np.array([[0.5, -1.0, 0.0], [2.0, 0.0, 0.25]])}),
    ("mask and causal", real(1, 3, 2), real(1, 3, 2), real(1, 3, 2), {"mask": np.array([True, False, True]), "causal": True}),
    ("shared keys", real(2, 3, 2, 2), real(1, 1, 3, 2), real(3, 3, 2)),
])  # fmt: skip
NETWORK += [
    Row(
        "scaled_dot_product_attention/learned mask",
        _call("scaled_dot_product_attention"),
        _attention,
        (real(2, 2, 2), real(2, 3, 2), real(2, 3, 2), real(2, 3)),
    ),
    Row(
        "attention_probabilities/plain",
        _call("attention_probabilities"),
        lambda q, k: _softmax(q @ k.T / np.sqrt(2)),
        (real(3, 2), real(4, 2)),
    ),
    Row("Dropout", lambda x: ops.Dropout(0.25)(x, MASK), lambda x: x * MASK / 0.75, (real(2, 3),)),
    Row("dropout/in evaluation", _call("dropout", 0.5, training=False), np.copy, (real(2, 3),)),
    Row("dropout/p 0", _call("dropout", 0.0), np.copy, (real(2, 3),)),
]

# ---- Recurrent layers --------------------------------------------------------------------------


def _recurrent(gates, step):
    """A layer over time by step(x's sums, h's sums, *state) -> state, for inputs in the order of the functions of ops."""

    def run(x, w_ih, w_hh, b_ih=None, b_hh=None, *state, **settings):
        n = w_hh.shape[0]
        b_ih, b_hh = (np.zeros(gates * n) if b is None else b for b in (b_ih, b_hh))
        state = [np.zeros((x.shape[1], n)) if s is None else s for s in (*state, *[None] * (1 + (gates == 4)))]
        state, every = state[: 1 + (gates == 4)], []
        for each in x:
            state = step(
                *(np.split(s, gates, -1) for s in (each @ w_ih + b_ih, state[0] @ w_hh + b_hh)), *state, **settings
            )
            every.append(state[0])
        return [np.stack(every), *state]

    return run


def _lstm_step(x, y, h, c):
    i, f, g, o = (a + b for a, b in zip(x, y, strict=True))
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru_step(x, y, h):
    r, z = _sigmoid(x[0] + y[0]), _sigmoid(x[1] + y[1])
    return ((1 - z) * np.tanh(x[2] + r * y[2]) + z * h,)


def _rnn_step(x, y, h, nonlinearity="tanh"):
    return ({"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0)}[nonlinearity](x[0] + y[0]),)


def _layer(gates, t, b, m, n, biases=2, states=0):
    """Inputs of a layer: x, both weights, and so many biases and states."""
    return real(t, b, m), real(m, gates * n), real(n, gates * n), *[real(gates * n)] * biases, *[real(b, n)] * states


def _no_biases(name, x, w_ih, w_hh, *state):
    return getattr(ops, name)(x, w_ih, w_hh, None, None, *state)


RECURRENT = []
for _name, _gates, _step, _states in (("lstm", 4, _lstm_step, 2), ("gru", 3, _gru_step, 1), ("rnn", 1, _rnn_step, 1)):
    _ref = _recurrent(_gates, _step)
    RECURRENT += [
        Row(f"{_name}/all inputs", _call(_name), _ref, _layer(_gates, 3, 2, 2, 3, 2, _states)),
        Row(f"{_name}/from zeros", _call(_name), _ref, _layer(_gates, 2, 2, 3, 2)),
        Row(f"{_name}/no biases", partial(_no_biases, _name), partial(
            lambda ref, x, w, u, *state: ref(x, w, u, None, None, *state), _ref), _layer(_gates, 4, 1, 1, 2, 0, _states)),
        Row(f"{_name}/one bias", _call(_name), _ref, _layer(_gates, 2, 1, 2, 1, 1)),
        Row(f"{_name}/one time, one unit", _call(_name), _ref, _layer(_gates, 1, 1, 1, 1, 2, _states)),
        Row(f"{_name}/last state alone", lambda *a, name=_name: getattr(ops, name)(*a)[-1], lambda *a, ref=_ref: ref(*a)[-1],
            _layer(_gates, 3, 2, 1, 2, 2, _states)),
        Row(f"{_name}/all states alone", lambda *a, name=_name: getattr(ops, name)(*a)[0], lambda *a, ref=_ref: ref(*a)[0],
            _layer(_gates, 3, 2, 1, 2, 2, _states)),
        Row(f"{_name}/two layers", lambda x, w, u, v, name=_name: getattr(ops, name)(getattr(ops, name)(x, w, u)[0], v, u)[1],
            lambda x, w, u, v, ref=_ref: ref(ref(x, w, u)[0], v, u)[1],
            (*_layer(_gates, 2, 1, 1, 2, 0), real(2, 2 * _gates))),
    ]  # fmt: skip
RECURRENT += [
    Row("rnn/relu", _call("rnn", nonlinearity="relu"), partial(_recurrent(1, _rnn_step), nonlinearity="relu"),
        _layer(1, 3, 2, 2, 3, 2, 1)),
]  # fmt: skip

# ---- Without a derivative --------------------------------------------------------------------------

COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or"]
STEPS = ["logical_not", "sign", "floor", "ceil", "round", "isnan", "isinf", "isfinite"]
#: Ops whose result is a constant: piecewise constant functions, positions, answers.
NON_DIFFERENTIABLE = {*COMPARISONS, *STEPS, "argmax", "argmin", "any", "all"}

SPECIAL = np.array([0.0, 0.5, 1.5, -2.5, np.nan, np.inf, -np.inf])


def constant(name, form, *inputs, prepare=lambda x: x, args=(), **kwargs):
    """A row of an op without a derivative; `prepare` is done to the inputs first."""
    return Row(
        f"{name}/{form}",
        lambda *tensors: getattr(ops, name)(*[prepare(x) for x in tensors], *args, *kwargs.values()),
        lambda *arrays: getattr(np, name)(*[prepare(x) for x in arrays], *args, **kwargs),
        inputs,
        order=0,
    )


CONSTANT = [
    constant(name, f"{a} {b}", real(*a), real(*b))
    for name, (a, b) in product(COMPARISONS, [((2, 3), (2, 3)), ((2, 3), (3,)), ((), (2, 1)), ((0, 3), (3,))])
]
CONSTANT += [constant(name, "number", real(2, 3), args=(0,)) for name in COMPARISONS]
CONSTANT += [constant(name, "the same", real(2, 3), real(2, 3), prepare=lambda x: x * 0 + 1) for name in COMPARISONS]
CONSTANT += [constant(name, "(3, 4)", Input((3, 4), -2.6, 2.6)) for name in STEPS]
CONSTANT += [constant(name, "special values", real(7), prepare=lambda x: x * 0 + SPECIAL) for name in STEPS]
CONSTANT += [
    constant(name, f"{axis}{' keepdims' * keep}", real(2, 3, 2), axis=axis, keepdims=keep)
    for name, axis, keep in product(["argmax", "argmin"], [None, 0, 1, -1], [False, True])
]
CONSTANT += [
    constant(name, f"{axes}{' keepdims' * keep}", real(2, 3), prepare=lambda x: x > 0.9, axis=axes, keepdims=keep)
    for name, axes, keep in product(["any", "all"], [None, 0, -1, (0, 1)], [False, True])
]

#: Parts of needle.ops that are no ops.
HELPERS = {
    "kept_shape": "a shape",
    "zero_entry": "constant zeros for the engine",
}
#: Classes that are not made themselves.
ABSTRACT = {"Extreme", "FusedOp", "FusedTupleOp", "Convolution"}

NON_DIFFERENTIABLE |= names.NON_DIFFERENTIABLE
ROWS = [*names.ROWS, *ELEMENTWISE, *REDUCTIONS, *SHAPES, *TUPLES, *PRODUCTS, *INDEXING, *NETWORK, *RECURRENT, *CONSTANT]
DIFFERENTIABLE = [row for row in ROWS if row.order]
BY_ID = {row.id: row for row in ROWS}
