"""Layer and batch norm, forward and backward: compiled, because on a small array the way to the verb costs as much as the work."""

from needle_ndarray.backend cimport Op
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.rules cimport Rule, number

from needle_ndarray.backend import NORM
from needle_ndarray.rules import RULES

cdef Op LAYER_NORM = NORM["layer_norm"], BATCH_NORM = NORM["batch_norm"]
cdef Rule LAYER = RULES["layer_norm"], LAYER_GRAD = RULES["layer_norm_grad"]
cdef Rule BATCH = RULES["batch_norm"], BATCH_GRAD = RULES["batch_norm_grad"]


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
