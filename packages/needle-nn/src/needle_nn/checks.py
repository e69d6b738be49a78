"""Arguments checked where they come in; an error names the argument, and a long value by its type only."""

from typing import Any

import numpy as np


def shown(value: Any) -> str:
    """A value in an error: its repr, or its type where that is long.

    >>> shown("x"), shown(np.ones(40))
    ("'x'", 'a ndarray of shape (40,)')
    """
    if hasattr(value, "shape") and value.shape != ():
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def described(value: Any) -> str:
    """What a value is, in an error: a class by its name, anything else by its type."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def check_count(what: str, name: str, value: Any, least: int) -> int:
    """value as an int from `least` on, or a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{what}: {name} must be an int of at least {least}, got {shown(value)}")
    return int(value)


def check_flag(what: str, name: str, value: Any) -> None:
    """Raise unless a switch is True or False: a text or a device there is an argument out of place."""
    if not isinstance(value, (bool, int, np.bool_)):
        raise TypeError(f"{what}: {name} = {shown(value)}: expected True or False")
