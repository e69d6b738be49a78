"""What a Tensor says to who takes it for something else."""

import warnings
from typing import Any


class Size(int):
    """The number of elements: an int, which PyTorch's programs call: size() is the shape, size(i) one axis of it."""

    shape: tuple

    def __new__(cls, number, shape):
        self = super().__new__(cls, number)
        self.shape = shape
        return self

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self):
        return int, (int(self),)


def warn_of_identity(sign: str, other: object) -> None:
    """Say that == and != compare identities."""
    method = ".equal()" if sign == "==" else ".not_equal()"
    message = (
        f"Tensor {sign} {type(other).__name__} compares identities and is {sign == '!='}; {method} compares values"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)


told: set[str] = set()  # what has been said


def warn_of_replacing() -> None:
    """Say, once in a process, that a gradient goes that nobody has used."""
    if "replacing" not in told:
        told.add("replacing")
        message = (
            "backward() replaces a .grad that nobody has read since the last backward() put it there; where gradients are to"
            " add up, as in PyTorch: backward(accumulate=True), or needle.compat('torch')"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)
