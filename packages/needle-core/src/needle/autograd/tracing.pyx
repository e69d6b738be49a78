"""Traces: everything a function computes, whether or not a gradient is wanted.

What calling an op makes is a node of the trace. So are the results of functions without a derivative, which are constants
otherwise. Data that leaves the engine (`x.numpy()`, `if x:`), and data that is written to, is noted with its line: what somebody
does with it no op records, and whoever goes by the trace has to know.
"""

from cpython.object cimport PyObject

import needle_ndarray as array_api

from needle.autograd.memory cimport add_uses
from needle.autograd.modes cimport Modes, modes_here
from needle.autograd.recording cimport read
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op, Value, make_leaf


def trace(function, args):
    """function(*args), and a list of what happened on the way.

    Its entries are the Values that were made, in order, and (what, value, line) for data that was "read" outside of ops, "written"
    to, or "rewritten": after an op had used it.
    """
    cdef Modes* here = modes_here()
    cdef object outer = <object> here.trace if here.trace is not NULL else None
    cdef list happened = []
    here.trace = <PyObject*> happened
    try:
        result = function(*args)
    finally:
        here.trace = <PyObject*> outer if outer is not None else NULL
    if outer is not None:
        (<list> outer).extend(happened)
    return result, happened


def is_tracing():
    """Whether this thread is within `trace`."""
    return modes_here().trace is not NULL


def keep_in_trace(Tensor out not None, Op op not None, inputs):
    """Make a node of a constant that an op without a derivative gave, for the trace that is being made."""
    cdef Modes* here = modes_here()
    if here.trace is NULL or out.op is not None:
        raise ValueError("keep_in_trace: expected a constant, and a trace that is being made")
    from needle.modes import line_of_user
    out.inputs = tuple([x if isinstance(x, Value) else make_leaf(Tensor, array_api.asarray(x), False) for x in inputs])
    out.op, out.origin = op, line_of_user()
    add_uses(out.inputs)
    (<list> here.trace).append(out)


def constant(function, *inputs, **settings):
    """What a function of arrays without a derivative gives for Tensors, arrays and numbers: a constant, and a node of traces"""
    cdef Value out = make_leaf(Tensor, function(*[read(<Value> x) if isinstance(x, Value) else x for x in inputs], **settings),
                               False)
    if modes_here().trace is not NULL:
        from needle.ops.helpers import Undifferentiable
        keep_in_trace(out, Undifferentiable(function, settings), inputs)
    return out


def data_of(Value value not None):
    """The data, for a function that tells the trace itself what it does with it."""
    return read(value)


cpdef object handed_out(Value value):
    """The data for somebody whose work no op records"""
    note("read", value)
    return read(value)


cdef int note_read(Value value) except -1:
    """Before data goes where no op records it"""
    return note("read", value)


cdef int note_write(Value value) except -1:
    """Before data is written to, or replaced"""
    return note("rewritten" if value.uses else "written", value)


cdef int note(str what, Value value) except -1:
    cdef Modes* here = modes_here()
    if here.trace is not NULL:
        from needle.modes import line_of_user
        (<list> here.trace).append((what, value, line_of_user()))
    return 0
