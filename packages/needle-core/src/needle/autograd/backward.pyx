"""Reverse mode: the walk over a graph from its end.

Each op's `gradient` builds the gradients of its inputs out of ops, so gradients have a graph of their own and can be
differentiated again. What may be forgotten on the way is `memory`'s business: `own`, `release`, `release_all`.
"""

cimport cython
from cpython.object cimport PyObject

import functools
import operator

import needle_ndarray as array_api
from needle_ndarray.extension import active_recorder, bounded

from needle.autograd.arguments cimport as_constant
from needle.autograd.arrays cimport Arrays, load_arrays
from needle.autograd.memory cimport own, release, release_all, sum_and_release
from needle.autograd.modes cimport Modes, modes_here
from needle.autograd.operators cimport operators
from needle.autograd.recording cimport apply, realize
from needle.autograd.tensor cimport Tensor
from needle.autograd.topology cimport NO_NODE, Graph, number_t, sorted_nodes
from needle.autograd.values cimport Op, Slot, TensorTuple, Value, is_unknown, looks, make_leaf

from needle import _hints

cdef Arrays arrays = load_arrays()
cdef set told = _hints.told


@cython.final
@cython.auto_pickle(False)
cdef class Walk(Graph):
    """A backward pass: a graph, and for each of its nodes the gradients that have arrived."""

    cdef list arrived                   # by number: None, a Value, or a list of Values and Slots
    cdef list given                     # the caller's gradients: held, so that nothing that shares their memory is handed out
    cdef set targets                    # ids of the values asked for; None: every leaf, and what retains its gradient
    cdef bytearray useful               # by number: whether it lies between a root and a target; None: all do
    cdef dict found                     # gradients of targets, by id
    cdef bint accumulate                # add to the `.grad` that is there
    cdef bint plain                     # gradients without a graph

    cdef int start(self, list roots, list grads, list targets) except -1:
        """Order the graph of `roots`, whose gradients are `grads`; gradients go to `targets`, or if these are None to `.grad`."""
        cdef Py_ssize_t i
        self.explore(roots, True)
        self.arrived = [None] * self.count
        if targets is not None:
            self.aim(targets)
        for i in range(len(roots)):
            self.arrive(self.find(<PyObject*> roots[i]), grads[i])
            grads[i] = None
        return 0

    cdef int aim(self, list targets) except -1:
        """Leave out what does not lie between the targets and the roots."""
        cdef Py_ssize_t i, k, number
        cdef bytearray useful = bytearray(self.count)
        self.targets = {id(x) for x in targets}
        for i in range(self.count):
            number = self.nodes[i].order
            useful[number] = id(self.values[number]) in self.targets
            for k in range(self.nodes[number].first, self.nodes[number + 1].first):
                if self.edges[k] != NO_NODE and useful[self.edges[k]]:
                    useful[number] = True
        self.useful = useful
        return 0

    @cython.boundscheck(False)      # the lists have an entry for every number
    cdef int run(self) except -1:
        """Go from the end to the beginning; what arrived at a node is its gradient, and is handed on to its inputs."""
        cdef Modes* here = modes_here()
        cdef Modes outer = here[0]
        cdef list made = []             # what the gradients record on their way
        cdef Py_ssize_t i, number
        cdef Value node
        cdef object grad
        here.no_grad |= self.plain
        here.walks += 1
        here.walking += 1
        here.made = <PyObject*> made
        try:
            for i in range(self.count - 1, -1, -1):
                number = self.nodes[i].order
                if self.useful is not None and not self.useful[number]:
                    continue
                node = <Value> self.values[number]
                grad = self.gather(node, number)
                if grad is not None and node.hooks is not None:
                    grad = call_hooks(node, own(grad, made))
                if grad is not None and self.is_asked_for(node):
                    grad = own(grad, made)
                    self.keep(node, grad)
                if grad is not None and node.op is not None:
                    here.guarded = <PyObject*> node
                    self.send(node, number, grad)
                    here.guarded = outer.guarded
                    release_all(made)
                    release(<Value> grad, 1)
                elif grad is None and node.op is None and self.targets is None and not self.accumulate:
                    node.gradient = None        # it did not take part: no stale gradient stays
                self.values[number] = None
                release(node, 1)
        finally:
            here.made, here.guarded, here.no_grad, here.walking = outer.made, outer.guarded, outer.no_grad, outer.walking
        if outer.made is not NULL:
            (<list> outer.made).extend(made)
        return 0

    cdef bint is_asked_for(self, Value node):
        return node.op is None or node.retains_grad if self.targets is None else id(node) in self.targets

    cdef int keep(self, Value node, object grad) except -1:
        """Put a gradient where it is asked for: into `.grad`, or among those found."""
        if self.targets is not None:
            self.found[id(node)] = grad
            return 0
        if self.accumulate and node.gradient is not None:
            before = make_leaf(type(grad), realize(<Value?> node.gradient), False)
            grad = before + grad if isinstance(grad, TensorTuple) else apply(operators().add, (before, grad))
        elif node.gradient is not None and node.looked == looks and node.gradient is not grad and "replacing" not in told:
            _hints.warn_of_replacing()  # nobody has looked at any gradient since this one came
        node.gradient, node.looked = grad, looks
        return 0

    @cython.boundscheck(False)
    cdef int arrive(self, Py_ssize_t number, object grad) except -1:
        here = self.arrived[number]
        if here is None and not isinstance(grad, Slot):
            self.arrived[number] = grad
        elif isinstance(here, list):
            (<list> here).append(grad)
        else:
            self.arrived[number] = [grad] if here is None else [here, grad]
        return 0

    @cython.boundscheck(False)
    cdef object gather(self, Value node, Py_ssize_t number):
        """The sum of what has arrived at a node; None if nothing has"""
        cdef object here = self.arrived[number]
        self.arrived[number] = None
        if not isinstance(here, list):
            return here
        return gather_tuple(<TensorTuple> node, <list> here) if isinstance(node, TensorTuple) else sum_and_release(<list> here)

    cdef int send(self, Value node, Py_ssize_t number, object grad) except -1:
        """Hand the gradients of a node's inputs on to them."""
        cdef object grads = type(node.op).gradient(node.op, grad, node)
        cdef number_t* edges = self.edges + self.nodes[number].first
        cdef Py_ssize_t k, n = self.nodes[number + 1].first - self.nodes[number].first
        if not isinstance(grads, (tuple, list)):
            grads = (grads,)
        if len(grads) != n:
            raise ValueError(f"{type(node.op).__name__}.gradient returned {len(grads)} gradients for {n} inputs")
        for k in range(n):
            g = grads[k]
            if g is not None and edges[k] != NO_NODE and (self.useful is None or self.useful[edges[k]]):
                self.arrive(edges[k], fitted(node, g, <Value> node.inputs[k]))
        return 0


cdef object fitted(Value node, object grad, Value x):
    """What the gradient of a node says of its input x, if it is a gradient of x"""
    cdef Op op = <Op> node.op
    if isinstance(x, TensorTuple):
        check_tuple(op, grad, <TensorTuple> x)
    elif not isinstance(grad, Tensor):
        raise TypeError(f"{type(op).__name__}.gradient returned {type(grad).__name__}, expected a Tensor or None")
    elif x.array is None or (<Tensor> grad).array is None \
            or not arrays.alike(<PyObject*> (<Tensor> grad).array, <PyObject*> x.array):
        grad = fit(op, <Tensor> grad, <Tensor?> x)
    if modes_here().anomaly:
        from needle.modes import check_backward
        check_backward(node, grad, node.origin, modes_here().anomaly)
    return grad


cdef object fit(Op op, Tensor grad, Tensor x):
    """A gradient as the input's shape and dtype ask for it"""
    if is_unknown(grad) or is_unknown(x):
        return operators().ops.FitTo(op)(grad, x)   # lazy: nobody has looked yet
    if grad.shape != x.shape:
        if not op.broadcasts:
            raise ValueError(f"{type(op).__name__}.gradient returned shape {grad.shape} for an input of shape {x.shape}")
        grad = operators().ops.sum_to(grad, x.shape)
    return grad if grad.dtype is x.dtype else operators().ops.astype(grad, x.dtype)


cdef int check_tuple(Op op, object grad, TensorTuple x) except -1:
    """Raise unless a gradient fits a TensorTuple: one of that length, or a Slot of it."""
    cdef Py_ssize_t n = x.count()
    if isinstance(grad, Slot) and isinstance((<Slot> grad).value, Tensor):
        if 0 <= (<Slot> grad).index < n:
            return 0
        raise IndexError(f"{type(op).__name__}.gradient returned entry {grad.index} of a tuple of {n}")
    if not isinstance(grad, TensorTuple):
        raise TypeError(f"{type(op).__name__}.gradient returned {type(grad).__name__}, expected a TensorTuple")
    if (<TensorTuple> grad).count() != n:
        raise ValueError(f"{type(op).__name__}.gradient returned a tuple of {(<TensorTuple> grad).count()} for one of {n}")
    return 0


cdef object gather_tuple(TensorTuple node, list parts):
    """The gradient of a TensorTuple from whole tuples and single entries; entries nothing came for are zero"""
    cdef Py_ssize_t i, n = node.count()
    cdef list entries = [[] for _i in range(n)]
    cdef TensorTuple whole
    for part in parts:
        if isinstance(part, Slot):
            (<list> entries[(<Slot> part).index]).append((<Slot> part).value)
        else:
            whole = <TensorTuple?> part
            for i in range(n):
                (<list> entries[i]).append(whole.entry(i))
    del parts[:]
    for i in range(n):
        entries[i] = sum_and_release(entries[i]) if entries[i] else zeros_like_entry(node, i)
    return operators().ops.make_tuple(*entries)


cdef object zeros_like_entry(TensorTuple node, Py_ssize_t i):
    return make_leaf(Tensor, array_api.constant_like(realize(node)[i], 0), False)


cdef object call_hooks(Value node, object grad):
    if modes_here().used is not NULL:
        active_recorder().refuse("a gradient hook runs, whose effects in Python cannot be repeated")
    for entry in list(node.hooks):
        changed = entry[0](grad)
        if changed is not None:
            if not isinstance(changed, Tensor) or changed.shape != grad.shape:
                raise TypeError(f"a gradient hook returned {type(changed).__name__}, expected a Tensor of shape {grad.shape}")
            grad = changed
    return grad


cdef int backward(Tensor root, object out_grad, bint accumulate, bint plain) except -1:
    """Gradients of all leaves, given that of root; see Tensor.backward"""
    if not root.wants_grad:
        raise RuntimeError("backward: nothing that this tensor was computed from requires a gradient")
    cdef Walk walk = Walk.__new__(Walk)
    walk.given, walk.accumulate, walk.plain = [out_grad], accumulate, plain
    walk.start([root], [first_gradient(root, out_grad)], None)
    walk.run()


cdef object first_gradient(Tensor root, object out_grad):
    """The gradient to start from: ones, or what was given, if it fits"""
    if out_grad is None:
        return make_leaf(Tensor, array_api.constant_like(realize(root), 1), False)
    if not isinstance(out_grad, Tensor):
        out_grad = as_constant(out_grad, root, "backward")
    if out_grad.shape != root.shape:
        raise ValueError(f"backward: out_grad has shape {out_grad.shape}, the tensor {root.shape}")
    if out_grad.device != root.device:
        raise ValueError(f"backward: out_grad is on {out_grad.device}, the tensor on {root.device}; move it with .to(device)")
    # A constant may have been written to after root was computed: it counts as it is now.
    if type(out_grad) is Tensor and (<Tensor> out_grad).op is None and not (<Tensor> out_grad).wants_grad:
        out_grad = out_grad.detach()
    return operators().ops.astype(out_grad, root.dtype)


def gradients(outputs, inputs, out_grads=None):
    """Gradients of outputs with respect to inputs, leaves or not, as a list; None where there is no path. No `.grad` is touched.

    >>> import needle as ndl
    >>> x = ndl.Tensor([3.0])
    >>> y = x * x
    >>> ndl.autograd.gradients([y * y], [x, y])[1].numpy()
    array([18.], dtype=float32)
    """
    cdef Walk walk = Walk.__new__(Walk)
    cdef list given = list(bounded("gradients", outputs)), targets = list(bounded("gradients", inputs))
    cdef list roots = [], starts = []
    cdef Tensor y
    walk.given = [None] * len(given) if out_grads is None else list(bounded("gradients", out_grads))
    walk.found = {}
    if len(walk.given) != len(given):
        raise ValueError(f"gradients: {len(walk.given)} out_grads for {len(given)} outputs")
    for y, grad in zip(given, walk.given):
        if y.wants_grad:
            roots.append(y)
            starts.append(first_gradient(y, grad))
    walk.start(roots, starts, targets)
    walk.run()
    return [walk.found.get(id(x)) for x in targets]


# ---- The course's functions --------------------------------------------------------------------------

def compute_gradient_of_variables(output_tensor, out_grad):
    """Put into `.grad` of every leaf the gradient of output_tensor, given that of output_tensor itself."""
    backward(<Tensor?> output_tensor, out_grad, False, False)


def find_topo_sort(node_list):
    """Post-order depth first over `inputs`, in order: every node after what it was made from."""
    return sorted_nodes(list(bounded("find_topo_sort", node_list)))


def topo_sort_dfs(node, visited, topo_order):
    """Append what `node` was made from, then node, to topo_order; skip and extend the set `visited`."""
    if not hasattr(visited, "__contains__"):        # `in` would go through an iterator, perhaps for ever
        raise TypeError(f"topo_sort_dfs: visited: expected a set, got {type(visited).__name__}")
    for value in sorted_nodes([node]):
        if value not in visited:
            visited.add(value)
            topo_order.append(value)


def sum_node_list(node_list):
    """The sum of a list of values."""
    nodes = bounded("sum_node_list", node_list)
    if not nodes:
        raise ValueError("sum_node_list: expected one value or more, got none")
    return functools.reduce(operator.add, nodes)
