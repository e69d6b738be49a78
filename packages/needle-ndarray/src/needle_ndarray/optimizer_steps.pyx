"""What an optimizer's step asks of its arrays: compiled, because a model has hundreds of them."""

from needle_ndarray.backend cimport STEP_OP, Backend, Op
from needle_ndarray.buffer cimport Buffer, tick
from needle_ndarray.ndarray cimport NDArray, compact_copy
from needle_ndarray.rules cimport Rule

from needle_ndarray.rules import RULES


cdef inline bint written_since(NDArray a, long long start):
    return (<Buffer> a._buffer).version > start if isinstance(a._buffer, Buffer) else a._buffer.version > start


cdef inline bint borrowed(NDArray a) noexcept:
    """Memory of somebody else, of which other buffers may know too"""
    return isinstance(a._buffer, Buffer) and (<Buffer> a._buffer).size_class < 0


def run_step(str what not None, Op op not None, tuple given not None, tuple hyperparameters not None):
    """Call the backend's step with lists of parameters, gradients and up to two kinds of state.

    The lists are checked; where some of what will be written shares memory, one parameter is taken after the other.
    """
    if op.verb != STEP_OP:
        raise TypeError(f"{what}: {op.name} is not an op of step")
    if not 2 <= len(given) <= 4:
        raise ValueError(f"{what}: expected lists of parameters, of gradients and of up to two states, got {len(given)} lists")
    cdef list lists = [list(arrays) if isinstance(arrays, (list, tuple)) else arrays for arrays in given]
    cdef Py_ssize_t i, count = len(lists)
    (<Rule> RULES[what]).walk(tuple(lists), False)
    cdef bint disjoint = prepare_step(lists[0], lists[1], lists[2:])
    if not lists[0]:
        return
    cdef Backend backend = (<NDArray> lists[0][0])._backend
    cdef list params = lists[0], grads = lists[1], m = lists[2] if count > 2 else None, v = lists[3] if count > 3 else None
    if disjoint:
        backend.step(op, params, grads, m, v, hyperparameters)
    else:
        for i in range(len(params)):
            backend.step(op, [params[i]], [grads[i]], None if m is None else [m[i]], None if v is None else [v[i]],
                         hyperparameters)


cdef bint prepare_step(list params, list grads, list states) except -1:
    """Count the writes to the arrays of an optimizer's step.

    Gradients that share memory with what will be written are replaced in their list by copies. Returns whether nothing that
    will be written overlaps, so that the parameters may be taken in any order.
    """
    cdef list arrays
    cdef NDArray a
    cdef Py_ssize_t i
    cdef bint disjoint = True, foreign = False
    cdef long long start = tick()
    for arrays in [params] + states:
        for i in range(len(params)):
            a = <NDArray> arrays[i]
            foreign = foreign or borrowed(a)
            disjoint = disjoint and not foreign and not written_since(a, start)
            a.mark_written()
    for i in range(len(params)):
        a = <NDArray> grads[i]
        if written_since(a, start) or foreign and borrowed(a):
            grads[i] = compact_copy(a)
    return disjoint
