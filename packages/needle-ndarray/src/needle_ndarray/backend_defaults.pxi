# What the defaults of optional verbs are made of. Included by backend.pyx.

# ---- Convolution and pooling --------------------------------------------------------------------------

cdef object bordered(object a, tuple padding, object value):
    """(N, H, W, C) with `value` around each image, a copy"""
    from needle_ndarray.manipulation import pad
    return pad(a, ((0, 0), *padding, (0, 0)), value)


cdef object windows(object a, tuple size, tuple stride, tuple dilation):
    """(N, H, W, C) -> (N, OH, OW, KH, KW, C): what the kernel sees at each of its places, a view"""
    (n, h, w, c), (along_n, along_h, along_w, along_c) = a.shape, a.strides
    oh, ow = [(room - (k - 1) * d - 1) // s + 1 for room, k, d, s in zip((h, w), size, dilation, stride)]
    steps = (along_n, along_h * stride[0], along_w * stride[1], along_h * dilation[0], along_w * dilation[1], along_c)
    return a.as_strided((n, oh, ow, *size, c), steps)


cdef list split(Py_ssize_t groups, Py_ssize_t channels, Py_ssize_t filters):
    """The channels and the filters of each group"""
    c, f = channels // groups, filters // groups
    return [(slice(g * c, (g + 1) * c), slice(g * f, (g + 1) * f)) for g in range(groups)]


cdef tuple matrices(object seen, object weight):
    """(N, OH, OW, KH, KW, C) and (KH, KW, C, F) -> (N OH OW, KH KW C) and (KH KW C, F)"""
    (n, oh, ow, kh, kw, c), f = seen.shape, weight.shape[3]
    return seen.reshape((n * oh * ow, kh * kw * c)), weight.reshape((kh * kw * c, f))


cdef list offsets(tuple size):
    return [(i, j) for i in range(size[0]) for j in range(size[1])]


cdef object inside(object padded, tuple padding, tuple shape):
    """The image in its padding"""
    (top, _), (left, _) = padding
    return padded[:, top : top + shape[1], left : left + shape[2]]


# ---- Norms, cross-entropy, attention --------------------------------------------------------------------------

cdef object rows_of(object x):
    *_, n = x.shape
    return x.reshape((x.size // n, n))


cdef object centred(object x, int axis):
    """x - mean, by way of x - x0 (the first along the axis): where the mean is far from 0, no digits are lost"""
    shifted = x - (x[:1] if axis == 0 else x[..., :1])
    return shifted - shifted.mean(axis, keepdims=True)


cdef tuple standardised(object x, int axis, double eps):
    """(x - mean) scale, and scale = (var + eps)^(-1/2)"""
    middle = centred(x, axis)
    scale = ((middle * middle).mean(axis, keepdims=True) + eps).rsqrt()
    return middle * scale, scale


cdef object affine(object x, object weight, object bias):
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


cdef object norm_gradient(object g, object x_hat, int axis):
    """g - mean g - x^ mean(g x^)"""
    return g - g.mean(axis, keepdims=True) - x_hat * (g * x_hat).mean(axis, keepdims=True)


cdef object classes(object logits):
    from needle_ndarray.creation import arange
    *_, n = logits.shape
    return arange(n, dtype="int64", device=logits.device)


cdef object attention_weights(object q, object k, object mask, bint causal, double scale):
    """softmax of scale q k^T + mask; 0 in rows with nothing to attend to"""
    from needle_ndarray.creation import arange
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


# ---- Steps of optimizers --------------------------------------------------------------------------

cdef object penalised(object p, object g, double weight_decay, double l1):
    """g + weight_decay p + l1 sign(p)"""
    from needle_ndarray.elementwise import sign
    g = g if weight_decay == 0 else g + p * weight_decay
    return g if l1 == 0 else g + sign(p) * l1
