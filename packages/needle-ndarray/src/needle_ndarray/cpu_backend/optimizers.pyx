"""Optimizer steps of the CPU backend: checks that guard the memory, and the call of the kernel."""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from needle_ndarray.backend cimport STEP_OP, Op
from needle_ndarray.buffer cimport Buffer
from needle_ndarray.cpu_backend.guard cimport NOGIL_FROM, THREADS_FROM, TOO_MANY, known, refuse
from needle_ndarray.kernels cimport optim
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport ADAMW, FLOAT32, NESTEROV, SGD
from needle_ndarray.threads cimport threads_for

cdef enum:
    THREADS_FROM_ADAM = 32768       # elements of all parameters from which a second thread pays: it divides, SGD only moves


cdef int step(Op op, list params, list grads, list m, list v, tuple hyperparameters) except -1:
    known(op, STEP_OP)
    cdef optim.Rule rule
    memset(&rule, 0, sizeof(rule))
    if op.code == SGD or op.code == NESTEROV:
        rule.op, rule.nesterov = optim.SGD, op.code == NESTEROV
        rule.lr, rule.beta1, rule.one_minus_beta1, rule.weight_decay, rule.l1, rule.correction1 = hyperparameters
    else:
        rule.op = optim.ADAM
        rule.lr, rule.beta1, rule.beta2, rule.eps, rule.weight_decay, rule.correction1, rule.correction2 = hyperparameters
        rule.one_minus_beta1, rule.one_minus_beta2 = rule.beta1, 1 - rule.beta2
        if m is None or v is None:
            raise refuse(op.name)
        if op.code == ADAMW:
            rule.decay, rule.weight_decay = rule.lr * rule.weight_decay, 0
    rule.one_minus_beta1 = 1 - rule.one_minus_beta1     # 1 - dampening, or 1 - beta1
    return run(op.name, params, grads, m, v, &rule)


cdef int run(str verb, list params, list grads, list m, list v, const optim.Rule* rule) except -1:
    """One step of every parameter; m and v may be None"""
    cdef tuple given = (params, grads, m, v)
    cdef Py_ssize_t count, total = 0, odd = 0, i
    cdef optim.Item* items
    cdef optim.Item* item
    cdef View* views
    cdef NDArray p, a
    cdef int k, threads
    if params is None or grads is None:
        raise refuse(verb)
    count = len(params)
    for k in range(4):
        if given[k] is not None and len(<list> given[k]) != count:
            raise refuse(verb)
    for i in range(count):              # everything is checked before anything is written
        p = <NDArray?> params[i]
        for k in range(4):
            if given[k] is None:
                continue
            a = <NDArray?> (<list> given[k])[i]
            if a._ptr is NULL and (a._size or not isinstance(a._buffer, Buffer)):
                raise TypeError(f"the cpu backend was given an array on {a.device}")
            if p._dtype < FLOAT32 or a._dtype != p._dtype or not alike_shapes(a, p):
                raise refuse(verb)
            odd += not a._compact
        if p._size > TOO_MANY:
            raise MemoryError(f"{verb}: {p._size} elements")
        total += p._size
    items = <optim.Item*> malloc((count + 1) * sizeof(optim.Item) + odd * 4 * sizeof(View))
    if items is NULL:
        raise MemoryError(f"{verb}: {count} parameters")
    views = <View*> (items + count)
    for i in range(count):
        item = &items[i]
        p = <NDArray> params[i]
        item.size, item.dtype, item.views = p._size, p._dtype, NULL
        for k in range(4):
            item.at[k] = NULL
            if given[k] is not None:
                a = <NDArray> (<list> given[k])[i]
                item.at[k] = a._ptr
                if not a._compact:
                    item.views = views
        if item.views is not NULL:
            for k in range(4):
                if given[k] is not None:
                    (<NDArray> (<list> given[k])[i]).view_into(&views[k])
            views += 4
    threads = threads_for(total, THREADS_FROM_ADAM if rule.op == optim.ADAM else THREADS_FROM)
    if total < NOGIL_FROM:
        optim.run_steps(rule, items, count, 1)
    else:
        try:
            _held = [list(arrays) for arrays in given if arrays is not None]     # another thread may empty the lists given
        except MemoryError:
            free(items)
            raise
        with nogil:
            optim.run_steps(rule, items, count, threads)
    free(items)
    return 0


cdef inline bint alike_shapes(NDArray a, NDArray b) noexcept:
    cdef int i
    if a._ndim != b._ndim:
        return False
    for i in range(a._ndim):
        if a._shape[i] != b._shape[i]:
            return False
    return True
