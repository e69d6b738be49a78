"""Switches of the engine, each of the thread that sets it: gradients on and off, lazy mode, anomaly mode."""

import os.path
import sys
from contextlib import ContextDecorator
from typing import Any

from needle.autograd import array_api, is_grad_enabled, set_mode, set_torch_by_default

_HERE = os.path.dirname(__file__)


class _Mode(ContextDecorator):
    """A switch for the body of `with`, or for the calls of a decorated function."""

    name = ""

    def __init__(self, value: int) -> None:
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

    def __init__(self) -> None:
        super().__init__(1)


class enable_grad(_Mode):
    """Recording, inside `no_grad` too."""

    name = "no_grad"

    def __init__(self) -> None:
        super().__init__(0)


class set_grad_enabled(_Mode):
    """`enable_grad` or `no_grad`, by a bool: for the body of `with`, for a decorated function, or, as a mere call, from now on.

    >>> import needle as ndl
    >>> with ndl.no_grad():
    ...     _ = ndl.set_grad_enabled(True)
    ...     ndl.is_grad_enabled()
    True
    """

    name = "no_grad"

    def __init__(self, enabled: bool) -> None:
        super().__init__(0 if enabled else 1)
        self.before.append(set_mode(self.name, self.value))
        self.made = True  # the mode holds already

    def __enter__(self):
        if self.made:
            self.made = False
            return self
        return super().__enter__()

    def __call__(self, function: Any) -> Any:
        if self.made:  # a decorator changes nothing until the function is called
            self.__enter__().__exit__()
        return super().__call__(function)

    @classmethod
    def _copy(cls, other):
        made = super()._copy(other)
        made.made = False
        return made


class lazy_mode(_Mode):
    """Nothing is computed until somebody looks at it; `lazy_mode(False)` computes at once whatever LAZY_MODE says."""

    name = "lazy"

    def __init__(self, enabled: bool = True) -> None:
        super().__init__(1 if enabled else 2)


class anomaly_mode(_Mode):
    """Raise AnomalyError at the first NaN, with the op and the line that made it; slow, for looking for mistakes.

    Parameters
    ----------
    enabled : False switches it off inside
    inf : stop at an infinite value too; masks of -inf are no mistake, so the default is not to

    >>> import needle as ndl
    >>> with ndl.anomaly_mode():
    ...     ndl.log(ndl.Tensor([-1.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    needle.modes.AnomalyError: Log gave nan at (0,) of shape (1,); made at <doctest ...
    """

    name = "anomaly"

    def __init__(self, enabled: bool = True, *, inf: bool = False) -> None:
        super().__init__((2 if inf else 1) if enabled else 0)


class compat:
    """PyTorch's meaning where Needle's is another one: `compat("torch")`, from now on or for the body of `with`.

    Within it `backward()` adds to the gradients that are there, `var` and `std` divide by n - 1, `Tensor(...)` requires no
    gradient, `==` compares values, `if x:` asks for the value of floats too, `max(x, dim)` and `min` give (values,
    indices), `split(x, n)` makes pieces of n, `nonzero` a row for each element. `compat("needle")` is Needle's meaning
    again. A call holds for the whole process, a `with` for its body and thread.

    >>> import needle as ndl
    >>> with ndl.compat("torch"):
    ...     ndl.Tensor([1.0, 2.0]).requires_grad, ndl.tensor([1.0, 3.0]).var().item()
    (False, 2.0)
    """

    def __init__(self, meaning: str) -> None:
        if meaning not in ("torch", "needle"):
            raise ValueError(f"compat: {meaning!r}: expected 'torch' or 'needle'")
        self.meaning = meaning
        self.process = set_torch_by_default(meaning == "torch")
        self.before: list[int] = []

    def __enter__(self):
        if not self.before:
            set_torch_by_default(self.process)  # of the thread alone, from here on
        self.before.append(set_mode("torch", 1 if self.meaning == "torch" else 2))
        return self

    def __exit__(self, *exception):
        set_mode("torch", self.before.pop())

    def __repr__(self):
        return f"needle.compat({self.meaning!r})"


class AnomalyError(FloatingPointError):
    """A NaN, or an inf where asked for, found in anomaly mode."""


def line_of_user() -> tuple[str, int]:
    """The innermost line outside of this package, as file and number."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _text(origin: tuple[str, int] | None) -> str:
    """'file:line: text' of what `line_of_user` returned."""
    if origin is None:
        return "a line outside of anomaly_mode()"
    from linecache import getline

    text = getline(*origin).strip()
    return f"{origin[0]}:{origin[1]}" + (f": {text}" if text else "")


def name_origin(error: Exception, op: Any, origin: tuple[str, int]) -> None:
    """Add to the message of an error the line where the op was recorded that failed."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}; {type(op).__name__} was recorded at {_text(origin)}",)


def _first_bad(data, level: int):
    """(value, position, shape) of the first NaN, at level 2 also inf, of an array or a tuple of them; None: there is none."""
    if isinstance(data, tuple):
        return next((bad for bad in [_first_bad(part, level) for part in data] if bad), None)
    if not data.dtype.is_float:
        return None
    bad = array_api.isnan(data) if level == 1 else array_api.logical_not(array_api.isfinite(data))
    if not bool(bad.any()):
        return None
    at = tuple([int(i[0]) for i in array_api.nonzero(bad)]) if data.ndim else ()
    return data[at].item(), at, data.shape


def check_forward(op: Any, data: Any, origin: Any, level: int) -> None:
    """Raise if what an op has computed holds what anomaly mode looks for."""
    bad = _first_bad(data, level)
    if bad:
        made = _text(origin)
        raise AnomalyError(f"{type(op).__name__} gave {bad[0]} at {bad[1]} of shape {bad[2]}; made at {made}")


def check_backward(node: Any, grad: Any, origin: Any, level: int) -> None:
    """Raise if a gradient that an op has sent to its inputs holds what anomaly mode looks for."""
    value = getattr(grad, "value", grad)
    bad = _first_bad(value.realize_cached_data(), level)
    if bad:
        made = _text(origin)
        raise AnomalyError(
            f"the gradient of {type(node.op).__name__} is {bad[0]} at {bad[1]} of shape {bad[2]}; {type(node.op).__name__}"
            f" was made at {made}"
        )


__all__ = [
    "AnomalyError",
    "anomaly_mode",
    "compat",
    "enable_grad",
    "is_grad_enabled",
    "lazy_mode",
    "no_grad",
    "set_grad_enabled",
]
