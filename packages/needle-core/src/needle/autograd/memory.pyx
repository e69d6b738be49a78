"""When data may go.

The invariant: data is dropped only if it can be had again and nobody can be looking at it.

It can be had again if its value was recorded, nobody has put other data in (`assigned`), and its array was not written to since
it was computed (`stamp`): `realize` computes it from the inputs, which were dropped by the same rule or are leaves.
Nobody can be looking if the references to the value are those of the nodes that were made from it (`uses`), and of variables of
the engine's own, which whoever asks counts (`held`).

Two ask. Recording: an input that no gradient looks at (`needed`) goes before backward, as soon as the caller has let go of it.
Backward: every value, and what a gradient has made on its way, goes once the walk is past it.

Whether a gradient may be handed out as it is, or has to be copied, is the same kind of question, so it is answered here too. The
gradient of a leaf is in nobody else's memory once somebody has looked at it. Before that, leaves may share one with each other
and with graphs (`lent`): `a + b` has one gradient for both, which most programs never write to.
"""

from cpython.object cimport PyObject
from libc.string cimport memset

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.modes cimport Modes, modes_here
from needle.autograd.operators cimport operators
from needle.autograd.recording cimport apply, last_write
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op, TensorTuple, Value

cdef extern from *:
    Py_ssize_t Py_REFCNT(PyObject* value) noexcept nogil
    int PyList_SetSlice(object values, Py_ssize_t low, Py_ssize_t high, PyObject* others) except -1

cdef Arrays arrays = load_arrays()


cdef int release(Value value, Py_ssize_t held) except -1:
    """Drop the data of a recorded value if only the graph holds it, and the `held` references of the caller."""
    if value.op is None or value.array is None or value.assigned \
            or Py_REFCNT(<PyObject*> value) > value.uses + held:
        return 0
    if arrays.clock[0] != value.stamp and last_write(value.array) > value.stamp:
        return 0                        # written to in place: computing it again would give something else
    if type(value.array) is tuple:
        value.spec = tuple([(d.shape, d.dtype, d.device) for d in value.array])
    else:
        if arrays.nbytes(<PyObject*> value.array) < SMALL:
            return 0
        value.spec = (value.array.shape, value.array.dtype, value.array.device)
    value.array = None
    return 0


# ---- While recording: what no gradient looks at --------------------------------------------------------------------------

cdef enum:
    CANDIDATES = 8

cdef PyObject* candidates[CANDIDATES]       # a ring; borrowed: a value takes itself out when it dies
cdef int latest = 0


cdef void forget_candidate(PyObject* value) noexcept:
    global watching
    cdef int i
    for i in range(CANDIDATES):
        if candidates[i] is value:
            candidates[i] = NULL
            watching -= 1


cdef int add_candidate(Value value) except -1:
    """Watch a value until only the graph holds it, or until others have taken its place."""
    global watching, latest
    latest = (latest + 1) % CANDIDATES
    if candidates[latest] is not NULL:
        (<Value> candidates[latest]).watched = False
        watching -= 1
    candidates[latest] = <PyObject*> value
    value.watched = True
    watching += 1
    return 0


cdef int drop_unneeded(Op op, tuple inputs, Value out, bint large) except -1:
    """After an op was recorded: inputs may go once the caller has let go of them; if `large`, those of this op as well."""
    cdef int i
    cdef Value x
    for i in range(CANDIDATES):
        if candidates[i] is not NULL and Py_REFCNT(candidates[i]) <= (<Value> candidates[i]).uses:
            x = <Value> candidates[i]
            x.watched = False
            forget_candidate(<PyObject*> x)
            if not x.needed and x.uses == 1:    # a later, small op may look at it
                release(x, 1)
    if not large:
        return 0
    needs = type(op).needs
    out.needed = "output" in needs
    looks = "inputs" in needs
    for x in inputs:
        if looks:
            x.needed = True
        elif x.op is not None and not x.needed and not x.watched and x.uses == 1 and x.array is not None \
                and (type(x.array) is not tuple or "output" not in type(x.op).needs):
            add_candidate(x)
    return 0


# ---- In backward: what the walk is past -----------------------------------------------------------------------------------

cdef int release_all(list made) except -1:
    """Drop what a gradient made on its way and nobody looks at."""
    cdef Value value
    for value in made:
        release(value, 2)               # held by the list and by the variable
    return PyList_SetSlice(made, 0, len(made), NULL)        # `del made[:]` makes a slice first


cdef object sum_and_release(list terms):
    """The sum; terms that nobody else looks at are dropped as they are added"""
    cdef Tensor total = <Tensor?> terms[0], previous, term
    cdef Py_ssize_t i
    for i in range(1, len(terms)):
        term = <Tensor?> terms[i]
        terms[i] = terms[i - 1] = None
        previous, total = total, apply(operators().add, (total, term))      # not `+`: a subclass may mean something else by it
        release(previous, 1)
        release(term, 1)
    return total


cdef object own(object grad, list made):
    """A gradient in memory of its own: itself where only the caller and the list of what was just made hold it, else a copy.

    The copy is recorded, so that it can be differentiated.
    """
    cdef Value value = <Value> grad     # one reference more
    return grad if isinstance(grad, TensorTuple) or is_private(value, made, 2) else apply(operators().clone, (grad,))


cdef bint is_private(Value grad, list made, Py_ssize_t held) noexcept:
    """Whether only the `held` references of the caller, and the list of what was just made, hold a gradient and its memory"""
    cdef Py_ssize_t n = len(made)
    if n and <PyObject*> made[n - 1] is <PyObject*> grad:
        held += 1
    return grad.uses == 0 and Py_REFCNT(<PyObject*> grad) <= held and is_dense(grad)


cdef bint is_dense(Value grad) noexcept:
    """Whether no other array, and no other view, has its memory, and each element a place of its own"""
    return grad.array is not None and type(grad.array) is not tuple and arrays.is_sole_owner(<PyObject*> grad.array)


cdef int lend(list nodes) except -1:
    """After a walk: gradients of these nodes that only they and graphs hold stay in their common memory until somebody looks.

    What anybody else holds, and could write to, is copied now.
    """
    cdef Value node, grad
    cdef dict holders = {}
    for node in nodes:
        holders[id(node.gradient)] = holders.get(id(node.gradient), 0) + 1
    for node in nodes:
        grad = <Value> node.gradient
        if not is_dense(grad) or Py_REFCNT(<PyObject*> grad) > grad.uses + <Py_ssize_t> holders[id(grad)] + 1:    # and `grad`
            holders[id(grad)] -= 1
            node.gradient = None
            node.gradient, node.lent = own(grad, []), NULL
    return 0


cdef object settled_gradient(Value node):
    """A gradient that was lent: itself where the others are gone by now, else a copy, recorded like those of the walk"""
    cdef Value grad = <Value> node.gradient
    cdef Modes* here = modes_here()
    cdef Modes outer = here[0]
    if grad.uses != 0 or Py_REFCNT(<PyObject*> grad) > 2 or not is_dense(grad):     # held by the node and by the variable
        if grad.array is not None and last_write(grad.array) > grad.stamp:
            raise RuntimeError(f"the gradient of shape {grad.array.shape} was changed in place through a node of a graph that has"
                               " it too, before anybody had looked at it")
        memset(here, 0, sizeof(Modes))
        here.lazy = 2                   # whatever holds where `.grad` is read: the copy is a part of the walk
        try:
            copy = apply(operators().clone, (grad,))
        finally:
            here[0] = outer
        if node.gradient is grad:       # or another thread has been here meanwhile
            node.gradient = copy
    node.lent = NULL
    return node.gradient


def release_made(function, args):
    """function(*args), with the data of everything recorded on the way dropped, except for what somebody else holds."""
    cdef Modes* here = modes_here()
    cdef PyObject* outer = here.made
    cdef list made = []
    here.made = <PyObject*> made
    try:
        result = function(*args)
    finally:
        here.made = outer
    if outer is not NULL:
        (<list> outer).extend(made)
    release_all(made)
    return result
