"""A plan at the level of tensors: where its inputs come from, and where its results go."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject

import numpy as np

from needle_ndarray.extension import like, renew_all

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.guards cimport Guard
from needle.autograd.modes cimport Modes, is_lazy, modes_here
from needle.autograd.recording cimport flag_bits, realize
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport TensorTuple, Value, assign, make_leaf

from needle_ndarray import NDArray as ndarray_type

from needle.autograd.dtype_rules import get_default_dtype

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
    return bool(here.no_grad), get_default_dtype()


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

cdef class TensorPlan:
    """A built plan with its tensors.

    built : the plan with its arrays
    guards : what has to be as it was
    arguments : (Layout, Views or None, flags) for each leaf of the arguments; flags are None for arrays
    values : (value, recorded array, Layout, Views, flags, whether it is written to) for what was there before; Layout is None
        where the array has to stay the one it is
    gradients : (value, Layout, Views, number of the first with the same memory): gradients that were there before, and are read
    bound : (kind, target, result, its Views or None, the call that first writes it); kind "gradient", "data" or "none" for no
        gradient, the target a value or an argument's number
    count : how many of the built plan's results are handed out; the others are bound
    cleared : values whose gradients are dropped first of all: after an error they have none
    rebuild : a function of the arrays and arguments that makes what the function returns; None: the only one, as a tensor
    plain : whether the arguments are tensors, one by one
    """

    cdef object run, default_dtype, rebuild
    cdef public long long replays, next_check
    cdef list guards, arguments, values, gradients, results, bound, cleared
    cdef list groups, others            # Views to renew, and how many arrays of ours look at each besides
    cdef list held                      # what values were pointed at last
    cdef list given                     # gradients that were handed out last, by binding
    cdef set own                        # ids of values
    cdef set written                    # ids of buffers of values that a replay writes to; None: have to be looked up
    cdef Py_ssize_t count, renewed
    cdef bint no_grad, plain
    cdef readonly object built

    def __init__(self, built, list guards, list arguments, list values, list gradients, list fresh, list bound, Py_ssize_t count,
                 list cleared, rebuild, bint plain):
        self.built, self.run, self.guards, self.cleared = built, built.run, guards, cleared
        self.arguments, self.values, self.gradients, self.plain = arguments, values, gradients, plain
        self.results, self.bound, self.count = built.results, bound, count
        self.renewed = len(fresh)
        self.groups = fresh + [entry[3] for entry in bound if entry[3] is not None]
        self.others = [0] * len(self.groups)
        self.held = [entry[1] for entry in values]
        self.own = {id(entry[0]) for entry in values}
        self.given = [None] * len(bound)
        self.rebuild, self.replays, self.next_check = rebuild, 0, 64
        self.no_grad, self.default_dtype = modes_here().no_grad, get_default_dtype()

    def takes(self, tuple args not None):
        """Whether the arguments are tensors, one by one, and these, the modes and all that was there before are as recorded."""
        cdef Modes* here = modes_here()
        cdef Py_ssize_t i, k
        if not self.plain or len(args) != len(self.arguments) or here.no_grad != self.no_grad or here.anomaly or is_lazy(here) \
                or here.used is not NULL or here.trace is not NULL or get_default_dtype() is not self.default_dtype:
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
        cdef Guard guard
        cdef tuple entry
        for i in range(len(self.values)):
            entry = <tuple> self.values[i]
            value = <Value> entry[0]
            if value.array is not self.held[i]:
                if value.array is None or entry[2] is None or not entry[2].fits(value.array):
                    return False
                self.written = None
            if flag_bits(value) != entry[4]:
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
        for guard in self.guards:
            if not guard.holds():
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
            self.written = {id((<Value> entry[0]).array._handle) for entry in self.values if entry[5]}
            self.written.update(self.built.written_elsewhere)
        if not self.built.writes_arguments:
            if len(self.written):
                for leaf in leaves:
                    if id((realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)._handle) in self.written:
                        return False
            return True
        seen = {id((<Value> entry[0]).array._handle) for entry in self.values} | self.written
        for leaf in leaves:
            handle = id((realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)._handle)
            if handle in seen:
                return False
            seen.add(handle)
        return True

    cdef bint values_apart(self) except -1:
        """Whether what is written to is in nobody else's memory, unless it was when it was recorded."""
        cdef dict owners = {}
        for entry in self.values:
            if entry[2] is not None:
                handle = id((<Value> entry[0]).array._handle)
                if handle in self.built.written_elsewhere or handle in owners and (entry[5] or owners[handle]):
                    return False
                owners[handle] = entry[5]
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
        cdef tuple entry
        self.point(leaves)
        k = self.renewed
        for i in range(k):
            self.others[i] = 0
        for i in range(len(self.bound)):
            if (<tuple> self.bound[i])[3] is not None:
                self.others[k] = 1 if self.is_ours(i, <tuple> self.bound[i]) else 0
                k += 1
        renew_all(self.groups, self.others)
        try:
            self.run()
        except BaseException:
            self.forget()
            raise
        k = self.renewed
        for i in range(len(self.bound)):
            entry = <tuple> self.bound[i]
            if entry[3] is None:
                self.bind(i, entry, leaves, True)
            else:
                self.bind(i, entry, leaves, self.others[k])
                k += 1
        return [like(self.results[i]) for i in range(self.count)]

    cdef int point(self, object leaves) except -1:
        """Show the plan's arrays where its inputs are now."""
        cdef Py_ssize_t i
        cdef Value value
        cdef tuple entry
        for i in range(len(self.arguments)):
            views = (<tuple> self.arguments[i])[1]
            if views is not None:
                leaf = leaves[i]
                views.point(realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)
        for i in range(len(self.values)):
            value = <Value> (<tuple> self.values[i])[0]
            if value.array is not self.held[i]:
                entry = <tuple> self.values[i]
                if entry[3] is not None:
                    entry[3].point(value.array)
                self.held[i] = value.array
        for entry in self.gradients:
            entry[2].point(realize(<Value> (<Value> entry[0]).gradient))
        return 0

    cdef bint is_ours(self, Py_ssize_t i, tuple entry):
        """Whether the gradient that was handed out last is held by its tensor alone, and may be written over"""
        cdef Value grad = <Value> self.given[i]
        if grad is None or isinstance(entry[1], int):
            return False
        return (<Value> entry[1]).gradient is grad and Py_REFCNT(<PyObject*> grad) == 3 and grad.array is not None \
            and Py_REFCNT(<PyObject*> grad.array) == 1

    cdef int forget(self) except -1:
        """After an error: no gradient stays that was dropped before it, or is written over in part."""
        cdef Py_ssize_t i
        cdef Value target
        cdef tuple entry
        for target in self.cleared:
            target.gradient = None
        for i in range(len(self.bound)):
            entry = <tuple> self.bound[i]
            if entry[3] is not None and self.given[i] is not None and not isinstance(entry[1], int) \
                    and entry[4] <= self.built.replay.position:
                target = <Value?> entry[1]
                if target.gradient is self.given[i]:
                    target.gradient = None
            self.given[i] = None        # the plan's memory may be other memory than this gradient's by now
        return 0

    cdef int bind(self, Py_ssize_t i, tuple entry, object leaves, bint renewed) except -1:
        """Hand a result to the tensor whose gradient or data it is."""
        cdef Value target = <Value?> leaves[entry[1]] if isinstance(entry[1], int) else <Value?> entry[1]
        cdef Value grad = <Value> self.given[i]
        if entry[0] == "none":
            target.gradient = None
            return 0
        if entry[0] == "data":
            assign(target, like(self.results[entry[2]]))
            return 0
        if renewed or grad is None:
            grad = self.given[i] = make_leaf(Tensor, like(self.results[entry[2]]), False)
        else:
            grad.stamp = arrays.clock[0]
        if target.gradient is not grad:
            target.gradient = grad
        return 0


cdef class Replayer:
    """What a captured function does first: try the plan that was used last. A subclass has `slow(args, kwargs)` for the rest."""

    cdef public TensorPlan latest
    cdef bint busy                      # the plan's arrays are in use, by another thread or by a call further out

    def __call__(self, *args, **kwargs):
        cdef TensorPlan plan = self.latest
        if plan is None or self.busy or kwargs or plan.replays >= plan.next_check or not plan.takes(args):
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
