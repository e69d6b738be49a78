"""A plan at the level of tensors: where its inputs come from, and where its results go."""

from cpython.object cimport PyObject

from needle_ndarray.extension import like, same_layout

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


def flags(Value value not None):
    """What decides which graph is recorded: whether it requires a gradient, retains it, has hooks."""
    return value.wants_grad, value.retains_grad, bool(value.hooks)


def modes_key():
    """What else decides it: None where nothing may be captured, in lazy and in anomaly mode."""
    cdef Modes* here = modes_here()
    if is_lazy(here) or here.anomaly or here.used is not NULL:
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

cdef class TensorPlan:
    """A built plan with its tensors.

    arguments : (recorded array, Views or None) for each leaf of the arguments
    values : (value, recorded array, Views or None, flags) for what was there before
    gradients : (value, recorded array, Views): gradients that were there before, and are read
    fresh : Views of the buffers that every replay makes anew
    results : the plan's arrays that are handed out
    bound : (kind, target, index of the result, its Views); kind "gradient" or "data", the target a value or an argument's number
    """

    cdef object run
    cdef list arguments, values, gradients, fresh, results, bound
    cdef list held                      # what values and gradients were pointed at last
    cdef list given                     # gradients that were handed out last, by binding
    cdef readonly object built

    def __init__(self, built, list arguments, list values, list gradients, list fresh, list results, list bound):
        self.built, self.run = built, built.run
        self.arguments, self.values, self.gradients = arguments, values, gradients
        self.fresh, self.results, self.bound = fresh, results, bound
        self.held = [array for _value, array, _views, _flags in values]
        self.given = [None] * len(bound)

    def fits(self, list leaves not None):
        """Whether the arguments and all that was there before have the layout that was recorded."""
        cdef Py_ssize_t i
        cdef Value value
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
            if (value.wants_grad, value.retains_grad, bool(value.hooks)) != (<tuple> self.values[i])[3]:
                return False
        for entry in self.gradients:
            value = <Value> (<tuple> entry)[0]
            if value.gradient is None or not same_layout((<tuple> entry)[1], realize(<Value> value.gradient)):
                return False
        return True

    def replay(self, list leaves not None):
        """Compute, with these arguments; the arrays that are handed out."""
        cdef Py_ssize_t i
        cdef Value value, grad
        cdef tuple entry
        for i in range(len(self.arguments)):
            views = (<tuple> self.arguments[i])[1]
            if views is not None:
                leaf = leaves[i]
                views.point(realize(<Tensor> leaf) if isinstance(leaf, Tensor) else leaf)
        for i in range(len(self.values)):
            entry = <tuple> self.values[i]
            value = <Value> entry[0]
            if value.array is not self.held[i]:
                if entry[2] is not None:
                    entry[2].point(value.array)
                self.held[i] = value.array
        for entry in self.gradients:
            entry[2].point(realize(<Value> (<Value> entry[0]).gradient))
        for views in self.fresh:
            views.renew(0)
        for i in range(len(self.bound)):
            entry = <tuple> self.bound[i]
            if entry[3] is not None:
                entry[3].renew(self.is_ours(i, entry, leaves))
        self.run()
        for i in range(len(self.bound)):
            self.bind(i, <tuple> self.bound[i], leaves)
        return [like(array) for array in self.results]

    cdef int is_ours(self, Py_ssize_t i, tuple entry, list leaves) except -1:
        """1 where the gradient that was handed out last is held by its tensor alone, and may be written over"""
        cdef Value grad = self.given[i]
        if grad is None or entry[0] != "gradient" or isinstance(entry[1], int):
            return 0
        return (<Value> entry[1]).gradient is grad and Py_REFCNT(<PyObject*> grad) == 3 and grad.array is not None \
            and Py_REFCNT(<PyObject*> grad.array) == 1

    cdef int bind(self, Py_ssize_t i, tuple entry, list leaves) except -1:
        """Hand a result to the tensor whose gradient or data it is."""
        cdef Value target = leaves[entry[1]] if isinstance(entry[1], int) else entry[1]
        cdef Value grad = self.given[i]
        cdef object array = self.results[entry[2]]
        if entry[0] == "data":
            assign(target, like(array))
            return 0
        if grad is not None and grad.array is not None and shares(grad.array, array):
            grad.stamp = arrays.clock[0]
        else:
            grad = self.given[i] = make_leaf(Tensor, like(array), False)
        if target.gradient is not grad:
            target.gradient = grad
        return 0


cdef bint shares(object a, object b):
    return a._handle is b._handle


def as_tensor(array, requires_grad=False):
    """A leaf on the array given."""
    return make_leaf(Tensor, array, requires_grad)
