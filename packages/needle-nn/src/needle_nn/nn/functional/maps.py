"""Linear maps, embeddings, dropout, normalisation, attention, distances. Weights have PyTorch's layout: (out, in).

>>> import needle as ndl
>>> linear(ndl.ones(2, 3), ndl.ones(5, 3)).shape
(2, 5)
"""

import math
from typing import Any

import numpy as np

from needle import Tensor, init, ops
from needle.typing import Shape

__all__ = [
    "alpha_dropout", "batch_norm", "bilinear", "cosine_similarity", "dropout", "dropout1d", "dropout2d", "dropout3d", "embedding",
    "embedding_bag", "group_norm", "instance_norm", "layer_norm", "linear", "normalize", "one_hot",
    "pairwise_distance", "rms_norm", "scaled_dot_product_attention",
]  # fmt: skip


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + b: (..., in), (out, in), (out,) -> (..., out)"""
    if weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear: weight has shape {weight.shape}, the input {input.shape}: expected (out, in) and (..., in);"
            " the weight of a layer is (in, out), so give layer.weight.T"
        )
    return ops.linear(input, weight.transpose(), bias if bias is None or bias.ndim == 1 else bias.reshape(-1))


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_k = x1^T W_k x2 + b_k: (..., in1), (..., in2), (out, in1, in2), (out,) -> (..., out)"""
    if weight.ndim != 3 or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]:
        raise ValueError(
            f"bilinear: weight has shape {weight.shape}, expected (out, {input1.shape[-1]}, {input2.shape[-1]})"
        )
    out, n1, n2 = weight.shape
    x1, x2 = input1.reshape((-1, n1)), input2.reshape((-1, n2))
    left = (x1 @ weight.permute((1, 0, 2)).reshape((n1, out * n2))).reshape((-1, out, n2))  # (B, out, in2)
    y = (left * x2.reshape((-1, 1, n2))).sum(-1).reshape((*input1.shape[:-1], out))
    return y if bias is None else y + bias


def embedding(input: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """y = weight[ids]; the row `padding_idx` gets no gradient"""
    if padding_idx is None:
        return ops.embedding(input, weight)
    padded = init.one_hot(weight.shape[0], padding_idx % weight.shape[0], device=weight.device, dtype="bool")
    row = padded.reshape((weight.shape[0], 1))
    return ops.embedding(input, ops.where(row, weight.detach(), weight))


def one_hot(tensor: Any, num_classes: int = -1) -> Tensor:
    """1 at the position of each integer, int64: (...) -> (..., num_classes), by default one more than the largest"""
    n = num_classes if num_classes >= 0 else int(tensor.numpy().max(initial=-1)) + 1
    return init.one_hot(n, tensor, dtype="int64")


# ---- Dropout ------------------------------------------------------------------------------------------------------------


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """y = x m / (1 - p) in training, m ~ Bernoulli(1 - p); y = x in evaluation"""
    return ops.dropout(input, p, training)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels: (N, C, L)"""
    return _dropout_of_channels("dropout1d", input, p, training, 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels: (N, C, H, W)"""
    return _dropout_of_channels("dropout2d", input, p, training, 4)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels: (N, C, D, H, W)"""
    return _dropout_of_channels("dropout3d", input, p, training, 5)


def _dropout_of_channels(what, x, p, training, ndim):
    if x.ndim != ndim:
        raise ValueError(
            f"{what}: input has shape {x.shape}, expected (N, C, {', '.join(['L', 'HW', 'DHW'][ndim - 3])})"
        )
    if not training or p == 0:
        return ops.dropout(x, p, False)
    ones = init.ones(*x.shape[:2], *(1,) * (ndim - 2), device=x.device, dtype=x.dtype)
    return x * ops.dropout(ones, p)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """y = a (x m - 1.758 (1 - m)) + b, m ~ Bernoulli(1 - p): keeps mean 0 and variance 1 after `selu`"""
    kept = ops.dropout(init.ones(*input.shape, device=input.device, dtype=input.dtype), p, training)
    if not training or p == 0:
        return input
    low = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717
    a = ((1 - p) * (1 + p * low**2)) ** -0.5
    m = kept * (1 - p)
    return (input * m + (1 - m) * low) * a - a * p * low


def embedding_bag(
    input: Any,
    weight: Tensor,
    offsets: Any = None,
    *,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    padding_idx: int | None = None,
) -> Tensor:
    """The mean or sum of weight[ids] over each bag: ids (N, L), or one after the other with `offsets`, where each bag begins"""
    if mode not in ("mean", "sum"):
        raise ValueError(f"embedding_bag: mode {mode!r}: expected 'mean' or 'sum'")
    if (input.ndim == 2) != (offsets is None):
        raise ValueError(f"embedding_bag: ids {tuple(input.shape)}: expected offsets with one axis, none with two")
    if offsets is None and padding_idx is None and input.shape[1]:  # nothing that has to be read on the host
        rows = ops.embedding(input, weight)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.reshape((*input.shape, 1))
        return rows.mean(1) if mode == "mean" else rows.sum(1)
    ids = input.numpy().astype(np.int64)
    if offsets is None:
        bags, lengths = np.repeat(np.arange(ids.shape[0]), ids.shape[1]), np.full(ids.shape[0], ids.shape[1])
    else:
        lengths = np.diff([*np.asarray(offsets.numpy(), np.int64), ids.size])
        bags = np.repeat(np.arange(lengths.size), lengths)
    ids = ids.reshape(-1)
    shares = np.ones(ids.size) if padding_idx is None else (ids != padding_idx).astype(float)
    indices: dict[str, Any] = {"device": weight.device, "dtype": "int64", "requires_grad": False}
    rows = ops.embedding(Tensor(ids, **indices), weight)
    counts = np.bincount(bags, shares, lengths.size)
    if mode == "mean":
        shares = shares / np.maximum(counts, 1)[bags]
    scale = Tensor(shares.reshape(-1, 1), device=weight.device, dtype=weight.dtype, requires_grad=False)
    if per_sample_weights is not None:
        scale = scale * per_sample_weights.reshape((-1, 1))
    return ops.ScatterAdd(0, (lengths.size, weight.shape[1]))(rows * scale, Tensor(bags, **indices))


# ---- Normalisation ------------------------------------------------------------------------------------------------------


def _trailing(what, x, shape):
    """The axes that a shape covers at the end of x, as a tuple of sizes."""
    shape = (shape,) if hasattr(type(shape), "__index__") else tuple(shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(f"{what}: input has shape {x.shape}, expected (..., {', '.join(map(str, shape))})")
    return shape


def layer_norm(
    input: Tensor, normalized_shape: Shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) w + b over the last axes, those of normalized_shape"""
    shape = _trailing("layer_norm", input, normalized_shape)
    weight, bias = (None if p is None else p.reshape(-1).astype(input.dtype) for p in (weight, bias))
    if len(shape) == 1:
        return ops.layer_norm(input, weight, bias, eps)
    rows = input.reshape((*input.shape[: -len(shape)], math.prod(shape)))
    return ops.layer_norm(rows, weight, bias, eps).reshape(input.shape)


def rms_norm(input: Tensor, normalized_shape: Shape, weight: Tensor | None = None, eps: float = 1e-05) -> Tensor:
    """y = x / sqrt(mean x^2 + eps) w over the last axes, those of normalized_shape"""
    axes = tuple(range(-len(_trailing("rms_norm", input, normalized_shape)), 0))
    y = input / (ops.mean(input * input, axes, keepdims=True) + eps).sqrt()
    return y if weight is None else y * weight


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) w + b over every group of channels of every example: (N, C, ...)"""
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(
            f"group_norm: input has shape {input.shape}: expected (N, C, ...), C a multiple of {num_groups}"
        )
    groups = input.reshape((input.shape[0], num_groups, -1))  # (N, C, ...) -> (N, G, C/G ...)
    y = ops.layer_norm(groups, eps=eps).reshape(input.shape)
    wide = (input.shape[1],) + (1,) * (input.ndim - 2)
    y = y if weight is None else y * weight.reshape(wide)
    return y if bias is None else y + bias.reshape(wide)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """`group_norm` with a group for each channel; running statistics are for `use_input_stats=False` only"""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return group_norm(input, input.shape[1] if input.ndim > 1 else 1, weight, bias, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) w + b for every channel, (N, C, ...); running_var follows the unbiased variance"""
    weight, bias = (None if p is None else p.astype(input.dtype) for p in (weight, bias))
    statistics: dict[str, Any] = {"running_mean": running_mean, "running_var": running_var}
    return ops.batch_norm(
        input, weight, bias, **statistics, training=training, momentum=momentum, eps=eps, unbiased=True
    )


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """y = x / max(|x|_p, eps) along an axis"""
    return input / ops.maximum(_norm(input, p, dim), eps)


def _norm(x, p, dim):
    if p == 2:
        return ops.sqrt((x * x).sum(dim, keepdims=True))
    if p == 1:
        return ops.abs(x).sum(dim, keepdims=True)
    if p == math.inf:
        return ops.amax(ops.abs(x), dim, keepdims=True)
    return (ops.abs(x) ** p).sum(dim, keepdims=True) ** (1 / p)


# ---- Distances ----------------------------------------------------------------------------------------------------------


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """y = x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis"""
    y = normalize(x1, dim=dim, eps=eps) * normalize(x2, dim=dim, eps=eps)
    return y.sum(dim)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> Tensor:
    """y = |x1 - x2 + eps|_p along the last axis"""
    y = _norm(x1 - x2 + eps, p, -1)
    return y if keepdim else ops.squeeze(y, -1)


# ---- Attention ----------------------------------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(q k^T scale + mask) v: (..., Tq, D), (..., Tk, D), (..., Tk, Dv) -> (..., Tq, Dv)

    Parameters
    ----------
    attn_mask : bool, True where a query may look at a key, or float, added to the scores
    dropout_p : share of the probabilities that become 0, whoever calls
    is_causal : query i looks at keys 0 to i, whatever their number; without attn_mask
    scale : 1 / sqrt(D) by default
    """
    if is_causal and attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: attn_mask and is_causal exclude each other")
    sizes = query.shape[-2], key.shape[-2]
    square = sizes[0] == sizes[1]
    if is_causal and not square:  # needle's own function lines up the last query with the last key
        attn_mask = Tensor(np.tril(np.ones(sizes, bool)), device=query.device, requires_grad=False)
    causal = is_causal and square
    if not dropout_p:
        return ops.scaled_dot_product_attention(query, key, value, attn_mask, causal, scale)
    probabilities = ops.attention_probabilities(query, key, attn_mask, causal, scale)
    return ops.dropout(probabilities, dropout_p) @ value
