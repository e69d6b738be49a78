"""DLPack capsules, made and taken with ctypes."""

import ctypes
import math
from functools import cache

import numpy as np

from ..emulator import library

CPU, CUDA = 1, 2
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_KINDS = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_api = ctypes.pythonapi
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
# The same two by address: a destructor may not take a new reference to a capsule that is being destroyed.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))

_exported: dict[int, object] = {}  # address of a managed tensor -> all that it needs alive
_names: dict[bytes, bytes] = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


@_Deleter
def _forget(address: int) -> None:
    _exported.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule: int) -> None:
    for name in _KINDS:
        if _raw_is_valid(capsule, name):  # nobody has taken it
            _forget(_raw_pointer(capsule, name))


@cache
def _destructor():
    """`_destroy`, called with any exception that is under way put aside."""
    library().emulator_set_capsule_destructor(_destroy)
    return ctypes.cast(library().emulator_destroy_capsule, _Destructor)


def export(array, versioned: bool):
    """A capsule that keeps the array alive until its consumer lets go."""
    name = b"dltensor_versioned" if versioned else b"dltensor"
    managed = _KINDS[name]()
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
    tensor = managed.tensor
    tensor.data, tensor.byte_offset = array.data.ptr or None, 0
    tensor.device_type, tensor.device_id, tensor.ndim = CUDA, array.data.device_id, array.ndim
    tensor.code, tensor.bits, tensor.lanes = _CODES[array.dtype.kind], 8 * array.itemsize, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _forget
    if versioned:
        managed.major, managed.minor = 1, 0
    address = ctypes.addressof(managed)
    _exported[address] = (array, managed, shape, strides)
    return _new(address, name, _destructor())


class _Owner:
    """Calls the producer's deleter when the last consumer is gone."""

    def __init__(self, address: int, deleter):
        self.address, self.deleter = address, deleter

    def __del__(self) -> None:
        if self.deleter:
            self.deleter(self.address)


def take(capsule) -> tuple[int, tuple[int, ...], np.dtype, tuple[int, ...], object]:
    """Address, shape, dtype, strides in elements and owner of a capsule's array; the capsule is used up."""
    name = next((each for each in _KINDS if _is_valid(capsule, each)), None)
    if name is None:
        raise BufferError("from_dlpack: the capsule has been used, or is none")
    address = _pointer(capsule, name)
    managed = _KINDS[name].from_address(address)
    tensor = managed.tensor
    letter = {code: letter for letter, code in _CODES.items()}[tensor.code]
    dtype = np.dtype("?" if letter == "b" else f"{letter}{tensor.bits // 8}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(tensor.ndim))
    _rename(capsule, _names[name])
    return (tensor.data or 0) + tensor.byte_offset, shape, dtype, strides, _Owner(address, managed.deleter)
