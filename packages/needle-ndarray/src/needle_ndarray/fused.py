"""Norms, cross-entropy and attention, forward and backward: each one verb of the backend."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from needle_ndarray.capture import again
from needle_ndarray.ndarray import NDArray, bounds, broadcast_shapes
from needle_ndarray.norms import (
    batch_norm,
    batch_norm_grad,
    layer_norm,
    layer_norm_grad,
    log_softmax_grad,
    logsumexp_grad,
    softmax_grad,
)
from needle_ndarray.rules import RULES, number

# ---- Cross-entropy ---------------------------------------------------------------------------------------------------


def cross_entropy(logits: NDArray, labels: NDArray) -> NDArray:
    """losses = log sum e^logits - logits[label] over the last axis: logits (..., c), integer labels (...) in [0, c).

    >>> from needle_ndarray import array
    >>> cross_entropy(array([[0.0, 1e4], [0.0, 1e4]]), array([1, 0], "int64")).tolist()
    [0.0, 10000.0]
    """
    logits, labels, out = RULES["cross_entropy"].prepare(logits, labels)
    _of_labels("cross_entropy", out.backend.cross_entropy, (logits, labels, out), logits, labels)
    return out


def cross_entropy_grad(grad: NDArray, logits: NDArray, labels: NDArray) -> NDArray:
    """dlogits = (softmax(logits) - onehot(labels)) * grad[..., None]

    Parameters
    ----------
    grad : NDArray (...), of the losses
    logits : NDArray (..., c)
    labels : NDArray (...), integers in [0, c)
    """
    logits, labels, grad, out = RULES["cross_entropy_grad"].prepare(logits, labels, grad)
    _of_labels("cross_entropy_grad", out.backend.cross_entropy_grad, (grad, logits, labels, out), logits, labels)
    return out


# ---- Attention -------------------------------------------------------------------------------------------------------


def attention(
    q: NDArray, k: NDArray, v: NDArray, mask: NDArray | None = None, causal: bool = False, scale: float | None = None
) -> NDArray:
    """softmax(scale * q @ k^T + mask) @ v; the matrix of weights is never written whole.

    Parameters
    ----------
    q : NDArray (..., tq, d)
    k : NDArray (..., tk, d)
    v : NDArray (..., tk, dv); the leading axes of q, k and v broadcast
    mask : broadcasts to (..., tq, tk): bool, True where a query may attend to a key, or float, added to the scores
    causal : query i sees the keys up to i + tk - tq
    scale : 1 / sqrt(d) unless given

    Returns
    -------
    out (..., tq, dv); a row with nothing to attend to is 0

    >>> from needle_ndarray import array
    >>> x = array([[1, 0], [0, 1]])
    >>> attention(x, x, x, causal=True)[0].tolist()
    [1.0, 0.0]
    """
    q, k, v, mask, out = RULES["attention"].prepare(*_broadcast("attention", q, k, v, mask))
    out.backend.attention(q, k, v, mask, out, bool(causal), _scale("attention", scale, q.shape[-1]))
    return out


def attention_grad(
    grad: NDArray,
    q: NDArray,
    k: NDArray,
    v: NDArray,
    mask: NDArray | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[NDArray, NDArray, NDArray]:
    """(dq, dk, dv) of attention; the weights are computed from q and k again.

    Parameters
    ----------
    grad : NDArray (..., tq, dv), of the result
    q, k, v, mask, causal, scale : as in the forward pass

    Returns
    -------
    dq, dk, dv, with the leading axes that q, k and v have once broadcast
    """
    operands = _broadcast("attention_grad", q, k, v, mask)
    q, k, v, mask, grad, dq, dk, dv = RULES["attention_grad"].prepare(*operands, grad)
    factor = _scale("attention_grad", scale, q.shape[-1])
    dq.backend.attention_grad(grad, q, k, v, mask, dq, dk, dv, bool(causal), factor)
    return dq, dk, dv


# ---- Arguments -------------------------------------------------------------------------------------------------------


def _scale(what: str, scale: Any, d: int) -> float:
    return 1 / math.sqrt(max(d, 1)) if scale is None else number(what, "scale", scale)


def _of_labels(
    what: str, verb: Callable[..., None], args: tuple[NDArray, ...], logits: NDArray, labels: NDArray
) -> None:
    """verb(*args), which on the CPU checks each label when it reads it; on an error this says which one is out of range."""
    if labels.backend.name != "cpu" and labels.size:
        again(_check_classes, labels, what, logits.shape[-1])
    failed = None
    try:
        verb(*args)
    except IndexError as error:
        failed = error
    if failed is not None:
        _check_classes(labels, what, logits.shape[-1])
        raise failed


def _check_classes(labels: NDArray, what: str, n: int) -> None:
    lowest, highest = bounds(labels)
    if lowest < 0 or highest >= n:
        raise IndexError(f"{what}: label {lowest if lowest < 0 else highest} is out of range for {n} classes")


def _broadcast(what: str, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """The operands of attention with equal leading axes, as views; what has too few axes is left for the rule to refuse."""
    given = q, k, v
    if not all(isinstance(x, NDArray) and x.ndim > 1 for x in given):
        return q, k, v, mask
    lead = q.shape[:-2]
    if not lead == k.shape[:-2] == v.shape[:-2]:
        try:
            lead = broadcast_shapes(lead, k.shape[:-2], v.shape[:-2])
        except ValueError:
            shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
            raise ValueError(f"{what}: {shapes}: leading axes do not broadcast") from None
        q, k, v = (x.broadcast_to((*lead, *x.shape[-2:])) for x in given)
    if isinstance(mask, NDArray):
        with suppress(ValueError):
            mask = mask.broadcast_to((*lead, q.shape[-2], k.shape[-2]))
    return q, k, v, mask


__all__ = [
    "layer_norm", "layer_norm_grad", "batch_norm", "batch_norm_grad", "cross_entropy", "cross_entropy_grad",
    "attention", "attention_grad", "softmax_grad", "log_softmax_grad", "logsumexp_grad",
]  # fmt: skip
