"""The eight element types, and NumPy's rules for mixing them.

float16 and bfloat16 are for keeping: arithmetic on them is that of float32, rounded once at its end (docs/ndarray.md).
"""

import numpy as np


class DType(str):
    """Name of an element type: equal to its string, to the NumPy dtype and to the NumPy scalar type.

    >>> float32 == "float32", float32 == np.dtype("float32"), float32 == np.float32
    (True, True, True)
    """

    code: int  # position in DTYPES: what the compiled code switches on
    numpy: np.dtype  # what `.numpy()` gives: float32 for bfloat16, which NumPy does not have
    storage: np.dtype  # of the words in memory: uint16 for bfloat16
    itemsize: int
    is_float: bool
    is_half: bool  # float16 or bfloat16

    def __new__(cls, name: str, code: int) -> "DType":
        self = super().__new__(cls, name)
        known = name != "bfloat16"
        self.code = code
        self.numpy = np.dtype(name if known else "float32")
        self.storage = np.dtype(name if known else "uint16")
        self.itemsize = self.storage.itemsize
        self.is_float = self.numpy.kind == "f"
        self.is_half = self.is_float and self.itemsize == 2
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        return isinstance(other, (np.dtype, type)) and self.numpy is self.storage and self.numpy == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple:
        return dtype, (str(self),)


_NAMES = ["bool", "uint8", "int32", "int64", "float32", "float64", "float16", "bfloat16"]
DTYPES = tuple(DType(name, i) for i, name in enumerate(_NAMES))
bool_, uint8, int32, int64, float32, float64, float16, bfloat16 = DTYPES
_BY_NUMPY = {d.numpy: d for d in DTYPES if d is not bfloat16}
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
_WIDENED = {"int8": int32, "int16": int32, "uint16": int32, "uint32": int64}


def holding(given: np.dtype) -> DType:
    """The dtype for values of any NumPy type: itself, or the smallest of ours that holds them.

    >>> holding(np.dtype("uint8")), holding(np.dtype("int8")), holding(np.dtype("float16"))
    ('uint8', 'int32', 'float16')
    """
    return _WIDENED.get(given.name) or dtype(given)


def promote_types(a: DType, b: DType) -> DType:
    """The dtype of an operation on both: NumPy's table. bfloat16 takes the place of float16 in it; the two together give float32.

    >>> promote_types(float16, bfloat16), promote_types(bfloat16, uint8), promote_types(bfloat16, int32)
    ('float32', 'bfloat16', 'float64')
    """
    if bfloat16 not in (a, b):
        return _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]
    if float16 in (a, b):
        return float32
    made = promote_types(*[float16 if each is bfloat16 else each for each in (a, b)])
    return bfloat16 if made is float16 else made


def result_type(*args: object) -> DType:
    """The dtype of an operation on all args: dtypes, arrays, or Python scalars, which bend to the others.

    >>> result_type("int32", "float32"), result_type("float32", 1.5), result_type("int64", 1.5)
    ('float64', 'float32', 'float64')
    """
    kinds = [a if isinstance(a, (bool, int, float)) else dtype(getattr(a, "dtype", a)) for a in args]
    halves = {a for a in kinds if isinstance(a, DType) and a.is_half}
    if bfloat16 in halves:  # float16 in its place, or float32 where both are there
        place = float32 if len(halves) == 2 else float16
        made = result_type(*[place if isinstance(a, DType) and a.is_half else a for a in kinds])
        return bfloat16 if made is float16 else made
    return _BY_NUMPY[np.result_type(*[a.numpy if isinstance(a, DType) else a for a in kinds])]


def can_cast(from_: object, to: object) -> bool:
    """Whether a cast loses nothing, by NumPy's rule 'safe'."""
    start, end = dtype(getattr(from_, "dtype", from_)), dtype(to)
    return promote_types(start, end) is end if bfloat16 in (start, end) else bool(np.can_cast(start.numpy, end.numpy))
