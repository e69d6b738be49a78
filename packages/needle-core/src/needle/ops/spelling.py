"""Arguments by the names that NumPy and PyTorch have for them."""

import functools
from collections.abc import Callable
from inspect import Parameter, Signature, signature
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

#: Of single functions, whose `k` may mean other things elsewhere.
OF_FUNCTIONS: dict[str, dict[str, str]] = {
    "tril": {"diagonal": "k"},
    "triu": {"diagonal": "k"},
    "diag": {"diagonal": "k"},
    "take_along_dim": {"indices": "index"},
}
#: PyTorch's names of the tensors, where there are others to look at anyway: a call without them is not to pay for it.
TENSORS = {"a": "input", "x": "input", "p": "input", "b": "other"}


def any_spelling(function: Callable[..., Any]) -> Any:
    """The function, whose axes and the like may be given by other names too: `softmax(x, dim=1)`."""
    code = cast(FunctionType, function).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    meant = {other: name for name in names for other in SYNONYMS.get(name, ()) if other not in names}
    meant |= OF_FUNCTIONS.get(function.__name__, {})
    if not meant:
        return function
    tensors = {TENSORS[name]: name for name in names[:2] if name in TENSORS and TENSORS[name] not in names}
    shown, meant = meant, tensors | meant  # a signature with both would make the tensor itself optional
    known = frozenset(names)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if given and not known.issuperset(given):
            given = _renamed(function.__name__, names, meant, args, given)
        return function(*args, **given)

    call.__signature__ = _shown(signature(function), shown)  # type: ignore[attr-defined]
    return call


def _shown(own: Signature, meant: dict[str, str]) -> Signature:
    """A signature with the other names, `...` for their defaults: who gives one of them leaves out what may be required else."""
    had, others = list(own.parameters.values()), []
    first = min([i for i, p in enumerate(had) if p.name in meant.values() or p.default is not p.empty])
    for i, p in enumerate(had):
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty and i >= first:
            had[i] = p.replace(default=...)
    for name, of in meant.items():
        annotation = own.parameters[of].annotation
        others.append(Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=annotation))
    return own.replace(parameters=[*had, *others])


def _renamed(what: str, names: tuple[str, ...], meant: dict[str, str], args: tuple, given: dict[str, Any]) -> dict:
    """The arguments by the names they have here."""
    found: dict[str, Any] = {}
    for other, value in given.items():
        name = meant.get(other, other)
        if name in found or (name != other and (name in given or name in names[: len(args)])):
            raise TypeError(f"{what}: {name} and {other} are two names for the same argument")
        if other == "out":
            raise TypeError(f"{what}: out= is not taken; out.copy_(...) writes a result into a tensor that is there")
        found[name] = value
    return found
