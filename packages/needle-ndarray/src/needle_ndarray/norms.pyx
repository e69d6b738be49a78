"""Norms, forward and backward, and gradients of softmax and its relatives: compiled, because on a small array the way to the verb
costs as much as the work.
"""

import math

from needle_ndarray.backend cimport Op
from needle_ndarray.layout cimport same_shape
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport FLOAT16
from needle_ndarray.rules cimport Rule, number

from needle_ndarray.backend import NORM, ROWS
from needle_ndarray.creation import only_arrays
from needle_ndarray.dtypes import result_type
from needle_ndarray.layout import normal_axes
from needle_ndarray.rules import RULES

cdef Op LAYER_NORM = NORM["layer_norm"], BATCH_NORM = NORM["batch_norm"]
cdef Rule LAYER = RULES["layer_norm"], LAYER_GRAD = RULES["layer_norm_grad"]
cdef Rule BATCH = RULES["batch_norm"], BATCH_GRAD = RULES["batch_norm_grad"]
cdef Op SOFTMAX = ROWS["softmax"], LOG_SOFTMAX = ROWS["log_softmax"], LOGSUMEXP = ROWS["logsumexp"]
cdef Rule SOFTMAX_GRAD = RULES["softmax_grad"], LOG_SOFTMAX_GRAD = RULES["log_softmax_grad"]
cdef Rule LOGSUMEXP_GRAD = RULES["logsumexp_grad"]


def layer_norm(x, weight=None, bias=None, eps=1e-5):
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
    cdef NDArray out
    cdef double epsilon = number("layer_norm", "eps", eps, 0.0)
    x, weight, bias, out = LAYER.prepare(x, weight, bias)
    out._backend.norm(LAYER_NORM, x, weight, bias, out, None, None, epsilon)
    return out


def layer_norm_grad(grad, x, weight=None, eps=1e-5):
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
    cdef NDArray dx
    cdef double epsilon = number("layer_norm_grad", "eps", eps, 0.0)
    x, grad, weight, dx, dweight, dbias = LAYER_GRAD.prepare(x, grad, weight)
    dx._backend.norm_grad(LAYER_NORM, grad, x, weight, None, None, dx, dweight, dbias, epsilon)
    return dx, dweight, dbias


def batch_norm(x, weight=None, bias=None, eps=1e-5):
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
    cdef NDArray out
    cdef double epsilon = number("batch_norm", "eps", eps, 0.0)
    x, weight, bias, out, mean, var = BATCH.prepare(x, weight, bias)
    out._backend.norm(BATCH_NORM, x, weight, bias, out, mean, var, epsilon)
    return out, mean, var


def batch_norm_grad(grad, x, mean, var, weight=None, eps=1e-5):
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
    cdef NDArray dx
    cdef double epsilon = number("batch_norm_grad", "eps", eps, 0.0)
    x, grad, weight, mean, var, dx, dweight, dbias = BATCH_GRAD.prepare(x, grad, weight, mean, var)
    dx._backend.norm_grad(BATCH_NORM, grad, x, weight, mean, var, dx, dweight, dbias, epsilon)
    return dx, dweight, dbias


# ---- Gradients of softmax and its relatives --------------------------------------------------------------------------
# Along other axes than the last they are composed: rows that lie across memory would have to be brought together first, which takes
# longer than reading everything twice in the order in which it lies.

def softmax_grad(grad, y, axis=-1):
    """dx = y (grad - sum y grad) for y = softmax(x) along these axes, and its gradient.

    >>> from needle_ndarray import array
    >>> softmax_grad(array([[1.0, 0.0]]), array([[0.25, 0.75]])).tolist()
    [[0.1875, -0.1875]]
    """
    only_arrays("softmax_grad", grad, y)
    cdef tuple axes = rows_along("softmax_grad", <NDArray> grad, <NDArray> y, axis)
    if axes is None:
        return rows_grad(SOFTMAX, SOFTMAX_GRAD, <NDArray> grad, <NDArray> y)
    if not ends_with(axes, <NDArray> y):
        grad, y = as_floats((grad, y))
        return y * (grad - (y * grad).sum(axes, keepdims=True))
    return rows_grad(SOFTMAX, SOFTMAX_GRAD, merged(<NDArray> grad, axes), merged(<NDArray> y, axes)).reshape(y.shape)


def log_softmax_grad(grad, y, axis=-1):
    """dx = grad - e^y sum grad for y = log_softmax(x) along these axes, and its gradient."""
    only_arrays("log_softmax_grad", grad, y)
    cdef tuple axes = rows_along("log_softmax_grad", <NDArray> grad, <NDArray> y, axis)
    if axes is None:
        return rows_grad(LOG_SOFTMAX, LOG_SOFTMAX_GRAD, <NDArray> grad, <NDArray> y)
    if not ends_with(axes, <NDArray> y):
        grad, y = as_floats((grad, y))
        return grad - y.exp() * grad.sum(axes, keepdims=True)
    return rows_grad(LOG_SOFTMAX, LOG_SOFTMAX_GRAD, merged(<NDArray> grad, axes), merged(<NDArray> y, axes)).reshape(y.shape)


def logsumexp_grad(grad, x, y, axis=None):
    """dx = grad e^(x - y) for y = logsumexp(x) over these axes, which y and grad may have as axes of size 1; 0 where y is -inf."""
    cdef NDArray out
    only_arrays("logsumexp_grad", grad, x, y)
    axes = normal_axes("logsumexp_grad", axis, x.ndim)
    kept = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    lead = tuple([n for i, n in enumerate(x.shape) if i not in axes])
    for name, given in (("grad", grad), ("y", y)):
        if given.shape != lead and given.shape != kept:
            raise ValueError(f"logsumexp_grad: {name} has shape {given.shape}, expected {lead} or {kept} as x is {x.shape}")
    if not ends_with(axes, x):
        grad, x, y = as_floats((grad, x, y))
        return grad.reshape(kept) * (x - y.where(y != -math.inf, 0.0).reshape(kept)).exp()
    given = LOGSUMEXP_GRAD.inputs_of(merged(x, axes), y.reshape(lead), grad.reshape(lead))
    rows, values, upstream, out = LOGSUMEXP_GRAD.prepare(*given)
    out._backend.rows_grad(LOGSUMEXP, upstream, rows, values, out)
    return as_given(out, grad, x).reshape(x.shape)


cdef tuple rows_along(str what, NDArray grad, NDArray y, object axis):
    """The axes; None for the last one, whose rows need no change of shape"""
    if not same_shape(grad, y):
        raise ValueError(f"{what}: grad has shape {grad.shape}, expected {y.shape} as y")
    if type(axis) is int and y._ndim and (axis == -1 or axis == y._ndim - 1):
        return None
    axes = normal_axes(what, axis, y._ndim)
    return None if axes == (y._ndim - 1,) else axes


cdef NDArray rows_grad(Op op, Rule rule, NDArray grad, NDArray y):
    cdef NDArray out
    values, upstream, out = rule.prepare(*rule.inputs_of(y, grad))
    out._backend.rows_grad(op, upstream, None, values, out)
    return as_given(out, grad, y)


cdef list as_floats(tuple given):
    """The arrays in one dtype, a float"""
    dtype = result_type(*given)
    dtype = dtype if dtype.is_float else result_type(dtype, "float32")
    return [a.astype(dtype, copy=False) for a in given]


cdef NDArray as_given(NDArray out, NDArray grad, NDArray x):
    """The result as float16 or bfloat16 where what it is made of is: backends compute in float32"""
    if grad._dtype < FLOAT16 and x._dtype < FLOAT16:
        return out
    return out.astype(result_type(grad.dtype, x.dtype), copy=False)


cdef bint ends_with(tuple axes, NDArray a):
    """Whether these are the last axes"""
    return axes == tuple(range(a._ndim - len(axes), a._ndim))


cdef NDArray merged(NDArray a, tuple axes):
    """With one axis in place of these, which are the last"""
    shape = a.shape
    return a.reshape(shape[:a._ndim - len(axes)] + (math.prod(shape[a._ndim - len(axes):]),))
