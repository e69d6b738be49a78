"""Types of the compiled module."""

from collections.abc import Callable
from typing import Any

def release_made(function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...
