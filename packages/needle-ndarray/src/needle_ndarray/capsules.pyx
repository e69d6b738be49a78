"""What compiled code of other packages asks of an array, as C functions in capsules: no Python call, no header of ours."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New

from needle_ndarray.buffer cimport Buffer
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport itemsize

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


cdef Py_ssize_t nbytes_of(PyObject* a) noexcept:
    return (<NDArray> a)._size * itemsize((<NDArray> a)._dtype) if isinstance(<object> a, NDArray) else -1


cdef int code_of(PyObject* a) noexcept:
    return (<NDArray> a)._dtype if isinstance(<object> a, NDArray) else -1


cdef long long version_of(PyObject* a) noexcept:
    if isinstance(<object> a, NDArray) and isinstance((<NDArray> a)._buffer, Buffer):
        return (<Buffer> (<NDArray> a)._buffer).version
    return -1


cdef int is_sole_owner(PyObject* a) noexcept:
    """Whether nobody else sees a write to `a`: one reference to it, one to its buffer, and no element stands for several"""
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


#: The bytes of an array: a capsule around a Py_ssize_t (*)(PyObject*); -1: not an NDArray.
NBYTES = PyCapsule_New(<void*> nbytes_of, "needle_ndarray.nbytes", NULL)
#: The code of its dtype: a capsule around an int (*)(PyObject*); -1: not an NDArray.
DTYPE_CODE = PyCapsule_New(<void*> code_of, "needle_ndarray.dtype_code", NULL)
#: Its `version`: a capsule around a long long (*)(PyObject*); -1: ask the object.
VERSION = PyCapsule_New(<void*> version_of, "needle_ndarray.version", NULL)
#: Whether nobody else sees a write to it: a capsule around an int (*)(PyObject*).
SOLE_OWNER = PyCapsule_New(<void*> is_sole_owner, "needle_ndarray.sole_owner", NULL)
