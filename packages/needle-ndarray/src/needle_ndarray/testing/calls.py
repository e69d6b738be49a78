"""Calls of verbs by the name of an op, its operands in the order of its formula: inputs, numbers, results.

The suites' oracles have these signatures. `CALLS[name]` is the verb, and a function from such operands to its arguments.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from needle_ndarray.backend import CELL, CONV2D, NORM, POOL2D, ROWS, SCATTER, SEQUENCE, STEP, Backend

LAYER, BATCH = NORM["layer_norm"], NORM["batch_norm"]
LSTM, GRU, LSTM_CELL, GRU_CELL = SEQUENCE["lstm"], SEQUENCE["gru"], CELL["lstm_cell"], CELL["gru_cell"]
CONV, INPUT_GRAD, WEIGHT_GRAD = CONV2D.values()
MAX_POOL, AVG_POOL = POOL2D.values()


def _rnn(op: Any) -> Any:
    return SEQUENCE[f"rnn_{op.name}"]


def _sgd(params: Any, grads: Any, u: Any, *numbers: Any) -> tuple:
    lr, momentum, dampening, weight_decay, l1, nesterov, correction = numbers
    rule = STEP["nesterov" if nesterov else "sgd"]
    return rule, params, grads, u, None, (lr, momentum, dampening, weight_decay, l1, correction)


def _adam(params: Any, grads: Any, m: Any, v: Any, *numbers: Any) -> tuple:
    lr, beta1, beta2, eps, weight_decay, decoupled, correction1, correction2 = numbers
    rule = STEP["adamw" if decoupled else "adam"]
    return rule, params, grads, m, v, (lr, beta1, beta2, eps, weight_decay, correction1, correction2)


CALLS: dict[str, tuple[str, Callable[..., tuple]]] = {
    **{op.name: ("rows", lambda a, out, op=op: (op, a, out)) for op in ROWS.values()},
    "softmax_grad": ("rows_grad", lambda grad, y, out: (ROWS["softmax"], grad, None, y, out)),
    "log_softmax_grad": ("rows_grad", lambda grad, y, out: (ROWS["log_softmax"], grad, None, y, out)),
    "logsumexp_grad": ("rows_grad", lambda grad, x, y, out: (ROWS["logsumexp"], grad, x, y, out)),
    **{op.name: ("scatter", lambda out, index, a, op=op: (op, a, index, out)) for op in SCATTER.values()},
    "matmul_weight": ("matmul_weight", lambda *given: given),
    "cross_entropy": ("cross_entropy", lambda *given: given),
    "cross_entropy_grad": ("cross_entropy_grad", lambda *given: given),
    "layer_norm": ("norm", lambda x, w, b, eps, out: (LAYER, x, w, b, out, None, None, eps)),
    "batch_norm": ("norm", lambda x, w, b, eps, out, mean, var: (BATCH, x, w, b, out, mean, var, eps)),
    "layer_norm_grad": ("norm_grad", lambda g, x, w, eps, *out: (LAYER, g, x, w, None, None, *out, eps)),
    "batch_norm_grad": ("norm_grad", lambda g, x, mean, var, w, eps, *out: (BATCH, g, x, w, mean, var, *out, eps)),
    "attention": ("attention", lambda q, k, v, mask, causal, scale, *out: (q, k, v, mask, *out, causal, scale)),
    "attention_grad": (
        "attention_grad",
        lambda g, q, k, v, mask, causal, scale, *out: (g, q, k, v, mask, *out, causal, scale),
    ),
    "conv2d": ("conv2d", lambda x, w, *numbers: (CONV, x, w, numbers[-1], *numbers[:-1])),
    "conv2d_input_grad": ("conv2d", lambda y, w, *numbers: (INPUT_GRAD, numbers[-1], w, y, *numbers[:-1])),
    "conv2d_weight_grad": ("conv2d", lambda x, y, *numbers: (WEIGHT_GRAD, x, numbers[-1], y, *numbers[:-1])),
    "max_pool2d": ("pool2d", lambda x, *numbers: (MAX_POOL, x, numbers[-1], *numbers[:-1])),
    "avg_pool2d": ("pool2d", lambda x, *numbers: (AVG_POOL, x, numbers[-1], *numbers[:-1])),
    "max_pool2d_grad": ("pool2d_grad", lambda g, x, *numbers: (MAX_POOL, g, x, numbers[-1], *numbers[:-1])),
    "avg_pool2d_grad": ("pool2d_grad", lambda g, *numbers: (AVG_POOL, g, None, numbers[-1], *numbers[:-1])),
    "lstm_cell": ("cell", lambda *given: (LSTM_CELL, *given)),
    "gru_cell": ("cell", lambda x, y, b, h, h_out, gates: (GRU_CELL, x, y, b, h, h_out, None, gates)),
    "lstm_cell_grad": (
        "cell_grad",
        lambda dy, dh, dc, gates, c, c_out, ds, dc_out: (LSTM_CELL, dy, dh, dc, gates, c, c_out, None, ds, dc_out),
    ),
    "gru_cell_grad": (
        "cell_grad",
        lambda dy, dh, h, gates, dx, ds, dh_out: (GRU_CELL, dy, dh, None, gates, h, None, dx, ds, dh_out),
    ),
    "lstm": ("sequence", lambda *given: (LSTM, *given)),
    "gru": ("sequence", lambda x, w, b, h, gates: (GRU, x, w, b, h, None, gates)),
    "rnn": ("sequence", lambda op, x, w, b, h: (_rnn(op), x, w, b, h, None, None)),
    "lstm_grad": ("sequence_grad", lambda dy, w, c, gates, *out: (LSTM, dy, w, None, c, gates, None, *out)),
    "gru_grad": ("sequence_grad", lambda dy, w, h, gates, *out: (GRU, dy, w, h, None, gates, *out, None)),
    "rnn_grad": ("sequence_grad", lambda op, dy, w, h, *out: (_rnn(op), dy, w, h, None, None, None, *out, None)),
    "sgd_step": ("step", _sgd),
    "adam_step": ("step", _adam),
}


def call(backend: Backend, name: str, *operands: Any) -> None:
    """The backend's verb for this op."""
    verb, arguments = CALLS[name]
    getattr(backend, verb)(*arguments(*operands))


def composed(backend: Backend, name: str, *operands: Any) -> None:
    """The default of that verb, made of the backend's other verbs."""
    verb, arguments = CALLS[name]
    getattr(Backend, verb)(backend, *arguments(*operands))


def ways(backend: Backend, name: str) -> dict[str, Callable[..., None]]:
    """The backend's verb, and the default made of other verbs where that is another one."""
    verb, _ = CALLS[name]
    own: dict[str, Callable[..., None]] = {f"{name} (own)": partial(call, backend, name)}
    if getattr(type(backend), verb) is getattr(Backend, verb):
        return own
    return own | {f"{name} (composed)": partial(composed, backend, name)}
