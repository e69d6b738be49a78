"""What an op of one example is for a batch of them: inputs that are batched have the batch as axis 0, others have none.

A rule is a function of (op, the node it made for one example, inputs, which of them are batched) that gives the batched result.
An op without a rule is called for one example after the other, which is right for any op.

>>> import needle as ndl
>>> node = ndl.ones(3).sum()
>>> apply(ndl.ops.Summation(0), (ndl.ones(3),), (ndl.Tensor([[1.0, 2.0, 3.0]] * 2),), (True,), 2).tolist()
[6.0, 6.0]
"""

from collections.abc import Callable
from typing import Any

from needle import ops
from needle.autograd import Tensor, TensorTuple, constant, data_of
from needle.ops.helpers import Undifferentiable
from needle_ndarray import NDArray

Rule = Callable[[Any, tuple, tuple, tuple, int], Any]

_ELEMENTWISE = """EWiseAdd AddScalar EWiseMul MulScalar EWiseDiv DivScalar EWisePow PowerScalar Negate NegateBeside Abs Clip Where
    Maximum Minimum Astype ToDevice Clone Alias Log Log1p Exp Expm1 Sqrt Sin Cos Tanh TanhGrad Sigmoid SigmoidGrad Erf ReLU ReLUGrad
    GELU GELUGrad SiLU SiLUGrad Dropout""".split()

#: Functions without a derivative that go element by element.
_ELEMENTWISE_FUNCTIONS = """equal not_equal less less_equal greater greater_equal logical_and logical_or logical_not sign floor ceil
    round isnan isinf isfinite where abs""".split()


def apply(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    """The result of an op for n examples.

    Parameters
    ----------
    singles : its inputs for one example, of which only shapes count
    inputs, batched : its inputs, and which of them have the batch as axis 0
    """
    if type(op) is Undifferentiable:
        if getattr(op.function, "__name__", "") in _ELEMENTWISE_FUNCTIONS:
            return constant(op.function, *_aligned(singles, inputs, batched), **op.settings)
        return _one_by_one(lambda *parts: constant(op.function, *parts, **op.settings), inputs, batched, n)
    rule = RULES.get(type(op))
    found = None if rule is None else rule(op, singles, inputs, batched, n)
    return _one_by_one(op, inputs, batched, n) if found is None else found


def _one_by_one(function: Any, inputs: tuple, batched: tuple, n: int) -> Any:
    """function(example i) for every i, stacked."""
    results = [function(*[part(x, i) if b else x for x, b in zip(inputs, batched, strict=True)]) for i in range(n)]
    return stacked(results)


def part(x: Any, i: int) -> Any:
    """Example i of what is batched."""
    if isinstance(x, TensorTuple):
        return ops.make_tuple(*[entry[i] for entry in x.tuple()])
    return x[i]


def stacked(results: list) -> Any:
    """One result of many, with the batch as axis 0."""
    if isinstance(results[0], TensorTuple):
        return ops.make_tuple(
            *[ops.stack(list(entries), 0) for entries in zip(*[r.tuple() for r in results], strict=True)]
        )
    return ops.stack(results, 0)


def spread(x: Any, batched: bool, n: int) -> Any:
    """x with the batch as axis 0, whether it has one or not."""
    if batched:
        return x
    if isinstance(x, TensorTuple):
        return ops.make_tuple(*[spread(entry, False, n) for entry in x.tuple()])
    return ops.broadcast_to(x, (n, *x.shape))


# ---- Element by element -------------------------------------------------------------------------------------------------


def _aligned(singles: tuple, inputs: tuple, batched: tuple, least: int = 0) -> list:
    """Inputs whose own axes broadcast to each other from the last one on, as for one example, whoever has a batch in front."""
    ndim = max([s.ndim for s in singles if isinstance(s, Tensor)] + [least])
    made = []
    for single, x, b in zip(singles, inputs, batched, strict=True):
        missing = ndim - single.ndim
        made.append(x.reshape((x.shape[0], *(1,) * missing, *single.shape)) if b and missing else x)
    return made


def _elementwise(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return op(*_aligned(singles, inputs, batched))


# ---- Axes ---------------------------------------------------------------------------------------------------------------


def _after(axes: Any, ndim: int) -> Any:
    """Axes of one example, where the batch comes before them; None: all of them."""
    if axes is None:
        return tuple(range(1, ndim + 1))
    if isinstance(axes, tuple):
        return tuple([a % ndim + 1 for a in axes])
    return axes % ndim + 1


def _reduction(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    if singles[0].ndim == 0:
        return None
    return type(op)(_after(op.axes, singles[0].ndim), op.keepdims)(inputs[0])


def _softmax(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return type(op)(_after(op.axes, singles[0].ndim))(inputs[0]) if singles[0].ndim else None


def _softmax_grad(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    """Of all gradients of softmax and its relatives: the second input has every axis."""
    if singles[1].ndim == 0:
        return None
    return type(op)(_after(op.axes, singles[1].ndim))(*[spread(x, b, n) for x, b in zip(inputs, batched, strict=True)])


def _broadcast(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    (x,) = _aligned(singles, inputs, batched, len(op.shape))
    return ops.broadcast_to(x, (n, *op.shape))


def _reshape(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    shape = op.shape if isinstance(op.shape, tuple) else (op.shape,)
    if -1 in shape:
        shape = ops.Reshape(op.shape)(Tensor.make_const(data_of(singles[0]))).shape
    return ops.reshape(inputs[0], (n, *shape))


def _transpose(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.Transpose(_after(op.axes, singles[0].ndim))(inputs[0])


def _permute(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.permute(inputs[0], (0, *_after(op.axes, singles[0].ndim)))


def _flip(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.flip(inputs[0], _after(op.axes, singles[0].ndim))


def _stack(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    every = [spread(x, b, n) for x, b in zip(inputs, batched, strict=True)]
    return ops.stack(every, op.axis % (singles[0].ndim + 1) + 1)


def _concatenate(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    every = [spread(x, b, n) for x, b in zip(inputs, batched, strict=True)]
    return ops.concatenate(every, op.axis % singles[0].ndim + 1)


def _split(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.Split(op.axis % singles[0].ndim + 1)(inputs[0])


def _entry(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.tuple_get_item(inputs[0], op.index)


def _tuple(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.make_tuple(*[spread(x, b, n) for x, b in zip(inputs, batched, strict=True)])


# ---- Positions ----------------------------------------------------------------------------------------------------------


def plain(key: Any) -> bool:
    """Whether an index holds no arrays."""
    return not any(
        hasattr(item, "__array__") or isinstance(item, NDArray) for item in (key if isinstance(key, tuple) else (key,))
    )


def _key(op: Any) -> tuple:
    return (slice(None), *(op.key if isinstance(op.key, tuple) else (op.key,)))


def _getitem(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return ops.getitem(inputs[0], _key(op)) if plain(op.key) else None


def _add_at(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return type(op)(_key(op), (n, *op.shape))(inputs[0]) if plain(op.key) else None


def _take(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    axis = op.axis % singles[0].ndim
    if not batched[1]:
        return ops.Take(axis + 1)(inputs[0], inputs[1])
    return ops.Take(0)(inputs[0], inputs[1]) if axis == 0 and not batched[0] else None


# ---- Products -----------------------------------------------------------------------------------------------------------


def _matmul(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    return op(*_aligned(singles, inputs, batched))


def _linear(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    x, w, b = inputs
    if batched == (True, False, False):
        return op(x, w, b)
    row = singles[0].ndim == 1
    if batched[0] and row:
        x = x.reshape((n, 1, x.shape[-1]))
    x_single = singles[0].reshape((1, -1)) if row else singles[0]
    y = ops.MatMul()(*_aligned((x_single, singles[1]), (x if batched[0] or not row else x_single, w), batched[:2]))
    y = y.reshape((n, y.shape[-1])) if row else y
    out = singles[0].shape[:-1] + singles[1].shape[1:]
    (b,) = _aligned((singles[2],), (b,), batched[2:], len(out))
    return y + b


def _rows_product(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    rows = [x.reshape((*([n] if b else []), -1, x.shape[-1])) for x, b in zip(inputs, batched, strict=True)]
    return ops.MatMul((True, False))(*rows)


# ---- Images: examples become one larger batch where the kernel is the same for all ----------------------------------------


def _merged(x: Any) -> Any:
    """(B, N, ...) -> (B N, ...)"""
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def _conv(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    if batched != (True, False):
        return None
    geometry = (*op.geometry,)
    merged = _merged(inputs[0])
    if type(op) is ops.Conv2dInputGrad:
        y = ops.Conv2dInputGrad((merged.shape[0], *op.shape[1:]), *geometry)(merged, inputs[1])
    else:
        y = op(merged, inputs[1])
    return y.reshape((n, -1, *y.shape[1:])) if y.size else None


def _pool(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    y = op(_merged(inputs[0]))
    return y.reshape((n, -1, *y.shape[1:])) if y.size else None


def _by_rows(op: Any, singles: tuple, inputs: tuple, batched: tuple, n: int) -> Any:
    """Ops of the last axis alone, with the others before it."""
    return op(*[spread(x, b, n) for x, b in zip(inputs, batched, strict=True)])


RULES: dict[type, Rule] = {getattr(ops, name): _elementwise for name in _ELEMENTWISE}
RULES |= dict.fromkeys((ops.Summation, ops.Mean, ops.Max, ops.Min, ops.LogSumExp), _reduction)
RULES |= dict.fromkeys((ops.Softmax, ops.LogSoftmax), _softmax)
RULES |= dict.fromkeys((ops.SoftmaxGrad, ops.LogSoftmaxGrad, ops.LogSumExpGrad), _softmax_grad)
RULES |= {
    ops.BroadcastTo: _broadcast,
    ops.Reshape: _reshape,
    ops.Transpose: _transpose,
    ops.Permute: _permute,
    ops.Flip: _flip,
    ops.Stack: _stack,
    ops.Concatenate: _concatenate,
    ops.Split: _split,
    ops.TupleGetItem: _entry,
    ops.MakeTensorTuple: _tuple,
    ops.GetItem: _getitem,
    ops.AddAt: _add_at,
    ops.Take: _take,
    ops.MatMul: _matmul,
    ops.Linear: _linear,
    ops.RowsProduct: _rows_product,
    ops.Conv2d: _conv,
    ops.Conv: _conv,
    ops.Conv2dInputGrad: _conv,
    ops.MaxPool2d: _pool,
    ops.AvgPool2d: _pool,
    ops.CrossEntropy: _by_rows,
}
