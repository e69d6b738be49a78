"""The optional verbs in terms of the required ones: what a backend runs until it has kernels of its own.

Each function is the verb of the same name in `backend.Backend`, where its formula stands; `backend` is the one that it runs on.
"""

from typing import Any, TypeAlias

from needle_ndarray.backend import BINARY, UNARY, Backend, Op
from needle_ndarray.creation import arange
from needle_ndarray.manipulation import pad
from needle_ndarray.ndarray import NDArray, unary_op

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
Maybe: TypeAlias = NDArray | None

# ---- Over the last axis ----------------------------------------------------------------------------------------------


def linear(backend: Backend, x: NDArray, weight: NDArray, bias: NDArray, out: NDArray) -> None:
    backend.matmul(x, weight, out)
    backend.binary(BINARY["add"], out, bias.broadcast_to(out.shape), out)


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


# ---- Convolution and pooling -----------------------------------------------------------------------------------------


def bordered(a: NDArray, padding: Padding, value: Any) -> NDArray:
    """(N, H, W, C) with `value` around each image, a copy."""
    return pad(a, ((0, 0), *padding, (0, 0)), value)


def windows(a: NDArray, size: Pair, stride: Pair, dilation: Pair = (1, 1)) -> NDArray:
    """(N, H, W, C) -> (N, OH, OW, KH, KW, C): what the kernel sees at each of its places, a view."""
    (n, h, w, c), (along_n, along_h, along_w, along_c) = a.shape, a.strides
    oh, ow = [
        (length - (k - 1) * d - 1) // s + 1 for length, k, d, s in zip((h, w), size, dilation, stride, strict=True)
    ]
    steps = (along_n, along_h * stride[0], along_w * stride[1], along_h * dilation[0], along_w * dilation[1], along_c)
    return a.as_strided((n, oh, ow, *size, c), steps)


def split(groups: int, channels: int, filters: int) -> list[tuple[slice, slice]]:
    """The channels and the filters of each group."""
    c, f = channels // groups, filters // groups
    return [(slice(g * c, (g + 1) * c), slice(g * f, (g + 1) * f)) for g in range(groups)]


def im2col(seen: NDArray) -> NDArray:
    """(N, OH, OW, KH, KW, C) -> (N OH OW, KH KW C)"""
    n, oh, ow, kh, kw, c = seen.shape
    return seen.reshape((n * oh * ow, kh * kw * c))


def offsets(size: Pair) -> list[Pair]:
    return [(i, j) for i in range(size[0]) for j in range(size[1])]


def inside(padded: NDArray, padding: Padding, shape: tuple[int, ...]) -> NDArray:
    """The image in its padding."""
    (top, _), (left, _) = padding
    return padded[:, top : top + shape[1], left : left + shape[2]]


def conv2d(
    backend: Backend,
    x: NDArray,
    weight: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
    out: NDArray,
) -> None:
    (kh, kw, count, _), seen = weight.shape, windows(bordered(x, padding, 0), weight.shape[:2], stride, dilation)
    for channels, filters in split(groups, x.shape[3], weight.shape[3]):
        kernel = weight[..., filters].reshape((kh * kw * count, filters.stop - filters.start))
        backend.copy((im2col(seen[..., channels]) @ kernel).reshape(out[..., filters].shape), out[..., filters])


def conv2d_input_grad(
    backend: Backend,
    grad: NDArray,
    weight: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
    out: NDArray,
) -> None:
    backend.fill(out, 0)
    padded = bordered(out, padding, 0)
    seen = windows(padded, weight.shape[:2], stride, dilation)
    for channels, filters in split(groups, out.shape[3], weight.shape[3]):
        for i, j in offsets(weight.shape[:2]):
            place = seen[:, :, :, i, j, channels]
            place += grad[..., filters] @ weight[i, j, :, filters].T
    backend.copy(inside(padded, padding, out.shape), out)


def conv2d_weight_grad(
    backend: Backend,
    x: NDArray,
    grad: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
    out: NDArray,
) -> None:
    seen = windows(bordered(x, padding, 0), out.shape[:2], stride, dilation)
    for channels, filters in split(groups, x.shape[3], out.shape[3]):
        columns = im2col(seen[..., channels])
        flat = grad[..., filters].reshape((columns.shape[0], filters.stop - filters.start))
        backend.copy((columns.T @ flat).reshape(out[..., filters].shape), out[..., filters])


def max_pool2d(backend: Backend, x: NDArray, size: Pair, stride: Pair, padding: Padding, out: NDArray) -> None:
    backend.copy(windows(bordered(x, padding, float("-inf")), size, stride).max(axis=(3, 4)), out)


def avg_pool2d(backend: Backend, x: NDArray, size: Pair, stride: Pair, padding: Padding, out: NDArray) -> None:
    seen = windows(bordered(x, padding, 0), size, stride)
    backend.copy(seen.sum(axis=(3, 4)) / (size[0] * size[1]), out)


def max_pool2d_grad(
    backend: Backend, grad: NDArray, x: NDArray, size: Pair, stride: Pair, padding: Padding, out: NDArray
) -> None:
    backend.fill(out, 0)
    padded = bordered(out, padding, 0)
    seen = windows(bordered(x, padding, float("-inf")), size, stride)
    free = windows(bordered(x.isnan() | True, padding, False), size, stride)
    target = windows(padded, size, stride)
    largest = seen.max(axis=(3, 4))
    waiting = largest.isnan() | True
    for i, j in offsets(size):
        place, value = target[:, :, :, i, j], seen[:, :, :, i, j]
        hit = waiting & free[:, :, :, i, j] & ((value == largest) | value.isnan())
        place += grad.where(hit, 0.0)
        waiting &= ~hit
    backend.copy(inside(padded, padding, out.shape), out)


def avg_pool2d_grad(backend: Backend, grad: NDArray, size: Pair, stride: Pair, padding: Padding, out: NDArray) -> None:
    backend.fill(out, 0)
    padded = bordered(out, padding, 0)
    seen = windows(padded, size, stride)
    share = grad / (size[0] * size[1])
    for i, j in offsets(size):
        place = seen[:, :, :, i, j]
        place += share
    backend.copy(inside(padded, padding, out.shape), out)


# ---- Norms, cross-entropy, attention ---------------------------------------------------------------------------------


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


def layer_norm(backend: Backend, x: NDArray, weight: Maybe, bias: Maybe, eps: float, out: NDArray) -> None:
    x_hat, _ = standardised(x, -1, eps)
    backend.copy(affine(x_hat, weight, bias), out)


def layer_norm_grad(
    backend: Backend,
    grad: NDArray,
    x: NDArray,
    weight: Maybe,
    eps: float,
    dx: NDArray,
    dweight: NDArray,
    dbias: NDArray,
) -> None:
    x_hat, scale = standardised(x, -1, eps)
    backend.copy(norm_gradient(affine(grad, weight, None), x_hat, -1) * scale, dx)
    backend.copy(rows_of(grad * x_hat).sum(0), dweight)
    backend.copy(rows_of(grad).sum(0), dbias)


def batch_norm(
    backend: Backend, x: NDArray, weight: Maybe, bias: Maybe, eps: float, out: NDArray, mean: NDArray, var: NDArray
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
    mean: NDArray,
    var: NDArray,
    weight: Maybe,
    eps: float,
    dx: NDArray,
    dweight: NDArray,
    dbias: NDArray,
) -> None:
    scale = (var + eps).rsqrt()
    x_hat, g = (rows_of(x) - mean) * scale, rows_of(grad)
    backend.copy(affine(norm_gradient(g, x_hat, 0) * scale, weight, None).reshape(dx.shape), dx)
    backend.copy((g * x_hat).sum(0), dweight)
    backend.copy(g.sum(0), dbias)


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
    backend: Backend, q: NDArray, k: NDArray, v: NDArray, mask: Maybe, causal: bool, scale: float, out: NDArray
) -> None:
    backend.copy(attention_weights(q, k, mask, causal, scale) @ v, out)


def attention_grad(
    backend: Backend,
    grad: NDArray,
    q: NDArray,
    k: NDArray,
    v: NDArray,
    mask: Maybe,
    causal: bool,
    scale: float,
    dq: NDArray,
    dk: NDArray,
    dv: NDArray,
) -> None:
    p = attention_weights(q, k, mask, causal, scale)
    dp = grad @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    backend.copy(ds @ k, dq)
    backend.copy(ds.mT @ q, dk)
    backend.copy(p.mT @ grad, dv)


# ---- Recurrent layers: cells out of elementwise verbs, sequences out of matmul and the cells -------------------------


def side_by_side(a: NDArray, count: int) -> list[NDArray]:
    """(..., count n) -> the parts (..., n), views"""
    *_, wide = a.shape
    n = wide // count
    return [a[..., k * n : (k + 1) * n] for k in range(count)]


def put_side_by_side(backend: Backend, parts: list[NDArray], out: NDArray) -> None:
    for part, place in zip(parts, side_by_side(out, len(parts)), strict=True):
        backend.copy(part, place)


def lstm_cell(
    backend: Backend, x: NDArray, y: NDArray, bias: Maybe, c: NDArray, h_out: NDArray, c_out: NDArray, gates: Maybe
) -> None:
    i, f, g, o = side_by_side(x + affine(y, None, bias), 4)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    backend.copy(f * c + i * g, c_out)
    backend.copy(o * c_out.tanh(), h_out)
    if gates is not None:
        put_side_by_side(backend, [i, f, g, o], gates)


def lstm_cell_grad(
    backend: Backend,
    dy: NDArray,
    dh: NDArray,
    dc: NDArray,
    gates: NDArray,
    c: NDArray,
    c_out: NDArray,
    ds: NDArray,
    dc_out: NDArray,
) -> None:
    i, f, g, o = side_by_side(gates, 4)
    d, t = dy + dh, c_out.tanh()
    e = dc + d * o * (1 - t * t)
    put_side_by_side(backend, [e * g * i * (1 - i), e * c * f * (1 - f), e * i * (1 - g * g), d * t * o * (1 - o)], ds)
    backend.copy(e * f, dc_out)


def gru_cell(backend: Backend, x: NDArray, y: NDArray, bias: Maybe, h: NDArray, h_out: NDArray, gates: Maybe) -> None:
    x_r, x_z, x_n = side_by_side(x, 3)
    y_r, y_z, m = side_by_side(affine(y, None, bias), 3)
    r, z = (x_r + y_r).sigmoid(), (x_z + y_z).sigmoid()
    n = (x_n + r * m).tanh()
    backend.copy(n + z * (h - n), h_out)
    if gates is not None:
        put_side_by_side(backend, [r, z, n, m], gates)


def gru_cell_grad(
    backend: Backend,
    dy: NDArray,
    dh: NDArray,
    h: NDArray,
    gates: NDArray,
    dx: NDArray,
    ds: NDArray,
    dh_out: NDArray,
) -> None:
    r, z, n, m = side_by_side(gates, 4)
    d = dy + dh
    dn = d * (1 - z) * (1 - n * n)
    dz, dr = d * (h - n) * z * (1 - z), dn * m * r * (1 - r)
    put_side_by_side(backend, [dr, dz, dn], dx)
    put_side_by_side(backend, [dr, dz, dn * r], ds)
    backend.copy(d * z, dh_out)


def lstm(backend: Backend, x: NDArray, weight: NDArray, bias: Maybe, h: NDArray, c: NDArray, gates: Maybe) -> None:
    for t in range(x.shape[0]):
        if gates is None:
            (only,) = c
            backend.lstm_cell(x[t], h[t] @ weight, bias, only, h[t + 1], only, None)
        else:
            backend.lstm_cell(x[t], h[t] @ weight, bias, c[t], h[t + 1], c[t + 1], gates[t])


def lstm_grad(
    backend: Backend, dy: NDArray, weight: NDArray, c: NDArray, gates: NDArray, ds: NDArray, dh: NDArray, dc: NDArray
) -> None:
    for t in reversed(range(dy.shape[0])):
        backend.lstm_cell_grad(dy[t], dh, dc, gates[t], c[t], c[t + 1], ds[t], dc)
        backend.copy(ds[t] @ weight.T, dh)


def gru(backend: Backend, x: NDArray, weight: NDArray, bias: Maybe, h: NDArray, gates: Maybe) -> None:
    for t in range(x.shape[0]):
        backend.gru_cell(x[t], h[t] @ weight, bias, h[t], h[t + 1], None if gates is None else gates[t])


def gru_grad(
    backend: Backend, dy: NDArray, weight: NDArray, h: NDArray, gates: NDArray, dx: NDArray, ds: NDArray, dh: NDArray
) -> None:
    for t in reversed(range(dy.shape[0])):
        backend.gru_cell_grad(dy[t], dh, h[t], gates[t], dx[t], ds[t], dh)
        backend.copy(dh + ds[t] @ weight.T, dh)


def rnn(backend: Backend, op: Op, x: NDArray, weight: NDArray, bias: Maybe, h: NDArray) -> None:
    for t in range(x.shape[0]):
        backend.unary(op, x[t] + affine(h[t] @ weight, None, bias), h[t + 1])


def rnn_grad(backend: Backend, op: Op, dy: NDArray, weight: NDArray, h: NDArray, ds: NDArray, dh: NDArray) -> None:
    for t in reversed(range(dy.shape[0])):
        d, y = dy[t] + dh, h[t + 1]
        backend.copy(d * (1 - y * y) if op.name == "tanh" else d.where(y > 0, 0.0), ds[t])
        backend.copy(ds[t] @ weight.T, dh)


# ---- Steps of optimizers ---------------------------------------------------------------------------------------------


def penalised(p: NDArray, g: NDArray, weight_decay: float, l1: float) -> NDArray:
    """g + weight_decay p + l1 sign(p)"""
    g = g if weight_decay == 0 else g + p * weight_decay
    return g if l1 == 0 else g + unary_op(UNARY["sign"], p) * l1


def sgd_step(
    backend: Backend,
    params: list[NDArray],
    grads: list[NDArray],
    u: list[NDArray] | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    l1: float,
    nesterov: bool,
    correction: float,
) -> None:
    for i, p in enumerate(params):
        along = penalised(p, grads[i], weight_decay, l1)
        if u is not None:
            each = along * (1 - dampening)
            backend.copy(u[i] * momentum + each, u[i])
            along = (u[i] * momentum + each if nesterov else u[i]) / correction
        backend.copy(p - along * lr, p)


def adam_step(
    backend: Backend,
    params: list[NDArray],
    grads: list[NDArray],
    m: list[NDArray],
    v: list[NDArray],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    correction1: float,
    correction2: float,
) -> None:
    for i, p in enumerate(params):
        g = penalised(p, grads[i], 0 if decoupled else weight_decay, 0)
        if decoupled and weight_decay != 0:
            backend.copy(p - p * (lr * weight_decay), p)
        backend.copy(m[i] * beta1 + g * (1 - beta1), m[i])
        backend.copy(v[i] * beta2 + g * (1 - beta2) * g, v[i])
        backend.copy(p - (m[i] / correction1) * lr / ((v[i] / correction2).sqrt() + eps), p)


# ---- The course's tiled product --------------------------------------------------------------------------------------


def matmul_tiled(backend: Backend, a: Any, b: Any, out: Any, m: int, n: int, p: int) -> None:
    t = backend.tile_size

    def tiles(handle: Any, rows: int, columns: int) -> NDArray:
        return NDArray.make((rows // t, columns // t, t, t), device=backend.device, handle=handle)

    left, right = tiles(a, m, n).permute((0, 2, 1, 3)), tiles(b, n, p).permute((0, 2, 1, 3))
    product = left.reshape((m, n)) @ right.reshape((n, p))
    backend.copy(product.reshape((m // t, t, p // t, t)).permute((0, 2, 1, 3)), tiles(out, m, p))
    out.mark_written()
