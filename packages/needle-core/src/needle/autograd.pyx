"""The engine: values that remember how they were made, and reverse mode over them.

A `Value` holds data (an NDArray), the `Op` that made it and the op's inputs. Calling an op computes the result at once, unless
lazy mode is on, and records it where an input requires a gradient. `backward` walks that graph from the end: each op's
`gradient` builds the gradients of its inputs out of ops, so gradients have a graph of their own and can be differentiated again.

Memory: once backward is past a value that only the graph holds, its data is dropped. It can be had again, from its inputs; the
write clock of needle_ndarray (one counter for all writes to all arrays) tells whether these are still what they were.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdlib cimport free, malloc, realloc

import functools
import operator

import needle_ndarray as array_api
import numpy as np
from needle_ndarray import NDArray
from needle_ndarray.buffer import WRITE_CLOCK
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.ndarray import DTYPE_CODE, NBYTES, SOLE_OWNER, VERSION, bounded

from needle._hints import Size, warn_of_identity

#: The process-wide default of lazy mode; `needle.lazy_mode()` overrides it within a thread.
LAZY_MODE = False

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define NEEDLE_THREAD __declspec(thread)
    #else
    #define NEEDLE_THREAD __thread
    #endif
    typedef struct {
        int no_grad;            /* 1 inside no_grad() */
        int lazy;               /* 0: as LAZY_MODE says, 1: on, 2: off */
        int anomaly;            /* 1 inside anomaly_mode(), 2 where it stops at inf too */
        PyObject *made;         /* a list that collects what is recorded, or NULL */
        PyObject *guarded;      /* the node whose gradient is being computed, or NULL */
    } needle_modes;
    #if defined(__GLIBC__)
    static NEEDLE_THREAD needle_modes needle_here __attribute__((tls_model("initial-exec")));
    #else
    static NEEDLE_THREAD needle_modes needle_here;
    #endif
    static inline needle_modes *needle_modes_here(void) { return &needle_here; }
    #define needle_type_version(o) (Py_TYPE(o)->tp_version_tag)
    """
    ctypedef struct Modes "needle_modes":
        int no_grad
        int lazy
        int anomaly
        PyObject* made
        PyObject* guarded
    Modes* modes_here "needle_modes_here"() noexcept nogil
    Py_ssize_t Py_REFCNT(PyObject* value) noexcept nogil
    PyObject* entry "PyTuple_GET_ITEM"(object values, Py_ssize_t i) noexcept      # borrowed
    unsigned int type_version "needle_type_version"(object value) noexcept     # changes when its class does; 0: unknown

cdef long long* write_clock = <long long*> PyCapsule_GetPointer(WRITE_CLOCK, "needle_ndarray.write_clock")
ctypedef Py_ssize_t (*nbytes_t)(PyObject*) noexcept
ctypedef long long (*version_t)(PyObject*) noexcept
ctypedef int (*sole_owner_t)(PyObject*) noexcept
ctypedef int (*code_t)(PyObject*) noexcept
cdef nbytes_t nbytes_of = <nbytes_t> PyCapsule_GetPointer(NBYTES, "needle_ndarray.nbytes")
cdef version_t version_of = <version_t> PyCapsule_GetPointer(VERSION, "needle_ndarray.version")
cdef sole_owner_t is_sole_owner = <sole_owner_t> PyCapsule_GetPointer(SOLE_OWNER, "needle_ndarray.sole_owner")
cdef code_t code_of = <code_t> PyCapsule_GetPointer(DTYPE_CODE, "needle_ndarray.dtype_code")
cdef Py_ssize_t live_values = 0
cdef object ndarray_type = NDArray
cdef object alike = array_api.alike


def __getattr__(name):
    if name == "TENSOR_COUNTER":        # Values alive
        return live_values
    raise AttributeError(f"module 'needle.autograd' has no attribute {name!r}")


def set_mode(str name, int value):
    """Set a switch of this thread (no_grad, lazy, anomaly; see needle.modes) and return what it was."""
    cdef Modes* here = modes_here()
    cdef int before
    if name == "no_grad":
        before, here.no_grad = here.no_grad, value
    elif name == "lazy":
        before, here.lazy = here.lazy, value
    elif name == "anomaly":
        before, here.anomaly = here.anomaly, value
    else:
        raise ValueError(f"set_mode: {name}: expected no_grad, lazy or anomaly")
    return before


def is_grad_enabled():
    """Whether this thread records what is computed."""
    return not modes_here().no_grad


cdef inline bint is_lazy(Modes* here):
    return here.lazy == 1 or here.lazy == 0 and LAZY_MODE


# ---- Ops --------------------------------------------------------------------------

cdef class Op:
    """An operator: `compute` on NDArrays, `gradient` in terms of ops. Subclass TensorOp or TensorTupleOp.

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

    cdef object compute_function        # of the class, as long as `seen` is its version
    cdef unsigned int seen

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
    """An op with a number, `scalar`, which may be given as an array of one element."""

    cdef readonly object scalar

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
    """The gradient of one entry of a tuple, where the others have none: what TupleGetItem's gradient is."""

    cdef readonly Py_ssize_t index
    cdef readonly object value

    def __init__(self, Py_ssize_t index, value):
        self.index, self.value = index, value


# ---- Values --------------------------------------------------------------------------

@cython.trashcan(True)                  # a chain of a million nodes dies without recursion
@cython.freelist(128)
cdef class Value:
    """A node of the graph. All fields are here, so that subclasses share the free list."""

    cdef readonly object op             # None for a leaf
    cdef readonly tuple inputs
    cdef object array                   # None until computed, or after it was dropped
    cdef object spec                    # (shape, dtype, device) of dropped data
    cdef object origin                  # in anomaly mode: the line that made it
    cdef object gradient                # of a leaf, or after retain_grad()
    cdef list hooks                     # called with the gradient
    cdef bint retains_grad
    cdef bint wants_grad
    cdef bint needed                    # some gradient looks at it
    cdef bint watched                   # its address is in `candidates`
    cdef bint assigned                  # somebody has put data in: it cannot be had from the inputs
    cdef long long stamp                # the write clock when it was computed
    cdef long long assigned_at          # the write clock when data was put in
    cdef Py_ssize_t uses                # how many recorded nodes have it among their inputs, repeats counted
    cdef long long visit                # the traversal that was here last
    cdef Py_ssize_t index               # in that traversal's order
    cdef object __weakref__

    def __cinit__(self):
        global live_values
        live_values += 1
        self.inputs = ()
        self.stamp = write_clock[0]

    def __dealloc__(self):
        global live_values
        live_values -= 1
        cdef Py_ssize_t i
        if self.watched:
            forget_candidate(<PyObject*> self)
        if self.inputs is not None:     # the garbage collector has cleared it otherwise
            for i in range(PyTuple_GET_SIZE(self.inputs)):
                (<Value> entry(self.inputs, i)).uses -= 1

    @property
    def requires_grad(self):
        return self.wants_grad

    @requires_grad.setter
    def requires_grad(self, bint wanted):
        if wanted and self.op is None and not is_float(self):
            raise TypeError(f"only floats have gradients, this is {realize(self).dtype}")
        self.wants_grad = wanted

    @property
    def cached_data(self):
        """The data if it is there; None where it has not been computed, or was dropped after backward."""
        return None if self.array is None else read(self)

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
        return read(self)

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


cdef list ENTRIES = []                  # TupleGetItem(i) at place i: it holds nothing else, so one does for all tuples


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
        if i >= 0 and self.array is None and self.spec is None:
            return OPS.tuple_get_item(self, i)      # lazy: how many there are will turn out
        n = self.count()
        if not -n <= i < n:
            raise IndexError(f"entry {i} of a tuple of {n}")
        return self.entry(i % n)

    cdef Tensor entry(self, Py_ssize_t i):
        """Entry i: of a tuple that was made of tensors this one, else a node for it"""
        if not 0 <= i < self.count():
            raise IndexError(f"entry {i} of a tuple of {self.count()}")
        if isinstance(self.op, OPS.MakeTensorTuple):
            return <Tensor?> self.inputs[i]
        while len(ENTRIES) <= i:
            ENTRIES.append(OPS.TupleGetItem(len(ENTRIES)))
        cdef Tensor out = Tensor.__new__(Tensor)
        record(<Op> ENTRIES[i], (self,), out, None if self.array is None else self.array[i])
        return out

    def __iter__(self):
        return iter(self.tuple())

    def tuple(self):
        cdef Py_ssize_t i
        return tuple([self.entry(i) for i in range(self.count())])

    def __add__(self, other):
        if not isinstance(other, TensorTuple) or len(self) != len(other):
            raise ValueError(f"TensorTuple of {len(self)} + {f'one of {len(other)}' if isinstance(other, TensorTuple) else other}")
        return OPS.make_tuple(*[a + b for a, b in zip(self, other)])

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
    """What an optimizer works on: the tensors that have a gradient, their data, and the data of their gradients, as lists."""
    cdef Tensor p
    cdef list chosen = [], arrays = [], grads = []
    for p in bounded("with_gradients", params):
        if p.gradient is not None:
            chosen.append(p)
            arrays.append(realize(p))
            grads.append(realize(<Tensor?> p.gradient))
    return chosen, arrays, grads


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
    value.array, value.spec, value.assigned = data, None, True
    write_clock[0] += 1
    value.assigned_at = write_clock[0]
    return 0


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


# ---- Computing --------------------------------------------------------------------------

cdef Tensor apply(Op op, tuple inputs):
    """The op's result as a Tensor, recorded where an input requires a gradient."""
    cdef Tensor out = Tensor.__new__(Tensor)
    record(op, inputs, out, None)
    return out


cdef TensorTuple apply_tuple(Op op, tuple inputs):
    cdef TensorTuple out = TensorTuple.__new__(TensorTuple)
    record(op, inputs, out, None)
    return out


cdef int record(Op op, tuple inputs, Value out, object data) except -1:
    """Make `out` the op's result, and a node where an input requires a gradient; data: the result, where it is at hand"""
    cdef Modes* here = modes_here()
    cdef bint recorded = False
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(inputs)
    for i in range(n):
        if type(<object> entry(inputs, i)) is not Tensor and not isinstance(<object> entry(inputs, i), Value):
            return record(op, as_values(op, inputs), out, None)
        recorded |= (<Value> entry(inputs, i)).wants_grad
    recorded = recorded and not here.no_grad
    if not is_lazy(here):
        if here.guarded is not NULL and write_clock[0] != (<Value> here.guarded).stamp:
            for x in inputs:
                check_unchanged(<Value> x, <Value> here.guarded, "its gradient needs the old one")
        out.array = compute(op, inputs) if data is None else data
        out.stamp = write_clock[0]
        if here.anomaly:
            note_origin(op, out, here)
        if not recorded:
            return 0
    else:
        note_origin(op, out, here)      # for the error, which comes later and elsewhere
    out.op, out.inputs, out.wants_grad = op, inputs, recorded
    for i in range(n):
        (<Value> entry(inputs, i)).uses += 1
    if watching or nbytes_of(<PyObject*> out.array) >= LARGE:
        drop_unneeded(op, inputs, out)
    if here.made is not NULL:
        (<list> here.made).append(out)
    return 0


# ---- Dropping what no gradient looks at ------------------------------------------------------------------------

cdef enum:
    LARGE = 16384               # bytes from which it is worth the look
    CANDIDATES = 8

cdef PyObject* candidates[CANDIDATES]       # borrowed: a value takes itself out when it dies
cdef int watching = 0                       # how many there are
cdef int latest = 0


cdef void forget_candidate(PyObject* value) noexcept:
    global watching
    cdef int i
    for i in range(CANDIDATES):
        if candidates[i] is value:
            candidates[i] = NULL
            watching -= 1


cdef int drop_unneeded(Op op, tuple inputs, Value out) except -1:
    """After an op was recorded: its inputs may be droppable now, once whoever called the op has let go of them.

    A value waits among the candidates until only the graph holds it, or until others take its place.
    """
    global watching, latest
    cdef int i
    cdef Value x
    for i in range(CANDIDATES):
        if candidates[i] is not NULL and Py_REFCNT(candidates[i]) <= (<Value> candidates[i]).uses:
            x = <Value> candidates[i]
            x.watched = False
            forget_candidate(<PyObject*> x)
            if not x.needed and x.uses == 1:    # a later, small op may look at it
                release(x, 1)
    if nbytes_of(<PyObject*> out.array) < LARGE:
        return 0
    needs = type(op).needs
    out.needed = "output" in needs
    looks = "inputs" in needs
    for x in inputs:
        if looks:
            x.needed = True
        elif x.op is not None and not x.needed and not x.watched and x.uses == 1 and x.array is not None \
                and (type(x.array) is not tuple or "output" not in type(x.op).needs):
            latest = (latest + 1) % CANDIDATES
            if candidates[latest] is not NULL:
                (<Value> candidates[latest]).watched = False
                watching -= 1
            candidates[latest] = <PyObject*> x
            x.watched = True
            watching += 1
    return 0


cdef int note_origin(Op op, Value out, Modes* here) except -1:
    """In anomaly and in lazy mode: remember the line that made a value. What is computed is checked; gradients when sent on."""
    if here.guarded is not NULL:
        out.origin = (<Value> here.guarded).origin
        return 0
    from needle.modes import check_forward, line_of_user
    out.origin = line_of_user()
    if out.array is not None:
        check_forward(op, out.array, out.origin, here.anomaly)
    return 0


cdef object compute(Op op, tuple inputs):
    """op.compute of the inputs' data"""
    cdef Py_ssize_t n = PyTuple_GET_SIZE(inputs)
    cdef object data
    cdef object function
    if op.seen == 0 or op.seen != type_version(op):
        op.compute_function = type(op).compute      # of the class: a look into the instance first makes its __dict__
        op.seen = type_version(op)
    function = op.compute_function
    if n == 2:
        data = function(op, realized(<Value> entry(inputs, 0)), realized(<Value> entry(inputs, 1)))
    elif n == 1:
        data = function(op, realized(<Value> entry(inputs, 0)))
    elif n == 3:
        data = function(op, realized(<Value> entry(inputs, 0)), realized(<Value> entry(inputs, 1)),
                        realized(<Value> entry(inputs, 2)))
    else:
        data = function(op, *[realized(<Value> x) for x in inputs])
    if type(data) is not ndarray_type:
        data = checked(op, data, inputs)
    elif code_of(<PyObject*> data) < suspicious:
        return data
    return settled(op, data, inputs)


cdef object settled(Op op, object data, tuple inputs):
    """A result in the dtype of tensors: integers take that of the floats beside them, else the default; see `result_dtype`"""
    cdef int integers = 0, floats = 0, code, wanted
    cdef list arrays
    if type(data) is tuple:
        return tuple([settled(op, d, inputs) for d in data])
    code = code_of(<PyObject*> data)
    if code < suspicious:
        return data
    arrays = [realized(<Value> x) for x in inputs]
    for x in arrays:
        for part in x if type(x) is tuple else (x,):
            if code_of(<PyObject*> part) < FLOAT32:
                integers += 1
            else:
                floats = max(floats, code_of(<PyObject*> part))
    wanted = floats if floats else get_default_dtype().code
    if integers == 0 or code == wanted:
        return data
    if code > wanted:
        return data.astype(DTYPES[wanted])
    # bytes computed in float32, where the default is float64: once more, without the rounding; masks stay masks
    arrays = [x.astype("float64") if x.dtype == "uint8" or len(arrays) == 1 else x for x in arrays]
    return type(op).compute(op, *arrays).astype("float64", copy=False)


cdef object checked(Op op, object data, tuple inputs):
    """What an op may return besides an NDArray: a tuple of them, or something NumPy made"""
    if isinstance(op, TensorTupleOp):
        if isinstance(data, (tuple, list)):
            return tuple([d if isinstance(d, ndarray_type) else checked(None, d, inputs) for d in data])
        raise TypeError(f"{type(op).__name__}.compute returned {type(data).__name__}, expected a tuple of NDArrays")
    if isinstance(data, ndarray_type):
        return data
    if isinstance(data, (np.ndarray, np.generic, float, int)):
        return array_api.asarray(np.asarray(data), device=inputs[0].device)
    raise TypeError(f"{type(op).__name__}.compute returned {type(data).__name__}, expected an NDArray")


cdef inline object realized(Value value):
    return value.array if value.array is not None else realize(value)


cdef object read(Value value):
    """The data for somebody outside of the engine. A gradient must not see what was written after its node was computed."""
    cdef Modes* here = modes_here()
    cdef object data = realize(value)
    if here.guarded is not NULL and write_clock[0] != (<Value> here.guarded).stamp \
            and (value.uses or <PyObject*> value is here.guarded):      # what no node uses, the gradient has made itself
        check_unchanged(value, <Value> here.guarded, "its gradient needs the old one")
    return data


cdef object realize(Value value):
    """Compute a value that is lazy or was dropped, and what it needs, without recursion; each once"""
    cdef Value top, x
    cdef Modes* here
    cdef PyObject* guarded
    cdef list stack
    if value.array is not None:
        return value.array
    here = modes_here()
    guarded, here.guarded = here.guarded, NULL
    stack = [value]
    try:
        while stack:
            top = <Value> stack[len(stack) - 1]
            if top.array is not None:
                stack.pop()
                continue
            if top.op is None:
                raise ValueError("the value holds no data")
            waiting = [x for x in top.inputs if x.array is None]
            if waiting:
                stack += reversed(waiting)
                continue
            for x in top.inputs:
                check_unchanged(x, top, "the result was dropped after backward, or not yet computed, and needs the old one")
            try:
                top.array = compute(<Op> top.op, top.inputs)
            except Exception as error:
                if top.origin is not None:
                    from needle.modes import name_origin
                    name_origin(error, top.op, top.origin)
                raise
            top.spec = None
            top.stamp = write_clock[0]
            if here.anomaly:
                from needle.modes import check_forward
                check_forward(top.op, top.array, top.origin, here.anomaly)
            if not top.wants_grad:
                forget_inputs(top)
    finally:
        here.guarded = guarded
    return value.array


cdef int forget_inputs(Value value) except -1:
    """Make a leaf of a lazy value that needs no gradient, now that it is computed."""
    for x in value.inputs:
        (<Value> x).uses -= 1
    value.op, value.inputs = None, ()
    return 0


cdef int check_unchanged(Value x, Value node, str why) except -1:
    """Raise if x was written to after `node` was computed from it."""
    cdef long long since = max(node.stamp, x.stamp)
    if x.assigned_at <= node.stamp:
        if write_clock[0] == since or x.array is None:
            return 0
        if last_write(x.array) <= since:
            return 0
    kind = f"{type(x.op).__name__}'s result" if x.op is not None else "a leaf"
    shape = tuple([entry[0] for entry in x.known]) if isinstance(x, TensorTuple) else x.shape
    raise RuntimeError(f"{type(node.op).__name__}: its input of shape {shape} ({kind}) was changed in place after it was used;"
                       f" {why}. Change a copy instead, or call backward() before the change")


cdef long long last_write(object data) except -1:
    if type(data) is tuple:
        return max([last_write(d) for d in data]) if data else 0
    cdef long long version = version_of(<PyObject*> data)
    return version if version >= 0 else data.version


include "autograd_tensor.pxi"
include "autograd_backward.pxi"

# What `from needle.autograd import *` gives: not the modules this one imports.
__all__ = [_name for _name, _value in list(globals().items())
           if not _name.startswith("_") and type(_value) is not type(np) and _value is not bounded]
