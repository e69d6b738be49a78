"""Operators of your own: two functions and a decorator instead of a class."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from needle.autograd import NDArray, TensorOp, TensorTupleOp, Value

__all__ = ["operator"]


def _kept(constant: Any) -> Any:
    """A constant for backward: a copy of what the caller could change meanwhile."""
    return constant.copy() if isinstance(constant, (NDArray, np.ndarray, list, dict, set)) else constant


class Operator:
    """A function of Tensors made by `operator`. Every call is a node whose op is named after the function."""

    def __init__(self, compute: Any, outputs: int, broadcasts: bool) -> None:
        functools.update_wrapper(self, compute)
        self._gradient: Any = None
        base: Any = TensorOp if outputs == 1 else TensorTupleOp
        body = {"function": self, "outputs": outputs, "broadcasts": broadcasts, "__doc__": compute.__doc__}
        self.op = type(base)(compute.__name__, (_Methods, base), {**body, "__module__": compute.__module__})

    def __call__(self, *args: Any, **constants: Any) -> Any:
        for name, value in constants.items():
            if isinstance(value, Value):
                raise TypeError(
                    f"{self.op.__name__}: {name} is a {type(value).__name__}; only positional arguments may be"
                )
        return self.op({name: _kept(value) for name, value in constants.items()})(*args)

    def __repr__(self) -> str:
        return f"<operator {self.op.__name__}>"

    def defgradient(self, gradient: Any) -> Any:
        """Use gradient(out_grad, node, **constants), which returns a Tensor per input (or None), in backward; a decorator."""
        if not callable(gradient):
            raise TypeError(f"{self.op.__name__}.defgradient: expected a function, got {type(gradient).__name__}")
        self._gradient = gradient
        return gradient


class _Methods:
    """What the op classes of all Operators share."""

    function: Operator
    outputs: int

    def __init__(self, constants: dict[str, Any]) -> None:
        self.constants = constants

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in self.constants.items()])})"

    def compute(self, *arrays: Any) -> Any:
        made = self.function.__wrapped__(*arrays, **self.constants)  # type: ignore[attr-defined]
        if self.outputs != 1 and (not isinstance(made, (tuple, list)) or len(made) != self.outputs):
            found = len(made) if isinstance(made, (tuple, list)) else type(made).__name__
            raise TypeError(f"{type(self).__name__} returned {found}, expected a tuple of {self.outputs} arrays")
        return made

    def gradient(self, out_grad: Any, node: Any) -> Any:
        name = type(self).__name__
        if self.function._gradient is None:
            raise NotImplementedError(f"{name} has no gradient: add one with @{name}.defgradient")
        return self.function._gradient(out_grad, node, **self.constants)


def operator(compute: Callable[..., Any] | None = None, *, outputs: int = 1, broadcasts: bool = False) -> Any:
    """Make an operator on Tensors of a function on NDArrays; give it a gradient with `defgradient`.

    Parameters
    ----------
    compute : a function of NDArrays that returns one; keyword arguments are constants, and handed to the gradient too
    outputs : how many arrays it returns; more than one make a TensorTuple
    broadcasts : whether inputs broadcast, as in NumPy: gradients are then summed back to the inputs' shapes

    >>> import needle as ndl
    >>> @operator
    ... def scaled_cube(x, scale=1.0):
    ...     return x * x * x * scale
    >>> @scaled_cube.defgradient
    ... def _(out_grad, node, scale=1.0):
    ...     return out_grad * (3 * scale) * node.inputs[0] ** 2
    >>> x = ndl.Tensor([2.0])
    >>> y = scaled_cube(x, scale=10.0)
    >>> y.backward()
    >>> y.item(), x.grad.item()
    (80.0, 120.0)
    """
    if compute is None:
        return functools.partial(operator, outputs=outputs, broadcasts=broadcasts)
    if not callable(compute) or not hasattr(compute, "__name__"):
        raise TypeError(f"operator: expected a function, got {type(compute).__name__}")
    if not isinstance(outputs, int) or outputs < 1:
        raise ValueError(f"operator: outputs {outputs}: expected 1 or more")
    return Operator(compute, outputs, broadcasts)
