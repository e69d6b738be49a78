"""Guards: places that a captured function may read, and what was found there. A plan is right while all of them hold."""

cimport cython
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memcmp

import sys
from types import CellType, FunctionType, MethodType

import numpy as np

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    #define needle_dict_version(dict) (((PyDictObject*) (dict))->ma_version_tag)
    #else
    #define needle_dict_version(dict) 0
    #endif
    """
    unsigned long long dict_version "needle_dict_version" (PyObject*)  # another number after each change; 0: not known

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object, object) except? NULL
    ctypedef struct PyFrameObject:
        pass
    ctypedef struct PyCodeObject:
        pass
    ctypedef int (*Py_tracefunc)(PyObject*, PyFrameObject*, int, PyObject*) except -1
    void PyEval_SetProfile(Py_tracefunc, PyObject*)
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyTrace_CALL, PyTrace_C_CALL
    PyObject* PyCell_GET(object)
    PyObject* PyFunction_GET_CODE(object)

cdef enum Kind:
    ITEM            # container[key], of a dict or something with its `get`
    ATTRIBUTE       # container.key
    ENTRIES         # all keys and values of a dict; the entries of a list, a deque or a set, in their order
    CONTENT         # the bytes of a NumPy array, a bytearray, ...
    CELL            # a variable of the function around
    CODE            # of a function
    COUNT           # how many entries a dict has: an attribute of the object may hide one of its class

#: Stands for an entry or attribute that is not there.
MISSING = object()
KINDS = {"item": ITEM, "attribute": ATTRIBUTE, "entries": ENTRIES, "content": CONTENT, "count": COUNT}


@cython.final
cdef class Guard:
    """Guard(kind, container, key, what): a place, what is found there now, and how to name it."""

    def __init__(self, str kind not None, container, key, str what not None):
        self.kind, self.container, self.key, self.what = KINDS[kind], container, key, what
        self.expected = self.found()
        self.is_dict, self.version = type(container) is dict, 0
        if self.kind == ATTRIBUTE and type(container) is CellType and key == "cell_contents":
            self.kind = CELL
        if self.kind == ATTRIBUTE and type(container) is FunctionType and key == "__code__":
            self.kind = CODE

    def found(self):
        """What is there now."""
        if self.kind == ITEM:
            return self.container.get(self.key, MISSING)
        if self.kind == ATTRIBUTE or self.kind == CELL or self.kind == CODE:
            return attribute(self.container, self.key)
        if self.kind == CONTENT:
            return content(self.container)
        if self.kind == COUNT:
            return len(self.container)
        if isinstance(self.container, dict):
            return tuple(self.container), tuple(self.container.values())
        return tuple(self.container)

    cpdef bint holds(self) except -1:
        """Whether what is there is still the same object, or a value that cannot be told from it."""
        cdef unsigned long long version
        if not self.is_dict:
            return self.holds_now()
        version = dict_version(<PyObject*> self.container)
        if version != 0 and version == self.version:
            return True                 # nobody has written to the dict since it held
        if not self.holds_now():
            return False
        self.version = version
        return True

    cdef bint holds_now(self) except -1:
        cdef PyObject* found
        if self.kind == CELL:
            found = PyCell_GET(self.container)
            if found is NULL:
                return self.expected is MISSING
            return found is <PyObject*> self.expected or same(<object> found, self.expected)
        if self.kind == CODE:
            return PyFunction_GET_CODE(self.container) is <PyObject*> self.expected
        if self.kind == ENTRIES:
            return self.same_entries()
        if self.kind == COUNT and self.is_dict:
            return PyDict_Size(self.container) == <Py_ssize_t> self.expected
        if self.kind == ITEM and self.is_dict:
            found = PyDict_GetItemWithError(self.container, self.key)
            if found is NULL:
                return self.expected is MISSING
            return found is <PyObject*> self.expected or same(<object> found, self.expected)
        return same(self.found(), self.expected)

    cdef bint same_entries(self) except -1:
        cdef Py_ssize_t i = 0, at = 0
        cdef PyObject* key
        cdef PyObject* value
        if isinstance(self.container, list):
            if PyList_GET_SIZE(self.container) != PyTuple_GET_SIZE(self.expected):
                return False
            while i < PyList_GET_SIZE(self.container) and i < PyTuple_GET_SIZE(self.expected):
                if not alike(<PyObject*> PyList_GET_ITEM(self.container, i), <PyObject*> PyTuple_GET_ITEM(self.expected, i)):
                    return False
                i += 1
            return True
        if not self.is_dict:
            return same(self.found(), self.expected)
        keys, values = self.expected
        if PyDict_Size(self.container) != PyTuple_GET_SIZE(keys):
            return False
        while i < PyTuple_GET_SIZE(keys) and PyDict_Next(self.container, &at, &key, &value):
            if not alike(key, <PyObject*> PyTuple_GET_ITEM(keys, i)) or not alike(value, <PyObject*> PyTuple_GET_ITEM(values, i)):
                return False
            i += 1
        return i == PyTuple_GET_SIZE(keys)

    def __repr__(self):
        return f"<guard: {self.what} is {self.expected!r:.60}>"


cdef inline bint alike(PyObject* a, PyObject* b) except -1:
    return a is b or same(<object> a, <object> b)


cpdef bint same(object a, object b) except -1:
    """Whether a function that is given one instead of the other does the same: 1 is not 1.0, 0.0 is not -0.0, NaN is NaN."""
    cdef double x, y
    cdef Py_ssize_t i
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is float:
        x, y = a, b
        return memcmp(&x, &y, sizeof(double)) == 0
    if isinstance(a, (bool, int, str, bytes, range, np.dtype)):
        return bool(a == b)
    if isinstance(a, tuple):
        if len(a) != len(b):
            return False
        for i in range(len(a)):
            if not same(a[i], b[i]):
                return False
        return True
    if isinstance(a, (complex, np.generic)):
        return np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return False


def first_difference(list a not None, list b not None):
    """The number of the first call (verb, backend, args, line, function) that does not do the same; None if all do."""
    cdef Py_ssize_t i
    for i in range(min(len(a), len(b))):
        x, y = a[i], b[i]
        if x[0] != y[0] or x[1] is not y[1] or not same_argument(x[2], y[2]) or not same_function(x[4], y[4]):
            return i
    return None


cdef bint same_function(object a, object b) except -1:
    """Whether two functions do the same: one object, one method, or a lambda made again with the same variables around it."""
    if a is b or isinstance(a, MethodType) and a == b:
        return True
    if not isinstance(a, FunctionType) or not isinstance(b, FunctionType) or a.__code__ is not b.__code__:
        return False
    around = [tuple([attribute(cell, "cell_contents") for cell in f.__closure__ or ()]) for f in (a, b)]
    return same(around[0], around[1]) and same(a.__defaults__, b.__defaults__)


cdef bint same_argument(object a, object b) except -1:
    """`same`, where lists are compared by their entries too."""
    cdef Py_ssize_t i
    if a is b:
        return True
    if not isinstance(a, (tuple, list)):
        return same(a, b)
    if type(a) is not type(b) or len(a) != len(b):
        return False
    for i in range(len(a)):
        if not same_argument(a[i], b[i]):
            return False
    return True


def attribute(container, str name not None):
    """An attribute, or MISSING."""
    try:
        return getattr(container, name)
    except (AttributeError, ValueError):    # an empty cell is a ValueError
        return MISSING


def content(container):
    """What an object's memory says, as something to compare."""
    if isinstance(container, np.ndarray):
        return container.shape, container.dtype, container.tobytes()
    return bytes(container)


# ---- Which functions are called -----------------------------------------------------------------------------------------------

cdef class Profile:
    """Sees the functions that this thread calls, as `sys.setprofile` would, without Python code for each of them.

    learn(frame) : told of code that is seen for the first time; whether C functions that it calls are of interest, None to be
        asked again
    called(frame, function) : told of these
    """

    cdef object learn, called
    cdef dict known                     # {id of a code object: whether C functions that it calls are of interest}
    cdef object before
    cdef readonly list codes            # held, so that ids stay theirs

    def __init__(self, learn, called):
        self.learn, self.called, self.known, self.codes = learn, called, {}, []

    def __enter__(self):
        self.before = sys.getprofile()
        PyEval_SetProfile(trace, <PyObject*> self)
        return self

    def __exit__(self, *exception):
        if self.before is not None and not callable(self.before):
            self.before.enable()        # a profiler written in C, which puts itself back
        else:
            sys.setprofile(self.before)
        self.before = None

    cdef int find(self, object frame, object code, bint* interesting) except -1:
        """Look code up; tell of it where it is new."""
        found = self.known.get(id(code))
        if found is None:
            found = self.learn(frame)
            if found is not None:
                self.codes.append(code)
                self.known[id(code)] = found
        interesting[0] = found is True
        return 0


cdef int trace(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) except -1:
    cdef bint interesting
    cdef PyObject* code
    if what != PyTrace_CALL and what != PyTrace_C_CALL:
        return 0
    code = <PyObject*> PyFrame_GetCode(frame)
    try:
        (<Profile> self).find(<object> <PyObject*> frame, <object> code, &interesting)
    finally:
        Py_DECREF(<object> code)
    if interesting and what == PyTrace_C_CALL:
        (<Profile> self).called(<object> <PyObject*> frame, <object> argument)
    return 0
