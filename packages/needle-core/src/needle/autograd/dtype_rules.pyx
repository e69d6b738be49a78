"""Which dtype a tensor gets: that of numbers and lists, and that of results where integers meet floats."""

from cpython.object cimport PyObject

import needle_ndarray as array_api
import numpy as np
from needle_ndarray.extension import DTYPES

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.recording cimport realized
from needle.autograd.values cimport Op, Value

cdef Arrays arrays = load_arrays()
cdef object ndarray_type = array_api.NDArray
cdef object default_dtype = None        # what set_default_dtype was given
cdef bint numpy_backend = array_api.default_device() == array_api.cpu_numpy()      # NEEDLE_BACKEND=np
FLOAT32 = array_api.float32.code
cdef int FLOAT64 = array_api.float64.code


cpdef object get_default_dtype():
    """What Python numbers, float64 arrays, and functions of integers become: float32, or float64 with NEEDLE_BACKEND=np, unless
    `set_default_dtype` says otherwise."""
    if default_dtype is not None:
        return default_dtype
    return array_api.float64 if numpy_backend else array_api.float32


def set_default_dtype(dtype):
    """Make Python numbers and float64 arrays float32 or float64 when tensors are made of them; None: as the backend says."""
    global default_dtype, settled_from
    chosen = None if dtype is None else array_api.dtype(dtype)
    if chosen is not None and (not chosen.is_float or chosen.is_half):
        raise TypeError(f"set_default_dtype: {dtype}: expected float32 or float64")
    default_dtype = chosen
    if chosen is None and numpy_backend:
        settled_from = len(DTYPES)      # NumPy's rules hold
    else:
        settled_from = FLOAT32 if chosen == "float64" else array_api.float64.code


set_default_dtype(None)


def result_dtype(*dtypes):
    """The dtype of an op on tensors: NumPy's, but integers take that of the floats among them.

    >>> import needle_ndarray as nd
    >>> result_dtype(nd.int64, nd.float32), result_dtype(nd.float32, nd.float64), result_dtype(nd.uint8, nd.int32)
    ('float32', 'float64', 'int32')
    """
    floats = [d for d in dtypes if d.is_float]
    return array_api.result_type(*(floats if floats and settled_from < len(DTYPES) else dtypes))


cdef object to_array(object values, object device, object dtype):
    """A new NDArray for a Tensor; see `Tensor` for the dtype"""
    if dtype is None and not isinstance(values, ndarray_type):
        host = np.asarray(values)
        if host.dtype == np.float64 or (host.dtype.kind in "iu" and not isinstance(values, (np.ndarray, np.generic))):
            dtype = get_default_dtype()
        return array_api.array(host, dtype=dtype, device=device)
    return array_api.array(values, dtype=dtype, device=device)


cdef object settled(Op op, object data, tuple inputs):
    """A result in the dtype of tensors: integers take that of the floats beside them, else the default; see `result_dtype`"""
    cdef int integers = 0, floats = 0, code, wanted
    cdef list given
    if type(data) is tuple:
        return tuple([settled(op, d, inputs) for d in data])
    code = arrays.dtype_code(<PyObject*> data)
    if code < settled_from or code > FLOAT64:           # halves come of halves, and of bytes beside them
        return data
    given = [realized(<Value> x) for x in inputs]
    for x in given:
        for part in x if type(x) is tuple else (x,):
            if arrays.dtype_code(<PyObject*> part) < FLOAT32:
                integers += 1
            else:
                floats = max(floats, arrays.dtype_code(<PyObject*> part))
    wanted = floats if floats else get_default_dtype().code
    if floats > FLOAT64:                                # int64 beside a half made float64
        return data if integers == 0 else data.astype(result_dtype(*[x.dtype for x in given if type(x) is not tuple]))
    if integers == 0 or code == wanted:
        return data
    if code > wanted:
        return data.astype(DTYPES[wanted])
    # bytes computed in float32, where the default is float64: once more, without the rounding; masks stay masks
    alone = len(given) == 1 or all([x.dtype == "bool" for x in given])
    given = [x.astype("float64") if alone or x.dtype == "uint8" else x for x in given]
    return type(op).compute(op, *given).astype("float64", copy=False)
