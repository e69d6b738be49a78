"""A plan at the level of tensors: where its inputs come from, and where its results go."""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from needle_ndarray.extension import like, renew_all, same_layout

from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.modes cimport Modes, is_lazy, modes_here
from needle.autograd.recording cimport realize
from needle.autograd.tensor cimport Tensor
from needle.autograd.values cimport Value, assign, make_leaf

from needle.autograd.dtype_rules import get_default_dtype

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

cdef Arrays arrays = load_arrays()


# ---- While recording ------------------------------------------------------------------------------------------------------

def start_noting(dict used not None):
    """Note in {id: (value, data, gradient's data)} what was there before and is used from now on; how often backward ran."""
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


cdef int flag_bits(Value value) noexcept:
    return value.wants_grad + 2 * value.retains_grad + 4 * (value.hooks is not None)


def flags(Value value not None):
    """What decides which graph is recorded: whether it requires a gradient, retains it, has hooks."""
    return flag_bits(value)


def modes_key():
    """What else decides it: None where nothing may be captured: in lazy and in anomaly mode, and in a trace."""
    cdef Modes* here = modes_here()
    if is_lazy(here) or here.anomaly or here.used is not NULL or here.trace is not NULL:
        return None
    return bool(here.no_grad), get_default_dtype()


# ---- Arguments ------------------------------------------------------------------------------------------------------------

cdef object LEAF = object()


def flatten(object tree, list leaves not None):
    """Append the tensors and arrays of nested tuples, lists and dicts to `leaves`; what else there is, as a key."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
        return LEAF, (<Tensor> tree).wants_grad
    if type(tree) is tuple or type(tree) is list:
        return (type(tree),) + tuple([flatten(each, leaves) for each in tree])
    if type(tree) is dict:
        return (dict, tuple(tree)) + tuple([flatten(each, leaves) for each in tree.values()])
    if isinstance(tree, ndarray_type):
        leaves.append(tree)
        return LEAF
    if tree is None or isinstance(tree, (bool, int, float, str, bytes)):
        return type(tree), tree
    return id(tree), tree


from needle_ndarray import NDArray as ndarray_type


# ---- Replaying ------------------------------------------------------------------------------------------------------------

cdef class Guard:
    """A place that was read, and what was found there: container[key], or with ENTRIES for a key all entries of a list or dict."""

    cdef readonly object container, key, expected
    cdef readonly str what

    def __init__(self, container, key, expected, str what not None):
        self.container, self.key, self.expected, self.what = container, key, expected, what

    def found(self):
        """What is there now."""
        return entries(self.container) if self.key is ENTRIES else self.container.get(self.key, MISSING)

    cpdef bint holds(self) except -1:
        cdef PyObject* found
        if self.key is ENTRIES:
            return self.same_entries()
        if type(self.container) is dict:
            found = PyDict_GetItem(self.container, self.key)
            return found is <PyObject*> self.expected or found is not NULL and equal(<object> found, self.expected)
        now = self.container.get(self.key, MISSING)
        return now is self.expected or equal(now, self.expected)

    cdef bint same_entries(self) except -1:
        cdef Py_ssize_t i
        cdef tuple now = entries(self.container), before = self.expected
        if len(now) != len(before):
            return False
        for i in range(len(now)):
            if now[i] is not before[i] and not equal(now[i], before[i]):
                return False
        return True


#: Stands for all entries, and for an entry that is not there.
ENTRIES, MISSING = object(), object()
cdef tuple IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)


def entries(container):
    """The entries of a list, or the values of a dict."""
    return tuple(container.values()) if isinstance(container, dict) else tuple(container)


cdef bint equal(object a, object b) except -1:
    return type(a) is type(b) and isinstance(a, IMMUTABLE) and bool(a == b)


cdef class TensorPlan:
    """A built plan with its tensors.

    guards : what has to be as it was
    arguments : (recorded array, Views or None, whether it requires a gradient) for each leaf of the arguments
    values : (value, recorded array, Views or None, flags) for what was there before
    gradients : (value, recorded array, Views): gradients that were there before, and are read
    fresh : Views of the buffers that every replay makes anew
    bound : (kind, target, index of the result, its Views); kind "gradient" or "data", the target a value or an argument's number
    count : how many of the built plan's results are handed out; the others are bound
    rebuild : a function of these arrays that makes what the function returns; None: the only one, as a tensor
    """

    cdef object run, default_dtype
    cdef list guards, arguments, values, gradients, fresh, results, bound
    cdef list groups, others            # Views to renew, and how many arrays of ours look at each besides
    cdef list held                      # what values were pointed at last
    cdef object rebuild                 # what makes the function's result out of arrays; None: the one array, as a tensor
    cdef public long long replays, next_check
    cdef list given                     # gradients that were handed out last, by binding
    cdef Py_ssize_t count
    cdef bint no_grad
    cdef readonly object built

    def __init__(self, built, list guards, list arguments, list values, list gradients, list fresh, list bound, Py_ssize_t count,
                 rebuild):
        self.built, self.run, self.guards = built, built.run, guards
        self.arguments, self.values, self.gradients = arguments, values, gradients
        self.fresh, self.results, self.bound, self.count = fresh, built.results, bound, count
        self.groups = fresh + [entry[3] for entry in bound if entry[3] is not None]
        self.others = [0] * len(self.groups)
        self.held = [array for _value, array, _views, _flags in values]
        self.given = [None] * len(bound)
        self.rebuild, self.replays, self.next_check = rebuild, 0, 64
        self.no_grad, self.default_dtype = modes_here().no_grad, get_default_dtype()

    def takes(self, tuple args not None):
        """Whether the arguments are tensors, and these, the modes and all that was there before are as recorded."""
        cdef Modes* here = modes_here()
        cdef Py_ssize_t i
        if len(args) != len(self.arguments) or here.no_grad != self.no_grad or here.anomaly or is_lazy(here) \
                or here.used is not NULL or here.trace is not NULL or get_default_dtype() is not self.default_dtype:
            return False
        for i in range(len(args)):
            if type(args[i]) is not Tensor or (<Tensor> args[i]).wants_grad != (<tuple> self.arguments[i])[2]:
                return False
        return self.fits(args)

    cpdef bint fits(self, object leaves) except -1:
        """Whether the arguments, all that was there before and what was read from Python are as recorded."""
        cdef Py_ssize_t i
        cdef Value value
        cdef Guard guard
        for i in range(len(self.arguments)):
            leaf = leaves[i]
            data = realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf
            if not same_layout((<tuple> self.arguments[i])[0], data):
                return False
        for i in range(len(self.values)):
            value = <Value> (<tuple> self.values[i])[0]
            if value.array is not self.held[i]:
                if value.array is None or not same_layout((<tuple> self.values[i])[1], value.array):
                    return False
            if flag_bits(value) != (<tuple> self.values[i])[3]:
                return False
        for entry in self.gradients:
            value = <Value> (<tuple> entry)[0]
            if value.gradient is None or not same_layout((<tuple> entry)[1], realize(<Value> value.gradient)):
                return False
        for guard in self.guards:
            if not guard.holds():
                return False
        return True

    cdef list replay(self, object leaves):
        """Compute, with these arguments; the arrays that are handed out."""
        cdef Py_ssize_t i, first = len(self.fresh), k = first
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
                if entry[2] is not None:
                    entry[2].point(value.array)
                self.held[i] = value.array
        for entry in self.gradients:
            entry[2].point(realize(<Value> (<Value> entry[0]).gradient))
        for i in range(first):
            self.others[i] = 0
        for i in range(len(self.bound)):
            if (<tuple> self.bound[i])[3] is not None:
                self.others[k] = 1 if self.is_ours(i, <tuple> self.bound[i]) else 0
                k += 1
        renew_all(self.groups, self.others)
        self.run()
        k = first
        for i in range(len(self.bound)):
            entry = <tuple> self.bound[i]
            if entry[3] is None:
                self.bind(i, entry, leaves, True)
            else:
                self.bind(i, entry, leaves, self.others[k])
                k += 1
        return [like(self.results[i]) for i in range(self.count)]

    cpdef object call(self, object leaves):
        """Compute, with these arguments; what the function returns."""
        cdef list arrays
        cdef Tensor out
        self.replays += 1
        arrays = self.replay(leaves)
        if self.rebuild is not None:
            return self.rebuild(arrays)
        out = Tensor.__new__(Tensor)
        out.array = arrays[0]
        return out

    cdef bint is_ours(self, Py_ssize_t i, tuple entry):
        """Whether the gradient that was handed out last is held by its tensor alone, and may be written over"""
        cdef Value grad = <Value> self.given[i]
        if grad is None or isinstance(entry[1], int):
            return False
        return (<Value> entry[1]).gradient is grad and Py_REFCNT(<PyObject*> grad) == 3 and grad.array is not None \
            and Py_REFCNT(<PyObject*> grad.array) == 1

    cdef int bind(self, Py_ssize_t i, tuple entry, object leaves, bint renewed) except -1:
        """Hand a result to the tensor whose gradient or data it is."""
        cdef Value target = <Value?> leaves[entry[1]] if isinstance(entry[1], int) else <Value?> entry[1]
        cdef Value grad = <Value> self.given[i]
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
        return self.exclusively(plan, args)

    cpdef exclusively(self, TensorPlan plan, object leaves):
        """Call a plan that nobody else is using; NotImplemented where somebody is."""
        if self.busy:
            return NotImplemented
        self.busy = True
        try:
            return plan.call(leaves)
        finally:
            self.busy = False


def as_tensor(array, requires_grad=False):
    """A leaf on the array given."""
    return make_leaf(Tensor, array, requires_grad)
