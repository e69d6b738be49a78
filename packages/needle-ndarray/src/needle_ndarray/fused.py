"""Norms, cross-entropy and attention, forward and backward: each one verb of the backend."""

import math
from typing import Any

from needle_ndarray.backend import NORM
from needle_ndarray.capture import again
from needle_ndarray.dtypes import bool_, float32, float64, int64, promote_types
from needle_ndarray.ndarray import NDArray, beside, bounds, broadcast_shapes, fits, norm_results, suits_norm

Named = dict[str, Any]
LAYER_NORM, BATCH_NORM = NORM["layer_norm"], NORM["batch_norm"]

# ---- Norms -----------------------------------------------------------------------------------------------------------


def layer_norm(x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None, eps: float = 1e-5) -> NDArray:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance over the last axis.

    Parameters
    ----------
    x : NDArray (..., n)
    weight, bias : NDArray (n,), or None for 1 and 0
    eps : added to the variance, which is the mean squared distance from the mean

    >>> from needle_ndarray import array
    >>> layer_norm(array([[1, 3], [10, 30]]), eps=0).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """
    if not suits_norm(x, eps, None, (), (weight, bias)):
        x, eps = _for_norm("layer_norm", x, eps, weight=weight, bias=bias)
    out = beside(x, x.shape)
    out.backend.norm(LAYER_NORM, x, weight, bias, out, None, None, eps)
    return out


def layer_norm_grad(
    grad: NDArray, x: NDArray, weight: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, NDArray, NDArray]:
    """(dx, dweight, dbias) of layer_norm; mean and variance are computed from x again, nothing has to be kept.

    Parameters
    ----------
    grad, x : NDArray (..., n)
    weight : NDArray (n,), or None for 1
    eps : as in the forward pass

    Returns
    -------
    dx (..., n), dweight (n,), dbias (n,)
    """
    if grad is None or not suits_norm(x, eps, grad, (), (weight,)):
        x, eps = _for_norm("layer_norm_grad", x, eps, {"grad": grad}, weight=weight)
    dx, dweight, dbias = norm_results(x)
    dx.backend.norm_grad(LAYER_NORM, grad, x, weight, None, None, dx, dweight, dbias, eps)
    return dx, dweight, dbias


def batch_norm(
    x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, NDArray, NDArray]:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance of each channel, the last axis.

    Parameters
    ----------
    x : NDArray (..., c)
    weight, bias : NDArray (c,), or None for 1 and 0
    eps : added to the variance, which is the mean squared distance from the mean

    Returns
    -------
    y (..., c), mean (c,), var (c,)
    """
    if not suits_norm(x, eps, None, (), (weight, bias)):
        x, eps = _for_norm("batch_norm", x, eps, weight=weight, bias=bias)
    out, mean, var = norm_results(x)
    out.backend.norm(BATCH_NORM, x, weight, bias, out, mean, var, eps)
    return out, mean, var


def batch_norm_grad(
    grad: NDArray, x: NDArray, mean: NDArray, var: NDArray, weight: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, NDArray, NDArray]:
    """(dx, dweight, dbias) of batch_norm, through the statistics of the batch.

    Parameters
    ----------
    grad, x : NDArray (..., c)
    mean, var : NDArray (c,), as batch_norm returned them
    weight : NDArray (c,), or None for 1
    eps : as in the forward pass

    Returns
    -------
    dx (..., c), dweight (c,), dbias (c,)
    """
    if grad is None or not suits_norm(x, eps, grad, (mean, var), (weight,)):
        x, eps = _for_norm("batch_norm_grad", x, eps, {"grad": grad}, {"mean": mean, "var": var}, weight=weight)
    dx, dweight, dbias = norm_results(x)
    dx.backend.norm_grad(BATCH_NORM, grad, x, weight, mean, var, dx, dweight, dbias, eps)
    return dx, dweight, dbias


# ---- Cross-entropy ---------------------------------------------------------------------------------------------------


def cross_entropy(logits: NDArray, labels: NDArray) -> NDArray:
    """losses = log sum e^logits - logits[label] over the last axis: logits (..., c), integer labels (...) in [0, c).

    >>> from needle_ndarray import array
    >>> cross_entropy(array([[0.0, 1e4], [0.0, 1e4]]), array([1, 0], "int64")).tolist()
    [0.0, 10000.0]
    """
    logits = _rows("cross_entropy", logits)
    labels = _labels("cross_entropy", logits, labels)
    out = beside(logits, labels.shape)
    out.backend.cross_entropy(logits, labels, out)
    return out


def cross_entropy_grad(grad: NDArray, logits: NDArray, labels: NDArray) -> NDArray:
    """dlogits = (softmax(logits) - onehot(labels)) * grad[..., None]

    Parameters
    ----------
    grad : NDArray (...), of the losses
    logits : NDArray (..., c)
    labels : NDArray (...), integers in [0, c)
    """
    logits = _rows("cross_entropy_grad", logits)
    labels = _labels("cross_entropy_grad", logits, labels)
    _like("cross_entropy_grad", logits, labels.shape, grad=grad)
    out = beside(logits, logits.shape)
    out.backend.cross_entropy_grad(grad, logits, labels, out)
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
    q, k, v, mask = _attended("attention", q, k, v, mask)
    out = beside(q, q.shape[:-1] + v.shape[-1:])
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
    q, k, v, mask = _attended("attention_grad", q, k, v, mask)
    _like("attention_grad", q, q.shape[:-1] + v.shape[-1:], grad=grad)
    dq, dk, dv = (beside(x, x.shape) for x in (q, k, v))
    factor = _scale("attention_grad", scale, q.shape[-1])
    dq.backend.attention_grad(grad, q, k, v, mask, dq, dk, dv, bool(causal), factor)
    return dq, dk, dv


# ---- Arguments -------------------------------------------------------------------------------------------------------


def _floats(what: str, name: str, x: Any) -> NDArray:
    """x, an array of floats; integers become float64, uint8 and bool float32."""
    if not isinstance(x, NDArray):
        raise TypeError(f"{what}: {name}: expected an NDArray, got {type(x).__name__}")
    if x.dtype is float32 or x.dtype is float64:
        return x
    return x.astype(promote_types(x.dtype, float32))


def _rows(what: str, x: Any) -> NDArray:
    """x, an array of floats whose last axis has elements."""
    x = _floats(what, "logits" if "entropy" in what else "x", x)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"{what}: shape {x.shape}: expected one axis or more, the last one not empty")
    return x


def _like(what: str, x: NDArray, shape: tuple[int, ...], **given: Any) -> None:
    """Each of the arrays given has this shape, and x's dtype and device."""
    for name, a in given.items():
        if fits(x, a, shape):
            continue
        if not isinstance(a, NDArray):
            raise TypeError(f"{what}: {name}: expected an NDArray, got {type(a).__name__}")
        if a.shape != shape:
            raise ValueError(f"{what}: {name} has shape {a.shape}, expected {shape}")
        _same_kind(what, x, name, a)


def _same_kind(what: str, x: NDArray, name: str, a: NDArray) -> None:
    if a.backend is not x.backend:
        raise ValueError(f"{what}: {name} on {a.device}, expected {x.device}; move it with .to(device)")
    if a.dtype is not x.dtype:
        raise TypeError(f"{what}: {name} is {a.dtype}, expected {x.dtype}")


def _for_norm(
    what: str, x: Any, eps: Any, like: Named | None = None, needed: Named | None = None, **optional: Any
) -> tuple[NDArray, float]:
    """x as floats and eps as a float; arrays like x and vectors over its last axis, some of them optional, are checked."""
    x = _rows(what, x)
    _like(what, x, x.shape, **like or {})
    _like(what, x, x.shape[-1:], **needed or {}, **{name: a for name, a in optional.items() if a is not None})
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < math.inf:
        raise ValueError(f"{what}: eps = {eps!r}: expected a number from 0 on")
    return x, float(eps)


def _scale(what: str, scale: Any, d: int) -> float:
    if scale is None:
        return 1 / math.sqrt(max(d, 1))
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale):
        raise ValueError(f"{what}: scale = {scale!r}: expected a number")
    return float(scale)


def _labels(what: str, logits: NDArray, labels: Any) -> NDArray:
    """Labels as int64, each a class."""
    if not isinstance(labels, NDArray):
        raise TypeError(f"{what}: labels: expected an NDArray, got {type(labels).__name__}")
    if labels.dtype is bool_ or labels.dtype.is_float:
        raise TypeError(f"{what}: labels are {labels.dtype}, expected integers")
    if labels.backend is not logits.backend:
        raise ValueError(f"{what}: labels on {labels.device}, expected {logits.device}; move them with .to(device)")
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"{what}: labels have shape {labels.shape}, logits {logits.shape}")
    if labels.size:
        again(_check_labels, labels, what, logits.shape[-1])
    return labels if labels.dtype is int64 else labels.astype(int64)


def _check_labels(labels: NDArray, what: str, n: int) -> None:
    lowest, highest = bounds(labels)
    if lowest < 0 or highest >= n:
        raise IndexError(f"{what}: label {lowest if lowest < 0 else highest} is out of range for {n} classes")


def _attended(what: str, q: Any, k: Any, v: Any, mask: Any) -> tuple[NDArray, NDArray, NDArray, NDArray | None]:
    """Operands that fit, as views with equal leading axes."""
    q, k, v = _floats(what, "q", q), _floats(what, "k", k), _floats(what, "v", v)
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise _misfit(what, q, k, v, "expected two axes or more")
    if q.shape[-1] != k.shape[-1]:
        raise _misfit(what, q, k, v, f"sizes {q.shape[-1]} and {k.shape[-1]} of q and k differ")
    if k.shape[-2] != v.shape[-2]:
        raise _misfit(what, q, k, v, f"lengths {k.shape[-2]} and {v.shape[-2]} of k and v differ")
    _same_kind(what, q, "k", k)
    _same_kind(what, q, "v", v)
    lead = q.shape[:-2]
    if not lead == k.shape[:-2] == v.shape[:-2]:
        try:
            lead = broadcast_shapes(lead, k.shape[:-2], v.shape[:-2])
        except ValueError:
            raise _misfit(what, q, k, v, "leading axes do not broadcast") from None
        q, k, v = (x.broadcast_to((*lead, *x.shape[-2:])) for x in (q, k, v))
    if mask is not None:
        mask = _mask(what, q, mask, (*lead, q.shape[-2], k.shape[-2]))
    return q, k, v, mask


def _misfit(what: str, q: NDArray, k: NDArray, v: NDArray, why: str) -> ValueError:
    return ValueError(f"{what}: q {q.shape}, k {k.shape}, v {v.shape}: {why}")


def _mask(what: str, q: NDArray, mask: Any, shape: tuple[int, ...]) -> NDArray:
    """The mask, bool or of q's dtype, as a view of the scores' shape."""
    if not isinstance(mask, NDArray):
        raise TypeError(f"{what}: mask: expected an NDArray, got {type(mask).__name__}")
    if mask.dtype is not bool_ and mask.dtype is not q.dtype:
        raise TypeError(f"{what}: mask is {mask.dtype}, expected bool or {q.dtype}")
    if mask.backend is not q.backend:
        raise ValueError(f"{what}: mask on {mask.device}, expected {q.device}; move it with .to(device)")
    try:
        return mask.broadcast_to(shape)
    except ValueError:
        raise ValueError(f"{what}: mask has shape {mask.shape}, the scores {shape}") from None


__all__ = (
    "layer_norm layer_norm_grad batch_norm batch_norm_grad cross_entropy cross_entropy_grad attention attention_grad"
).split()
