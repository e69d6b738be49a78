"""The door for packages that extend this one: its names, and the struct of C functions."""

import ctypes

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray import extension
from needle_ndarray.testing import each

LONG = ctypes.CFUNCTYPE(ctypes.c_longlong, ctypes.py_object)
SIZE = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.py_object)
INT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object)


class Interface(ctypes.Structure):
    """As the docstring of the module gives it."""

    _fields_ = (
        ("abi", ctypes.c_int),
        ("clock", ctypes.POINTER(ctypes.c_longlong)),
        ("nbytes", SIZE),
        ("version", LONG),
        ("is_sole_owner", INT),
        ("dtype_code", INT),
        ("alike", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object)),
        ("is_compact", INT),
    )


@pytest.fixture
def interface():
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Interface.from_address(get(extension.C_INTERFACE, b"needle_ndarray.extension"))


def test_names():
    assert sorted(extension.__all__) == extension.__all__
    assert [name for name in extension.__all__ if not hasattr(extension, name)] == []


def test_every_field_is_described(interface):
    assert interface.abi == extension.ABI == 2
    assert [name for name, _ in Interface._fields_ if name not in extension.__doc__] == []


@each("dtype", "float32 float64 int32 int64 uint8 bool".split())
def test_functions(interface, dtype):
    a = nd.zeros((3, 5), dtype)
    assert interface.nbytes(a) == 15 * np.dtype(dtype).itemsize
    assert interface.dtype_code(a) == a.dtype.code == extension.DTYPES.index(a.dtype)
    before = interface.clock[0]
    a[0] = 1
    assert interface.clock[0] > before and before < interface.version(a) <= interface.clock[0]


def test_what_is_no_array(interface):
    for other in (None, 3, np.zeros(2), (nd.zeros(2),)):
        assert (interface.nbytes(other), interface.version(other), interface.dtype_code(other)) == (-1, -1, -1)
        assert interface.is_sole_owner(other) == interface.is_compact(other) == interface.alike(other, other) == 0
        assert interface.alike(other, nd.zeros(2)) == interface.alike(nd.zeros(2), other) == 0


def test_layouts(interface):
    a = nd.zeros((2, 3))
    for other, alike, compact in (
        (nd.ones((2, 3)), 1, 1),
        (nd.zeros((3, 2)).T, 1, 0),
        (nd.zeros((3, 2)), 0, 1),
        (nd.zeros((2, 3, 1)), 0, 1),
        (nd.zeros((2, 3), "float64"), 0, 1),
    ):
        assert interface.alike(a, other) == interface.alike(other, a) == alike
        assert interface.is_compact(other) == compact


def test_sole_owner_sees_views(interface):
    """ctypes holds the array once more than compiled code does: only what is certainly shared can be told from here."""
    a = nd.zeros(4)
    view = a[1:]
    assert interface.is_sole_owner(view) == 0
