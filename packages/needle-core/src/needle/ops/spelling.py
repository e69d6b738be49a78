"""Arguments by the names that NumPy and PyTorch have for them."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

#: Other names of an argument, by the name it has here.
SYNONYMS = {
    "axes": ("axis", "dim", "dims"),
    "axis": ("axes", "dim", "dims"),
    "axis1": ("dim0",),
    "axis2": ("dim1",),
    "keepdims": ("keepdim",),
    "low": ("min",),
    "high": ("max",),
    "shift": ("shifts",),
}


def any_spelling(function: Callable[..., Any]) -> Any:
    """The function, whose axes and the like may be given by other names too: `softmax(x, dim=1)`."""
    code = cast(FunctionType, function).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    meant = {other: name for name in names for other in SYNONYMS.get(name, ()) if other not in names}
    if not meant:
        return function
    known = frozenset(names)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if given and not known.issuperset(given):
            given = _renamed(function.__name__, names, meant, args, given)
        return function(*args, **given)

    return call


def _renamed(what: str, names: tuple[str, ...], meant: dict[str, str], args: tuple, given: dict[str, Any]) -> dict:
    """The arguments by the names they have here."""
    found: dict[str, Any] = {}
    for other, value in given.items():
        name = meant.get(other, other)
        if name in found or (name != other and (name in given or name in names[: len(args)])):
            raise TypeError(f"{what}: {name} and {other} are two names for the same argument")
        found[name] = value
    return found
