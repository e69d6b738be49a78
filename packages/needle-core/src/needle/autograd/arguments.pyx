"""What ops are given besides values: constants, axes and keys, in a form that nobody can change later."""

import operator

import needle_ndarray as array_api
import numpy as np
from needle_ndarray.extension import bounded

from needle.autograd.dtype_rules cimport get_default_dtype
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op, Value, make_leaf

cdef object ndarray_type = array_api.NDArray


cdef tuple as_values(Op op, tuple args):
    """The inputs of an op: Values as they are, arrays and numbers as constants on the device of the first Value"""
    like = None
    for x in args:
        if isinstance(x, Value):
            like = x
            break
    if like is None:
        raise TypeError(f"{type(op).__name__}: expected a Tensor, got {', '.join([type(x).__name__ for x in args]) or 'nothing'}")
    return tuple([x if isinstance(x, Value) else as_constant(x, like, type(op).__name__) for x in args])


cpdef object as_constant(object x, object like, str what):
    """x as a Tensor: itself, or a constant on the device of `like`, in its dtype where that is a float and x are numbers."""
    if isinstance(x, Value):
        return x
    if isinstance(x, ndarray_type):
        return make_leaf(Tensor, x, False)
    if isinstance(x, (float, int, np.number, np.bool_)):
        number = x.item() if isinstance(x, np.generic) else x
        dtype = like.dtype if like.dtype.is_float or isinstance(number, int) else get_default_dtype()
        if dtype == "bool" and not isinstance(number, bool):
            dtype = "int64"
        return make_leaf(Tensor, array_api.full((), number, dtype=dtype, device=like.device), False)
    if isinstance(x, (np.ndarray, list, tuple)):
        host = np.asarray(x)
        bends = like.dtype.is_float and (host.dtype == np.float64 or not isinstance(x, np.ndarray) and host.dtype.kind in "iu")
        return Tensor(x, device=like.device, dtype=like.dtype if bends else None, requires_grad=False)
    raise TypeError(f"{what}: expected a Tensor, an array or a number, got {type(x).__name__}")


cpdef object frozen(object axes):
    """Axes or a shape that nobody can change later: an int, None or a tuple of ints; anything else is for the op to refuse."""
    if axes is None or type(axes) is int:
        return axes
    if type(axes) is tuple:
        for n in <tuple> axes:
            if type(n) is not int:
                break
        else:
            return axes
    if not isinstance(axes, (tuple, list)) and hasattr(axes, "__index__") and not getattr(axes, "ndim", 0):
        return operator.index(axes)
    if hasattr(axes, "__iter__") and not isinstance(axes, (str, bytes, Value)):
        return tuple([operator.index(n) if hasattr(n, "__index__") else n for n in bounded("axes or a shape", axes, 64)])
    return axes


cpdef bint is_plain_key(object key):
    """Whether an index holds ints, None, ... and slices of them alone: nothing that could change later."""
    if type(key) is not tuple:
        return is_plain(key)
    for item in <tuple> key:
        if not is_plain(item):
            return False
    return True


cdef bint is_plain(object item):
    if type(item) is slice:
        return is_fixed(item.start) and is_fixed(item.stop) and is_fixed(item.step)
    return item is Ellipsis or is_fixed(item)


cdef inline bint is_fixed(object item):
    return item is None or type(item) is int or type(item) is bool
