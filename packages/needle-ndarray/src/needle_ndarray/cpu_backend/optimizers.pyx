"""Optimizer steps of the CPU backend: what guards the memory (rules), and the call of the kernel."""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from needle_ndarray.backend cimport STEP_OP, Op
from needle_ndarray.cpu_backend.guard cimport NOGIL_FROM, THREADS_FROM, known
from needle_ndarray.kernels cimport optim
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport ADAMW, NESTEROV, SGD
from needle_ndarray.rules cimport Rule
from needle_ndarray.threads cimport threads_for

from needle_ndarray.rules import RULES

cdef enum:
    THREADS_FROM_ADAM = 32768       # elements of all parameters from which a second thread pays: it divides, SGD only moves


cdef Rule SGD_RULE = RULES["sgd_step"], ADAM_RULE = RULES["adam_step"]


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
        if op.code == ADAMW:
            rule.decay, rule.weight_decay = rule.lr * rule.weight_decay, 0
    rule.one_minus_beta1 = 1 - rule.one_minus_beta1     # 1 - dampening, or 1 - beta1
    if rule.op == optim.ADAM:
        return run(ADAM_RULE, (params, grads, m, v), &rule)
    return run(SGD_RULE, (params, grads) if m is None else (params, grads, m), &rule)


cdef int run(Rule lists, tuple given, const optim.Rule* rule) except -1:
    """One step of every parameter, given as lists of parameters, gradients and states"""
    cdef int kinds = len(given)
    cdef Py_ssize_t count, total = 0, odd = 0, i
    cdef optim.Item* items
    cdef optim.Item* item
    cdef View* views
    cdef NDArray a
    cdef int k, threads
    lists.walk(given, True)             # everything is checked before anything is written
    count = len(<list> given[0])
    for i in range(count):
        for k in range(kinds):
            a = <NDArray> (<list> given[k])[i]
            odd += not a._compact
        total += a._size
    items = <optim.Item*> malloc((count + 1) * sizeof(optim.Item) + odd * 4 * sizeof(View))
    if items is NULL:
        raise MemoryError(f"{lists.name}: {count} parameters")
    views = <View*> (items + count)
    for i in range(count):
        item = &items[i]
        item.views = NULL
        for k in range(4):
            item.at[k] = NULL
        for k in range(kinds):
            a = <NDArray> (<list> given[k])[i]
            item.size, item.dtype, item.at[k] = a._size, a._dtype, a._ptr
            if not a._compact:
                item.views = views
        if item.views is not NULL:
            for k in range(kinds):
                (<NDArray> (<list> given[k])[i]).view_into(&views[k])
            views += 4
    threads = threads_for(total, THREADS_FROM_ADAM if rule.op == optim.ADAM else THREADS_FROM)
    if total < NOGIL_FROM:
        optim.run_steps(rule, items, count, 1)
    else:
        try:
            _held = [list(arrays) for arrays in given]     # another thread may empty the lists given
        except MemoryError:
            free(items)
            raise
        with nogil:
            optim.run_steps(rule, items, count, threads)
    free(items)
    return 0
