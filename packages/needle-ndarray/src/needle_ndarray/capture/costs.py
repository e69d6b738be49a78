"""What a call of a verb costs: floating-point operations and bytes of memory, by formulas on the shapes of its arguments.

The counts are conventions, the same for every backend: a multiplication and an addition are two operations, a function of one
element (exp, tanh, a comparison) is one, places beyond the border of an image count like any others. Bytes are those of every array
that the call must read or write once; caches and scratch memory are not counted. Arrays are anything with `shape`, `strides` and
`dtype`: NDArrays, and the Views of a recording.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from needle_ndarray.capture.verbs import ARGUMENTS, UPDATES

#: Operations per element of the row of a softmax and its kin, and of its gradient.
ROWS = {"softmax": (5, 4), "log_softmax": (5, 4), "logsumexp": (4, 3)}
#: Operations per element of the state, beside the products and the bias: forward and backward.
CELLS = {
    "lstm_cell": (13, 22), "gru_cell": (10, 18), "lstm": (13, 22), "gru": (10, 18), "rnn_tanh": (2, 4), "rnn_relu": (2, 2),
}  # fmt: skip
#: Operations per number of the parameters, beside weight decay and l1.
STEPS = {"sgd": 2, "nesterov": 4, "adam": 12, "adamw": 12}


#: Arrays of which a call touches only some rows.
INDEXED = {"take": "a", "scatter": "out"}


def size(a: Any) -> int:
    return prod(a.shape)


def elements(a: Any) -> int:
    """Places in memory that an array shows: an axis it is broadcast along counts once."""
    return prod(n for n, stride in zip(a.shape, a.strides, strict=True) if stride or not n)


def pairs(q: Any, k: Any, causal: bool) -> int:
    """Pairs of a query and a key that attention looks at: query i sees the keys up to i + s - t."""
    t, s = q.shape[-2], k.shape[-2]
    seen = sum(min(s, max(0, i + s - t + 1)) for i in range(t)) if causal else t * s
    return prod(q.shape[:-2]) * seen


def norm(op: Any, x: Any, weight: Any, bias: Any, *_: Any) -> int:
    return size(x) * (7 + (weight is not None) + (bias is not None))


def norm_grad(op: Any, grad: Any, x: Any, weight: Any, mean: Any, var: Any, dx: Any, *results: Any) -> int:
    dweight, dbias, _ = results
    forward = 3 if op.name == "batch_norm" else 7  # the kernels of layer_norm make mean and variance again
    return size(x) * (forward + 6 + (weight is not None) + 2 * (dweight is not None) + (dbias is not None))


def attention(q: Any, k: Any, v: Any, mask: Any, out: Any, causal: bool, scale: float) -> int:
    return pairs(q, k, causal) * (2 * q.shape[-1] + 2 * v.shape[-1] + 6 + (mask is not None))


def attention_grad(grad: Any, q: Any, k: Any, v: Any, mask: Any, *rest: Any) -> int:
    causal = rest[3]
    return pairs(q, k, causal) * (6 * q.shape[-1] + 4 * v.shape[-1] + 10 + (mask is not None))


def cell(op: Any, x: Any, y: Any, bias: Any, state: Any, *_: Any) -> int:
    return size(state) * CELLS[op.name][0] + size(y) * (1 + (bias is not None))


def sequence(op: Any, x: Any, weight: Any, bias: Any, *_: Any) -> int:
    steps = size(x) // weight.shape[1] if weight.shape[1] else 0  # times * batch
    per_step = 2 * size(weight) + weight.shape[0] * CELLS[op.name][0] + weight.shape[1] * (1 + (bias is not None))
    return steps * per_step


def sequence_grad(op: Any, dy: Any, weight: Any, *_: Any) -> int:
    steps = size(dy) // weight.shape[0] if weight.shape[0] else 0
    return steps * (2 * size(weight) + weight.shape[0] * CELLS[op.name][1])


def step(op: Any, params: Any, grads: Any, m: Any, v: Any, hyperparameters: Any) -> int:
    plain = op.name in ("sgd", "nesterov")
    penalties = hyperparameters[3:5] if plain else hyperparameters[4:5]
    per_number = STEPS[op.name] + (2 if plain and m is not None else 0) + 2 * sum(p != 0 for p in penalties)
    return per_number * sum(map(size, params))


def nothing(*_: Any) -> int:
    return 0


#: Floating-point operations of a call, from its arguments: the same verbs as in ARGUMENTS.
FLOPS: dict[str, Callable[..., int]] = {
    "from_host": nothing,
    "fill": nothing,
    "copy": nothing,
    "unary": lambda op, a, out: size(out),
    "binary": lambda op, a, b, out: size(out),
    "where": nothing,
    "reduce": lambda op, a, out, axes: size(a),
    "arg_reduce": lambda op, a, out, axis: size(a),
    "scan": lambda op, a, out, axis: size(a),
    "matmul": lambda a, b, out: 2 * size(out) * a.shape[-1],
    "take": nothing,
    "scatter": lambda op, a, index, out: size(a) if op.name == "scatter_add" else 0,
    "random": nothing,  # the generator's work is on integers
    "linear": lambda x, weight, bias, out: size(out) * (2 * x.shape[-1] + 1),
    "matmul_weight": lambda a, weight, scale, out: size(out) * (2 * a.shape[-1] + (scale is not None)),
    "rows": lambda op, a, out: ROWS[op.name][0] * size(a),
    "rows_grad": lambda op, grad, x, y, out: ROWS[op.name][1] * size(out),
    "cross_entropy": lambda logits, labels, out: 4 * size(logits),
    "cross_entropy_grad": lambda grad, logits, labels, out: 6 * size(logits),
    "norm": norm,
    "norm_grad": norm_grad,
    "attention": attention,
    "attention_grad": attention_grad,
    "conv2d": lambda op, x, weight, y, *_: 2 * size(y) * prod(weight.shape[:3]),
    "pool2d": lambda op, x, out, window, *_: size(out) * prod(window),
    "pool2d_grad": lambda op, grad, x, out, window, *_: size(grad) * prod(window),
    "cell": cell,
    "cell_grad": lambda op, dy, dh, dc, gates, state, *_: size(state) * CELLS[op.name][1],
    "sequence": sequence,
    "sequence_grad": sequence_grad,
    "step": step,
}


def flops(verb: str, args: tuple[Any, ...]) -> int:
    """Floating-point operations of a call; 0 for what is no verb."""
    return FLOPS.get(verb, nothing)(*args)


def traffic(verb: str, args: tuple[Any, ...]) -> int:
    """Bytes that a call reads and writes."""
    total = 0
    for name, given in zip(ARGUMENTS.get(verb, ("a",)), args, strict=False):
        if INDEXED.get(verb) == name:
            continue  # only the rows that the index names, counted below
        times = 2 if name in UPDATES.get(verb, ()) else 1
        total += times * sum(nbytes(a) for a in (given if isinstance(given, list) else (given,)))
    if verb == "take":
        total += nbytes(args[2])
    elif verb == "scatter":
        total += nbytes(args[1]) * (2 if args[0].name == "scatter_add" else 1)
    return total


def nbytes(a: Any) -> int:
    """Bytes of an array, or of values on the host; 0 for what is neither."""
    if hasattr(a, "strides"):
        return elements(a) * a.dtype.itemsize
    return len(a) if isinstance(a, bytes) else 0
