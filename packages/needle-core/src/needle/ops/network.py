"""Fused ops of networks: norms, cross-entropy, attention, dropout."""

import math
from typing import Any

from needle.autograd import (
    Tensor,
    TensorOp,
    array_api,
    as_constant,
    constant,
    count,
    data_of,
    get_default_dtype,
    result_dtype,
)
from needle.ops.choosing import logical_and, not_equal, where
from needle.ops.conversion import astype
from needle.ops.fused import FusedOp
from needle.ops.helpers import index_of, no_bool, number
from needle.ops.indexing import gather
from needle.ops.linalg import matmul
from needle.ops.reductions import broadcast_to, logsumexp, mean, softmax, summation
from needle.ops.shapes import expand_dims, permute, reshape, transpose
from needle.statistics import follow
from needle_ndarray import broadcast_shapes
from needle_ndarray.extension import repeat


class LayerNorm(FusedOp):
    """y = (x - mean) / sqrt(var + eps) w + b, along the last axis"""

    differentiable = 3

    def __init__(self, eps: float) -> None:
        self.eps = number(eps)

    def compute(self, x, weight, bias):
        return array_api.layer_norm(x, weight, bias, self.eps)

    def compute_gradient(self, out_grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        return array_api.layer_norm_grad(out_grad, x, weight, self.eps)

    def composed(self, x: Tensor, weight: Any, bias: Any) -> Any:
        centred = x - mean(x, -1, keepdims=True)
        return centred / (mean(centred * centred, -1, keepdims=True) + self.eps).sqrt() * weight + bias


class BatchNorm(FusedOp):
    """y = (x - mean) / sqrt(var + eps) w + b, channels last; mean and var over everything else, kept as `statistics`"""

    differentiable = 3

    def __init__(self, eps: float) -> None:
        self.eps = number(eps)
        self.statistics: list = []  # mean and var of the last compute
        self.computed = 0

    def compute(self, x, weight, bias):
        y, *self.statistics = array_api.batch_norm(x, weight, bias, self.eps)
        self.computed += 1
        return y

    def compute_gradient(self, out_grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        if self.computed != 1:  # called for several x: the statistics may be those of another one
            self.compute(x, weight, bias)
        return array_api.batch_norm_grad(out_grad, x, *self.statistics, weight, self.eps)

    def composed(self, x: Tensor, weight: Any, bias: Any) -> Any:
        axes = tuple(range(x.ndim - 1))
        centred = x - mean(x, axes, keepdims=True)
        return centred / (mean(centred * centred, axes, keepdims=True) + self.eps).sqrt() * weight + bias


class CrossEntropy(FusedOp):
    """y = log sum e^x - x[label] per row;  dx = dy (softmax x - one_hot label)"""

    def compute(self, logits, labels):
        return array_api.cross_entropy(logits, labels)

    def compute_gradient(self, out_grad: Tensor, logits: Tensor, labels: Any) -> Any:
        return array_api.cross_entropy_grad(out_grad, logits, labels)

    def composed(self, logits: Tensor, labels: Any) -> Any:
        return logsumexp(logits, -1) - reshape(gather(logits, expand_dims(labels, -1), -1), labels.shape)


class MeanSquaredError(TensorOp):
    """y = mean of (a - b)^2;  da = 2 dy (a - b) / count, db = -da"""

    needs = "inputs"

    def compute(self, a, b):
        difference = a - b
        return (difference * difference).mean()

    def gradient(self, out_grad, node):
        a, b = node.inputs
        da = _SCALED_DIFFERENCE(a, b, out_grad / (count(a) / 2))
        return da, -da if b.requires_grad else None


class ScaledDifference(TensorOp):
    """y = (a - b) c for a single number c;  da = dy c, db = -da, dc = sum of dy (a - b)"""

    needs = "inputs"

    def compute(self, a, b, c):
        return (a - b) * c

    def gradient(self, out_grad, node):
        a, b, c = node.inputs
        da = out_grad * c
        return da, -da, summation(out_grad * (a - b))


class Attention(FusedOp):
    """y = softmax(q k^T scale + mask) v;  dq, dk, dv with the probabilities computed again"""

    differentiable = 3

    def __init__(self, causal: bool, scale: float | None) -> None:
        self.causal, self.scale = bool(causal), number(scale)

    def compute(self, q, k, v, *mask):
        return array_api.attention(q, k, v, *mask or (None,), self.causal, self.scale)

    def compute_gradient(self, out_grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *mask: Any) -> Any:
        return array_api.attention_grad(out_grad, q, k, v, *mask or (None,), self.causal, self.scale)

    def composed(self, q: Tensor, k: Tensor, v: Tensor, *mask: Any) -> Any:
        return matmul(attention_probabilities(q, k, mask[0] if mask else None, self.causal, self.scale), v)


def attention_probabilities(
    q: Tensor, k: Tensor, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q k^T scale + mask) along the last axis: (..., Tq, Tk)."""
    q, k = _common(q, k)
    scores = matmul(q, transpose(k)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    t, s = scores.shape[-2:]
    allowed = None
    if causal:
        allowed = Tensor.make_const(array_api.tril(array_api.ones((t, s), "bool", q.device), k=s - t))
    if mask is not None and mask.dtype == "bool":
        allowed = mask if allowed is None else logical_and(mask, allowed)
    elif mask is not None:
        scores = scores + mask
    if allowed is None:
        return softmax(scores)
    some = constant(array_api.any, allowed, axis=-1, keepdims=True)
    # a row with nothing to attend to is all zeros, not NaN
    return where(some, softmax(where(allowed, scores, where(some, -math.inf, 0.0).astype(scores.dtype))), 0.0)


class Dropout(TensorOp):
    """y = x / (1 - p) where the mask holds, else 0;  dx = dy / (1 - p) there"""

    needs = ""

    def __init__(self, p: float) -> None:
        self.p = number(p)

    def compute(self, x, mask):
        return array_api.where(mask, x, 0.0) / (1 - self.p)

    def gradient(self, out_grad, node):
        return Dropout(self.p)(out_grad, node.inputs[1]), None


# ---- The functions --------------------------------------------------------------------------

# These ops hold nothing: one of each does for all calls.
_CROSS_ENTROPY, _MEAN_SQUARED_ERROR, _SCALED_DIFFERENCE = CrossEntropy(), MeanSquaredError(), ScaledDifference()


def _common(*tensors):
    """Tensors in the dtype that they are computed in together, a float."""
    first, *others = [x.dtype for x in tensors]
    if first.is_float and others.count(first) == len(others):
        return tensors
    dtype = result_dtype(*[x.dtype for x in tensors])
    return [astype(x, dtype if dtype.is_float else get_default_dtype()) for x in tensors]


def _filled(x, n, weight, bias):
    """x, weight and bias in one dtype; ones and zeros of shape (n,) where weight or bias is None."""
    if isinstance(weight, Tensor) and isinstance(bias, Tensor) and weight.shape == bias.shape == (n,):
        same = x.dtype is weight.dtype is bias.dtype and x.dtype.is_float
        return (x, weight, bias) if same else _common(x, weight, bias)
    made = []
    for name, given, value in (("weight", weight, 1), ("bias", bias, 0)):
        part = None if given is None else as_constant(given, x, name)
        if part is not None and part.shape != (n,):
            raise ValueError(f"{name} has shape {part.shape}, expected ({n},) for an input of shape {x.shape}")
        made.append(Tensor.make_const(array_api.full((n,), value, x.dtype, x.device)) if part is None else part)
    return _common(x, *made)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05) -> Tensor:
    """Normalise along the last axis: y = (x - mean) / sqrt(var + eps) weight + bias."""
    if x.ndim == 0:
        raise ValueError("layer_norm: expected one axis or more, got a 0-d tensor")
    return LayerNorm(eps)(*_filled(x, x.shape[-1], weight, bias))


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
    axis: int = 1,
    unbiased: bool = False,
) -> Tensor:
    """Normalise every channel over all other axes: y = (x - mean) / sqrt(var + eps) weight + bias.

    Parameters
    ----------
    running_mean, running_var : tensors of shape (channels,). In training, where given, they become (1 - momentum) old + momentum
        new, in place; otherwise they are used instead of the batch's own mean and (biased) variance.
    axis : of the channels
    unbiased : whether running_var follows the variance with n - 1 below the line, as PyTorch's does
    """
    shape, ndim = x.shape, x.ndim
    if not -ndim <= axis < ndim:
        raise ValueError(f"batch_norm: axis {axis} of shape {shape}")
    axis %= ndim
    n = shape[axis]
    x, weight, bias = _filled(x, n, weight, bias)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: without training, running_mean and running_var are needed")
        scale = weight / (running_var + eps).sqrt()
        wide = (n,) + (1,) * (ndim - axis - 1)
        return x * reshape(scale, wide) + reshape(bias - running_mean * scale, wide)
    order = None if axis == ndim - 1 else (*[i for i in range(ndim) if i != axis], axis)
    op = BatchNorm(eps)
    y = op(x if order is None else permute(x, order), weight, bias)
    if running_mean is not None or running_var is not None:
        data_of(y)  # in lazy mode too: the statistics are wanted now
        new_mean, new_var = op.statistics
        if running_mean is not None:
            follow(running_mean, new_mean, 1 - momentum, momentum)
        if running_var is not None:
            count = x.size // n if unbiased and n else 0
            follow(running_var, new_var, 1 - momentum, momentum * count / (count - 1) if count > 1 else momentum)
    return y if order is None else permute(y, tuple([order.index(i) for i in range(ndim)]))


def cross_entropy(
    logits: Tensor, labels: Any, reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """-log softmax(logits)[label] per row, stable for any logits: (..., C) and integer labels (...).

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
    ignore_index : rows with this label count nothing
    label_smoothing : the part of the weight that is spread evenly over all classes
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"cross_entropy: reduction {reduction!r}: expected 'mean', 'sum' or 'none'")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing {label_smoothing}: expected a number from 0 to 1")
    if not logits.dtype.is_float:
        (logits,) = _common(logits)
    labels = index_of(logits, labels)
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"cross_entropy: labels {labels.shape} do not fit logits {logits.shape}: expected (..., C) and (...)"
        )
    kept = None
    if ignore_index is not None:
        kept = not_equal(labels, ignore_index)
        labels = constant(array_api.where, kept, labels, 0)
    losses = _CROSS_ENTROPY(logits, labels)
    if label_smoothing:
        even = logsumexp(logits, -1) - mean(logits, -1)
        losses = losses * (1 - label_smoothing) + even * label_smoothing
    if kept is not None:
        losses = where(kept, losses, 0.0)
    if reduction == "none":
        return losses
    total = summation(losses)
    if reduction == "sum":
        return total
    return total / (count(losses) or math.nan if kept is None else repeat(_count, kept.realize_cached_data()))


def _count(kept):
    """How many are True; NaN for none, whose mean there is not."""
    return float(kept.sum().item()) or math.nan


def mean_squared_error(a: Tensor, b: Tensor) -> Tensor:
    """The mean of (a - b)^2, two tensors of one shape."""
    b = as_constant(b, a, "mean_squared_error")
    if a.shape != b.shape:
        raise ValueError(f"mean_squared_error: shapes {a.shape} and {b.shape} differ")
    if not (a.dtype.is_float and b.dtype.is_float):
        a, b = _common(a, b)
    return _MEAN_SQUARED_ERROR(a, b)


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q k^T scale + mask) v: (..., Tq, D), (..., Tk, D), (..., Tk, Dv) -> (..., Tq, Dv).

    Parameters
    ----------
    mask : bool, True where a query may look at a key, or float, added to the scores; broadcasts to (..., Tq, Tk)
    causal : query i looks at keys up to i + (Tk - Tq) only
    scale : 1 / sqrt(D) by default
    """
    q, k, v = _common(q, as_constant(k, q, "attention"), as_constant(v, q, "attention"))
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"attention: q {q.shape}, k {k.shape}, v {v.shape}: expected (..., Tq, D), (..., Tk, D) and (..., Tk, Dv)"
        )
    mask = None if mask is None else as_constant(no_bool("attention: the mask", mask), q, "attention")
    if mask is not None and mask.dtype != "bool":
        mask = astype(mask, q.dtype)
    if mask is not None and mask.requires_grad:
        return matmul(attention_probabilities(q, k, mask, causal, scale), v)
    lead = broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (x if x.shape[:-2] == lead else broadcast_to(x, lead + x.shape[-2:]) for x in (q, k, v))
    return Attention(causal, scale)(q, k, v, *([] if mask is None else [mask]))


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero every element with probability p and divide the others by 1 - p; in evaluation x itself."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p = {p}: expected a number from 0, below 1")
    if not training or p == 0:
        return x
    kept = array_api.random.bernoulli(*x.shape, p=1 - p, device=x.device)
    return Dropout(p)(x, Tensor.make_const(kept))
