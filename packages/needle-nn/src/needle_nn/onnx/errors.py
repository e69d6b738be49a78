"""What an export says when it cannot be made."""

from linecache import getline
from typing import Any

from needle.ops.helpers import Undifferentiable


class ExportError(ValueError):
    """A model, or a part of it, that has no place in an ONNX graph; nothing was written."""


def title(op: Any) -> str:
    """What an op is called: its class, or the function it stands for."""
    return op.name if isinstance(op, Undifferentiable) else type(op).__name__


def place(origin: tuple[str, int] | None) -> str:
    """'file:line: text' of where an op was called."""
    if origin is None:
        return "an unknown line"
    text = getline(*origin).strip()
    return f"{origin[0]}:{origin[1]}" + (f": {text}" if text else "")
