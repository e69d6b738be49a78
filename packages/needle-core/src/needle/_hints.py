"""What a Tensor says to who takes it for something else."""

import warnings


class Size(int):
    """The number of elements: an int, with a hint for who calls it."""

    __slots__ = ()

    def __call__(self, *args):
        raise TypeError("size is the number of elements, x.size; the shape is x.shape, and one axis of it x.shape[i]")

    def __reduce__(self):
        return int, (int(self),)


def warn_of_identity(sign: str, other: object) -> None:
    """Say that == and != compare identities."""
    method = ".equal()" if sign == "==" else ".not_equal()"
    message = (
        f"Tensor {sign} {type(other).__name__} compares identities and is {sign == '!='}; {method} compares values"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)
