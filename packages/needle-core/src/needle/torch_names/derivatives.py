"""PyTorch's `autograd.functional`, `autograd.gradcheck` and `testing.assert_close`, by needle.transforms and needle.testing."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from needle import transforms
from needle.autograd import Tensor


def _of(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Of a function and its inputs, one Tensor or a tuple, as PyTorch has it."""

    def function(func: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
        if isinstance(inputs, Tensor):
            found = transform(func)(inputs)
            return found if create_graph else found.detach()
        found = transform(func, argnums=tuple(range(len(inputs))))(*inputs)
        return found if create_graph else _detached(found)

    function.__name__ = function.__qualname__ = transform.__name__
    function.__doc__ = f"`needle.{transform.__name__}(func)(inputs)`, for one Tensor or a tuple of them."
    return function


def _detached(found: Any) -> Any:
    return found.detach() if isinstance(found, Tensor) else tuple([_detached(part) for part in found])


functional = ModuleType("needle.autograd.functional", "PyTorch's names of needle.jacobian and needle.hessian.")
sys.modules[functional.__name__] = functional
vars(functional).update(jacobian=_of(transforms.jacobian), hessian=_of(transforms.hessian))


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether the gradients of a function are those that differences give; see `needle.testing.check_gradients`."""
    from needle.testing import check_gradients

    try:
        given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        check_gradients(func, *given, order=1, eps=eps, atol=atol, rtol=rtol)
    except AssertionError:
        if raise_exception:
            raise
        return False
    return True


#: As PyTorch has them: by dtype, (rtol, atol).
_CLOSE = {"float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False
) -> None:
    """An AssertionError where shapes, dtypes or values differ: |actual - expected| <= atol + rtol |expected|."""
    if isinstance(actual, (tuple, list)):
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
        return
    a, b = [x.numpy() if isinstance(x, Tensor) else np.asarray(x) for x in (actual, expected)]
    if a.shape != b.shape or a.dtype != b.dtype:
        raise AssertionError(f"assert_close: {a.dtype} of shape {a.shape} and {b.dtype} of shape {b.shape}")
    usual = _CLOSE.get(a.dtype.name, (0.0, 0.0))
    rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
