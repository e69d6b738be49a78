"""The class Tensor: most methods are one line that names the op."""

cimport cython
from cpython.object cimport PyObject

import operator

import needle_ndarray as array_api
import numpy as np
from needle_ndarray.extension import active_recorder

from needle._hints import Size, warn_of_identity

from needle.autograd.arguments cimport as_constant
from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.backward cimport backward
from needle.autograd.dtype_rules cimport FLOAT32, to_array
from needle.autograd.modes cimport means_torch, modes_here
from needle.autograd.naming cimport show_in_autograd
from needle.autograd.operators cimport operators, with_scalar
from needle.autograd.recording cimport apply, note_dropped, note_used, read, realize
from needle.autograd.tracing cimport handed_out, note_read, note_write
from needle.autograd.values cimport Value, assign, is_unknown, looks, make_leaf

from needle.autograd.dtype_rules import result_dtype

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        PyObject* tp_dict
    void PyType_Modified(type)

cdef Arrays arrays = load_arrays()
cdef object ndarray_type = array_api.NDArray


cdef inline bint is_number(object x):
    return isinstance(x, float) or isinstance(x, int) or isinstance(x, np.number)


cdef class Tensor(Value):
    """Tensor(array, device=None, *sizes, dtype=None, requires_grad=None)
--

    An array that remembers how it was made.

    Parameters
    ----------
    array : numbers, (nested) lists, a NumPy array, an NDArray or a Tensor (whose data is then shared)
    device : where it lives; default: that of `array`, or `needle.default_device()`
    dtype : default: that of `array`, but Python numbers and float64 arrays become `needle.get_default_dtype()`, float32
        (float64 with NEEDLE_BACKEND=np)
    requires_grad : whether `backward` computes its gradient; floats only; within `needle.compat("torch")` only where asked for

    Within `needle.compat("torch")` sizes may be given instead, `Tensor(2, 3)`: PyTorch's uninitialised tensor, here of zeros.

    >>> import needle as ndl
    >>> x = ndl.Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x * x).sum().backward()
    >>> x.grad
    needle.Tensor([[2., 4.],
                   [6., 8.]], dtype=float32, device=cpu(), op=EWiseAdd)
    """

    __array_ufunc__ = None      # NumPy leaves operators with us to us

    @cython.embedsignature(False)       # Cython's puts the * in the wrong place
    def __init__(self, array, device=None, *sizes, dtype=None, requires_grad=None):
        if sizes or type(device) is int or type(array) is int and device is None and dtype is None and requires_grad is None:
            array, device = as_sizes(array, device, sizes), None
        if isinstance(array, Tensor):
            data = shared = read(<Tensor> array)
            if device is not None:
                data = data.to(device)
            if dtype is not None:
                data = data.astype(dtype, copy=False)
            if data is not shared:
                note_read(<Tensor> array)
        else:
            data = to_array(array, device, dtype)
        if self.op is not None or self.array is not None:   # only now: what runs inside `array` may have called this
            raise TypeError("Tensor.__init__: the tensor exists already; make a new one")
        self.array = data
        self.stamp = arrays.clock[0]
        if requires_grad is None:
            requires_grad = type(self) is not Tensor or not means_torch(modes_here())      # a Parameter is trained
        self.wants_grad = requires_grad and data.dtype.is_float

    # ---- Looking --------------------------------------------------------------------------

    @property
    def shape(self):
        return self.spec[0] if self.array is None and self.spec is not None else realize(self).shape

    @property
    def dtype(self):
        return self.spec[1] if self.array is None and self.spec is not None else realize(self).dtype

    @property
    def device(self):
        return self.spec[2] if self.array is None and self.spec is not None else realize(self).device

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return Size(count(self), self.shape)

    @property
    def nbytes(self):
        return count(self) * self.dtype.itemsize

    @property
    def data(self):
        """The same data without a graph; assign a Tensor of the same dtype to replace it."""
        return self.detach()

    @data.setter
    def data(self, value):
        if not isinstance(value, Tensor):
            raise TypeError(f"Tensor.data: expected a Tensor, got {type(value).__name__}")
        if (<Tensor> value).dtype != self.dtype:
            raise TypeError(f"Tensor.data: a {value.dtype} tensor for one of {self.dtype}; convert it with .astype")
        note_read(<Tensor> value)
        assign(self, realize(<Tensor> value))

    @property
    def grad(self):
        global looks
        looks += 1
        if modes_here().used is not NULL:
            note_used((self,), modes_here(), False)
        return self.gradient

    @grad.setter
    def grad(self, value):
        global looks
        looks += 1
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"Tensor.grad: expected a Tensor or None, got {type(value).__name__}")
        if modes_here().used is not NULL:
            note_used((self,), modes_here(), False)
            if value is None and not active_recorder().calls:
                active_recorder().cleared[id(self)] = self
                note_dropped(self, modes_here())
        self.gradient = value

    def numpy(self):
        """A NumPy copy of the values."""
        return handed_out(self).numpy()

    def item(self):
        """The only element, as a Python number."""
        return handed_out(self).item()

    def tolist(self):
        return handed_out(self).tolist()

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("a Tensor's values are copied to NumPy; its NDArray, realize_cached_data(), can be shared")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return handed_out(self).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self):
        return read(self).__dlpack_device__()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        """The value of one integer, for slices and range()."""
        return handed_out(self).__index__()

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __bool__(self):
        """The value of a bool or an integer, of one element; a tensor of floats is an object like any other, and true."""
        return True if self.dtype.is_float and not means_torch(modes_here()) else bool(handed_out(self))

    def __repr__(self):
        text = np.array2string(read(self).numpy(), separator=", ", prefix="needle.Tensor(", threshold=1000, edgeitems=3)
        made = f", op={type(self.op).__name__}" if self.op is not None else ", requires_grad=True" if self.wants_grad else ""
        return f"needle.Tensor({text}, dtype={self.dtype}, device={self.device}{made})"

    def _repr_html_(self):
        """What a notebook shows: shape, dtype, device, how it was made, and a map of the values."""
        made = f"made by {type(self.op).__name__}" if self.op is not None else "requires a gradient" if self.wants_grad else ""
        return read(self)._repr_html_(type(self).__name__, made)

    def __str__(self):
        return str(realize(self))

    def __format__(self, str spec not None):
        return format(realize(self), spec)

    def __hash__(self):
        return object_hash(self)

    def __dir__(self):
        return [name for name in object_dir(self) if hasattr(type(self), name) or name in getattr(self, "__dict__", ())]

    def __richcmp__(self, other, int op):
        if op == 2 or op == 3:
            if means_torch(modes_here()) and (known(other) or is_number(other)):
                return (operators().ops.equal if op == 2 else operators().ops.not_equal)(self, other)
            if self is not other and seems_value(self, other):
                warn_of_identity("==" if op == 2 else "!=", other)
            return (self is other) == (op == 2)
        ops = operators().ops
        return (ops.less, ops.less_equal, None, None, ops.greater, ops.greater_equal)[op](self, other)

    def __reduce__(self):
        kept = getattr(self, "__dict__", None)      # of a subclass in Python
        note_read(self)
        return rebuild, (type(self), realize(self), self.wants_grad), kept

    def __setstate__(self, kept):
        self.__dict__.update(kept)

    def __deepcopy__(self, memo):
        note_read(self)
        cdef Value copy = make_leaf(type(self), realize(self).copy(), self.wants_grad)
        memo[id(self)] = copy
        if getattr(self, "__dict__", None):
            from copy import deepcopy
            copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy

    # ---- Graph --------------------------------------------------------------------------

    def detach(self):
        """The same data, shared, without a graph."""
        return make_leaf(Tensor, read(self), False)

    def clone(self):
        """A copy of the data, recorded."""
        return operators().ops.clone(self)

    def requires_grad_(self, bint wanted=True):
        """Set `requires_grad`; returns the tensor."""
        self.requires_grad = wanted
        return self

    def retain_grad(self):
        """Keep `.grad` of this tensor in backward, even where it is not a leaf; returns the tensor."""
        if modes_here().used is not NULL:
            note_used((self,), modes_here(), False)
        self.retains_grad = True
        return self

    def register_hook(self, hook):
        """Call hook(grad) in backward when this tensor's gradient is known; what it returns, if anything, takes its place.

        Returns a function that removes the hook.
        """
        if not callable(hook):
            raise TypeError(f"register_hook: expected a function, got {type(hook).__name__}")
        if self.hooks is None:
            self.hooks = []
        entry = [hook]
        self.hooks.append(entry)

        def remove():
            if self.hooks is not None and entry in self.hooks:
                self.hooks.remove(entry)
        return remove

    def backward(self, out_grad=None, *, accumulate=None, gradient=None, retain_graph=None, create_graph=None):
        """Compute the gradient of every leaf that requires one, and put it into its `.grad`.

        Parameters
        ----------
        out_grad, gradient : the gradient of this tensor; ones by default
        accumulate : add to the `.grad` that is there instead of replacing it; by default only within `needle.compat("torch")`
        create_graph : whether gradients have a graph of their own; by default unless they accumulate
        retain_graph : of no effect: a graph can always be walked again
        """
        if gradient is not None and out_grad is not None:
            raise TypeError("backward: out_grad and gradient are two names for the same argument")
        cdef bint adds = means_torch(modes_here()) if accumulate is None else accumulate
        cdef bint plain = adds and not create_graph
        backward(self, gradient if out_grad is None else out_grad, adds, plain)

    # ---- Operators --------------------------------------------------------------------------

    def __add__(self, other):
        if isinstance(other, Tensor):
            return apply(operators().add, (self, other))
        if is_number(other):
            return apply(with_scalar(operators().add_scalar, other), (self,))
        return apply(operators().add, (self, other)) if known(other) else NotImplemented

    def __radd__(self, other):
        return self + other

    def __sub__(self, other):
        if is_number(other):
            return apply(with_scalar(operators().add_scalar, -(other.item() if isinstance(other, np.generic) else other)), (self,))
        if isinstance(other, Tensor):
            return apply(operators().add, (self, negated(<Tensor> other, self)))
        return self - as_constant(other, self, "subtract") if known(other) else NotImplemented

    def __rsub__(self, other):              # also where self is of a subclass, as a Parameter is
        if isinstance(other, Tensor):
            return Tensor.__sub__(other, self)
        if not is_number(other):
            return as_constant(other, self, "subtract") - self if known(other) else NotImplemented
        if not has_floats(self) and not isinstance(other, (int, np.integer)):
            return apply(with_scalar(operators().mul_scalar, -1.0), (self,)) + other     # bytes have no sign of their own
        return apply(operators().negate, (self,)) + other

    def __mul__(self, other):
        if isinstance(other, Tensor):
            return apply(operators().multiply, (self, other))
        if is_number(other):
            return apply(with_scalar(operators().mul_scalar, other), (self,))
        return apply(operators().multiply, (self, other)) if known(other) else NotImplemented

    def __rmul__(self, other):
        return self * other

    def __truediv__(self, other):
        if isinstance(other, Tensor):
            return apply(operators().divide, (self, other))
        if is_number(other):
            return apply(with_scalar(operators().div_scalar, other), (self,))
        return apply(operators().divide, (self, other)) if known(other) else NotImplemented

    def __rtruediv__(self, other):
        return apply(operators().divide, (other, self)) if is_number(other) or known(other) else NotImplemented

    def __pow__(self, other, modulo):
        if is_number(other):
            return apply(operators().ops.PowerScalar(other), (self,))
        return apply(operators().ops.EWisePow(), (self, other)) if known(other) else NotImplemented

    def __rpow__(self, other, modulo):
        return apply(operators().ops.EWisePow(), (other, self)) if is_number(other) or known(other) else NotImplemented

    def __matmul__(self, other):
        if isinstance(other, Tensor) and self.array is not None and (<Tensor> other).array is not None \
                and self.array.ndim == 2 and (<Tensor> other).array.ndim == 2:
            return apply(operators().matmul, (self, other))
        return operators().ops.matmul(self, other) if known(other) else NotImplemented

    def __rmatmul__(self, other):           # also where self is of a subclass, as a Parameter is
        if isinstance(other, Tensor):
            return Tensor.__matmul__(other, self)
        return operators().ops.matmul(other, self) if known(other) else NotImplemented

    # In place: into the array of a leaf within no_grad(), as optimizers do; elsewhere a new tensor, as `x = x + y` makes it.

    def __iadd__(self, other):
        return write(self, operator.iadd, other) if writes(self) else self + other

    def __isub__(self, other):
        return write(self, operator.isub, other) if writes(self) else self - other

    def __imul__(self, other):
        return write(self, operator.imul, other) if writes(self) else self * other

    def __itruediv__(self, other):
        return write(self, operator.itruediv, other) if writes(self) else self / other

    def __ipow__(self, other):
        return write(self, operator.ipow, other) if writes(self) else self ** other

    def __imatmul__(self, other):
        return write(self, assign_product, other) if writes(self) else self @ other

    def __floordiv__(self, other):
        return operators().ops.floor_divide(self, other) if is_number(other) or known(other) else NotImplemented

    def __rfloordiv__(self, other):
        return operators().ops.floor_divide(other, self) if is_number(other) or known(other) else NotImplemented

    def __mod__(self, other):
        return operators().ops.remainder(self, other) if is_number(other) or known(other) else NotImplemented

    def __rmod__(self, other):
        return operators().ops.remainder(other, self) if is_number(other) or known(other) else NotImplemented

    # Of bools and integers, bit by bit, and constants: a comparison has no derivative.

    def __and__(self, other):
        return operators().ops.bitwise_and(self, other) if is_number(other) or known(other) else NotImplemented

    def __rand__(self, other):
        return self & other

    def __or__(self, other):
        return operators().ops.bitwise_or(self, other) if is_number(other) or known(other) else NotImplemented

    def __ror__(self, other):
        return self | other

    def __xor__(self, other):
        return operators().ops.bitwise_xor(self, other) if is_number(other) or known(other) else NotImplemented

    def __rxor__(self, other):
        return self ^ other

    def __invert__(self):
        return operators().ops.bitwise_not(self)

    def __neg__(self):
        return apply(operators().negate, (self,))

    def __pos__(self):
        return self

    def __abs__(self):
        return operators().ops.abs(self)

    def __getitem__(self, key):
        return apply(operators().ops.GetItem(key), (self,))

    def __setitem__(self, key, value):
        """Write in place: into the array where nothing is recorded, else this tensor becomes the result of SetItem."""
        recorded = not modes_here().no_grad
        if recorded and self.op is None and self.wants_grad:
            raise RuntimeError("a leaf that requires a gradient cannot be written to; do it within no_grad(), or to a clone()")
        if not recorded or not (self.wants_grad or isinstance(value, Value) and (<Value> value).wants_grad):
            for step, n in zip(realize(self).strides, self.shape):
                if step == 0 and n > 1:
                    raise ValueError(f"the tensor of shape {self.shape} is a broadcast view: write to a clone()")
            note_write(self)
            if isinstance(value, Value):
                note_read(<Value> value)
            realize(self)[key] = realize(<Value> value) if isinstance(value, Value) else value
            return
        become(self, operators().ops.setitem, (key, value))

    # ---- Methods, each the op of that name --------------------------------------------------------------------------

    def matmul(self, other):
        return operators().ops.matmul(self, other)

    # `axis`, `dtype` and `out` are what np.sum(x) and its like hand on, `dim` and `keepdim` PyTorch's names of axes and keepdims.

    def sum(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False, dtype=None, out=None):
        if axis is not None or dim is not None or dtype is not None or out is not None:
            axes = axes_of("sum", axes, axis, dim, dtype, out)
        return apply(operators().summation(axes, keepdims or keepdim), (self,))

    def mean(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False, dtype=None, out=None):
        return operators().ops.mean(self, axes_of("mean", axes, axis, dim, dtype, out), keepdims or keepdim)

    def var(self, axes=None, keepdims=False, ddof=None, *, axis=None, dim=None, keepdim=False, correction=None, unbiased=None,
            dtype=None, out=None):
        axes = axes_of("var", axes, axis, dim, dtype, out)
        return operators().ops.var(self, axes, keepdims or keepdim, ddof, correction=correction, unbiased=unbiased)

    def std(self, axes=None, keepdims=False, ddof=None, *, axis=None, dim=None, keepdim=False, correction=None, unbiased=None,
            dtype=None, out=None):
        axes = axes_of("std", axes, axis, dim, dtype, out)
        return operators().ops.std(self, axes, keepdims or keepdim, ddof, correction=correction, unbiased=unbiased)

    def max(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False, out=None):
        """The largest element over axes; with dim=, as in PyTorch, the pair (values, indices)."""
        axes = axes_of("max", axes, axis, None if axes is None else dim, None, out)
        return operators().ops.max(self, axes, keepdims or keepdim, dim=dim)

    def min(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False, out=None):
        """The smallest element over axes; with dim=, as in PyTorch, the pair (values, indices)."""
        axes = axes_of("min", axes, axis, None if axes is None else dim, None, out)
        return operators().ops.min(self, axes, keepdims or keepdim, dim=dim)

    def argmax(self, axis=None, keepdims=False, *, axes=None, dim=None, keepdim=False):
        return operators().ops.argmax(self, axes_of("argmax", axis, axes, dim, None, None), keepdims or keepdim)

    def argmin(self, axis=None, keepdims=False, *, axes=None, dim=None, keepdim=False):
        return operators().ops.argmin(self, axes_of("argmin", axis, axes, dim, None, None), keepdims or keepdim)

    def any(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False, out=None):
        return operators().ops.any(self, axes_of("any", axes, axis, dim, None, out), keepdims or keepdim)

    def all(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False, out=None):
        return operators().ops.all(self, axes_of("all", axes, axis, dim, None, out), keepdims or keepdim)

    def cumsum(self, axis=None, *, axes=None, dim=None, dtype=None, out=None):
        return operators().ops.cumsum(self, axes_of("cumsum", axis, axes, dim, dtype, out))

    def logsumexp(self, axes=None, keepdims=False, *, axis=None, dim=None, keepdim=False):
        return operators().ops.logsumexp(self, axes_of("logsumexp", axes, axis, dim, None, None), keepdims or keepdim)

    def softmax(self, axes=-1, *, axis=None, dim=None, dtype=None):
        if axis is not None or dim is not None:
            axes = axes_of("softmax", None, axis, dim, None, None)
        return operators().ops.softmax(self if dtype is None else self.astype(dtype), axes)

    def reshape(self, *shape):
        return apply(operators().ops.Reshape(shape[0] if len(shape) == 1 else shape), (self,))

    def broadcast_to(self, *shape):
        return operators().ops.broadcast_to(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes_to_swap, axes=None, dim0=None, dim1=None):
        """Two axes swapped, `transpose((0, 1))` or `transpose(0, 1)`; by default the last two."""
        if dim0 is not None and dim1 is not None and axes is None:
            axes = (dim0, dim1)
        if len(axes_to_swap) == 1 and axes is None:
            axes = axes_to_swap[0]
        elif axes_to_swap:
            axes = axes_to_swap
        return apply(operators().ops.Transpose(axes), (self,))

    def permute(self, *axes, dims=None):
        return apply(operators().ops.Permute(dims if dims is not None else axes[0] if len(axes) == 1 else axes), (self,))

    def swapaxes(self, axis1, axis2):
        return apply(operators().ops.Transpose((axis1, axis2)), (self,))

    def squeeze(self, axis=None, *, dim=None):
        return operators().ops.squeeze(self, axes_of("squeeze", axis, None, dim, None, None))

    def expand_dims(self, axis):
        return operators().ops.expand_dims(self, axis)

    def flip(self, *axes_to_flip, axes=None, axis=None, dims=None):
        """Reversed along axes, `flip((0, 1))` or `flip(0, 1)`; by default all."""
        if axes_to_flip:
            axis = axes_of("flip", axis, axes, None, None, None)
            axes = axes_to_flip[0] if len(axes_to_flip) == 1 else axes_to_flip
        return operators().ops.flip(self, axes_of("flip", axes, axis, dims, None, None))

    def take(self, index, axis=None, *, dim=None):
        return operators().ops.take(self, index, axes_of("take", axis, None, dim, None, None))

    def exp(self):
        return operators().ops.exp(self)

    def log(self):
        return operators().ops.log(self)

    def sqrt(self):
        return operators().ops.sqrt(self)

    def tanh(self):
        return operators().ops.tanh(self)

    def sigmoid(self):
        return operators().ops.sigmoid(self)

    def relu(self):
        return operators().ops.relu(self)

    def abs(self):
        return operators().ops.abs(self)

    def sin(self):
        return operators().ops.sin(self)

    def cos(self):
        return operators().ops.cos(self)

    def clip(self, low=None, high=None):
        return operators().ops.clip(self, low, high)

    def equal(self, other):
        """Elementwise; within compat("torch") whether shapes and all values are the same, a Python bool."""
        if means_torch(modes_here()):
            from needle import equal
            return equal(self, other)
        return operators().ops.equal(self, other)

    def not_equal(self, other):
        return operators().ops.not_equal(self, other)

    def astype(self, dtype):
        return operators().ops.astype(self, dtype)

    def to(self, *where, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
        """On a device, in a dtype, or as another tensor is: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(other)`."""
        return operators().ops.to(self, *where, device=device, dtype=dtype, copy=copy)

    @property
    def T(self):
        """All axes reversed."""
        return apply(operators().ops.Permute(tuple(range(self.ndim - 1, -1, -1))), (self,))

    @property
    def mT(self):
        """The last two axes swapped."""
        return apply(operators().ops.Transpose(), (self,))


cdef object as_sizes(object array, object device, tuple sizes):
    """What PyTorch makes of Tensor(2, 3), and of Tensor(3), within compat("torch"): zeros of these sizes; else a single number"""
    given = (array, *(() if device is None else (device,)), *sizes)
    if means_torch(modes_here()) and all([type(n) is int for n in given]):
        return array_api.zeros(given)
    if len(given) > 1:
        raise TypeError(f"Tensor{given}: expected one array, and device= and dtype= by name; needle.zeros{given} has these sizes")
    return array


cpdef Py_ssize_t count(Tensor x):
    """The number of elements; what `size` is, as a plain int"""
    cdef Py_ssize_t size = 1
    for n in x.shape:
        size *= n
    return size


cdef object axes_of(str what, object axes, object axis, object dim, object dtype, object out):
    """The axes of a reduction, given by any of three names; dtype and out are NumPy's, and cannot be given"""
    if axis is None and dim is None and dtype is None and out is None:
        return axes
    if out is not None or dtype is not None:
        raise TypeError(f"{what}: a Tensor's {what} takes no {'out' if out is not None else 'dtype'}")
    given = [(name, value) for name, value in (("axes", axes), ("axis", axis), ("dim", dim)) if value is not None]
    if len(given) > 1:
        raise TypeError(f"{what}: {given[0][0]} {given[0][1]} and {given[1][0]} {given[1][1]} are two names for the same argument")
    return given[0][1]


# ---- Identity and values --------------------------------------------------------------------------

cdef bint seems_value(Tensor self, object other):
    """Whether `self == other` was meant for values: a number, an array, or two tensors without gradients of their own kind"""
    if isinstance(other, Tensor):
        return is_exact(self) and is_exact(<Tensor> other)
    return is_number(other) or isinstance(other, (ndarray_type, np.ndarray, np.bool_, list, tuple))


cdef bint is_exact(Tensor x):
    """Whether it holds integers or bools, as labels and masks do, as far as known without computing it"""
    dtype = x.array.dtype if x.array is not None else x.spec[1] if x.spec is not None else None
    return dtype is not None and not dtype.is_float


# ---- In place --------------------------------------------------------------------------

cdef inline bint writes(Tensor self):
    return self.op is None and modes_here().no_grad


cdef object write(Tensor self, object function, object other):
    """Change the array of a leaf; shape and dtype stay what they are, or an error says why they cannot"""
    if not isinstance(other, Tensor) and not is_number(other) and not known(other):
        return NotImplemented
    note_write(self)
    if isinstance(other, Tensor):
        note_read(<Tensor> other)
    function(realize(self), realize(<Tensor> other) if isinstance(other, Tensor) else other)
    return self


cdef list users_within(Tensor self, tuple args):
    """The nodes that have self among their inputs, if all of them lead to what is written, as x[i] does in x[i] += y; else None"""
    cdef list users = [], near = [x for x in args if isinstance(x, Value)]
    cdef Py_ssize_t found = 0
    for _ in range(3 if self.uses else 0):      # x[i], x[i] * 2 and x[i] * 2 + y, no further
        for node in near:
            if any([x is self for x in (<Value> node).inputs]) and not any([node is other for other in users]):
                users.append(node)
        near = [x for node in near for x in (<Value> node).inputs]
    for node in users:
        found += sum([x is self for x in (<Value> node).inputs])
    return users if found == self.uses else None


cdef int hand_over(list users, Tensor giver, Tensor taker) except -1:
    """Let nodes have another tensor in the place of one among their inputs"""
    cdef Py_ssize_t n
    for user in users:
        n = sum([x is giver for x in (<Value> user).inputs])
        (<Value> user).inputs = tuple([taker if x is giver else x for x in (<Value> user).inputs])
        giver.uses -= n
        taker.uses += n
    return 0


cpdef int become(Tensor self, object function, tuple args) except -1:
    """Make a tensor the result of function(self, *args), recorded: what it was so far becomes a node before it"""
    cdef list users = users_within(self, args)
    if users is None:
        raise RuntimeError("the tensor has been used already: writing to it would change what was computed from it."
                           " ops.setitem(x, key, value) returns a new one")
    cdef Tensor made, old = Tensor.__new__(Tensor)
    old.op, old.inputs, old.array, old.wants_grad = self.op, self.inputs, realize(self), self.wants_grad
    old.stamp, old.origin = self.stamp, self.origin
    self.op, self.inputs, self.array = None, (), old.array
    hand_over(users, self, old)
    try:
        made = <Tensor?> function(old, *args)
    except BaseException:
        hand_over(users, old, self)
        self.op, self.inputs, old.inputs = old.op, old.inputs, ()
        raise
    self.op, self.inputs, self.array, self.wants_grad = made.op, made.inputs, (<Value> made).array, True
    self.stamp = (<Value> made).stamp
    (<Value> made).inputs = ()
    if modes_here().trace is not NULL:
        (<list> modes_here().trace).append(self)
    return 0


def assign_product(array, other):
    """array @= other"""
    made = array @ (other if isinstance(other, ndarray_type) else array_api.asarray(other, dtype=array.dtype, device=array.device))
    if made.shape != array.shape:
        raise ValueError(f"matmul: {array.shape} @= {other.shape}: the result has shape {made.shape}")
    array[...] = made


cdef object object_hash = object.__hash__
cdef object object_dir = object.__dir__


cdef inline bint has_floats(Tensor x):
    """Whether x is known to be of floats, without computing it"""
    return arrays.dtype_code(<PyObject*> x.array) >= FLOAT32 if x.array is not None else x.spec is not None and x.spec[1].is_float


cdef Tensor negated(Tensor b, Tensor a):
    """-b for a - b. Integers take the dtype of the difference first: negative bytes are large numbers."""
    if has_floats(b):
        return apply(operators().negate, (b,))
    if is_unknown(a) or is_unknown(b):
        return apply(operators().ops.NegateBeside(), (b, a))
    return apply(operators().negate, (b if a.dtype is b.dtype else operators().ops.astype(b, result_dtype(a.dtype, b.dtype)),))


cdef inline bint known(object x):
    return isinstance(x, (Tensor, ndarray_type, np.ndarray, np.bool_, list, tuple))


def rebuild(cls, data, requires_grad):
    """What unpickling calls."""
    return make_leaf(cls, data, requires_grad)


def add_methods(dict methods not None):
    """Make functions methods of Tensor, whose class is compiled: those of needle.torch_names, when `needle` is imported."""
    cdef dict names = <dict> (<PyTypeObject*> Tensor).tp_dict
    for name in methods:
        if name in names:
            raise ValueError(f"add_methods: {name} is a method already")
    names.update(methods)
    PyType_Modified(Tensor)


show_in_autograd(Tensor, "needle.autograd.Tensor")
