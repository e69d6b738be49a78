"""A plan at the level of tensors: where its inputs come from, and where its results go."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject

import numpy as np

from needle_ndarray.extension import Runner, like

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.dtype_rules cimport get_default_dtype
from needle.autograd.guards cimport Guard
from needle.autograd.modes cimport Modes, is_lazy, means_torch, modes_here
from needle.autograd.recording cimport flag_bits, realize
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport TensorTuple, Value, assign, make_leaf

from needle_ndarray import NDArray as ndarray_type, empty_cache


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

cdef Arrays arrays = load_arrays()


# ---- While recording ------------------------------------------------------------------------------------------------------

def start_noting(dict used not None):
    """Note in {id: (value, data, gradient's data, flags)} what was there before and is used from now on; how often backward ran."""
    cdef Modes* here = modes_here()
    arrays.clock[0] += 1
    here.used, here.since = <PyObject*> used, arrays.clock[0]
    return here.walks


def stop_noting():
    """How often backward ran."""
    cdef Modes* here = modes_here()
    here.used = NULL
    return here.walks


def data_and_gradient(Value value not None):
    """What a value holds now: its data, and the data of its gradient or None."""
    return value.array, None if value.gradient is None else (<Value> value.gradient).array


def flags(Value value not None):
    """What decides which graph is recorded: whether it requires a gradient, retains it, has hooks, a gradient, a graph."""
    return flag_bits(value)


def was_there(Value value not None):
    """Whether a value was there before the recording that was the last one in this thread."""
    return value.stamp < modes_here().since


def modes_key():
    """What else decides it: None where nothing may be captured: in lazy and in anomaly mode, and in a trace."""
    cdef Modes* here = modes_here()
    if is_lazy(here) or here.anomaly or here.used is not NULL or here.trace is not NULL:
        return None
    return bool(here.no_grad), get_default_dtype(), bool(means_torch(here))


# ---- Arguments and results --------------------------------------------------------------------------------------------------

cdef object LEAF = object()         # a tensor or an array
cdef object AGAIN = object()        # one that was there before, by its number


class Same:
    """A key that is equal to itself alone, and keeps its object alive: objects that are no numbers and no tensors."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return object.__hash__(self.value)

    def __eq__(self, other):
        return isinstance(other, Same) and self.value is other.value


class Unseen(TypeError):
    """An argument that may change without being seen."""


def flatten(object tree, list leaves not None):
    """Append the tensors and arrays of nested tuples, lists and dicts to `leaves`, each once; what else there is, as a key.

    In a key, numbers are equal only if a function cannot tell them from each other: 1, True and 1.0 differ, 0.0 and -0.0 too.
    """
    cdef Py_ssize_t i
    cdef double number
    if isinstance(tree, Tensor) or isinstance(tree, ndarray_type):
        for i in range(len(leaves)):
            if leaves[i] is tree:
                return AGAIN, i
        leaves.append(tree)
        return LEAF, type(tree)
    kind = type(tree)
    if kind is float:
        number = tree
        return kind, PyBytes_FromStringAndSize(<char*> &number, sizeof(double))
    if tree is None or kind is int or kind is bool or kind is str or kind is bytes:
        return kind, tree
    if kind is tuple or kind is list or isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return (kind,) + tuple([flatten(each, leaves) for each in tree])
    if kind is dict:
        return (dict, tuple([flatten(key, leaves) for key in tree])) + tuple([flatten(each, leaves) for each in tree.values()])
    if isinstance(tree, TensorTuple):
        return (kind,) + tuple([flatten(each, leaves) for each in realize(<Value> tree)])
    if isinstance(tree, np.generic):
        return kind, tree.tobytes()
    if isinstance(tree, np.ndarray):
        raise Unseen("a NumPy array, which may change without being seen: pass a Tensor")
    return kind, Same(tree)


# ---- Replaying ------------------------------------------------------------------------------------------------------------

cdef class Known:
    """A tensor that was there before.

    Layout is None where its array has to stay the one it is, `views` where no call looks at it.
    """

    cdef Value value
    cdef object held                    # the array that the plan's views show
    cdef object layout, views
    cdef int flags
    cdef bint written

    def __init__(self, Value value not None, held, layout, views, int flags, bint written):
        self.value, self.held, self.layout, self.views, self.flags, self.written = value, held, layout, views, flags, written


cdef enum:
    SEEN = 255                          # as in needle_ndarray.replay

cdef enum Binding:
    NOTHING, DATA, GRADIENT

cdef dict BINDINGS = {"none": NOTHING, "data": DATA, "gradient": GRADIENT}


cdef class Bound:
    """A result that becomes the gradient or the data of a tensor, or no gradient that takes the place of one.

    kind : "gradient", "data" or "none"
    target : a tensor, or the number of an argument
    result : its number
    renewed : whether it has memory of its own, that is renewed where somebody looks at it
    first : the call that first writes it
    lent : whether that memory is the plan's arena, which is written to before that call, too
    """

    cdef Binding kind
    cdef Value target
    cdef Py_ssize_t argument, result, first
    cdef bint renewed, lent
    cdef Value given                    # the gradient that was handed out last

    def __init__(self, str kind not None, target, Py_ssize_t result, bint renewed, Py_ssize_t first, bint lent=False):
        self.kind, self.result, self.renewed, self.first, self.lent = BINDINGS[kind], result, renewed, first, lent
        self.target = None if isinstance(target, int) else <Value?> target
        self.argument = target if isinstance(target, int) else -1

    cdef bint is_ours(self) noexcept:
        """Whether the gradient that was handed out last is held by its tensor alone or by nobody, and may be written over"""
        cdef PyObject* grad = <PyObject*> self.given
        if grad is <PyObject*> None or self.target is None:
            return False
        return Py_REFCNT(grad) == 1 + (<PyObject*> self.target.gradient is grad) \
            and <PyObject*> (<Value> grad).array is not <PyObject*> None and Py_REFCNT(<PyObject*> (<Value> grad).array) == 1

    cdef unsigned char others(self) noexcept:
        """How many arrays look at the memory besides the plan's, or SEEN where more may do so than are known of."""
        if self.is_ours():
            return 1
        return 0 if self.given is None else SEEN

    cdef int forget(self, Py_ssize_t position) except -1:
        """After an error in that call: no gradient stays that is written over in part."""
        if self.renewed and self.given is not None and self.target is not None and (self.lent or self.first <= position) \
                and self.target.gradient is self.given:
            self.target.gradient = None
        self.given = None               # the plan's memory may be other memory than this gradient's by now
        return 0

    cdef int bind(self, list results, object leaves, bint new) except -1:
        """Hand the result to its tensor."""
        cdef Value target = self.target if self.argument < 0 else <Value?> leaves[self.argument]
        if self.kind == NOTHING:
            target.gradient = None
        elif self.kind == DATA:
            assign(target, like(results[self.result]))
        else:
            if new or self.given is None:
                self.given = make_leaf(Tensor, like(results[self.result]), False)
            else:
                self.given.stamp = arrays.clock[0]
            if target.gradient is not self.given:
                target.gradient = self.given
        return 0


cdef class TensorPlan:
    """A built plan with its tensors.

    built : the plan with its arrays
    guards : what has to be as it was
    arguments : (Layout, Views or None, flags) for each leaf of the arguments; flags are None for arrays
    values : Known tensors that were there before
    gradients : (value, Layout, Views, number of the first with the same memory): gradients that were there before, and are read
    fresh : Views of results that are not bound
    bound : Bound results, those that are renewed in the order of `renewed`
    renewed : Views of these
    count : how many of the built plan's results are handed out; the others are bound
    cleared : values whose gradients are dropped first of all: after an error they have none
    rebuild : a function of the arrays and arguments that makes what the function returns; None: the only one, as a tensor
    plain : whether the arguments are tensors, one by one
    arenas : (Views of an arena, the numbers of fresh + renewed that lie in it)
    """

    cdef object run, default_dtype, rebuild
    cdef public long long replays, next_check
    cdef list guards, arguments, values, gradients, results, bound, cleared
    cdef bytearray others               # how many arrays of ours look at each of the Views that are renewed, besides the plan's
    cdef set own                        # ids of values
    cdef set written                    # ids of buffers of values that a replay writes to; None: have to be looked up
    cdef Py_ssize_t fresh
    cdef bint no_grad, torch, plain, writes_arguments
    cdef readonly object built

    def __init__(self, built, list guards, list arguments, list values, list gradients, list fresh, list bound, list renewed,
                 Py_ssize_t count, list cleared, rebuild, bint plain, list arenas):
        self.built, self.cleared = built, cleared
        self.guards = [<Guard?> each for each in guards]
        self.values, self.bound = [<Known?> each for each in values], [<Bound?> each for each in bound]
        self.arguments, self.gradients, self.plain = arguments, gradients, plain
        self.results, self.fresh = built.results, len(fresh)
        if len(renewed) != len([each for each in self.bound if (<Bound> each).renewed]):
            raise ValueError(f"TensorPlan: {len(renewed)} groups of views for other bound results")
        self.run = Runner(built.replay, fresh + renewed, built.results, count, arenas)
        self.others = bytearray(len(fresh) + len(renewed))
        self.own = {id((<Known> each).value) for each in self.values}
        self.rebuild, self.replays, self.next_check = rebuild, 0, 64
        self.no_grad, self.default_dtype = modes_here().no_grad, get_default_dtype()
        self.torch, self.writes_arguments = means_torch(modes_here()), built.writes_arguments

    def takes(self, tuple args not None):
        """Whether the arguments are tensors, one by one, and these, the modes and all that was there before are as recorded."""
        return self.suits(args)

    cdef bint suits(self, tuple args) except -1:
        cdef Modes* here = modes_here()
        cdef Py_ssize_t i, k
        if not self.plain or len(args) != len(self.arguments) or here.no_grad != self.no_grad or here.anomaly or is_lazy(here) \
                or here.used is not NULL or here.trace is not NULL or get_default_dtype() is not self.default_dtype \
                or means_torch(here) != self.torch:
            return False
        for i in range(len(args)):
            if type(args[i]) is not Tensor:
                return False
            for k in range(i):
                if args[k] is args[i]:
                    return False
        return self.fits(args)

    cpdef bint fits(self, object leaves) except -1:
        """Whether the arguments, all that was there before and what was read from Python are as recorded."""
        cdef Py_ssize_t i
        cdef Value value
        cdef Known known
        cdef tuple entry
        for i in range(PyList_GET_SIZE(self.values)):
            known = <Known> PyList_GET_ITEM(self.values, i)
            value = known.value
            if value.array is not known.held:
                if value.array is None or known.layout is None or not known.layout.fits(value.array):
                    return False
                self.written = None
            if flag_bits(value) != known.flags:
                return False
        for i in range(len(self.arguments)):
            if not self.fits_argument(leaves[i], <tuple> self.arguments[i]):
                return False
        if not self.separate(leaves):
            return False
        for i in range(len(self.gradients)):
            entry = <tuple> self.gradients[i]
            value = <Value> entry[0]
            if value.gradient is None or not entry[1].fits(realize(<Value> value.gradient)):
                return False
            if entry[3] != i and not same_place(value, <Value> (<tuple> self.gradients[entry[3]])[0]):
                return False
        for i in range(PyList_GET_SIZE(self.guards)):
            if not (<Guard> PyList_GET_ITEM(self.guards, i)).holds():
                return False
        return True

    cdef bint fits_argument(self, object leaf, tuple entry) except -1:
        if not isinstance(leaf, Tensor):
            return entry[2] is None and entry[0].fits(leaf)
        return entry[2] is not None and flag_bits(<Tensor> leaf) == entry[2] and id(leaf) not in self.own \
            and entry[0].fits(realize(<Tensor> leaf))

    cdef bint separate(self, object leaves) except -1:
        """Whether no argument lies in memory that is written to, or if arguments are written to, in that of another one."""
        cdef set seen
        if self.written is None:
            if not self.values_apart():
                return False
            self.written = {id((<Known> each).value.array._handle) for each in self.values if (<Known> each).written}
            self.written.update(self.built.written_elsewhere)
        if not self.writes_arguments:
            if len(self.written):
                for leaf in leaves:
                    if id((realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)._handle) in self.written:
                        return False
            return True
        seen = {id((<Known> each).value.array._handle) for each in self.values} | self.written
        for leaf in leaves:
            handle = id((realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)._handle)
            if handle in seen:
                return False
            seen.add(handle)
        return True

    cdef bint values_apart(self) except -1:
        """Whether what is written to is in nobody else's memory, unless it was when it was recorded."""
        cdef dict owners = {}
        cdef Known known
        for known in self.values:
            if known.layout is not None:
                handle = id(known.value.array._handle)
                if handle in self.built.written_elsewhere or handle in owners and (known.written or owners[handle]):
                    return False
                owners[handle] = known.written
        return True

    cpdef object call(self, object leaves):
        """Compute, with these arguments; what the function returns."""
        cdef list arrays
        cdef Tensor out
        self.replays += 1
        arrays = self.replay(leaves)
        if self.rebuild is not None:
            return self.rebuild(arrays, leaves)
        out = Tensor.__new__(Tensor)
        out.array = arrays[0]
        return out

    cdef list replay(self, object leaves):
        """Compute, with these arguments; the arrays that are handed out."""
        cdef Py_ssize_t i, k
        cdef char* others = PyByteArray_AS_STRING(self.others)
        cdef Bound bound
        cdef list made
        self.point(leaves)
        for k in range(self.fresh):
            others[k] = 0
        k = self.fresh
        for i in range(PyList_GET_SIZE(self.bound)):
            bound = <Bound> PyList_GET_ITEM(self.bound, i)
            if bound.renewed:
                others[k] = <char> bound.others()
                k += 1
                if bound.lent and bound.target.gradient is not bound.given:
                    bound.target.gradient = None
        if self.replays == 1:           # with what the calls that were recorded left there
            empty_cache()
        try:
            made = self.run(self.others)
        except BaseException:
            self.forget()
            raise
        k = self.fresh
        for i in range(PyList_GET_SIZE(self.bound)):
            bound = <Bound> PyList_GET_ITEM(self.bound, i)
            bound.bind(self.results, leaves, not bound.renewed or others[k])
            k += bound.renewed
        return made

    cdef int point(self, object leaves) except -1:
        """Show the plan's arrays where its inputs are now."""
        cdef Py_ssize_t i
        cdef Known known
        cdef tuple entry
        for i in range(len(self.arguments)):
            views = (<tuple> self.arguments[i])[1]
            if views is not None:
                leaf = leaves[i]
                views.point(realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)
        for i in range(PyList_GET_SIZE(self.values)):
            known = <Known> PyList_GET_ITEM(self.values, i)
            if known.value.array is not known.held:
                if known.views is not None:
                    known.views.point(known.value.array)
                known.held = known.value.array
        for entry in self.gradients:
            entry[2].point(realize(<Value> (<Value> entry[0]).gradient))
        return 0

    cdef int forget(self) except -1:
        """After an error: no gradient stays that was dropped before it, or is written over in part."""
        cdef Value target
        for target in self.cleared:
            target.gradient = None
        for each in self.bound:
            (<Bound> each).forget(self.built.replay.position)
        return 0


cdef class Replayer:
    """What a captured function does first: try the plan that was used last. A subclass has `slow(args, kwargs)` for the rest."""

    cdef public TensorPlan latest
    cdef bint busy                      # the plan's arrays are in use, by another thread or by a call further out

    def __call__(self, *args, **kwargs):
        cdef TensorPlan plan = self.latest
        if plan is None or self.busy or kwargs or plan.replays >= plan.next_check or not plan.suits(args):
            return self.slow(args, kwargs)
        result = self.exclusively(plan, args)
        return self.slow(args, kwargs) if result is NotImplemented else result

    cpdef exclusively(self, TensorPlan plan, object leaves):
        """Call a plan that nobody else is using; NotImplemented where somebody is."""
        if self.busy:
            return NotImplemented
        self.busy = True
        try:
            return plan.call(leaves)
        finally:
            self.busy = False


cdef bint same_place(Value a, Value b):
    """Whether the gradients of two values are one array still"""
    x, y = (<Value> a.gradient).array, (<Value> b.gradient).array
    return x._handle is y._handle and x._offset == y._offset


def as_value(type kind not None, array, bint requires_grad=False):
    """A leaf on the array given, or for a TensorTuple on the arrays."""
    return make_leaf(kind, array, requires_grad)
