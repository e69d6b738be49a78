"""What an optimizer's step asks of its arrays: compiled, because a model has hundreds of them."""

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.buffer cimport Buffer, tick
from needle_ndarray.layout cimport check_writable, same_shape
from needle_ndarray.ndarray cimport NDArray, compact_copy
from needle_ndarray.optable cimport FLOAT32


cdef inline bint written_since(NDArray a, long long start):
    return (<Buffer> a._buffer).version > start if isinstance(a._buffer, Buffer) else a._buffer.version > start


cdef inline bint borrowed(NDArray a) noexcept:
    """Memory of somebody else, of which other buffers may know too"""
    return isinstance(a._buffer, Buffer) and (<Buffer> a._buffer).size_class < 0


cdef int check_members(str what, str name, list given, list params, bint target) except -1:
    """Each array is like its parameter, and all are on one device"""
    cdef NDArray p, a, first
    cdef Py_ssize_t i
    if len(given) != len(params):
        raise ValueError(f"{what}: {len(params)} parameters, but {len(given)} {name}s")
    for i in range(len(params)):
        if not isinstance(given[i], NDArray):
            raise TypeError(f"{what}: {name} {i}: expected an NDArray, got {type(given[i]).__name__}")
        a, p, first = <NDArray> given[i], <NDArray> params[i], <NDArray> params[0]
        if a._backend is not first._backend:
            raise ValueError(f"{what}: {name} {i} is on {a.device}, parameter 0 on {first.device}; move it with .to(device)")
        if a._dtype != p._dtype:
            raise TypeError(f"{what}: {name} {i} is {a.dtype}, its parameter {p.dtype}")
        if a._dtype < FLOAT32:
            raise TypeError(f"{what}: {name} {i} is {a.dtype}, expected float32 or float64")
        if not same_shape(a, p):
            raise ValueError(f"{what}: {name} {i} has shape {a.shape}, its parameter {p.shape}")
        if target and not a._compact:
            check_writable(f"{what}: {name} {i}", a)
    return 0


def run_step(str what not None, Op rule not None, tuple given not None, tuple hyperparameters not None):
    """Call the backend's step with lists of parameters, gradients and up to two kinds of state.

    The lists are checked; where some of what will be written shares memory, one parameter is taken after the other.
    """
    cdef list lists = []
    cdef Py_ssize_t i
    for arrays in given:
        if not isinstance(arrays, (list, tuple)):
            raise TypeError(f"{what}: expected lists of NDArrays, got {type(arrays).__name__}")
        lists.append(list(arrays))
    cdef int count = len(lists)
    if not 2 <= count <= 4:
        raise ValueError(f"{what}: expected lists of parameters, of gradients and of up to two states, got {count} lists")
    cdef bint disjoint = prepare_step(what, lists[0], lists[1], lists[2:])
    if not lists[0]:
        return
    cdef Backend backend = (<NDArray> lists[0][0])._backend
    cdef list params = lists[0], grads = lists[1], m = lists[2] if count > 2 else None, v = lists[3] if count > 3 else None
    if disjoint:
        backend.step(rule, params, grads, m, v, hyperparameters)
    else:
        for i in range(len(params)):
            backend.step(rule, [params[i]], [grads[i]], None if m is None else [m[i]], None if v is None else [v[i]],
                         hyperparameters)


def suits_step(list arrays not None, list grads not None):
    """Whether all arrays are compact and like their gradients: what is nearly always so."""
    cdef NDArray a, g
    for x, y in zip(arrays, grads):
        a, g = <NDArray?> x, <NDArray?> y
        if not a._compact or a._dtype != g._dtype or not same_shape(a, g):
            return False
    return True


cdef bint prepare_step(str what, list params, list grads, list states) except -1:
    """Check the arrays of an optimizer's step and count the writes to them.

    Gradients that share memory with what will be written are replaced in their list by copies. Returns whether nothing that
    will be written overlaps, so that the parameters may be taken in any order.
    """
    cdef list arrays
    cdef NDArray a
    cdef Py_ssize_t i
    cdef bint disjoint = True, foreign = False
    check_members(what, "parameter", params, params, True)
    check_members(what, "gradient", grads, params, False)
    for arrays in states:
        check_members(what, "state", arrays, params, True)
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
