"""Switches of the engine, each of the thread that sets it: gradients on and off, lazy mode, anomaly mode."""

import os.path
import sys
from contextlib import ContextDecorator

from needle.autograd import array_api, is_grad_enabled, set_mode

_HERE = os.path.dirname(__file__)


class _Mode(ContextDecorator):
    """A switch for the body of `with`, or for the calls of a decorated function."""

    name = ""

    def __init__(self, value: int):
        self.value = value
        self.before: list[int] = []

    def _recreate_cm(self):
        return type(self)._copy(self)

    @classmethod
    def _copy(cls, other):
        made = cls.__new__(cls)
        made.value, made.before = other.value, []
        return made

    def __enter__(self):
        self.before.append(set_mode(self.name, self.value))
        return self

    def __exit__(self, *exception):
        set_mode(self.name, self.before.pop())


class no_grad(_Mode):
    """Nothing is recorded inside: for evaluation, and for writing to parameters.

    >>> import needle as ndl
    >>> x = ndl.Tensor([1.0])
    >>> with ndl.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    name = "no_grad"

    def __init__(self):
        super().__init__(1)


class enable_grad(_Mode):
    """Recording, inside `no_grad` too."""

    name = "no_grad"

    def __init__(self):
        super().__init__(0)


class set_grad_enabled(_Mode):
    """`enable_grad` or `no_grad`, by a bool."""

    name = "no_grad"

    def __init__(self, enabled: bool):
        super().__init__(0 if enabled else 1)


class lazy_mode(_Mode):
    """Nothing is computed until somebody looks at it; `lazy_mode(False)` computes at once whatever LAZY_MODE says."""

    name = "lazy"

    def __init__(self, enabled: bool = True):
        super().__init__(1 if enabled else 2)


class anomaly_mode(_Mode):
    """Raise AnomalyError at the first NaN or inf, with the op and the line that made it; slow, for looking for mistakes.

    >>> import needle as ndl
    >>> with ndl.anomaly_mode():
    ...     ndl.log(ndl.Tensor([0.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    needle.modes.AnomalyError: Log gave -inf at (0,) of shape (1,); made at <doctest ...
    """

    name = "anomaly"

    def __init__(self, enabled: bool = True):
        super().__init__(1 if enabled else 0)


class AnomalyError(FloatingPointError):
    """A NaN or inf, found in anomaly mode."""


def line_of_user() -> str:
    """The innermost line outside of this package, as 'file:line: text'."""
    from linecache import getline

    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = getline(name, line).strip()
    return f"{name}:{line}" + (f": {text}" if text else "")


def _first_bad(data):
    """(value, position) of the first NaN or inf of an array or a tuple of them; None where there is none."""
    if isinstance(data, tuple):
        return next((bad for bad in map(_first_bad, data) if bad), None)
    if not data.dtype.is_float or bool(array_api.isfinite(data).all()):
        return None
    at = tuple(
        [
            int(i[0])
            for i in array_api.nonzero(
                array_api.logical_not(array_api.isfinite(data.reshape(-1) if data.ndim == 0 else data))
            )
        ]
    )
    at = () if data.ndim == 0 else at
    return data[at].item(), at, data.shape


def check_forward(op, data, origin) -> None:
    """Raise if what an op has computed is not finite."""
    bad = _first_bad(data)
    if bad:
        made = origin or "a line outside of anomaly_mode()"
        raise AnomalyError(f"{type(op).__name__} gave {bad[0]} at {bad[1]} of shape {bad[2]}; made at {made}")


def check_backward(node, grad, origin) -> None:
    """Raise if a gradient that an op has sent to its inputs is not finite."""
    value = getattr(grad, "value", grad)
    bad = _first_bad(value.realize_cached_data())
    if bad:
        made = origin or "a line outside of anomaly_mode()"
        raise AnomalyError(
            f"the gradient of {type(node.op).__name__} is {bad[0]} at {bad[1]} of shape {bad[2]}; {type(node.op).__name__}"
            f" was made at {made}"
        )


__all__ = [
    "AnomalyError",
    "anomaly_mode",
    "enable_grad",
    "is_grad_enabled",
    "lazy_mode",
    "no_grad",
    "set_grad_enabled",
]
