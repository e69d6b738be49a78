"""The rows of operators that came with NumPy's and PyTorch's names: angles, sorting, rearranging, running products."""

from functools import partial
from itertools import product

import numpy as np
from op_rows import Input, Row, call, forms, positive, real

from needle import ops

SHAPES = [(2, 3), (), (0, 3)]
PAIRS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 3)), ((0, 3), (3,))]
INNER, ABOVE_1 = (-0.9, 0.9), (1.2, 3.0)

#: Function of NumPy and where the random inputs lie.
UNARY = {
    "tan": (np.tan, (-1.3, 1.3)),
    "asin": (np.asin, INNER),
    "acos": (np.acos, INNER),
    "atan": (np.atan, (-2, 2)),
    "sinh": (np.sinh, (-2, 2)),
    "cosh": (np.cosh, (-2, 2)),
    "asinh": (np.asinh, (-2, 2)),
    "acosh": (np.acosh, ABOVE_1),
    "atanh": (np.atanh, INNER),
    "log2": (np.log2, (0.4, 2.4)),
    "log10": (np.log10, (0.4, 2.4)),
}
BINARY = {"atan2": np.atan2, "hypot": np.hypot, "logaddexp": np.logaddexp, "remainder": np.remainder}

FUNCTIONS = [
    Row(f"{name}/{shape}", call(name), ref, (Input(shape, *domain),))
    for (name, (ref, domain)), shape in product(UNARY.items(), SHAPES)
]
FUNCTIONS += [
    Row(f"{name}/{a} {b}", call(name), ref, (real(*a), Input(b, 2.1, 3.0) if name == "remainder" else real(*b)))
    for (name, ref), (a, b) in product(BINARY.items(), PAIRS)
]
FUNCTIONS += [
    Row("remainder/number", call("remainder", 0.7), lambda x: np.remainder(x, 0.7), (Input((2, 3), 0.1, 0.6),)),
    Row("remainder/negative divisor", call("remainder", -3.1), lambda x: np.remainder(x, -3.1), (real(2, 3),)),
    Row(
        "remainder/a % b",
        lambda a, b: ops.remainder(a, b) + a % b,
        lambda a, b: 2 * (a % b),
        (real(2, 3), Input((3,), 2.1, 3.0)),
    ),
    Row(
        "logaddexp/far apart",
        lambda a, b: ops.logaddexp(a * 400, b),
        lambda a, b: np.logaddexp(a * 400, b),
        (real(4), real(4)),
    ),
]

# ---- Running along an axis, and products ------------------------------------------------------------------

AXES = [((4,), 0), ((2, 3), 0), ((2, 3), -1), ((2, 5, 2), 1), ((0, 3), 0), ((0, 3), 1), ((1, 2), 0)]
RUNNING = [*forms("cumprod", np.cumprod, [*AXES, ((2, 3), None)])]
RUNNING += [
    Row(
        f"prod/{shape} {axes}{' keepdims' * keep}",
        call("prod", axes, keep),
        partial(np.prod, axis=axes, keepdims=keep),
        (real(*shape),),
    )
    for shape, axes, keep in product([(2, 3, 5)], [None, 1, -1, (0, 2), (2, 0), ()], [False, True])
]
RUNNING += forms("prod", np.prod, [((), None), ((4,), 0), ((0, 3), 0), ((3, 0), 0), ((1, 1), (0, 1))])
ZERO = np.array([1.0, 0.0, 1.0, 1.0])
RUNNING += [
    Row(
        f"{name}/a zero among them",
        lambda x, name=name: getattr(ops, name)(x * ZERO, 0),
        lambda x, ref=ref: ref(x * ZERO, 0),
        (real(4),),
    )
    for name, ref in {"prod": np.prod, "cumprod": np.cumprod}.items()
]
RUNNING += forms(
    "diff",
    lambda x, axis=-1, n=1: np.diff(x, n, axis),
    [((4,),), ((2, 4), 0), ((2, 4), -1), ((2, 5), 1, 2), ((2, 1), 1), ((3,), 0, 0)],
)

# ---- Places -----------------------------------------------------------------------------------------------


def _flatten(x, start=0, end=-1):
    end %= max(x.ndim, 1)
    return x.reshape(x.shape[:start] + (-1,) + x.shape[end + 1 :])


def _narrow(x, axis, start, length):
    return np.take(x, range(start % max(x.shape[axis], 1), start % max(x.shape[axis], 1) + length), axis)


def _pieces(x, size, axis=0):
    return np.split(x, range(size, x.shape[axis], size), axis)


def _sections(x, sizes, axis=0):
    return np.split(x, np.cumsum(sizes)[:-1], axis)


PLACES = [
    *forms("flatten", _flatten, [((2, 3, 4),), ((2, 3, 4), 1), ((2, 3, 4), 0, 1), ((2, 3), 1, 1), ((),), ((4,), 0)]),
    *forms("narrow", _narrow, [((4, 2), 0, 1, 2), ((4, 2), 1, 0, 2), ((4, 2), -2, -3, 2), ((3,), 0, 1, 0)]),
    *forms(
        "chunk",
        lambda x, n, axis=0: _pieces(x, -(-x.shape[axis] // n), axis),
        [
            ((4, 2), 2),
            ((5, 2), 2),
            ((2, 5), 3, 1),
            ((2, 2), 5, 1),
            ((4,), 1),
        ],
    ),
    *forms("split_sizes", _pieces, [((5, 2), 2), ((2, 4), 2, 1), ((3,), 7)]),
    *forms("split_sizes", _sections, [((5, 2), [2, 3]), ((2, 4), (1, 0, 3), -1)]),
    *forms(
        "roll",
        np.roll,
        [
            ((5,), 2),
            ((2, 3), -1),
            ((2, 3), 1, 0),
            ((2, 3), 4, -1),
            ((2, 3), (1, 2), (0, 1)),
            ((2, 3), 1, (0, 1)),
            ((0, 3), 1, 0),
        ],
    ),
    *forms("tile", np.tile, [((2, 3), 2), ((2, 3), (2, 1)), ((2,), (3, 2)), ((), (2,))]),
    *forms("repeat", np.repeat, [((2, 3), 2), ((2, 3), 2, 0), ((2, 3), 3, -1), ((3,), [1, 0, 2], 0), ((2,), 0)]),
    *forms("tril", np.tril, [((3, 3),), ((2, 4), 1), ((2, 3, 3), -1), ((3, 2), 5)]),
    *forms("triu", np.triu, [((3, 3),), ((2, 4), 1), ((2, 3, 3), -1), ((3, 2), 5)]),
    *forms("diag", np.diag, [((3,),), ((2,), 1), ((2,), -2), ((3, 3),), ((2, 4), 1), ((4, 2), -1), ((2, 2), 2)]),
    *forms("moveaxis", np.moveaxis, [((2, 3, 4), 0, -1), ((2, 3, 4), (0, 1), (2, 0)), ((2, 3), 1, 1)]),
    Row("meshgrid/xy", call("meshgrid"), lambda a, b: list(np.meshgrid(a, b)), (real(2), real(3))),
    Row(
        "meshgrid/ij",
        call("meshgrid", indexing="ij"),
        lambda *a: list(np.meshgrid(*a, indexing="ij")),
        (real(2), real(3), real(2)),
    ),
    Row("meshgrid/list", lambda a, b: ops.meshgrid([a, b]), lambda a, b: list(np.meshgrid(a, b)), (real(2), real(1))),
    Row(
        "broadcast_arrays/three",
        call("broadcast_arrays"),
        lambda *a: list(np.broadcast_arrays(*a)),
        (real(2, 1), real(3), real()),
    ),
    Row("split/a size and dim", call("split", 2, dim=0), lambda x: _pieces(x, 2), (real(5, 2),)),
    Row("split/a size and an axis", call("split", 2, 1), lambda x: _pieces(x, 2, 1), (real(2, 3),)),
    Row("split/sizes", call("split", [1, 2]), lambda x: _sections(x, [1, 2]), (real(3, 2),)),
    Row("transpose/two numbers", call("transpose", 0, 2), lambda x: np.swapaxes(x, 0, 2), (real(2, 3, 4),)),
    Row(
        "gather/PyTorch's order",
        call("gather", 1, np.array([[0, 2], [1, 1]])),
        lambda x: np.take_along_axis(x, np.array([[0, 2], [1, 1]]), 1),
        (real(2, 3),),
    ),
]

PLACES += [
    Row("to/device and dtype", lambda x: ops.to(x, x.device, x.dtype) * 2, lambda x: x * 2, (real(2, 3),)),
    Row("to/another", lambda x: ops.to(x, x * 2), np.copy, (real(2, 3),)),
    Row("to/copy", lambda x: ops.to(x, x.device, copy=True), np.copy, (real(2, 3),)),
]

# ---- Order ------------------------------------------------------------------------------------------------


def _sorted(x, axis=-1, descending=False):
    return np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis)


def _top(x, k, axis=-1, largest=True):
    return _sorted(x, axis, largest).take(range(k), axis)


ORDER = [
    Row(
        f"{name}/{shape} {args}",
        lambda x, name=name, args=args: getattr(ops, name)(x, *args).values,
        partial(lambda ref, args, x: ref(x, *args), ref, args),
        (real(*shape),),
    )
    for name, ref, cases in [
        ("sort", _sorted, [((5,),), ((2, 4),), ((2, 4), 0), ((3, 2, 2), 1, True), ((0, 3), 1)]),
        ("topk", _top, [((5,), 2), ((2, 4), 3), ((4, 2), 1, 0), ((2, 4), 2, -1, False), ((2, 3), 3), ((2, 3), 0)]),
    ]
    for shape, *args in cases
]
ORDER += [
    Row(
        f"{name}/{axes}{' keepdims' * keep}",
        call(name, axes, keep),
        partial(ref, axis=axes, keepdims=keep),
        (real(2, 3, 2),),
    )
    for (name, ref), axes, keep in product({"amax": np.max, "amin": np.min}.items(), [None, 1, (0, 2)], [False, True])
]
ORDER += [
    Row(f"{name}/dim, the values", call_values, partial(ref, axis=1), (real(2, 3),))
    for name, ref in {"max": np.max, "min": np.min}.items()
    for call_values in [lambda x, name=name: getattr(ops, name)(x, dim=1).values]
]
ORDER += [
    Row("max/two tensors", call("max"), np.maximum, (real(2, 3), real(3))),
    Row("min/two tensors", call("min"), np.minimum, (real(2, 3), real(3))),
]

# ---- Without a derivative ---------------------------------------------------------------------------------

NON_DIFFERENTIABLE = {
    *"argsort searchsorted isin count_nonzero nonzero unique bincount trunc signbit floor_divide logical_xor".split(),
    *"bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift".split(),
}


def constant(name, form, fn, ref, *inputs):
    return Row(f"{name}/{form}", fn, ref, inputs, order=0)


def _whole(x):
    """Small integers: as numbers of NumPy, or as a tensor's."""
    return (
        (np.floor(x * 2) + 5).astype("int64") if isinstance(x, np.ndarray) else (ops.floor(x * 2) + 5).astype("int64")
    )


CONSTANT = [
    constant(name, f"{a} {b}", call(name), getattr(np, name), positive(*a), positive(*b))
    for name, (a, b) in product(["floor_divide", "logical_xor"], PAIRS)
]
CONSTANT += [
    constant(name, "(3, 4)", call(name), getattr(np, name), Input((3, 4), -2.6, 2.6)) for name in ("trunc", "signbit")
]
CONSTANT += [
    constant(
        name,
        f"{a} {b}",
        lambda x, y, name=name: getattr(ops, name)(_whole(x), _whole(y)),
        lambda x, y, name=name: getattr(np, name)(_whole(x), _whole(y)),
        real(*a),
        real(*b),
    )
    for name, (a, b) in product(
        ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"], PAIRS
    )
]
CONSTANT += [
    constant("bitwise_not", "bools", lambda x: ops.bitwise_not(x > 0), lambda x: ~(x > 0), real(2, 3)),
    constant("bitwise_not", "integers", lambda x: ops.bitwise_not(_whole(x)), lambda x: ~_whole(x), real(2, 3)),
    constant("argsort", "last axis", call("argsort"), np.argsort, real(2, 4)),
    constant("argsort", "descending", call("argsort", 0, True), lambda x: np.argsort(-x, 0), real(4, 2)),
    constant(
        "searchsorted",
        "left",
        lambda x: ops.searchsorted(x, [-1.0, 0.0, 5.0]),
        lambda x: np.searchsorted(x, [-1.0, 0, 5]),
        Input((1,)),
    ),
    constant(
        "searchsorted",
        "right",
        lambda x: ops.searchsorted(x * 0, x, right=True),
        lambda x: np.searchsorted(x * 0, x, "right"),
        real(4),
    ),
    constant(
        "isin", "numbers", lambda x: ops.isin(_whole(x), [4, 5]), lambda x: np.isin(_whole(x), [4, 5]), real(2, 3)
    ),
    constant(
        "isin",
        "none of them",
        lambda x: ops.isin(_whole(x), [4, 5], True),
        lambda x: ~np.isin(_whole(x), [4, 5]),
        real(2, 3),
    ),
    constant(
        "count_nonzero", "axis", lambda x: ops.count_nonzero(x > 0, 1), lambda x: np.count_nonzero(x > 0, 1), real(2, 3)
    ),
    constant(
        "count_nonzero",
        "all",
        lambda x: ops.count_nonzero(x > 0),
        lambda x: np.array(np.count_nonzero(x > 0)),
        real(2, 3),
    ),
    constant("nonzero", "tuple", lambda x: ops.nonzero(x > 0), lambda x: list(np.nonzero(x > 0)), real(2, 3)),
    constant("nonzero", "rows", lambda x: ops.nonzero(x > 0, as_tuple=False), lambda x: np.argwhere(x > 0), real(2, 3)),
    constant("unique", "values", lambda x: ops.unique(_whole(x)), lambda x: np.unique(_whole(x)), real(2, 3)),
    constant(
        "unique",
        "all",
        lambda x: ops.unique(_whole(x), True, True, True),
        lambda x: list(np.unique(_whole(x), return_inverse=True, return_counts=True)),
        real(2, 3),
    ),
    constant("bincount", "integers", lambda x: ops.bincount(_whole(x)), lambda x: np.bincount(_whole(x)), real(6)),
    constant(
        "bincount",
        "minlength",
        lambda x: ops.bincount(_whole(x), minlength=30),
        lambda x: np.bincount(_whole(x), minlength=30),
        real(6),
    ),
]

ROWS = [*FUNCTIONS, *RUNNING, *PLACES, *ORDER, *CONSTANT]
