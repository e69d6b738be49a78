"""Values, which remember how they were made, and the ops that make them.

A `Value` holds data (an NDArray), the `Op` that made it and the op's inputs. `recording` makes values out of ops; a Tensor is the
Value that users see.
"""

cimport cython
from cpython.object cimport PyObject

import operator

import needle_ndarray as array_api
from needle_ndarray.extension import bounded

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.backward cimport fit
from needle.autograd.memory cimport forget_candidate, remove_uses
from needle.autograd.modes cimport modes_here
from needle.autograd.naming cimport show_in_autograd
from needle.autograd.operators cimport Operators, operators
from needle.autograd.recording cimport apply, apply_tuple, note_used, read, realize, record
from needle.autograd.tensor cimport Tensor
from needle.autograd.tracing cimport handed_out, note_write

cdef Arrays arrays = load_arrays()
cdef object ndarray_type = array_api.NDArray
cdef Py_ssize_t live_values = 0


def count_values():
    """How many Values are alive: TENSOR_COUNTER."""
    return live_values


# ---- Ops --------------------------------------------------------------------------

cdef class Op:
    """Op()
--

    An operator: `compute` on NDArrays, `gradient` in terms of ops. Subclass TensorOp or TensorTupleOp.

    >>> import needle as ndl
    >>> class Cube(ndl.TensorOp):
    ...     def compute(self, x):
    ...         return x * x * x
    ...     def gradient(self, out_grad, node):
    ...         return 3 * node.inputs[0] ** 2 * out_grad
    >>> x = ndl.Tensor([2.0])
    >>> Cube()(x).backward()
    >>> x.grad.numpy()
    array([12.], dtype=float32)
    """

    #: What `gradient` looks at besides shapes: "inputs", "output", both, or "" for neither. Values that no gradient looks at are
    #: dropped as soon as only the graph holds them. A wrong word costs time, not correctness: they can be computed again.
    needs = "inputs output"

    #: Whether inputs broadcast against each other, as in NumPy: gradients are then summed back to the inputs' shapes.
    broadcasts = False

    def __call__(self, *args):
        raise NotImplementedError(f"{type(self).__name__}.__call__")

    def compute(self, *args):
        """The result, an NDArray (or a tuple of them), from the inputs' NDArrays."""
        raise NotImplementedError(f"{type(self).__name__}.compute")

    def gradient(self, out_grad, node):
        """Gradients of the inputs, given that of the result: a Tensor, or a tuple with one (or None) per input."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient")

    def gradient_as_tuple(self, out_grad, node):
        """`gradient`, always as a tuple, and each in the shape and dtype of its input."""
        grads = self.gradient(out_grad, node)
        grads = grads if isinstance(grads, (tuple, list)) else (grads,)
        return tuple([fit(self, g, x) if isinstance(g, Tensor) and isinstance(x, Tensor) else g
                      for g, x in zip(grads, node.inputs)])


cdef class TensorOp(Op):
    """An op whose result is one Tensor."""

    def __call__(self, *args):
        return apply(self, args)


cdef class ScalarOp(TensorOp):
    """ScalarOp(scalar)
--

    An op with a number, `scalar`, which may be given as an array of one element.
    """

    def __init__(self, scalar):
        if not (type(scalar) is float or type(scalar) is int):
            if isinstance(scalar, Value):
                raise TypeError(f"{type(self).__name__}: expected a number, got a Tensor, which has an op of its own")
            scalar = scalar.item() if hasattr(scalar, "item") else scalar
        self.scalar = scalar


cdef class TensorTupleOp(Op):
    """An op whose result is a TensorTuple."""

    def __call__(self, *args):
        return apply_tuple(self, args)


cdef class Slot:
    """Slot(index, value)
--

    The gradient of one entry of a tuple, where the others have none: what TupleGetItem's gradient is.
    """

    def __init__(self, Py_ssize_t index, value):
        self.index, self.value = index, value


# ---- Values --------------------------------------------------------------------------

@cython.trashcan(True)                  # a chain of a million nodes dies without recursion
@cython.freelist(128)
cdef class Value:
    """Value()
--

    A node of the graph."""

    # All fields are in this class, so that subclasses share the free list.

    def __cinit__(self):
        global live_values
        live_values += 1
        self.inputs = ()
        self.stamp = arrays.clock[0]

    def __dealloc__(self):
        global live_values
        live_values -= 1
        if self.watched:
            forget_candidate(<PyObject*> self)
        if self.inputs is not None:     # the garbage collector has cleared it otherwise
            remove_uses(self.inputs)

    @property
    def requires_grad(self):
        return self.wants_grad

    @requires_grad.setter
    def requires_grad(self, bint wanted):
        if wanted and self.op is None and not is_float(self):
            raise TypeError(f"only floats have gradients, this is {realize(self).dtype}")
        if modes_here().used is not NULL:
            note_used((self,), modes_here(), False)
        self.wants_grad = wanted

    @property
    def cached_data(self):
        """The data if it is there; None where it has not been computed, or was dropped after backward."""
        return None if self.array is None else handed_out(self)

    @cached_data.setter
    def cached_data(self, data):
        assign(self, data)

    @property
    def known(self):
        """(shape, dtype, device), or for a tuple one of these per entry; None for a lazy value that nobody has looked at."""
        if self.array is None:
            return self.spec
        if type(self.array) is tuple:
            return tuple([(d.shape, d.dtype, d.device) for d in self.array])
        return self.array.shape, self.array.dtype, self.array.device

    @property
    def num_outputs(self):
        return 1

    def realize_cached_data(self):
        """The data, computed if need be."""
        return handed_out(self)

    def is_leaf(self):
        return self.op is None

    @classmethod
    def make_const(cls, data, *, requires_grad=False):
        """A leaf that shares the data given."""
        return make_leaf(cls, data, requires_grad)

    @classmethod
    def make_from_op(cls, Op op not None, inputs):
        """The result of an op: what calling the op does."""
        cdef tuple given = tuple(bounded("make_from_op", inputs))
        return apply_tuple(op, given) if issubclass(cls, TensorTuple) else apply(op, given)


cdef class TensorTuple(Value):
    """A tuple of tensors as one node: what `split` returns."""

    @property
    def num_outputs(self):
        return len(self)

    def __len__(self):
        return self.count()

    cdef Py_ssize_t count(self) except -1:
        """How many there are, whatever a subclass says"""
        return len(self.spec) if self.array is None and self.spec is not None else len(realize(self))

    def __getitem__(self, index):
        cdef Py_ssize_t n
        if isinstance(index, slice):
            return tuple([self[i] for i in range(*index.indices(len(self)))])
        i = operator.index(index)
        if i >= 0 and is_unknown(self):
            return operators().ops.tuple_get_item(self, i)      # lazy: how many there are will turn out
        n = self.count()
        if not -n <= i < n:
            raise IndexError(f"entry {i} of a tuple of {n}")
        return self.entry(i % n)

    cdef Value entry(self, Py_ssize_t i):
        """Entry i: of a tuple that was made of tensors this one, else a node for it"""
        cdef Operators known = operators()
        cdef Tensor out
        if not 0 <= i < self.count():
            raise IndexError(f"entry {i} of a tuple of {self.count()}")
        if isinstance(self.op, known.make_tuple):
            return <Tensor?> self.inputs[i]
        out = Tensor.__new__(Tensor)
        record(known.entry(i), (self,), out, None if self.array is None else self.array[i])
        return out

    def __iter__(self):
        return iter(self.tuple())

    def tuple(self):
        cdef Py_ssize_t i
        return tuple([self.entry(i) for i in range(self.count())])

    def __add__(self, other):
        if not isinstance(other, TensorTuple) or len(self) != len(other):
            raise ValueError(f"TensorTuple of {len(self)} + {f'one of {len(other)}' if isinstance(other, TensorTuple) else other}")
        return operators().ops.make_tuple(*[a + b for a, b in zip(self, other)])

    def detach(self):
        """The same data without a graph."""
        return make_leaf(TensorTuple, read(self), False)

    def __repr__(self):
        return f"needle.TensorTuple({', '.join([repr(t) for t in self])})"

    def __str__(self):
        return repr(self)


cdef Value make_leaf(type cls, object data, bint requires_grad):
    cdef Value value
    if isinstance(data, Value):
        data = read(<Value> data)
    if issubclass(cls, TensorTuple):
        data = tuple([read(<Value> d) if isinstance(d, Value) else d for d in bounded("make_const", data)])
    elif not isinstance(data, ndarray_type):
        raise TypeError(f"make_const: expected an NDArray or a Tensor, got {type(data).__name__}")
    value = cls.__new__(cls)
    value.array = data
    value.wants_grad = requires_grad and is_float(value)
    return value


def with_gradients(params):
    """What an optimizer works on: the tensors that have a gradient, their data, and the data of their gradients, as lists; and
    whether all data is compact, with gradients of its shape and dtype."""
    cdef Tensor p
    cdef list chosen = [], data = [], grads = []
    cdef bint fits = True
    global looks
    looks += 1
    params = bounded("with_gradients", params)
    if modes_here().used is not NULL:
        note_used(tuple(params), modes_here(), False)
    for p in params:
        if p.gradient is not None:
            chosen.append(p)
            a, g = realize(p), realize(<Tensor?> p.gradient)
            data.append(a)
            grads.append(g)
            fits = fits and arrays.is_compact(<PyObject*> a) and arrays.alike(<PyObject*> a, <PyObject*> g)
    return chosen, data, grads, fits


cdef bint is_float(Value value):
    data = realize(value)
    return type(data) is tuple or data.dtype.is_float


cdef int assign(Value value, object data) except -1:
    """Put other data into a value."""
    if not isinstance(value, TensorTuple) and not isinstance(data, ndarray_type):
        raise TypeError(f"cached_data: expected an NDArray, got {type(data).__name__}")
    if isinstance(value, TensorTuple):
        data = tuple(bounded("cached_data", data))
        for d in data:
            if not isinstance(d, ndarray_type):
                raise TypeError(f"cached_data: expected a tuple of NDArrays, got one with {type(d).__name__}")
    if modes_here().used is not NULL:
        note_used((value,), modes_here(), False)
    note_write(value)
    value.array, value.spec, value.assigned = data, None, True
    arrays.clock[0] += 1
    value.assigned_at = arrays.clock[0]
    return 0


show_in_autograd(Op, "needle.autograd.Op")
show_in_autograd(TensorOp, "needle.autograd.TensorOp")
show_in_autograd(ScalarOp, "needle.autograd.ScalarOp")
show_in_autograd(TensorTupleOp, "needle.autograd.TensorTupleOp")
show_in_autograd(Slot, "needle.autograd.Slot")
show_in_autograd(Value, "needle.autograd.Value")
show_in_autograd(TensorTuple, "needle.autograd.TensorTuple")
