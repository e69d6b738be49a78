"""Recording and computing: what calling an op does.

An op is computed at once, unless lazy mode is on, and its result remembers the op and its inputs where one of these requires a
gradient. `realize` computes what is lazy, or was dropped; the write clock of needle_ndarray (one counter for all writes to all
arrays) tells whether the inputs are still what they were.
"""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE

import needle_ndarray as array_api
import numpy as np
from needle_ndarray.extension import active_recorder

from needle.autograd.arguments cimport as_values
from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.dtype_rules cimport settled, settled_from
from needle.autograd.memory cimport LARGE, add_uses, drop_unneeded, remove_uses, watching
from needle.autograd.modes cimport Modes, is_lazy, modes_here
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op, TensorTuple, TensorTupleOp, Value, entry

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


class Dropped:
    """Noted in place of the data of a gradient that was dropped before anything was computed from it"""

    _handle = object()


cdef object DROPPED = Dropped()
cdef Arrays arrays = load_arrays()
cdef object ndarray_type = array_api.NDArray


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
    cdef bint recorded = False, large
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(inputs)):
        if type(<object> entry(inputs, i)) is not Tensor and not isinstance(<object> entry(inputs, i), Value):
            return record(op, as_values(op, inputs), out, None)
        recorded |= (<Value> entry(inputs, i)).wants_grad
    recorded = recorded and not here.no_grad
    if here.used is not NULL:
        note_used(inputs, here, recorded)
    if is_lazy(here):
        note_origin(op, out, here)      # for the error, which comes later and elsewhere
    else:
        if here.guarded is not NULL:
            check_inputs(inputs, <Value> here.guarded)
        out.array = compute(op, inputs) if data is None else data
        out.stamp = arrays.clock[0]
        if here.anomaly or here.trace is not NULL:
            note_origin(op, out, here)
        if not recorded and here.trace is NULL:
            return 0
    out.op, out.inputs, out.wants_grad = op, inputs, recorded
    add_uses(inputs)
    large = arrays.nbytes(<PyObject*> out.array) >= LARGE
    if large or watching:
        drop_unneeded(op, inputs, out, large)
    if here.made is not NULL:
        (<list> here.made).append(out)
    if here.trace is not NULL:
        (<list> here.trace).append(out)
    return 0


cdef int note_used(tuple inputs, Modes* here, bint recorded) except -1:
    """While capturing: remember the values that were there before it began, with the data and gradient they have now."""
    cdef dict used = <dict> here.used
    cdef Value x
    for x in inputs:
        if x.stamp < here.since:
            if recorded and x.wants_grad and x.op is not None:
                active_recorder().refuse("uses a tensor whose graph was recorded before the call")
            if id(x) not in used:
                used[id(x)] = (x, x.array, None if x.gradient is None else (<Value> x.gradient).array, flag_bits(x))
    return 0


cdef int note_dropped(Value value, Modes* here) except -1:
    """While capturing: a gradient is dropped that nobody else holds and no call has read. That there was one is enough to know."""
    cdef dict used = <dict> here.used
    cdef Value gradient = value.gradient
    cdef tuple noted = used.get(id(value))
    if gradient is None or noted is None or noted[2] is None or noted[2] is not gradient.array \
            or id(gradient.array._handle) in active_recorder().outside_numbers:
        return 0
    if Py_REFCNT(<PyObject*> gradient) == 2 and Py_REFCNT(<PyObject*> gradient.array) == 2:   # here too, and in the note
        used[id(value)] = noted[0], noted[1], DROPPED, noted[3]
    return 0


cdef int flag_bits(Value value) noexcept:
    """What decides, besides the data, which graph is recorded and where gradients go."""
    return (value.wants_grad + 2 * value.retains_grad + 4 * (value.hooks is not None and len(value.hooks) > 0)
            + 8 * (value.gradient is not None) + 16 * (value.wants_grad and value.op is not None))


cdef int listeners = 0          # how many want to know which op is computed


def name_ops(bint wanted):
    """From now on `current_op` knows the op that is computed; each call with True is undone by one with False."""
    global listeners
    listeners += 1 if wanted else -1


def current_op():
    """(name, backward): the op that this thread computes or whose gradient it computes, "" for none; whether it walks backward."""
    cdef Modes* here = modes_here()
    if here.guarded is not NULL:
        return type((<Value> here.guarded).op).__name__, True
    return "" if here.op is NULL else type(<object> here.op).__name__, here.walking > 0


cdef object compute_named(Op op, tuple inputs):
    """`compute`, with the op known to `current_op` meanwhile"""
    cdef Modes* here = modes_here()
    cdef PyObject* outer = here.op
    here.op = <PyObject*> op
    try:
        return compute(op, inputs)
    finally:
        here.op = outer


cdef object compute(Op op, tuple inputs):
    """op.compute of the inputs' data"""
    cdef Py_ssize_t n = PyTuple_GET_SIZE(inputs)
    cdef object data, function
    if listeners != 0 and modes_here().op is not <PyObject*> op:
        return compute_named(op, inputs)
    find_compute(op)
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
    elif arrays.dtype_code(<PyObject*> data) < settled_from:
        return data
    return settled(op, data, inputs)


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


cdef int note_origin(Op op, Value out, Modes* here) except -1:
    """Remember the line that made a value. In anomaly mode, what is computed is checked; gradients when sent on."""
    if here.guarded is not NULL:
        out.origin = (<Value> here.guarded).origin
        return 0
    from needle.modes import check_forward, line_of_user
    out.origin = line_of_user()
    if out.array is not None and here.anomaly:
        check_forward(op, out.array, out.origin, here.anomaly)
    return 0


cdef object read(Value value):
    """The data for somebody outside of the engine. A gradient must not see what was written after its node was computed."""
    cdef Modes* here = modes_here()
    cdef object data = realize(value)
    if here.used is not NULL:
        note_used((value,), here, False)
    if here.guarded is not NULL and arrays.clock[0] != (<Value> here.guarded).stamp \
            and (value.uses or <PyObject*> value is here.guarded):      # what no node uses, the gradient has made itself
        check_unchanged(value, <Value> here.guarded, "its gradient needs the old one")
    return data


cdef object realize(Value value):
    """Compute a value that is lazy or was dropped, and what it needs, without recursion; each once"""
    cdef Value top, x
    cdef Modes* here
    cdef PyObject* guarded
    cdef list stack, waiting
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
            recompute(top, here)
    finally:
        here.guarded = guarded
    return value.array


cdef int recompute(Value value, Modes* here) except -1:
    """Compute a value whose inputs are there, if they are what they were"""
    cdef Value x
    for x in value.inputs:
        check_unchanged(x, value, "the result was dropped after backward, or not yet computed, and needs the old one")
    try:
        value.array = compute(<Op> value.op, value.inputs)
    except Exception as error:
        if value.origin is not None:
            from needle.modes import name_origin
            name_origin(error, value.op, value.origin)
        raise
    value.spec = None
    value.stamp = arrays.clock[0]
    if here.anomaly:
        from needle.modes import check_forward
        check_forward(value.op, value.array, value.origin, here.anomaly)
    if not value.wants_grad:
        forget_inputs(value)
    return 0


cdef int forget_inputs(Value value) except -1:
    """Make a leaf of a lazy value that needs no gradient, now that it is computed."""
    remove_uses(value.inputs)
    value.op, value.inputs = None, ()
    return 0


# ---- What was written to -----------------------------------------------------------------------------------------------

cdef int check_inputs(tuple inputs, Value node) except -1:
    """Raise if what a gradient is about to use was written to after its node was computed."""
    if arrays.clock[0] != node.stamp:
        for x in inputs:
            check_unchanged(<Value> x, node, "its gradient needs the old one")
    return 0


cdef int check_unchanged(Value x, Value node, str why) except -1:
    """Raise if x was written to after `node` was computed from it."""
    cdef long long since = max(node.stamp, x.stamp)
    if x.assigned_at <= node.stamp:
        if arrays.clock[0] == since or x.array is None:
            return 0
        if last_write(x.array) <= since:
            return 0
    kind = f"{type(x.op).__name__}'s result" if x.op is not None else "a leaf"
    shape = tuple([known[0] for known in x.known]) if isinstance(x, TensorTuple) else x.shape
    raise RuntimeError(f"{type(node.op).__name__}: its input of shape {shape} ({kind}) was changed in place after it was used;"
                       f" {why}. Change a copy instead, or call backward() before the change")


cdef long long last_write(object data) except -1:
    if type(data) is tuple:
        return max([last_write(d) for d in data]) if data else 0
    cdef long long version = arrays.version(<PyObject*> data)
    return version if version >= 0 else data.version
