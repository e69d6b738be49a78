"""NDArray: shape, strides and offset over a buffer. Structure is done here, arithmetic by the backend (see backend.pyx).

Long because a cdef class cannot be split: most methods are one line that names what does the work.
"""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.object cimport PyObject, Py_EQ, Py_GT, Py_LE, Py_LT, Py_NE
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import math
from operator import index as as_index

import numpy as np

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.buffer cimport Buffer, recycle, tick
from needle_ndarray.dispatch cimport arg_reduce_op, binary_op, matmul_of, reduce_op, unary_op
from needle_ndarray.kernels.views cimport View
from needle_ndarray.layout cimport (
    as_tuple, basic_view, broadcast_view, checked_size, has_order, normal_axis, parse_ints, reshape_view, reversed_axes,
    row_major, strided_view, swapped
)
from needle_ndarray.operands cimport assign, dtype_code, from_host, hears_numbers, is_array_like, is_scalar
from needle_ndarray.optable cimport BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8, itemsize

from needle_ndarray import dispatch, layout, operands, optimizer_steps
from needle_ndarray.backend import ARG_REDUCE, BINARY, REDUCE, ROWS, SCAN, UNARY
from needle_ndarray.dispatch import last_axis_op, scan_op, where_op
from needle_ndarray.dtypes import DTYPES, dtype as to_dtype_object
from needle_ndarray.layout import bounded, normal_axes

# Everybody imports from here what the modules of the array define for Python. They need the class below while they are
# initialised, so this module has to come first.
globals().update({name: getattr(module, name) for module, names in [
    (layout, "BroadcastError alike broadcast_shapes"),
    (operands, "constant_like"),
    (dispatch, "unary_op binary_op reduce_op arg_reduce_op unary_function binary_function bounds linear accumulate"),
    (optimizer_steps, "run_step"),
] for name in names.split()})

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        PyObject* tp_dict
    void PyType_Modified(type)
    Py_ssize_t Py_REFCNT(PyObject*)

cdef extern from "half.h" nogil:
    double widen_one "needle_widen_one"(int brain, unsigned short word) noexcept

cdef Backend NO_BACKEND = Backend()

cdef Op ADD = BINARY["add"], SUBTRACT = BINARY["subtract"], MULTIPLY = BINARY["multiply"], DIVIDE = BINARY["divide"]
cdef Op FLOOR_DIVIDE = BINARY["floor_divide"], REMAINDER = BINARY["remainder"], POWER = BINARY["power"]
cdef Op NEGATIVE = UNARY["negative"], ABS = UNARY["abs"], INVERT = UNARY["invert"], SQRT = UNARY["sqrt"]
cdef Op AND = BINARY["bitwise_and"], OR = BINARY["bitwise_or"], XOR = BINARY["bitwise_xor"]
cdef Op LEFT_SHIFT = BINARY["bitwise_left_shift"], RIGHT_SHIFT = BINARY["bitwise_right_shift"]
cdef Op SOFTMAX = ROWS["softmax"], LOG_SOFTMAX = ROWS["log_softmax"], LOGSUMEXP = ROWS["logsumexp"]
cdef tuple COMPARE = (BINARY["less"], BINARY["less_equal"], BINARY["equal"], BINARY["not_equal"], BINARY["greater"],
                      BINARY["greater_equal"])


@cython.no_gc
@cython.freelist(64)
cdef class NDArray:
    """NDArray(other, device=None)
--

    A strided n-dimensional array on a device.

    >>> from needle_ndarray import array
    >>> a = array([[1, 2, 3], [4, 5, 6]])
    >>> (a.permute((1, 0)) @ a).shape, a[:, ::-1].strides
    ((3, 3), (3, -1))
    """

    __array_ufunc__ = None      # NumPy leaves operators with us to us
    __hash__ = None

    def __init__(self, other, device=None):
        """Copy values: numbers, (nested) lists, NumPy arrays, NDArrays. Python numbers and float64 become float32."""
        cdef NDArray made = make_array(other, None, device)
        if self._buffer is not None:        # only now: what runs inside `other` may have called this
            raise TypeError("NDArray.__init__: the array exists already; make a new one")
        self._backend, self._buffer, self._ptr, self._dtype = made._backend, made._buffer, made._ptr, made._dtype
        self.set_ndim(made._ndim)
        memcpy(self._shape, made._shape, made._ndim * sizeof(Py_ssize_t))
        memcpy(self._strides, made._strides, made._ndim * sizeof(Py_ssize_t))
        self._size = made._size

    def __cinit__(self):
        self._shape = self._small
        self._strides = self._small + INLINE
        self._backend, self._ndim, self._compact = NO_BACKEND, 1, True      # a bare __new__ is of size 0, on no device

    def __dealloc__(self):
        if self._shape is not self._small:
            free(self._shape)
        if isinstance(self._buffer, Buffer) and Py_REFCNT(<PyObject*> self._buffer) == 1:
            recycle(<Buffer> self._buffer)

    @cython.final
    cdef int set_ndim(self, int ndim) except -1:
        cdef Py_ssize_t* more
        if ndim > INLINE and ndim > self._ndim:
            more = <Py_ssize_t*> malloc(2 * ndim * sizeof(Py_ssize_t))
            if more is NULL:
                raise MemoryError(f"no memory for {ndim} axes")
            if self._shape is not self._small:
                free(self._shape)
            self._shape, self._strides = more, more + ndim
        self._ndim, self._shape_tuple = ndim, None
        return 0

    @cython.final
    cdef void measure(self) noexcept:
        """Size and compactness from shape and strides."""
        cdef Py_ssize_t size = 1
        cdef int i
        self._compact = True
        for i in range(self._ndim - 1, -1, -1):
            if self._shape[i] != 1 and self._strides[i] != size:
                self._compact = False
            size *= self._shape[i]
        self._size = size
        self._compact = self._compact or size == 0

    @cython.final
    cdef void view_into(self, View* out) noexcept:
        cdef int i
        out.data, out.dtype, out.ndim, out.size = self._ptr, self._dtype, self._ndim, self._size
        out.itemsize = itemsize(self._dtype)
        for i in range(self._ndim):
            out.shape[i], out.strides[i] = self._shape[i], self._strides[i]

    @cython.final
    cdef int mark_written(self) except -1:
        if isinstance(self._buffer, Buffer):
            (<Buffer> self._buffer).version = tick()
        else:
            self._buffer.mark_written()
        return 0

    # ---- Properties --------------------------------------------------------------------------

    @property
    def shape(self):
        if self._shape_tuple is None:
            self._shape_tuple = as_tuple(self._ndim, self._shape)
        return self._shape_tuple

    @property
    def strides(self):
        """Elements from one entry to the next, per axis."""
        return as_tuple(self._ndim, self._strides)

    @property
    def offset(self):
        """Elements before the first one in the buffer."""
        return self._offset

    @property
    def ndim(self):
        return self._ndim

    @property
    def size(self):
        return self._size

    @property
    def itemsize(self):
        return itemsize(self._dtype)

    @property
    def nbytes(self):
        return self._size * itemsize(self._dtype)

    @property
    def dtype(self):
        return DTYPES[self._dtype]

    @property
    def device(self):
        return self._backend.device

    @property
    def backend(self):
        return self._backend

    @property
    def version(self):
        """The write clock at the last write to the buffer, through this or any other view; 0 before the first."""
        return self._buffer.version

    @property
    def _handle(self):
        return self._buffer

    @property
    def T(self):
        """All axes reversed."""
        return reversed_axes(self)

    @property
    def mT(self):
        """The last two axes swapped."""
        return swapped(self, self._ndim - 2, self._ndim - 1) if self._ndim > 1 else self.swapaxes(-1, -2)

    @property
    def flat(self):
        """The elements in row-major order: a 1-d view, writable (`a.flat[3] += 1`)."""
        cdef NDArray view = reshape_view(self, 1, &self._size)
        if view is None:
            from needle_ndarray.indexing import Flat
            return Flat(self)
        return view

    # ---- Making --------------------------------------------------------------------------

    @staticmethod
    def compact_strides(shape):
        """Strides, in elements, of a compact array.

        >>> NDArray.compact_strides((2, 3, 4))
        (12, 4, 1)
        """
        strides, step = [], 1
        for n in reversed(bounded("compact_strides", shape, MAX_NDIM)):
            strides.append(step)
            step *= n
        return tuple(reversed(strides))

    @staticmethod
    def make(shape, strides=None, device=None, handle=None, offset=0, dtype="float32"):
        """An uninitialised array, or a view of an existing buffer (`handle`) after a check of its bounds."""
        cdef Py_ssize_t c_shape[MAX_NDIM]
        cdef Py_ssize_t c_strides[MAX_NDIM]
        cdef NDArray base
        cdef int ndim = parse_ints("make", shape, c_shape), code = dtype_code(dtype)
        cdef Py_ssize_t size = checked_size(ndim, c_shape)
        cdef Backend backend = find_backend(device)
        start = as_index(offset)
        if start < 0:
            raise ValueError(f"make: offset {start}: expected 0 or more")
        if handle is None and strides is None and start == 0:
            return empty_compact(backend, code, ndim, c_shape)
        if strides is None:
            row_major(ndim, c_shape, c_strides)
        elif parse_ints("make", strides, c_strides) != ndim:
            raise ValueError(f"make: shape {as_tuple(ndim, c_shape)} and strides {strides} differ in length")
        if handle is None:
            handle = backend.allocate((size + start) * itemsize(code))
        base = NDArray.__new__(NDArray)
        base._backend, base._buffer, base._dtype = backend, handle, code
        if isinstance(handle, Buffer) and (<Buffer> handle).nbytes:
            base._ptr = <char*> &(<Buffer> handle).data[0]
        elif not hasattr(handle, "ptr") or not hasattr(handle, "nbytes"):
            raise TypeError(f"make: expected a buffer as handle, got {type(handle).__name__}")
        return strided_view("make", base, ndim, c_shape, c_strides, start)

    def fill(self, value):
        """self[...] = value"""
        self[...] = value

    def copy(self):
        """A compact copy."""
        return compact_copy(self)

    def __copy__(self):
        return compact_copy(self)

    def __deepcopy__(self, memo):
        return compact_copy(self)

    def compact(self):
        """self where `is_compact()`, else a compact copy."""
        return self if self._compact and self._offset == 0 else compact_copy(self)

    def is_compact(self):
        """Whether the elements lie in row-major order without gaps and fill the buffer from its start."""
        return self._compact and self._offset == 0

    def astype(self, dtype, copy=True):
        """A copy of another dtype; self where `copy` is False and nothing changes."""
        code = dtype_code(dtype)
        return compact_copy(self) if code == self._dtype and copy else to_dtype(self, code)

    def to(self, device):
        """self on its own device, else a copy on the given one."""
        cdef Backend backend = find_backend(device)
        if backend is self._backend:
            return self
        made = backend.from_device(self)        # one GPU to another
        if made is None and self._dtype == BFLOAT16:
            return array_of_words(self._backend.to_host(self), self.dtype, device)
        return from_host(self._backend.to_host(self), backend) if made is None else made

    def to_device(self, device, /, *, stream=None):
        """The array API standard's name of `to`."""
        return self.to(device)

    # ---- Views: nothing is copied --------------------------------------------------------------------------

    def as_strided(self, shape, strides, offset=0):
        """A view with any shape and strides (in elements, from this array's first one), checked against the buffer."""
        cdef Py_ssize_t c_shape[MAX_NDIM]
        cdef Py_ssize_t c_strides[MAX_NDIM]
        cdef int ndim = parse_ints("as_strided", shape, c_shape)
        if parse_ints("as_strided", strides, c_strides) != ndim:
            raise ValueError(f"as_strided: shape {as_tuple(ndim, c_shape)} and strides {strides} differ in length")
        return strided_view("as_strided", self, ndim, c_shape, c_strides, as_index(offset))

    def reshape(self, *new_shape):
        """Another shape of the same size (one entry may be -1): a view where strides allow, else a copy."""
        cdef Py_ssize_t shape[MAX_NDIM]
        cdef object given = new_shape[0] if len(new_shape) == 1 else new_shape
        cdef int ndim = parse_ints("reshape", given, shape), i, unknown = -1
        cdef Py_ssize_t known = 1
        cdef NDArray view
        for i in range(ndim):
            if shape[i] == -1 and unknown < 0:
                unknown = i
                shape[i] = 1
        known = checked_size(ndim, shape)
        if unknown >= 0:
            shape[unknown] = -1
            if known == 0 or self._size % known:
                raise ValueError(f"reshape: cannot reshape {self.shape} to {as_tuple(ndim, shape)}")
            shape[unknown] = self._size // known
        elif known != self._size:
            raise ValueError(
                f"reshape: {self.shape} has {self._size} elements, {as_tuple(ndim, shape)} has {known}")
        view = reshape_view(self, ndim, shape)
        return reshape_view(compact_copy(self), ndim, shape) if view is None else view

    def permute(self, *axes):
        """The axes in another order.

        >>> NDArray.make((2, 3, 4)).permute((2, 0, 1)).shape
        (4, 2, 3)
        """
        cdef Py_ssize_t shape[MAX_NDIM]
        cdef Py_ssize_t strides[MAX_NDIM]
        cdef Py_ssize_t given[MAX_NDIM]
        cdef bint seen[MAX_NDIM]
        cdef int count = parse_ints("permute", axes[0] if len(axes) == 1 else axes, given), ndim = self._ndim, i, j
        cdef bint is_order = count == ndim
        for i in range(MAX_NDIM):
            seen[i] = False
        for i in range(count):
            if not -ndim <= given[i] < ndim:
                raise np.exceptions.AxisError(f"permute: axis {given[i]} is out of bounds for {ndim} axes")
            j = <int> (given[i] + ndim if given[i] < 0 else given[i])
            is_order, seen[j] = is_order and not seen[j], True
            shape[i], strides[i] = self._shape[j], self._strides[j]
        if not is_order:
            raise ValueError(
                f"permute: {as_tuple(count, given)} is not an order of the {self._ndim} axes of shape {self.shape}")
        return view_of(self, count, shape, strides, 0)

    def transpose(self, axes=None):
        """All axes reversed, or permuted as given."""
        return self.T if axes is None else self.permute(axes)

    def swapaxes(self, axis1, axis2):
        return swapped(self, normal_axis("swapaxes", axis1, self._ndim), normal_axis("swapaxes", axis2, self._ndim))

    def broadcast_to(self, shape):
        """Repeat along axes of size 1 and new leading axes, with stride 0."""
        cdef Py_ssize_t c_shape[MAX_NDIM]
        cdef int ndim = parse_ints("broadcast_to", shape, c_shape)
        checked_size(ndim, c_shape)
        return broadcast_view(self, ndim, c_shape)

    def squeeze(self, axis=None):
        """Without axes of size 1: those given, or all of them."""
        axes = normal_axes("squeeze", axis, self._ndim)
        if axis is not None and any(self._shape[i] != 1 for i in axes):
            raise ValueError(f"squeeze: axis {axis} of shape {self.shape} is not of size 1")
        return self.reshape(tuple([n for i, n in enumerate(self.shape) if n != 1 or i not in axes]))

    def expand_dims(self, axis):
        """With an axis of size 1 put in."""
        i = normal_axis("expand_dims", axis, self._ndim + 1)
        return self.reshape(self.shape[:i] + (1,) + self.shape[i:])

    def flip(self, axes=None):
        """Reversed along axes: a view with negative strides."""
        flipped = normal_axes("flip", axes, self._ndim)
        return self[tuple([slice(None, None, -1) if i in flipped else slice(None) for i in range(self._ndim)])]

    def process_slice(self, sl, dim):
        """A slice with start, stop and step filled in for axis `dim`."""
        return slice(*sl.indices(self.shape[dim]))

    # ---- Indexing --------------------------------------------------------------------------

    def __getitem__(self, key):
        cdef NDArray view = basic_view(self, key)
        if view is None:
            from needle_ndarray.indexing import get
            return get(self, key)
        return view

    def __setitem__(self, key, value):
        cdef NDArray view = self if key is Ellipsis else basic_view(self, key)
        if view is None:
            from needle_ndarray.indexing import put
            put(self, key, value)
        else:
            assign(view, value)

    def __len__(self):
        if self._ndim == 0:
            raise TypeError("len() of a 0-d array")
        return self._shape[0]

    def __iter__(self):
        if self._ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return iter([self[i] for i in range(self._shape[0])])

    def __contains__(self, value):
        return bool((self == value).any())

    # ---- Operators --------------------------------------------------------------------------

    def __add__(self, other):
        return binary_op(ADD, self, other) if accepts(other) else NotImplemented

    def __radd__(self, other):
        return binary_op(ADD, other, self) if accepts(other) else NotImplemented

    def __iadd__(self, other):
        return binary_op(ADD, self, other, self)

    def __sub__(self, other):
        return binary_op(SUBTRACT, self, other) if accepts(other) else NotImplemented

    def __rsub__(self, other):
        return binary_op(SUBTRACT, other, self) if accepts(other) else NotImplemented

    def __isub__(self, other):
        return binary_op(SUBTRACT, self, other, self)

    def __mul__(self, other):
        return binary_op(MULTIPLY, self, other) if accepts(other) else NotImplemented

    def __rmul__(self, other):
        return binary_op(MULTIPLY, other, self) if accepts(other) else NotImplemented

    def __imul__(self, other):
        return binary_op(MULTIPLY, self, other, self)

    def __truediv__(self, other):
        return binary_op(DIVIDE, self, other) if accepts(other) else NotImplemented

    def __rtruediv__(self, other):
        return binary_op(DIVIDE, other, self) if accepts(other) else NotImplemented

    def __itruediv__(self, other):
        return binary_op(DIVIDE, self, other, self)

    def __floordiv__(self, other):
        return binary_op(FLOOR_DIVIDE, self, other) if accepts(other) else NotImplemented

    def __rfloordiv__(self, other):
        return binary_op(FLOOR_DIVIDE, other, self) if accepts(other) else NotImplemented

    def __ifloordiv__(self, other):
        return binary_op(FLOOR_DIVIDE, self, other, self)

    def __mod__(self, other):
        return binary_op(REMAINDER, self, other) if accepts(other) else NotImplemented

    def __rmod__(self, other):
        return binary_op(REMAINDER, other, self) if accepts(other) else NotImplemented

    def __imod__(self, other):
        return binary_op(REMAINDER, self, other, self)

    def __pow__(self, other, modulo):
        return binary_op(POWER, self, other) if accepts(other) else NotImplemented

    def __rpow__(self, other, modulo):
        return binary_op(POWER, other, self) if accepts(other) else NotImplemented

    def __ipow__(self, other):
        return binary_op(POWER, self, other, self)

    def __and__(self, other):
        return binary_op(AND, self, other) if accepts(other) else NotImplemented

    def __rand__(self, other):
        return binary_op(AND, other, self) if accepts(other) else NotImplemented

    def __iand__(self, other):
        return binary_op(AND, self, other, self)

    def __or__(self, other):
        return binary_op(OR, self, other) if accepts(other) else NotImplemented

    def __ror__(self, other):
        return binary_op(OR, other, self) if accepts(other) else NotImplemented

    def __ior__(self, other):
        return binary_op(OR, self, other, self)

    def __lshift__(self, other):
        return binary_op(LEFT_SHIFT, self, other) if accepts(other) else NotImplemented

    def __rlshift__(self, other):
        return binary_op(LEFT_SHIFT, other, self) if accepts(other) else NotImplemented

    def __ilshift__(self, other):
        return binary_op(LEFT_SHIFT, self, other, self)

    def __rshift__(self, other):
        return binary_op(RIGHT_SHIFT, self, other) if accepts(other) else NotImplemented

    def __rrshift__(self, other):
        return binary_op(RIGHT_SHIFT, other, self) if accepts(other) else NotImplemented

    def __irshift__(self, other):
        return binary_op(RIGHT_SHIFT, self, other, self)

    def __xor__(self, other):
        return binary_op(XOR, self, other) if accepts(other) else NotImplemented

    def __rxor__(self, other):
        return binary_op(XOR, other, self) if accepts(other) else NotImplemented

    def __ixor__(self, other):
        return binary_op(XOR, self, other, self)

    def __matmul__(self, other):
        return matmul_of(self, other) if accepts(other) else NotImplemented

    def __rmatmul__(self, other):
        return matmul_of(other, self) if accepts(other) else NotImplemented

    def __imatmul__(self, other):
        self[...] = matmul_of(self, other)
        return self

    def __neg__(self):
        return unary_op(NEGATIVE, self)

    def __pos__(self):
        return compact_copy(self)

    def __abs__(self):
        return unary_op(ABS, self)

    def __invert__(self):
        return unary_op(INVERT, self)

    def __richcmp__(self, other, int op):
        if not accepts(other):
            return NotImplemented
        return binary_op(COMPARE[compare_index(op)], self, other)

    def __bool__(self):
        if self._size != 1:
            raise ValueError(f"the truth of an array of shape {self.shape} is ambiguous: use .any() or .all()")
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __index__(self):
        if self._ndim or not UINT8 <= self._dtype <= INT64:
            raise TypeError(f"only a 0-d integer array is an index, not {self.dtype} of shape {self.shape}")
        return self.item()

    # ---- Elementwise methods --------------------------------------------------------------------------

    # Every unary op of the table is a method (`a.isnan()`); those that are not here are added below.

    def exp(self):
        return unary_op(UNARY["exp"], self)

    def log(self):
        return unary_op(UNARY["log"], self)

    def tanh(self):
        return unary_op(UNARY["tanh"], self)

    def sigmoid(self):
        return unary_op(UNARY["sigmoid"], self)

    def relu(self):
        return unary_op(UNARY["relu"], self)

    def sqrt(self):
        return unary_op(SQRT, self)

    def maximum(self, other):
        return binary_op(BINARY["maximum"], self, other)

    def minimum(self, other):
        return binary_op(BINARY["minimum"], self, other)

    def where(self, condition, other):
        """self where condition else other"""
        return where_op(condition, self, other)

    def clip(self, min=None, max=None):
        """Values below min become min, above max max; NaN stays."""
        low = self if min is None else self.maximum(min)
        return low if max is None else low.minimum(max)

    # ---- Reductions --------------------------------------------------------------------------

    def sum(self, axis=None, keepdims=False):
        return reduce_op(REDUCE["sum"], self, axis, keepdims)

    def prod(self, axis=None, keepdims=False):
        return reduce_op(REDUCE["prod"], self, axis, keepdims)

    def max(self, axis=None, keepdims=False):
        return reduce_op(REDUCE["max"], self, axis, keepdims)

    def min(self, axis=None, keepdims=False):
        return reduce_op(REDUCE["min"], self, axis, keepdims)

    def any(self, axis=None, keepdims=False):
        return reduce_op(REDUCE["any"], self, axis, keepdims)

    def all(self, axis=None, keepdims=False):
        return reduce_op(REDUCE["all"], self, axis, keepdims)

    def mean(self, axis=None, keepdims=False):
        """sum / n; NaN for no elements, as in NumPy"""
        cdef NDArray a = to_dtype(self, mean_code(self._dtype))
        cdef double count = count_over(a, axis)
        cdef NDArray out = binary_op(DIVIDE, reduce_op(REDUCE["sum"], a, axis, keepdims), count)
        return to_dtype(out, self._dtype) if self._dtype >= FLOAT16 else out

    def var(self, axis=None, correction=0, keepdims=False):
        """Mean squared distance from the mean, over n - correction"""
        cdef NDArray a = to_dtype(self, mean_code(self._dtype))
        centred = a - a.mean(axis, keepdims=True)
        out = (centred * centred).sum(axis, keepdims) / float(max(count_over(a, axis) - correction, 0))
        return to_dtype(out, self._dtype) if self._dtype >= FLOAT16 else out

    def std(self, axis=None, correction=0, keepdims=False):
        cdef NDArray a = to_dtype(self, FLOAT32) if self._dtype >= FLOAT16 else self
        out = unary_op(SQRT, a.var(axis, correction, keepdims))
        return out if a is self else to_dtype(out, self._dtype)

    def argmax(self, axis=None, keepdims=False):
        return arg_reduce_op(ARG_REDUCE["argmax"], self, axis, keepdims)

    def argmin(self, axis=None, keepdims=False):
        return arg_reduce_op(ARG_REDUCE["argmin"], self, axis, keepdims)

    def cumsum(self, axis=None):
        return scan_op(SCAN["cumsum"], self, axis)

    def softmax(self, axis=-1):
        return last_axis_op(SOFTMAX, self, axis)

    def log_softmax(self, axis=-1):
        return last_axis_op(LOG_SOFTMAX, self, axis)

    def logsumexp(self, axis=None, keepdims=False):
        out = last_axis_op(LOGSUMEXP, self, axis)
        if not keepdims:
            return out
        axes = normal_axes("logsumexp", axis, self._ndim)
        return out.reshape(tuple([1 if i in axes else n for i, n in enumerate(self.shape)]))

    # ---- Further methods: functions of the modules --------------------------------------------------------------------------

    def pad(self, axes):
        """Zeros around: axes = ((before, after), ...) per axis."""
        from needle_ndarray.manipulation import pad
        return pad(self, axes)

    def take(self, indices, axis=None):
        """Entries at integer positions along an axis."""
        from needle_ndarray.indexing import take
        return take(self, indices, axis=axis)

    def matmul(self, other):
        return self @ other

    # ---- Interop --------------------------------------------------------------------------

    def numpy(self):
        """A copy as numpy.ndarray; of bfloat16, which NumPy does not have, as float32."""
        return host_values(self)

    def item(self):
        """The only element as a Python number."""
        if self._size != 1:
            raise ValueError(f"item: expected one element, shape {self.shape} has {self._size}")
        if self._ptr is NULL or self._backend.listener is not None and hears_numbers(self._backend.listener):
            return host_values(self).item()
        if self._dtype == FLOAT32:
            return (<float*> self._ptr)[0]
        if self._dtype == FLOAT64:
            return (<double*> self._ptr)[0]
        if self._dtype == INT32:
            return (<int*> self._ptr)[0]
        if self._dtype == INT64:
            return (<long long*> self._ptr)[0]
        if self._dtype == UINT8:
            return (<unsigned char*> self._ptr)[0]
        if self._dtype >= FLOAT16:
            return widen_one(self._dtype == BFLOAT16, (<unsigned short*> self._ptr)[0])
        return bool((<unsigned char*> self._ptr)[0])

    def tolist(self):
        """Nested lists of Python numbers."""
        return host_values(self).tolist()

    def __array__(self, dtype=None, copy=None):
        if self._ptr is NULL or copy or self._dtype == BFLOAT16:
            if copy is False:
                what = "a bfloat16 array" if self._dtype == BFLOAT16 else f"an array on {self.device}"
                raise ValueError(f"cannot view {what} as a NumPy array without a copy")
            values = host_values(self)
        else:
            values = np.asarray(memoryview(self)) if self._size else np.empty(self.shape, self.dtype.numpy)
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_namespace__(self, *, api_version=None):
        import needle_ndarray
        return needle_ndarray

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef Py_ssize_t* dims
        cdef int i
        if self._backend.listener is not None:
            self._backend.listener.heard("share", (self,))
        if self._ptr is NULL and self._size:
            raise BufferError(f"memory on {self.device} is not on the host: use .numpy()")
        if self._dtype == BFLOAT16:
            raise BufferError("bfloat16 has no format in the buffer protocol: .numpy() widens, needle_ndarray.words gives the bits")
        if not has_order(self, flags):
            raise BufferError(f"the array is not compact (strides {self.strides}), but contiguous memory was asked for:"
                              " use .compact()")
        dims = <Py_ssize_t*> malloc((2 * self._ndim + 1) * sizeof(Py_ssize_t))
        if dims is NULL:
            raise MemoryError("no memory for the layout of a buffer")
        for i in range(self._ndim):
            dims[i], dims[self._ndim + i] = self._shape[i], self._strides[i] * itemsize(self._dtype)
        view.obj, view.buf, view.internal = self, self._ptr, dims
        view.len, view.itemsize, view.readonly = self._size * itemsize(self._dtype), itemsize(self._dtype), 0
        view.format = format_of(self._dtype) if flags & PyBUF_FORMAT else NULL
        view.ndim = self._ndim
        view.shape = dims if flags & PyBUF_ND else NULL
        view.strides = dims + self._ndim if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        if flags & PyBUF_WRITABLE:
            self.mark_written()         # the consumer will write, and will not tell

    def __releasebuffer__(self, Py_buffer* view):
        free(view.internal)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        from needle_ndarray.interop import to_dlpack
        if self._backend.listener is not None:
            self._backend.listener.heard("share", (self,))
        return to_dlpack(self, max_version, dl_device, copy, stream)

    def __dlpack_device__(self):
        from needle_ndarray.interop import dlpack_device
        return dlpack_device(self)

    def __reduce__(self):
        if self._dtype == BFLOAT16:
            return rebuild, (self._backend.to_host(self), self.device.name, "bfloat16")
        return rebuild, (self.numpy(), self.device.name)

    def __repr__(self):
        values, threshold = shown(self)
        text = np.array2string(values, separator=", ", prefix="NDArray(", threshold=threshold, edgeitems=3)
        return f"NDArray({text}, dtype={self.dtype}, device={self.device})"

    def _repr_html_(self, kind="NDArray", made=""):
        """What a notebook shows: what it is, shape, dtype, device, how it was made, and a map of the values."""
        from needle_ndarray.notebook import array_html
        return array_html(self, kind, made)

    def __str__(self):
        values, threshold = shown(self)
        return np.array2string(values, threshold=threshold, edgeitems=3)

    def __format__(self, str spec not None):
        if self._size == 1 and spec:
            return format(self.item(), spec)
        try:
            return format(str(self), spec)
        except ValueError:
            raise ValueError(f"format {spec!r}: expected one element, shape {self.shape} has {self._size};"
                             " np.array2string(a.numpy(), precision=2) prints many") from None


# ---- Making arrays --------------------------------------------------------------------------

cdef NDArray empty_compact(Backend backend, int dtype, int ndim, const Py_ssize_t* shape):
    """A new compact array, uninitialised; the shape was checked."""
    cdef NDArray out = NDArray.__new__(NDArray)
    cdef Py_ssize_t size = 1
    cdef int i
    out._backend = backend
    out._dtype = dtype
    if ndim <= INLINE:
        out._ndim = ndim
    else:
        out.set_ndim(ndim)
    for i in range(ndim - 1, -1, -1):
        out._shape[i], out._strides[i] = shape[i], size
        size *= shape[i]
    out._size = size
    out._buffer = backend.allocate(out._size * itemsize(dtype))
    if isinstance(out._buffer, Buffer):
        if (<Buffer> out._buffer).nbytes < out._size * itemsize(dtype):
            raise ValueError(f"backend {backend.name}: allocate({out._size * itemsize(dtype)}) returned {out._buffer.nbytes} bytes")
        if (<Buffer> out._buffer).data.shape[0]:
            out._ptr = <char*> &(<Buffer> out._buffer).data[0]
    return out


cdef NDArray view_of(NDArray base, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t shift):
    """Another view of base's buffer, `shift` elements further on; the caller made sure that it stays inside."""
    cdef NDArray out = NDArray.__new__(NDArray)
    cdef int i
    out._backend = base._backend
    out._buffer = base._buffer
    out._dtype = base._dtype
    if ndim <= INLINE:
        out._ndim = ndim
    else:
        out.set_ndim(ndim)
    for i in range(ndim):
        out._shape[i] = shape[i]
        out._strides[i] = strides[i]
    out.measure()
    if out._size == 0:
        shift = 0
    out._offset = base._offset + shift
    if base._ptr is not NULL:
        out._ptr = base._ptr + shift * itemsize(base._dtype)
    return out


cdef NDArray cast_copy(NDArray a, int dtype):
    """A compact copy of the given dtype"""
    cdef NDArray out = empty_compact(a._backend, dtype, a._ndim, a._shape)
    a._backend.copy(a, out)
    return out


cdef NDArray compact_copy(NDArray a):
    return cast_copy(a, a._dtype)


cdef object backend_function = None
cdef object device_class = None


cdef Backend find_backend(object device):
    """Of a Device, a name or None; without a call where it has been used before"""
    global backend_function, device_class
    if backend_function is None:
        from needle_ndarray.devices import Device, backend_of
        backend_function, device_class = backend_of, Device
    found = device._backend if type(device) is device_class else None
    return backend_function(device) if found is None else found


def make_array(values, dtype, device):
    """A new compact array; dtype None keeps what `values` have, but makes Python numbers and float64 float32."""
    cdef Backend backend
    cdef NDArray a
    if isinstance(values, NDArray):
        a = <NDArray> values
        backend = a._backend if device is None else find_backend(device)
        a = compact_copy(a) if dtype is None else a.astype(dtype)
        return a if backend is a._backend else a.to(device)
    backend = find_backend(device)
    try:
        host = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"array: {error}") from None
    if dtype is None and (host.dtype == np.float64 or not isinstance(values, (np.ndarray, np.generic))):
        dtype = "float32" if host.dtype.kind != "b" else "bool"
    return from_host(host, backend, dtype)


def rebuild(values, device_name, dtype=None):
    """What unpickling calls: on the device it was on, or the default one where that is missing."""
    from needle_ndarray.devices import device
    where = device(device_name)
    where = where if where.enabled() else None
    return from_host(values, find_backend(where)) if dtype is None else array_of_words(values, to_dtype_object(dtype), where)


def array_of_words(values, dtype, device):
    """A new array of a numpy.ndarray of the dtype's words, dtype.storage."""
    cdef NDArray out = NDArray.make(values.shape, device=device, dtype=dtype)
    out._backend.from_host(np.ascontiguousarray(values, dtype.storage).reshape(values.shape), out)
    return out


cdef object host_values(NDArray a):
    """A copy as numpy.ndarray, bfloat16 widened"""
    values = a._backend.to_host(a)
    if a._dtype == BFLOAT16:
        from needle_ndarray.halves import widened
        return widened(values)
    return values


cdef inline int mean_code(int dtype) noexcept:
    """What a mean is computed in"""
    return FLOAT32 if dtype >= FLOAT16 else dtype if dtype >= FLOAT32 else FLOAT64


# ---- What methods ask --------------------------------------------------------------------------

cdef inline bint accepts(object other):
    """Whether an operator of ours knows what to do; else Python asks the other operand (a Tensor, say)."""
    return isinstance(other, NDArray) or is_scalar(other) or is_array_like(other)


cdef inline int compare_index(int op):
    return 0 if op == Py_LT else 1 if op == Py_LE else 2 if op == Py_EQ else 3 if op == Py_NE else 4 if op == Py_GT else 5


cdef Py_ssize_t count_over(NDArray a, object axis) except -1:
    return a._size if axis is None else math.prod([a._shape[i] for i in normal_axes("mean", axis, a._ndim)])


cdef tuple shown(NDArray a):
    """What to print, and from how many elements on NumPy leaves out the middle; of a device's memory only the edges come"""
    if a._ptr is not NULL or a._size <= 1000:
        return np.asarray(a), 1000
    from needle_ndarray.manipulation import concatenate
    for axis in range(a._ndim):
        if a._shape[axis] > 7:                  # three at each end, and one that is left out
            rest = (slice(None),) * axis
            a = concatenate([a[rest + (slice(4),)], a[rest + (slice(-3, None),)]], axis)
    return a.numpy(), 0


cdef char* format_of(int dtype):
    if dtype == FLOAT32:
        return b"f"
    if dtype == FLOAT64:
        return b"d"
    if dtype == INT32:
        return b"i"
    if dtype == UINT8:
        return b"B"
    if dtype == FLOAT16:
        return b"e"
    return b"q" if dtype == INT64 else b"?"


@cython.no_gc
@cython.freelist(8)
cdef class UnaryMethod:
    """A unary op as a method: what `a.isnan` is, and `NDArray.isnan` without an array."""

    cdef Op op
    cdef NDArray array

    def __cinit__(self, Op op, NDArray array):
        self.op, self.array = op, array

    def __get__(self, array, owner):
        return self if array is None else UnaryMethod(self.op, array)

    def __call__(self, *args, out=None):
        if self.array is None and len(args) == 1:
            return unary_op(self.op, <NDArray?> args[0], out)
        if self.array is None or args:
            raise TypeError(f"{self.op.name}: expected no argument but out, got {len(args)}")
        return unary_op(self.op, self.array, out)

    def __repr__(self):
        return f"<method {self.op.name} of NDArray: {self.op.formula}>"

    @property
    def __name__(self):
        return self.op.name

    @property
    def __doc__(self):
        return f"{self.op.name}(x): {self.op.formula}"

    @property
    def __signature__(self):
        from inspect import Parameter, Signature
        names = [("self", Parameter.POSITIONAL_ONLY)] if self.array is None else []
        names = [Parameter(name, kind) for name, kind in names]
        return Signature([*names, Parameter("out", Parameter.KEYWORD_ONLY, default=None)])


cdef int add_unary_methods() except -1:
    """Put the methods where a lookup finds them: with a `__getattr__`, a call of any method would take 30 ns more."""
    cdef dict methods = <dict> (<PyTypeObject*> NDArray).tp_dict
    for op in UNARY.values():
        methods.setdefault(op.name, UnaryMethod(op, None))
    PyType_Modified(NDArray)
    return 0


add_unary_methods()
