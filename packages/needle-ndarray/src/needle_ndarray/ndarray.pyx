"""NDArray: shape, strides and offset over a buffer. Structure is done here, arithmetic by the backend (see backend.pyx)."""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
)
from cpython.pycapsule cimport PyCapsule_New
from cpython.object cimport PyObject, Py_EQ, Py_GT, Py_LE, Py_LT, Py_NE
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import math
from itertools import islice
from operator import index as as_index

import numpy as np

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.buffer cimport Buffer, recycle, tick
from needle_ndarray.kernels.views cimport View
from needle_ndarray.optable cimport BOOL, DTYPE_COUNT, EQUAL, FLOAT32, FLOAT64, GREATER_EQUAL, INT32, INT64, UINT8

from needle_ndarray.backend import ARG_REDUCE, BINARY, REDUCE, SCAN, UNARY
from needle_ndarray.dtypes import DTYPES, DType, dtype as to_dtype_object, holding, promote_types

cdef extern from "Python.h":
    int PySlice_Unpack(object slice, Py_ssize_t* start, Py_ssize_t* stop, Py_ssize_t* step) except -1
    Py_ssize_t PySlice_AdjustIndices(Py_ssize_t length, Py_ssize_t* start, Py_ssize_t* stop, Py_ssize_t step)
    Py_ssize_t Py_REFCNT(PyObject*)

cdef Py_ssize_t MAX_SIZE = 0x7fffffffffffffff // 8

cdef Backend NO_BACKEND = Backend()
cdef type HostArray = np.ndarray
cdef type HostScalar = np.generic
cdef int[DTYPE_COUNT] ITEMSIZE = [1, 1, 4, 8, 4, 8]
cdef int[DTYPE_COUNT] KIND = [0, 1, 2, 2, 3, 3]         # bool, unsigned, signed, float: a cast to a lower one is refused
cdef int[DTYPE_COUNT][DTYPE_COUNT] PROMOTE
for _a in DTYPES:
    for _b in DTYPES:
        PROMOTE[<int> _a.code][<int> _b.code] = promote_types(_a, _b).code

cdef Op ADD = BINARY["add"], SUBTRACT = BINARY["subtract"], MULTIPLY = BINARY["multiply"], DIVIDE = BINARY["divide"]
cdef Op FLOOR_DIVIDE = BINARY["floor_divide"], REMAINDER = BINARY["remainder"], POWER = BINARY["power"]
cdef Op NEGATIVE = UNARY["negative"], ABS = UNARY["abs"], INVERT = UNARY["invert"], SQRT = UNARY["sqrt"]
cdef Op AND = BINARY["bitwise_and"], OR = BINARY["bitwise_or"], XOR = BINARY["bitwise_xor"]
cdef list ALL_AXES = [tuple(range(n)) for n in range(MAX_NDIM + 1)]
cdef tuple COMPARE = (BINARY["less"], BINARY["less_equal"], BINARY["equal"], BINARY["not_equal"], BINARY["greater"],
                      BINARY["greater_equal"])


class BroadcastError(ValueError, AssertionError):
    """Shapes that do not broadcast (an AssertionError too: course code catches that)."""


include "ndarray_layout.pxi"
include "ndarray_ops.pxi"
include "ndarray_class.pxi"
include "ndarray_steps.pxi"
