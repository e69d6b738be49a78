"""What the re-exports of another distribution have in common."""

import sys
from contextlib import contextmanager


@contextmanager
def sister(module: str, distribution: str):
    """Import names of `distribution` inside this block; where it is not installed, say what to install."""
    root = distribution.replace("-", "_")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != root:
            raise
        message = f"{module} is part of {distribution}, which is not installed: pip install {distribution}"
        raise ModuleNotFoundError(message, name=root) from None


def share(face: str, *modules: str, **renamed: str) -> None:
    """Make modules of needle_nn known below a face: `import needle.nn.functional` gives needle_nn.nn.functional itself."""
    for name, module in [*zip(modules, modules, strict=True), *renamed.items()]:
        found = sys.modules[f"needle_nn.{face}.{module}".removesuffix(".")]
        sys.modules[f"needle.{face}.{name}"] = found
        if "." not in name:  # `needle.nn.parameter`, too
            vars(sys.modules[f"needle.{face}"]).setdefault(name, found)
