"""When data may go.

The invariant: data is dropped only if it can be had again and nobody can be looking at it.

It can be had again if its value was recorded, nobody has put other data in (`assigned`), and its array was not written to since
it was computed (`stamp`): `realize` computes it from the inputs, which were dropped by the same rule or are leaves.
Nobody can be looking if the references to the value are those of the nodes that were made from it (`uses`), and of variables of
the engine's own, which whoever asks counts (`held`).

Two ask. Recording: an input that no gradient looks at (`needed`) goes before backward, as soon as the caller has let go of it.
Backward: every value, and what a gradient has made on its way, goes once the walk is past it.

Whether a gradient may be handed out as it is, or has to be copied, is the same kind of question, so it is answered here too.
"""

from cpython.object cimport PyObject

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.modes cimport Modes, modes_here
from needle.autograd.operators cimport operators
from needle.autograd.recording cimport apply, last_write
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Op, TensorTuple, Value

cdef extern from *:
    Py_ssize_t Py_REFCNT(PyObject* value) noexcept nogil

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
    del made[:]
    return 0


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
    cdef Py_ssize_t n = len(made), held = 2
    if n and <PyObject*> made[n - 1] is <PyObject*> grad:
        held = 3
    if isinstance(grad, TensorTuple) or value.uses == 0 and Py_REFCNT(<PyObject*> grad) <= held and value.array is not None \
            and arrays.is_sole_owner(<PyObject*> value.array):
        return grad
    return apply(operators().clone, (grad,))


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
