"""The door for packages that extend needle_ndarray: what they may use besides the public names of `needle_ndarray` itself.

needle-core, needle-nn and needle-cuda come in here and nowhere else; a backend also by `needle_ndarray.backend`, which has the
interface that it implements. The names stay as long as ABI and the package's minor version do; the modules that they live in may
change.

`C_INTERFACE` is for compiled code: a capsule, "needle_ndarray.extension", around a struct that begins with the int ABI. Whoever
opens it compares that number with the one it was built for before it reads any further. Version 2:

    int abi
    long long *clock                            the write clock: one counter for all writes to all arrays
    Py_ssize_t (*nbytes)(PyObject *)            the bytes of an array; -1: not an NDArray
    long long (*version)(PyObject *)            the write clock at its last write; -1: ask the object for its `version`
    int (*is_sole_owner)(PyObject *)            whether nobody else sees a write to it: no other reference, no other view
    int (*dtype_code)(PyObject *)               the code of its dtype; -1: not an NDArray
    int (*alike)(PyObject *, PyObject *)        whether both are arrays of one shape and dtype
    int (*is_compact)(PyObject *)               whether it is an array in row-major order without gaps
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New

from needle_ndarray.buffer cimport Buffer, write_clock
from needle_ndarray.layout cimport same_shape
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport itemsize

from needle_ndarray.buffer import format_bytes
from needle_ndarray.capture import (
    CaptureError, Plan, Recorder, Watched, active_recorder, depends, place_in_library, reading, repeat
)
from needle_ndarray.capture.costs import flops, traffic
from needle_ndarray.capture.plan import show as show_call
from needle_ndarray.config import config
from needle_ndarray.devices import backend_of
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.geometry import Geometry, pair
from needle_ndarray.indexing import has_arrays
from needle_ndarray.linalg import _parse as parse_einsum
from needle_ndarray.listening import is_listened_to, listening
from needle_ndarray.ndarray import bounded, normal_axes
from needle_ndarray.replay import Layout, Runner, like, observe
from needle_ndarray.rules import RULES

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

#: The version of the struct in C_INTERFACE.
ABI = 2

cdef struct Interface:
    int abi
    long long* clock
    Py_ssize_t (*nbytes)(PyObject*) noexcept
    long long (*version)(PyObject*) noexcept
    int (*is_sole_owner)(PyObject*) noexcept
    int (*dtype_code)(PyObject*) noexcept
    int (*alike)(PyObject*, PyObject*) noexcept
    int (*is_compact)(PyObject*) noexcept


cdef Py_ssize_t nbytes(PyObject* a) noexcept:
    return (<NDArray> a)._size * itemsize((<NDArray> a)._dtype) if isinstance(<object> a, NDArray) else -1


cdef long long version(PyObject* a) noexcept:
    if isinstance(<object> a, NDArray) and isinstance((<NDArray> a)._buffer, Buffer):
        return (<Buffer> (<NDArray> a)._buffer).version
    return -1


cdef int is_sole_owner(PyObject* a) noexcept:
    """One reference to it, one to its buffer, and no element that stands for several"""
    cdef NDArray array
    cdef int i
    if Py_REFCNT(a) != 1 or not isinstance(<object> a, NDArray):
        return 0
    array = <NDArray> a
    if Py_REFCNT(<PyObject*> array._buffer) != 1:
        return 0
    for i in range(array._ndim):
        if array._strides[i] == 0 and array._shape[i] > 1:
            return 0
    return 1


cdef int dtype_code(PyObject* a) noexcept:
    return (<NDArray> a)._dtype if isinstance(<object> a, NDArray) else -1


cdef int alike(PyObject* a, PyObject* b) noexcept:
    return isinstance(<object> a, NDArray) and isinstance(<object> b, NDArray) and (<NDArray> a)._dtype == (<NDArray> b)._dtype \
        and same_shape(<NDArray> a, <NDArray> b)


cdef int is_compact(PyObject* a) noexcept:
    return isinstance(<object> a, NDArray) and (<NDArray> a)._compact


cdef Interface interface
interface.abi, interface.clock, interface.nbytes, interface.version = ABI, &write_clock, nbytes, version
interface.is_sole_owner, interface.dtype_code, interface.alike, interface.is_compact = is_sole_owner, dtype_code, alike, is_compact
C_INTERFACE = PyCapsule_New(&interface, "needle_ndarray.extension", NULL)

__all__ = [
    "ABI", "C_INTERFACE", "CaptureError", "DTYPES", "Geometry", "Layout", "Plan", "RULES", "Recorder", "Runner", "Watched",
    "active_recorder", "backend_of", "bounded", "config", "depends", "flops", "format_bytes",
    "has_arrays", "is_listened_to", "like", "listening", "normal_axes", "observe", "pair", "parse_einsum", "place_in_library",
    "reading", "repeat", "show_call", "traffic",
]
