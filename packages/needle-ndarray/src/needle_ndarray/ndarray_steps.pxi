# What an optimizer's step asks of its arrays, here because a model has hundreds of them. Included by ndarray.pyx.

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


def prepare_step(str what not None, list params not None, list grads not None, tuple states not None):
    """Check the arrays of an optimizer's step and count the writes to them.

    Gradients that share memory with what will be written are replaced in their list by copies. Returns whether all that will be
    written lies apart, so that the parameters may be taken in any order.
    """
    cdef list arrays
    cdef NDArray a
    cdef Py_ssize_t i
    cdef bint apart = True, foreign = False
    check_members(what, "parameter", params, params, True)
    check_members(what, "gradient", grads, params, False)
    for arrays in states:
        check_members(what, "state", arrays, params, True)
    cdef long long start = tick()
    for arrays in (params, *states):
        for i in range(len(params)):
            a = <NDArray> arrays[i]
            foreign = foreign or borrowed(a)
            apart = apart and not foreign and not written_since(a, start)
            a.mark_written()
    for i in range(len(params)):
        a = <NDArray> grads[i]
        if written_since(a, start) or foreign and borrowed(a):
            grads[i] = compact_copy(a)
    return apart
