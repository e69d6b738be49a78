"""Softmax and its relatives, norms, cross-entropy, attention."""

from typing import Any, TypeAlias

from needle_ndarray.backend import Backend, Op
from needle_ndarray.creation import arange
from needle_ndarray.ndarray import NDArray

Maybe: TypeAlias = Any  # an NDArray, or None with the ops that have none: which these are, no type says


def softmax(backend: Backend, a: NDArray, out: NDArray) -> None:
    shifted = (a - a.max(axis=-1, keepdims=True)).exp()
    backend.copy(shifted / shifted.sum(axis=-1, keepdims=True), out)


def log_softmax(backend: Backend, a: NDArray, out: NDArray) -> None:
    shifted = a - a.max(axis=-1, keepdims=True)
    backend.copy(shifted - shifted.exp().sum(axis=-1, keepdims=True).log(), out)


def logsumexp(backend: Backend, a: NDArray, out: NDArray) -> None:
    largest = a.max(axis=-1, keepdims=True)
    shift = largest.where(largest.isfinite(), 0.0)
    backend.copy(((a - shift).exp().sum(axis=-1, keepdims=True).log() + shift).reshape(out.shape), out)


def rows(backend: Backend, op: Op, a: NDArray, out: NDArray) -> None:
    {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}[op.name](backend, a, out)


def softmax_grad(backend: Backend, grad: NDArray, y: NDArray, out: NDArray) -> None:
    backend.copy(y * (grad - (y * grad).sum(axis=-1, keepdims=True)), out)


def log_softmax_grad(backend: Backend, grad: NDArray, y: NDArray, out: NDArray) -> None:
    backend.copy(grad - y.exp() * grad.sum(axis=-1, keepdims=True), out)


def logsumexp_grad(backend: Backend, grad: NDArray, x: NDArray, y: NDArray, out: NDArray) -> None:
    shift = y.where(y != -float("inf"), 0.0)
    backend.copy(grad.expand_dims(-1) * (x - shift.expand_dims(-1)).exp(), out)


def rows_grad(backend: Backend, op: Op, grad: NDArray, x: Maybe, y: NDArray, out: NDArray) -> None:
    if op.name == "logsumexp":
        logsumexp_grad(backend, grad, x, y, out)
    else:
        {"softmax": softmax_grad, "log_softmax": log_softmax_grad}[op.name](backend, grad, y, out)


# ---- Norms -----------------------------------------------------------------------------------------------------------


def rows_of(x: NDArray) -> NDArray:
    *_, n = x.shape
    return x.reshape((x.size // n, n))


def centred(x: NDArray, axis: int) -> NDArray:
    """x - mean, by way of x - x0 (the first along the axis): where the mean is far from 0, no digits are lost."""
    shifted = x - (x[:1] if axis == 0 else x[..., :1])
    return shifted - shifted.mean(axis, keepdims=True)


def standardised(x: NDArray, axis: int, eps: float) -> tuple[NDArray, NDArray]:
    """(x - mean) scale, and scale = (var + eps)^(-1/2)"""
    middle = centred(x, axis)
    scale = ((middle * middle).mean(axis, keepdims=True) + eps).rsqrt()
    return middle * scale, scale


def affine(x: NDArray, weight: Maybe, bias: Maybe) -> NDArray:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def norm_gradient(g: NDArray, x_hat: NDArray, axis: int) -> NDArray:
    """g - mean g - x^ mean(g x^)"""
    return g - g.mean(axis, keepdims=True) - x_hat * (g * x_hat).mean(axis, keepdims=True)


def layer_norm(backend: Backend, x: NDArray, weight: Maybe, bias: Maybe, out: NDArray, eps: float) -> None:
    x_hat, _ = standardised(x, -1, eps)
    backend.copy(affine(x_hat, weight, bias), out)


def layer_norm_grad(
    backend: Backend,
    grad: NDArray,
    x: NDArray,
    weight: Maybe,
    dx: NDArray,
    dweight: NDArray,
    dbias: NDArray,
    eps: float,
) -> None:
    x_hat, scale = standardised(x, -1, eps)
    backend.copy(norm_gradient(affine(grad, weight, None), x_hat, -1) * scale, dx)
    backend.copy(rows_of(grad * x_hat).sum(0), dweight)
    backend.copy(rows_of(grad).sum(0), dbias)


def batch_norm(
    backend: Backend, x: NDArray, weight: Maybe, bias: Maybe, out: NDArray, mean: NDArray, var: NDArray, eps: float
) -> None:
    rows = rows_of(x)
    x_hat, _ = standardised(rows, 0, eps)
    middle = centred(rows, 0)
    backend.copy(affine(x_hat, weight, bias).reshape(out.shape), out)
    backend.copy(rows.mean(0), mean)
    backend.copy((middle * middle).mean(0), var)


def batch_norm_grad(
    backend: Backend,
    grad: NDArray,
    x: NDArray,
    weight: Maybe,
    mean: NDArray,
    var: NDArray,
    dx: NDArray,
    dweight: NDArray,
    dbias: NDArray,
    eps: float,
) -> None:
    scale = (var + eps).rsqrt()
    x_hat, g = (rows_of(x) - mean) * scale, rows_of(grad)
    backend.copy(affine(norm_gradient(g, x_hat, 0) * scale, weight, None).reshape(dx.shape), dx)
    backend.copy((g * x_hat).sum(0), dweight)
    backend.copy(g.sum(0), dbias)


def norm(
    backend: Backend, op: Op, x: NDArray, weight: Maybe, bias: Maybe, out: NDArray, mean: Maybe, var: Maybe, eps: float
) -> None:
    if op.name == "layer_norm":
        layer_norm(backend, x, weight, bias, out, eps)
    else:
        batch_norm(backend, x, weight, bias, out, mean, var, eps)


def norm_grad(
    backend: Backend,
    op: Op,
    grad: NDArray,
    x: NDArray,
    weight: Maybe,
    mean: Maybe,
    var: Maybe,
    dx: NDArray,
    dweight: NDArray,
    dbias: NDArray,
    eps: float,
) -> None:
    if op.name == "layer_norm":
        layer_norm_grad(backend, grad, x, weight, dx, dweight, dbias, eps)
    else:
        batch_norm_grad(backend, grad, x, weight, mean, var, dx, dweight, dbias, eps)


def classes(logits: NDArray) -> NDArray:
    *_, n = logits.shape
    return arange(n, dtype="int64", device=logits.device)


def cross_entropy(backend: Backend, logits: NDArray, labels: NDArray, out: NDArray) -> None:
    backend.copy(-logits.log_softmax().where(classes(logits) == labels.expand_dims(-1), 0.0).sum(-1), out)


def cross_entropy_grad(backend: Backend, grad: NDArray, logits: NDArray, labels: NDArray, out: NDArray) -> None:
    hot = (classes(logits) == labels.expand_dims(-1)).astype(logits.dtype)
    backend.copy((logits.softmax() - hot) * grad.expand_dims(-1), out)


def attention_weights(q: NDArray, k: NDArray, mask: Maybe, causal: bool, scale: float) -> NDArray:
    """softmax of scale q k^T + mask; 0 in rows with nothing to attend to."""
    scores = (q @ k.mT) * scale
    *_, t, s = scores.shape
    if mask is not None:
        scores = scores.where(mask, -float("inf")) if mask.dtype == "bool" else scores + mask
    if causal:
        last = arange(t, dtype="int64", device=q.device).expand_dims(-1) + (s - t)
        scores = scores.where(arange(s, dtype="int64", device=q.device) <= last, -float("inf"))
    if s == 0:
        return scores
    largest = scores.max(-1, keepdims=True)
    weights = (scores - largest.where(largest > -float("inf"), 0.0)).exp()
    total = weights.sum(-1, keepdims=True)
    return weights / total.where(total != 0, 1.0)


def attention(
    backend: Backend, q: NDArray, k: NDArray, v: NDArray, mask: Maybe, out: NDArray, causal: bool, scale: float
) -> None:
    backend.copy(attention_weights(q, k, mask, causal, scale) @ v, out)


def attention_grad(
    backend: Backend,
    grad: NDArray,
    q: NDArray,
    k: NDArray,
    v: NDArray,
    mask: Maybe,
    dq: NDArray,
    dk: NDArray,
    dv: NDArray,
    causal: bool,
    scale: float,
) -> None:
    p = attention_weights(q, k, mask, causal, scale)
    dp = grad @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    backend.copy(ds @ k, dq)
    backend.copy(ds.mT @ q, dk)
    backend.copy(p.mT @ grad, dv)
