"""What the re-exports of another distribution have in common."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sister(module: str, distribution: str) -> Iterator[None]:
    """Import names of `distribution` inside this block; where it is not installed, say what to install."""
    root = distribution.replace("-", "_")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != root:
            raise
        message = f"{module} is part of {distribution}, which is not installed: pip install {distribution}"
        raise ModuleNotFoundError(message, name=root) from None


def share(part: str, *modules: str, **renamed: str) -> None:
    """Make modules of needle_nn known as those of a re-export: `import needle.nn.functional` gives needle_nn.nn.functional."""
    for name, module in [*zip(modules, modules, strict=True), *renamed.items()]:
        found = sys.modules[f"needle_nn.{part}.{module}".removesuffix(".")]
        sys.modules[f"needle.{part}.{name}"] = found
        if "." not in name:  # `needle.nn.parameter`, too
            vars(sys.modules[f"needle.{part}"]).setdefault(name, found)
