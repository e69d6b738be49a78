"""What the array API standard asks of a namespace: which devices and dtypes there are, and what it can do."""

from typing import Any

from needle_ndarray.devices import Device, all_devices, default_device
from needle_ndarray.dtypes import DTYPES, DType, dtype, float32, int64

#: Which of our dtypes each kind of the standard means; complex numbers we have none.
KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int32", "int64"),
    "unsigned integer": ("uint8",),
    "integral": ("uint8", "int32", "int64"),
    "real floating": ("float16", "bfloat16", "float32", "float64"),
    "complex floating": (),
    "numeric": ("uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
}


def _of_kind(what: str, kind: str | tuple[str, ...]) -> set[str]:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for each in kinds:
        if each not in KINDS:
            raise ValueError(f"{what}: kind {each!r}: expected one of {', '.join(KINDS)}")
    return {name for each in kinds for name in KINDS[each]}


def isdtype(given: Any, kind: Any) -> bool:
    """Whether a dtype is another one, or of a kind: 'bool', 'integral', 'real floating', ..., or any of a tuple of these.

    >>> isdtype(float32, "real floating"), isdtype("uint8", ("bool", "signed integer"))
    (True, False)
    """
    found = dtype(given)
    for each in kind if isinstance(kind, tuple) else (kind,):
        if type(each) is str and each in KINDS:
            if found in _of_kind("isdtype", each):
                return True
        elif isinstance(each, str) and not isinstance(each, DType):
            _of_kind("isdtype", each)
        elif found == dtype(each):
            return True
    return False


class NamespaceInfo:
    """What `__array_namespace_info__()` returns."""

    def capabilities(self) -> dict[str, Any]:
        """Indexing with masks works, and so do results whose shape depends on data; arrays have up to 32 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> Device:
        return default_device()

    def devices(self) -> list[Device]:
        """Those that can be used here."""
        return [device for device in all_devices() if device.enabled()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """By name; all of them, or those of a kind."""
        wanted = {str(each) for each in DTYPES} if kind is None else _of_kind("dtypes", kind)
        return {str(each): each for each in DTYPES if each in wanted and not each.is_half}  # the standard has no halves


def __array_namespace_info__() -> NamespaceInfo:
    """What the standard's libraries ask: devices, dtypes, capabilities."""
    return NamespaceInfo()
