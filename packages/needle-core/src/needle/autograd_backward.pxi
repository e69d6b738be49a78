# Reverse mode: topological order, and the walk from the end. Included by autograd.pyx.

cdef enum:
    SMALL = 1024                # bytes: dropping less costs more than it gives back

cdef long long visits = 0       # traversals so far: a node whose `visit` is another number has not been seen by this one


cdef struct Frame:
    PyObject* node              # borrowed: the graph holds it
    Py_ssize_t child            # the next input to look at


cdef list sort(list roots, bint recorded_only):
    """Post-order depth first over `inputs`, in order. Every node's `index` is its place.

    Nothing in here lets another thread run, so the marks left in the nodes are ours while it lasts.
    """
    global visits
    cdef list order = []
    cdef Py_ssize_t room = 256, depth
    cdef Frame* stack = <Frame*> malloc(room * sizeof(Frame))
    cdef Frame* more
    cdef Value node, child
    if stack is NULL:
        raise MemoryError("no memory for the topological sort")
    visits += 1
    try:
        for root in roots:
            if (<Value?> root).visit == visits:
                continue
            (<Value> root).visit = visits
            depth = 1
            stack[0].node, stack[0].child = <PyObject*> root, 0
            while depth:
                node = <Value> stack[depth - 1].node
                if stack[depth - 1].child == len(node.inputs):
                    node.index = len(order)
                    order.append(node)
                    depth -= 1
                    continue
                child = <Value> node.inputs[stack[depth - 1].child]
                stack[depth - 1].child += 1
                if child.visit == visits or recorded_only and not child.wants_grad:
                    continue
                child.visit = visits
                if depth == room:
                    room *= 2
                    more = <Frame*> realloc(stack, room * sizeof(Frame))
                    if more is NULL:
                        raise MemoryError("no memory for the topological sort")
                    stack = more
                stack[depth].node, stack[depth].child = <PyObject*> child, 0
                depth += 1
    finally:
        free(stack)
    return order


cdef class Walk:
    """A backward pass: the nodes in order, and for each the gradients that have arrived."""

    cdef list order
    cdef list arrived                   # per node: None, a Value, or a list of Values and Slots
    cdef list given                     # the caller's gradients: held, so that nothing that shares their memory is handed out
    cdef Py_ssize_t* memory             # of the three that follow
    cdef Py_ssize_t* edges              # places of the inputs of all nodes, one after the other; -1: not part of this
    cdef Py_ssize_t* first              # where a node's edges begin
    cdef Py_ssize_t* wanted             # whether the gradient goes on to something asked for
    cdef Py_ssize_t* places             # of the roots

    def __dealloc__(self):
        free(self.memory)

    cdef int prepare(self, list roots, list targets) except -1:
        """Order the graph of `roots`; gradients go to `targets`, or where these are None to every leaf that requires one."""
        cdef Py_ssize_t n, i, k = 0, total = 0
        cdef Value node, x
        self.order = sort(roots, True)
        n = len(self.order)
        for node in self.order:
            total += len(node.inputs)
        self.memory = <Py_ssize_t*> malloc((total + 2 * n + 1 + len(roots)) * sizeof(Py_ssize_t))
        if self.memory is NULL:
            raise MemoryError("no memory for the backward pass")
        self.first, self.wanted, self.edges = self.memory, self.memory + n + 1, self.memory + 2 * n + 1
        for i in range(n):
            node = <Value> self.order[i]
            self.first[i] = k
            self.wanted[i] = targets is None
            for x in node.inputs:
                self.edges[k] = x.index if x.visit == visits else -1
                k += 1
        self.first[n] = k
        self.places = self.edges + total
        for i in range(len(roots)):
            self.places[i] = (<Value> roots[i]).index
        self.arrived = [None] * n       # only now: making a list may run the garbage collector, and with it other threads
        return 0

    cdef int aim(self, list targets) except -1:
        """Mark what lies between the targets and the roots."""
        cdef Py_ssize_t i, k
        cdef Value node
        cdef set chosen = {id(t) for t in targets}
        for i in range(len(self.order)):
            self.wanted[i] = id(self.order[i]) in chosen
            for k in range(self.first[i], self.first[i + 1]):
                if self.edges[k] >= 0 and self.wanted[self.edges[k]]:
                    self.wanted[i] = True
        return 0

    cdef int arrive(self, Py_ssize_t i, object grad) except -1:
        here = self.arrived[i]
        if here is None and not isinstance(grad, Slot):
            self.arrived[i] = grad
        elif isinstance(here, list):
            (<list> here).append(grad)
        else:
            self.arrived[i] = [grad] if here is None else [here, grad]
        return 0

    cdef object gather(self, Py_ssize_t i):
        """The sum of what has arrived at a node; None if nothing has"""
        cdef object here = self.arrived[i]
        cdef object total = None
        cdef Value node
        self.arrived[i] = None
        if not isinstance(here, list):
            return here
        node = <Value> self.order[i]
        if isinstance(node, TensorTuple):
            return gather_tuple(<TensorTuple> node, <list> here)
        return sum_and_release(<list> here)

    cdef dict run(self, bint accumulate, list targets):
        """Go from the end to the beginning; gradients go to `.grad`, or where targets are given into {id: gradient}"""
        cdef Modes* here = modes_here()
        cdef PyObject* outer_made = here.made
        cdef PyObject* outer_guarded = here.guarded
        cdef int outer_no_grad = here.no_grad
        cdef Py_ssize_t i
        cdef list made = []
        cdef Value node
        cdef object grad
        cdef dict found = {}
        cdef set chosen = None if targets is None else {id(t) for t in targets}
        if accumulate:
            here.no_grad = 1
        here.made = <PyObject*> made
        try:
            for i in range(len(self.order) - 1, -1, -1):
                node = <Value> self.order[i]
                if not self.wanted[i]:
                    continue
                grad = self.gather(i)
                if grad is not None and node.hooks is not None:
                    if not is_own(grad, made):
                        grad = own(grad)
                    grad = call_hooks(node, grad)
                if grad is not None and (node.op is None or node.retains_grad if chosen is None else id(node) in chosen):
                    if not is_own(grad, made):
                        grad = own(grad)
                    if chosen is None:
                        keep(node, grad, accumulate)
                    else:
                        found[id(node)] = grad
                if grad is not None:
                    if node.op is not None:
                        here.guarded = <PyObject*> node
                        self.send(node, i, grad)
                        here.guarded = outer_guarded
                        release_all(made)
                        release(<Value> grad, 1)
                elif node.op is None and chosen is None and not accumulate:
                    node.gradient = None        # it did not take part: no stale gradient stays
                self.order[i] = None
                release(node, 1)
        finally:
            here.made, here.guarded, here.no_grad = outer_made, outer_guarded, outer_no_grad
        if outer_made is not NULL:
            (<list> outer_made).extend(made)
        return found

    cdef int send(self, Value node, Py_ssize_t i, object grad) except -1:
        """Hand the gradients of a node's inputs on to them."""
        cdef object grads = type(node.op).gradient(node.op, grad, node)
        cdef Py_ssize_t k, n = len(node.inputs)
        cdef Value x
        if not isinstance(grads, (tuple, list)):
            grads = (grads,)
        if len(grads) != n:
            raise ValueError(f"{type(node.op).__name__}.gradient returned {len(grads)} gradients for {n} inputs")
        for k in range(n):
            g = grads[k]
            if g is None or self.edges[self.first[i] + k] < 0 or not self.wanted[self.edges[self.first[i] + k]]:
                continue
            x = <Value> node.inputs[k]
            if isinstance(x, TensorTuple):
                check_tuple(<Op> node.op, g, <TensorTuple> x)
            elif isinstance(g, Tensor):
                if x.array is None or (<Tensor> g).array is None or not alike((<Tensor> g).array, x.array):
                    g = fit(<Op> node.op, <Tensor> g, <Tensor?> x)
            else:
                raise TypeError(f"{type(node.op).__name__}.gradient returned {type(g).__name__}, expected a Tensor or None")
            if modes_here().anomaly:
                from needle.modes import check_backward
                check_backward(node, g, node.origin, modes_here().anomaly)
            self.arrive(self.edges[self.first[i] + k], g)
        return 0


cdef object fit(Op op, Tensor grad, Tensor x):
    """A gradient as the input's shape and dtype ask for it"""
    if is_unknown(grad) or is_unknown(x):
        return OPS.FitTo(op)(grad, x)   # lazy: nobody has looked yet
    if grad.shape != x.shape:
        if not op.broadcasts:
            raise ValueError(f"{type(op).__name__}.gradient returned shape {grad.shape} for an input of shape {x.shape}")
        grad = OPS.sum_to(grad, x.shape)
    return grad if grad.dtype is x.dtype else OPS.astype(grad, x.dtype)


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


cdef inline bint is_unknown(Value value):
    return value.array is None and value.spec is None


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
    return OPS.make_tuple(*entries)


cdef object zeros_like_entry(TensorTuple node, Py_ssize_t i):
    return make_leaf(Tensor, array_api.constant_like(realize(node)[i], 0), False)


cdef object sum_and_release(list terms):
    """The sum; terms that nobody else looks at are dropped as they are added"""
    cdef Tensor total = <Tensor?> terms[0], previous, term
    cdef Py_ssize_t i
    for i in range(1, len(terms)):
        term = <Tensor?> terms[i]
        terms[i] = terms[i - 1] = None
        previous, total = total, apply(ADD, (total, term))      # not `+`: a subclass may mean something else by it
        release(previous, 1)
        release(term, 1)
    return total


cdef inline bint is_own(object grad, list made):
    """Whether nobody but the caller's variable, and the list of what was just recorded, holds a gradient or its memory"""
    cdef Value value = <Value> grad     # one reference more
    cdef Py_ssize_t n = len(made), held = 2
    if n and <PyObject*> made[n - 1] is <PyObject*> grad:
        held = 3
    return value.uses == 0 and Py_REFCNT(<PyObject*> grad) <= held and value.array is not None \
        and (type(value.array) is tuple or is_sole_owner(<PyObject*> value.array))


cdef object own(object grad):
    """A gradient in memory of its own; recorded, so that it can be differentiated"""
    return grad if isinstance(grad, TensorTuple) else OPS.clone(grad)


cdef object call_hooks(Value node, object grad):
    for entry in list(node.hooks):
        changed = entry[0](grad)
        if changed is not None:
            if not isinstance(changed, Tensor) or changed.shape != grad.shape:
                raise TypeError(f"a gradient hook returned {type(changed).__name__}, expected a Tensor of shape {grad.shape}")
            grad = changed
    return grad


cdef int keep(Value node, object grad, bint accumulate) except -1:
    """Put a gradient into `.grad`"""
    if accumulate and node.gradient is not None:
        before = make_leaf(type(grad), realize(<Value?> node.gradient), False)
        grad = before + grad if isinstance(grad, TensorTuple) else apply(ADD, (before, grad))
    node.gradient = grad
    return 0


cdef int release_all(list made) except -1:
    """Drop what a gradient made on its way and nobody looks at."""
    cdef Value value
    for value in made:
        release(value, 2)
    del made[:]
    return 0


cdef int release(Value value, Py_ssize_t held) except -1:
    """Drop the data of a recorded value if only the graph holds it, and the `held` references of the caller."""
    if value.op is None or value.array is None or value.assigned \
            or Py_REFCNT(<PyObject*> value) > value.uses + held:
        return 0
    if write_clock[0] != value.stamp and last_write(value.array) > value.stamp:
        return 0                        # written to in place: computing it again would give something else
    if type(value.array) is tuple:
        value.spec = tuple([(d.shape, d.dtype, d.device) for d in value.array])
    else:
        if nbytes_of(<PyObject*> value.array) < SMALL:
            return 0
        value.spec = (value.array.shape, value.array.dtype, value.array.device)
    value.array = None
    return 0


cdef object backward(Tensor root, object out_grad, bint accumulate):
    if not root.wants_grad:
        raise RuntimeError("backward: nothing that this tensor was computed from requires a gradient")
    cdef Walk walk = Walk()
    cdef object grad = first_gradient(root, out_grad)
    walk.given = [out_grad]
    walk.prepare([root], None)
    walk.arrive(walk.places[0], grad)
    grad = None
    walk.run(accumulate, None)


cdef object first_gradient(Tensor root, object out_grad):
    """The gradient to start from: ones, or what was given, if it fits"""
    if out_grad is None:
        return make_leaf(Tensor, array_api.constant_like(realize(root), 1), False)
    if not isinstance(out_grad, Tensor):
        out_grad = as_constant(out_grad, root, "backward")
    if out_grad.shape != root.shape:
        raise ValueError(f"backward: out_grad has shape {out_grad.shape}, the tensor {root.shape}")
    if out_grad.device != root.device:
        raise ValueError(f"backward: out_grad is on {out_grad.device}, the tensor on {root.device}")
    return OPS.astype(out_grad, root.dtype)


def gradients(outputs, inputs, out_grads=None):
    """Gradients of outputs with respect to inputs, leaves or not, as a list; None where there is no path. No `.grad` is touched.

    >>> import needle as ndl
    >>> x = ndl.Tensor([3.0])
    >>> y = x * x
    >>> ndl.autograd.gradients([y * y], [x, y])[1].numpy()
    array([18.], dtype=float32)
    """
    cdef Walk walk = Walk()
    cdef list given = list(bounded("gradients", outputs)), targets = list(bounded("gradients", inputs))
    cdef list seeds = [None] * len(given) if out_grads is None else list(bounded("gradients", out_grads))
    cdef list roots = [], starts = []
    cdef Py_ssize_t i
    cdef Tensor y
    if len(seeds) != len(given):
        raise ValueError(f"gradients: {len(seeds)} out_grads for {len(given)} outputs")
    for y, seed in zip(given, seeds):
        if y.wants_grad:
            roots.append(y)
            starts.append(first_gradient(y, seed))
    walk.given = seeds
    walk.prepare(roots, targets)
    walk.aim(targets)
    for i in range(len(roots)):
        walk.arrive(walk.places[i], starts[i])
    seed = starts = None
    found = walk.run(False, targets)
    return [found.get(id(x)) for x in targets]


# ---- The course's functions --------------------------------------------------------------------------

def compute_gradient_of_variables(output_tensor, out_grad):
    """Put into `.grad` of every leaf the gradient of output_tensor, given that of output_tensor itself."""
    backward(<Tensor?> output_tensor, out_grad, False)


def find_topo_sort(node_list):
    """Post-order depth first over `inputs`, in order: every node after what it was made from."""
    return sort(list(bounded("find_topo_sort", node_list)), False)


def topo_sort_dfs(node, visited, topo_order):
    """Append what `node` was made from, then node, to topo_order; skip and extend the set `visited`."""
    if not hasattr(visited, "__contains__"):        # `in` would go through an iterator, perhaps for ever
        raise TypeError(f"topo_sort_dfs: visited: expected a set, got {type(visited).__name__}")
    for value in sort([node], False):
        if value not in visited:
            visited.add(value)
            topo_order.append(value)


def sum_node_list(node_list):
    """The sum of a list of values."""
    nodes = bounded("sum_node_list", node_list)
    if not nodes:
        raise ValueError("sum_node_list: expected one value or more, got none")
    return functools.reduce(operator.add, nodes)


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
