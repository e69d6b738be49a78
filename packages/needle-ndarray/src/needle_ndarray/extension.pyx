"""The door for packages that extend needle_ndarray: what they may use besides the public names of `needle_ndarray` itself.

needle-core, needle-nn and needle-cuda come in here and nowhere else; a backend also by `needle_ndarray.backend`, which has the
interface that it implements. The names stay as long as ABI and the package's minor version do; the modules that they live in may
change.

`C_INTERFACE` is for compiled code: a capsule, "needle_ndarray.extension", around a struct that begins with the int ABI. Whoever
opens it compares that number with the one it was built for before it reads any further. Version 1:

    int abi
    long long *clock                            the write clock: one counter for all writes to all arrays
    Py_ssize_t (*nbytes)(PyObject *)            the bytes of an array; -1: not an NDArray
    long long (*version)(PyObject *)            the write clock at its last write; -1: ask the object for its `version`
    int (*is_sole_owner)(PyObject *)            whether nobody else sees a write to it: no other reference, no other view
    int (*dtype_code)(PyObject *)               the code of its dtype; -1: not an NDArray
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New

from needle_ndarray.buffer import WRITE_CLOCK, format_bytes
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
from needle_ndarray.ndarray import DTYPE_CODE, NBYTES, SOLE_OWNER, VERSION, bounded, normal_axes
from needle_ndarray.replay import Layout, Runner, like, observe
from needle_ndarray.rules import RULES

#: The version of the struct in C_INTERFACE.
ABI = 1

cdef struct Interface:
    int abi
    long long* clock
    Py_ssize_t (*nbytes)(PyObject*) noexcept
    long long (*version)(PyObject*) noexcept
    int (*is_sole_owner)(PyObject*) noexcept
    int (*dtype_code)(PyObject*) noexcept

ctypedef Py_ssize_t (*nbytes_t)(PyObject*) noexcept
ctypedef long long (*version_t)(PyObject*) noexcept
ctypedef int (*question_t)(PyObject*) noexcept

cdef Interface interface
interface.abi = ABI
interface.clock = <long long*> PyCapsule_GetPointer(WRITE_CLOCK, "needle_ndarray.write_clock")
interface.nbytes = <nbytes_t> PyCapsule_GetPointer(NBYTES, "needle_ndarray.nbytes")
interface.version = <version_t> PyCapsule_GetPointer(VERSION, "needle_ndarray.version")
interface.is_sole_owner = <question_t> PyCapsule_GetPointer(SOLE_OWNER, "needle_ndarray.sole_owner")
interface.dtype_code = <question_t> PyCapsule_GetPointer(DTYPE_CODE, "needle_ndarray.dtype_code")

C_INTERFACE = PyCapsule_New(&interface, "needle_ndarray.extension", NULL)

__all__ = [
    "ABI", "C_INTERFACE", "CaptureError", "DTYPES", "Geometry", "Layout", "Plan", "RULES", "Recorder", "Runner", "Watched",
    "active_recorder", "backend_of", "bounded", "config", "depends", "flops", "format_bytes",
    "has_arrays", "is_listened_to", "like", "listening", "normal_axes", "observe", "pair", "parse_einsum", "place_in_library",
    "reading", "repeat", "show_call", "traffic",
]
