"""What an export says when it cannot be made."""

from linecache import getline


class ExportError(ValueError):
    """A model, or a part of it, that has no place in an ONNX graph; nothing was written."""


def place(origin: tuple[str, int] | None) -> str:
    """'file:line: text' of where an op was called."""
    if origin is None:
        return "an unknown line"
    text = getline(*origin).strip()
    return f"{origin[0]}:{origin[1]}" + (f": {text}" if text else "")
