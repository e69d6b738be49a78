"""The six element types, and NumPy's rules for mixing them."""

import numpy as np


class DType(str):
    """Name of an element type: equal to its string, to the NumPy dtype and to the NumPy scalar type.

    >>> float32 == "float32", float32 == np.dtype("float32"), float32 == np.float32
    (True, True, True)
    """

    code: int  # position in DTYPES: what the compiled code switches on
    numpy: np.dtype
    itemsize: int
    is_float: bool

    def __new__(cls, name: str, code: int) -> "DType":
        self = super().__new__(cls, name)
        self.code = code
        self.numpy = np.dtype(name)
        self.itemsize = self.numpy.itemsize
        self.is_float = self.numpy.kind == "f"
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        return isinstance(other, (np.dtype, type)) and self.numpy == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple:
        return dtype, (str(self),)


DTYPES = tuple(DType(name, i) for i, name in enumerate(["bool", "uint8", "int32", "int64", "float32", "float64"]))
bool_, uint8, int32, int64, float32, float64 = DTYPES
_BY_NUMPY = {d.numpy: d for d in DTYPES}
_BY_NAME = {str(d): d for d in DTYPES}


def dtype(given: object) -> DType:
    """The DType of a name, a NumPy dtype or a Python type.

    >>> dtype("float32"), dtype(np.int64), dtype(float)
    ('float32', 'int64', 'float64')
    """
    if isinstance(given, DType):
        return given
    if type(given) is str and given in _BY_NAME:
        return _BY_NAME[given]
    try:
        return _BY_NUMPY[np.dtype(given)]  # type: ignore[call-overload]
    except (TypeError, KeyError):
        raise TypeError(f"dtype: {given!r} is not one of {', '.join(DTYPES)}") from None


#: NumPy types we do not have, and the smallest of ours that holds their values.
_WIDENED = {"int8": int32, "int16": int32, "uint16": int32, "uint32": int64, "float16": float32}


def holding(given: np.dtype) -> DType:
    """The dtype for values of any NumPy type: itself, or the smallest of ours that holds them.

    >>> holding(np.dtype("uint8")), holding(np.dtype("int8")), holding(np.dtype("float16"))
    ('uint8', 'int32', 'float32')
    """
    return _WIDENED.get(given.name) or dtype(given)


def promote_types(a: DType, b: DType) -> DType:
    """The dtype of an operation on both: NumPy's table."""
    return _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]


def result_type(*args: object) -> DType:
    """The dtype of an operation on all args: dtypes, arrays, or Python scalars, which bend to the others.

    >>> result_type("int32", "float32"), result_type("float32", 1.5), result_type("int64", 1.5)
    ('float64', 'float32', 'float64')
    """
    plain = [a if isinstance(a, (bool, int, float)) else dtype(getattr(a, "dtype", a)).numpy for a in args]
    return _BY_NUMPY[np.result_type(*plain)]


def can_cast(from_: object, to: object) -> bool:
    """Whether a cast loses nothing, by NumPy's rule 'safe'."""
    return bool(np.can_cast(dtype(getattr(from_, "dtype", from_)).numpy, dtype(to).numpy))
