"""For tests: compare the gradients of a function with central differences."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from needle.autograd import Tensor, gradients
from needle.modes import enable_grad
from needle.torch_names.derivatives import assert_close

# The error of a central difference has two parts: truncation, about eps^2 |f'''| / 6, and rounding, about 1e-16 |f| / eps. They are
# equal near eps = (3e-16)^(1/3) = 6e-6, where both are about 1e-11: RTOL leaves room for third derivatives and sums up to 1e5
# times larger than f, and any wrong factor, sign or missing term is far beyond it.
EPS = 6e-6
RTOL = 1e-6
ATOL = 1e-7


def check_gradients(
    fn: Callable[..., Any],
    *inputs: Tensor,
    order: int = 2,
    eps: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> None:
    """Compare <v, J u> by central differences with <J^T v, u> by `gradients`, for random v and u; AssertionError where they differ.

    One random projection per input sees every element of the Jacobian J. Order 2 does the same with the function
    (x, v) -> J^T v, order 3 with the gradients of that, and so on. The inputs are copied, their `.grad` stays as it is.

    Parameters
    ----------
    fn : takes tensors like `inputs`; returns a Tensor, or a tuple, list or TensorTuple of them; must give the same every time
    inputs : float64 tensors; ints, bools and those that require no gradient are held constant. Others are refused: central
        differences in float32 have three digits
    order : how many times to differentiate
    eps : the step, relative to the largest element of an input, or to 1 if that is smaller
    rtol, atol : |numeric - exact| <= atol + rtol * max(|numeric|, |exact|)
    seed : of the projections

    >>> import needle as ndl
    >>> x = ndl.Tensor([0.5, 2.0], dtype="float64")
    >>> check_gradients(ndl.tanh, x)
    >>> class Cube(ndl.TensorOp):
    ...     def compute(self, x):
    ...         return x * x * x
    ...     def gradient(self, out_grad, node):
    ...         return 2 * node.inputs[0] ** 2 * out_grad
    >>> check_gradients(Cube(), x)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: order 1, input 0 of shape (2,): ... by central differences, ... by gradients, relative error 0.333
    """
    if order < 1:
        raise ValueError(f"check_gradients: order {order}: expected 1 or more")
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"check_gradients: input {i}: expected a Tensor, got {type(x).__name__}")
        if x.requires_grad and x.dtype != "float64":
            raise TypeError(
                f'check_gradients: input {i} is {x.dtype}, too coarse for differences: use x.astype("float64")'
            )
    varied = [i for i, x in enumerate(inputs) if x.requires_grad]
    if not varied:
        raise ValueError("check_gradients: no input requires a gradient")

    def of_varied(*xs):
        args = list(inputs)
        for i, x in zip(varied, xs, strict=True):
            args[i] = x
        return _floats(fn(*args))

    limits = EPS if eps is None else eps, RTOL if rtol is None else rtol, ATOL if atol is None else atol
    names = [f"input {i} of shape {inputs[i].shape}" for i in varied]
    with enable_grad():
        _check(of_varied, [inputs[i].detach() for i in varied], names, 1, order, np.random.default_rng(seed), limits)


def _check(fn, points, names, order, last, rng, limits):
    """Check the first derivatives of fn at `points`, then, up to order `last`, those of its vector-Jacobian product."""
    eps, rtol, atol = limits
    leaves = [_leaf(x) for x in points]
    outputs = fn(*leaves)
    if not outputs:
        raise ValueError("check_gradients: fn returns no float tensor")
    for y, again in zip(outputs, fn(*leaves), strict=True):
        if not np.array_equal(y.numpy(), again.numpy(), equal_nan=True):
            raise ValueError("check_gradients: fn gives another result each time it is called")
    projections = [_random_like(y, rng) for y in outputs]
    exact = gradients(outputs, leaves, projections)
    for i, (x, gradient, name) in enumerate(zip(points, exact, names, strict=True)):
        direction = _random_like(x, rng)
        step = eps * _scale(x)
        up, down = (fn(*leaves[:i], _leaf(x + direction * s), *leaves[i + 1 :]) for s in (step, -step))
        change = math.fsum(_dot(a.detach() - b.detach(), v) for a, b, v in zip(up, down, projections, strict=True))
        numeric = change / (2 * step)
        expected = 0.0 if gradient is None else _dot(gradient, direction)
        error, size = abs(numeric - expected), max(abs(numeric), abs(expected))
        if not error <= atol + rtol * size:  # NaN too
            by_gradients = "but there is no gradient" if gradient is None else f"{expected:.10g} by gradients"
            relative = error / size if size else math.nan
            raise AssertionError(
                f"order {order}, {name}: {numeric:.10g} by central differences, {by_gradients}, relative error {relative:.3g}"
            )
    if order < last and any(g is not None for g in exact):
        n = len(points)

        def product(*args):
            return [g for g in gradients(fn(*args[:n]), args[:n], args[n:]) if g is not None]

        more = [f"the gradient of output {i} of shape {v.shape}" for i, v in enumerate(projections)]
        _check(product, [*points, *projections], [*names, *more], order + 1, last, rng, limits)


def _floats(result):
    """The float tensors among what fn returns."""
    outputs = [result] if isinstance(result, Tensor) else list(result)
    for y in outputs:
        if not isinstance(y, Tensor):
            raise TypeError(f"check_gradients: fn returned {type(y).__name__}, expected tensors")
    return [y for y in outputs if y.dtype.is_float]


def _leaf(x):
    return Tensor.make_const(x.realize_cached_data(), requires_grad=True)


def _dot(a, b):
    return float((a.detach() * b).sum().item())


def _random_like(x, rng):
    return Tensor(rng.standard_normal(x.shape), device=x.device, dtype=x.dtype, requires_grad=False)


def _scale(x):
    """The size of the finite elements of x, at least 1."""
    values = np.abs(x.numpy())
    return max(1.0, float(np.max(values, where=np.isfinite(values), initial=0.0)))


__all__ = ["assert_close", "check_gradients"]
