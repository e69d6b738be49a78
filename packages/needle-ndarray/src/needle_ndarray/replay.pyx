# cython: embedsignature.format=clinic
"""Run a plan: its calls one after another, on arrays that are there, without a check of what was checked when it was recorded."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_CallObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdlib cimport free, malloc

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, empty_compact, view_of
from needle_ndarray.optable cimport itemsize
from needle_ndarray.prepared cimport PreparedCalls

from needle_ndarray.capture.verbs import ARGUMENTS

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

cdef enum:
    SEEN = 255                      # in place of a number of arrays: others may look there, too
    MOVED = 254                     # it is new, and has left its arena

cdef enum Code:
    OTHER, REPEAT, FILL, COPY, UNARY, BINARY, WHERE, REDUCE, MATMUL, LINEAR, ROWS, CROSS_ENTROPY, CROSS_ENTROPY_GRAD, NORM
    NORM_GRAD, TAKE, SCATTER, STEP, ROWS_GRAD

cdef dict CODES = {
    "repeat": REPEAT, "fill": FILL, "copy": COPY, "unary": UNARY, "binary": BINARY, "where": WHERE, "reduce": REDUCE,
    "matmul": MATMUL, "linear": LINEAR, "rows": ROWS, "cross_entropy": CROSS_ENTROPY, "cross_entropy_grad": CROSS_ENTROPY_GRAD,
    "norm": NORM, "norm_grad": NORM_GRAD, "take": TAKE, "scatter": SCATTER, "step": STEP,
    "rows_grad": ROWS_GRAD,
}


cdef inline object at(tuple args, Py_ssize_t i):
    return <object> PyTuple_GET_ITEM(args, i)


cdef int check_call(str verb, object target, tuple args) except -1:
    """Refuse what the loop below would take for something else; the verbs check their arrays themselves."""
    if verb == "repeat":
        return 0
    names = ARGUMENTS.get(verb)
    if not isinstance(target, Backend) or names is None or len(args) != len(names):
        raise TypeError(f"Replay: {verb} of {type(target).__name__} with {len(args)} arguments is no call of a verb")
    if names[0] == "op" and not isinstance(args[0], Op) or verb == "reduce" and not isinstance(args[3], tuple):
        raise TypeError(f"Replay: {verb}: expected an op and axes, got {args[0]!r:.60}")
    if verb == "step":
        for i in range(1, 5):
            if not (isinstance(args[i], list) or i > 2 and args[i] is None):
                raise TypeError(f"Replay: step: expected lists, got {type(args[i]).__name__}")
        if not isinstance(args[5], tuple):
            raise TypeError(f"Replay: step: expected a tuple of numbers, got {type(args[5]).__name__}")
    return 0


cdef int check_patch(str verb, tuple args, tuple path, Py_ssize_t call, Py_ssize_t index) except -1:
    """Refuse a number where something else belongs: an op, axes, a list of arrays."""
    cdef Py_ssize_t first
    if not 1 <= len(path) <= 2 or call < 0 or index < -1:
        raise ValueError(f"Replay: {path}, {call}, {index} is no place for a number")
    first = path[0]
    if not 0 <= first < len(args):
        raise ValueError(f"Replay: {verb} has no argument {first}")
    value = args[first]
    if len(path) == 2:
        if not (type(value) is tuple or verb == "repeat" and type(value) is list) or not 0 <= path[1] < len(value):
            raise ValueError(f"Replay: {verb}: argument {first} has no number {path[1]}")
        value = value[path[1]]
    if type(value) is not float:
        raise ValueError(f"Replay: {verb}: {value!r:.40}, argument {first}, is no number that could be replaced")
    return 0


cdef object observer = None         # told of every replay, or None


def observe(new):
    """Tell `new` of every replay from now on (None: nobody): `begins(replay)` before its first call, `ends(replay)` after the last.

    In between, `replay.position` is the call that is being made, and `replay.plan.calls[position]` what it was recorded as.
    """
    global observer
    observer = new


cdef class Replay:
    """Calls (verb, backend or function, args), ready to be run again.

    Numbers that a repeated function returns go where `patches` says: {call: [(path, repeated call, index)]}, where a path is a
    tuple of positions in the arguments. `epilogues` tells of calls that write over the result of a convolution, element by element,
    and may be applied part by part: {the convolution: the last of them + 1}.
    """

    cdef list targets               # by call: its backend, or the function to repeat
    cdef list args
    cdef list verbs
    cdef list patches               # by call: (path, repeated call, index) of the numbers that go into its arguments; or None
    cdef list lends                 # by call: whether a repeated function is given arrays
    cdef int* codes
    cdef PreparedCalls prepared     # those that need not be asked of a verb again
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t position   # the call that is being made, or was the last
    cdef public object plan         # what it was made from, for an observer; or None
    cdef list results               # of repeated functions, in order
    cdef list written               # an array on each buffer of others that is written to
    cdef list graphs                # by call: (what runs this and the next ones as one, the call after them), or None; or None

    def __cinit__(self, list calls not None, dict patches not None, list written not None, dict epilogues=None):
        cdef Py_ssize_t i
        self.count = len(calls)
        self.codes = <int*> malloc((self.count + 1) * sizeof(int))
        if self.codes is NULL:
            raise MemoryError(f"no memory for a plan of {self.count} calls")
        self.verbs, self.targets, self.args = [], [], []
        for verb, target, args in calls:
            self.verbs.append(verb)
            self.targets.append(target)
            self.args.append(tuple(args))
        if len(self.verbs) != self.count:
            raise ValueError("Replay: the list of calls changes while it is read")
        self.patches = [None] * self.count
        self.lends = [has_arrays(args) for args in self.args]
        self.results, self.written = [], list(written)
        for array in self.written:
            if not isinstance(array, NDArray):
                raise TypeError(f"Replay: expected arrays that are written to, got {type(array).__name__}")
        for i in range(self.count):
            self.codes[i] = CODES.get(self.verbs[i], OTHER)
            check_call(self.verbs[i], self.targets[i], self.args[i])
            if i in patches:
                self.patches[i] = [(tuple(path), call, index) for path, call, index in patches[i]]
                for path, call, index in self.patches[i]:
                    check_patch(self.verbs[i], self.args[i], path, call, index)
        self.prepared = PreparedCalls(self.count)
        for i in range(self.count - 1, -1, -1):
            if self.codes[i] != REPEAT and self.patches[i] is None:
                self.prepared.add(i, <Backend> self.targets[i], self.verbs[i], self.args[i])
                if epilogues is not None and i in epilogues:
                    self.prepared.fuse(i, [(self.verbs[j], self.args[j]) for j in range(i + 1, epilogues[i]) if self.follows(i, j)])

    def __dealloc__(self):
        free(self.codes)

    def length_of(self, Py_ssize_t i):
        """Calls that are made with call i: itself, and those that are a part of it."""
        if not 0 <= i < self.count:
            raise IndexError(f"Replay: no call {i} among {self.count}")
        return self.prepared.calls[i].next - i if self.prepared.calls[i] is not NULL else 1

    cdef bint follows(self, Py_ssize_t i, Py_ssize_t j) except -1:
        """Whether call j may be a part of call i: of the same backend, and without numbers that change"""
        return j < self.count and self.targets[j] is self.targets[i] and self.patches[j] is None

    cpdef run(self):
        """Make all calls. An error leaves the arrays as the calls before it left them."""
        if observer is None:
            self.make_calls()
            return
        here = observer
        here.begins(self)
        try:
            self.make_calls()
        finally:
            here.ends(self)

    cdef int make_calls(self) except -1:
        if self.results:
            self.results = []
        try:
            self.run_calls()
        finally:
            for array in self.written:
                (<NDArray> array).mark_written()
        return 0

    def use_graphs(self, dict graphs not None):
        """Run calls `first` to `last - 1` by `graph.run()`, where that returns True: {first: (graph, last)}. Not while observed."""
        cdef Py_ssize_t first, last
        made = [None] * self.count
        for first, (graph, last) in graphs.items():
            if not 0 <= first < last <= self.count:
                raise ValueError(f"Replay: no calls {first} to {last} among {self.count}")
            made[first] = (graph, last)
        self.graphs = made

    cdef int run_calls(self) except -1:
        cdef Py_ssize_t i, skipped = 0      # calls before this one are done
        cdef tuple args
        cdef bint graphed = self.graphs is not None and observer is None
        for i in range(self.count):
            if i < skipped:
                continue
            self.position = i
            if graphed and PyList_GET_ITEM(self.graphs, i) is not <PyObject*> None:
                graph, last = <tuple> PyList_GET_ITEM(self.graphs, i)
                if graph.run():
                    skipped = last
                    continue
            if self.prepared.calls[i] is not NULL and observer is None \
                    and (<Backend> PyList_GET_ITEM(self.targets, i)).listener is None:
                skipped = self.prepared.run_from(i)
                if skipped < 0:         # again, by the verb, which says what is wrong
                    self.position = skipped = ~skipped
                    self.make_call(skipped, <tuple> PyList_GET_ITEM(self.args, skipped))
                    skipped += 1
                PyErr_CheckSignals()
                continue
            args = <tuple> PyList_GET_ITEM(self.args, i)
            if PyList_GET_ITEM(self.patches, i) is not <PyObject*> None:
                args = self.patched(i, args)
            if self.codes[i] == REPEAT:
                if <object> PyList_GET_ITEM(self.lends, i):
                    args = tuple([lent(arg) for arg in args])
                self.results.append(PyObject_CallObject(<object> PyList_GET_ITEM(self.targets, i), args))
                continue
            self.make_call(i, args)
            if i % 16 == 15:
                PyErr_CheckSignals()
        return 0

    cdef int make_call(self, Py_ssize_t i, tuple args) except -1:
        """Ask the verb of call i."""
        cdef int code = self.codes[i]
        cdef Backend backend
        backend = <Backend> PyList_GET_ITEM(self.targets, i)
        if code == BINARY:
            backend.binary(<Op> at(args, 0), at(args, 1), at(args, 2), at(args, 3))
        elif code == UNARY:
            backend.unary(<Op> at(args, 0), at(args, 1), at(args, 2))
        elif code == COPY:
            backend.copy(at(args, 0), at(args, 1))
        elif code == FILL:
            backend.fill(at(args, 0), at(args, 1))
        elif code == MATMUL:
            backend.matmul(at(args, 0), at(args, 1), at(args, 2))
        elif code == LINEAR:
            backend.linear(at(args, 0), at(args, 1), at(args, 2), at(args, 3))
        elif code == REDUCE:
            backend.reduce(<Op> at(args, 0), at(args, 1), at(args, 2), <tuple> at(args, 3))
        elif code == WHERE:
            backend.where(at(args, 0), at(args, 1), at(args, 2), at(args, 3))
        elif code == ROWS:
            backend.rows(<Op> at(args, 0), at(args, 1), at(args, 2))
        elif code == ROWS_GRAD:
            backend.rows_grad(<Op> at(args, 0), at(args, 1), at(args, 2), at(args, 3), at(args, 4))
        elif code == CROSS_ENTROPY:
            backend.cross_entropy(at(args, 0), at(args, 1), at(args, 2))
        elif code == CROSS_ENTROPY_GRAD:
            backend.cross_entropy_grad(at(args, 0), at(args, 1), at(args, 2), at(args, 3))
        elif code == NORM:
            backend.norm(<Op> at(args, 0), at(args, 1), at(args, 2), at(args, 3), at(args, 4), at(args, 5), at(args, 6),
                         at(args, 7))
        elif code == NORM_GRAD:
            backend.norm_grad(<Op> at(args, 0), at(args, 1), at(args, 2), at(args, 3), at(args, 4), at(args, 5), at(args, 6),
                              at(args, 7), at(args, 8), at(args, 9))
        elif code == TAKE:
            backend.take(at(args, 0), at(args, 1), at(args, 2))
        elif code == SCATTER:
            backend.scatter(<Op> at(args, 0), at(args, 1), at(args, 2), at(args, 3))
        elif code == STEP:
            backend.step(<Op> at(args, 0), <list> at(args, 1), <list> at(args, 2), at(args, 3), at(args, 4),
                         <tuple> at(args, 5))
        else:
            getattr(backend, self.verbs[i])(*args)
        return 0

    def number(self, Py_ssize_t call, Py_ssize_t index):
        """What a repeated function returned in the last replay, or that entry of it."""
        return self.results[call] if index < 0 else self.results[call][index]

    cdef tuple patched(self, Py_ssize_t i, tuple args):
        """The arguments of call i with the numbers of this replay"""
        cdef list made = list(args)
        cdef tuple patch, path
        cdef Py_ssize_t first, k, index, changed = -1
        for k in range(PyList_GET_SIZE(<object> PyList_GET_ITEM(self.patches, i))):
            patch = <tuple> PyList_GET_ITEM(<object> PyList_GET_ITEM(self.patches, i), k)
            path, index = <tuple> at(patch, 0), at(patch, 2)
            value = self.results[at(patch, 1)]
            if index >= 0:
                value = value[index]
            first = at(path, 0)
            if len(path) == 1:
                made[first] = value
                continue
            if first != changed:
                self.close(made, args, changed)
                made[first], changed = list(made[first]), first
            (<list> made[first])[<Py_ssize_t> at(path, 1)] = value
        self.close(made, args, changed)
        return tuple(made)

    cdef int close(self, list made, tuple args, Py_ssize_t changed) except -1:
        """Make a tuple again of numbers that were one"""
        if changed >= 0 and type(args[changed]) is tuple:
            made[changed] = tuple(made[changed])
        return 0


cdef bint has_arrays(object arg) except -1:
    if isinstance(arg, (list, tuple)):
        for each in arg:
            if has_arrays(each):
                return True
    return isinstance(arg, (NDArray, list))     # a list may change: each replay gets one of its own


cdef object lent(object arg):
    """What a repeated function gets of an array: an object of its own, since the plan points its arrays elsewhere"""
    if isinstance(arg, NDArray):
        return like(<NDArray> arg)
    if type(arg) is list or type(arg) is tuple:
        return type(arg)([lent(each) for each in arg])
    return arg


cdef class Layout:
    """What a plan takes for granted of an array: shape, strides, dtype and device."""

    cdef Backend backend
    cdef int dtype, ndim
    cdef Py_ssize_t sizes[2 * MAX_NDIM]

    def __init__(self, NDArray array not None):
        cdef int i
        self.backend, self.dtype, self.ndim = array._backend, array._dtype, array._ndim
        for i in range(self.ndim):
            self.sizes[i], self.sizes[MAX_NDIM + i] = array._shape[i], array._strides[i]

    cpdef bint fits(self, object array) except -1:
        """Whether an array is laid out so."""
        cdef NDArray a = <NDArray?> array
        cdef int i
        if a._dtype != self.dtype or a._ndim != self.ndim or a._backend is not self.backend:
            return False
        for i in range(self.ndim):
            if a._shape[i] != self.sizes[i] or a._strides[i] != self.sizes[MAX_NDIM + i]:
                return False
        return True


cdef class Views:
    """The views that a plan has of one array's memory, so that they can be pointed at another one of the same layout."""

    cdef readonly list views
    cdef list shifts                # of each, in bytes from the base's first element
    cdef NDArray base               # what they show now
    cdef Layout layout

    def __init__(self, NDArray base not None, list views not None):
        cdef NDArray view
        cdef Py_ssize_t low, high, first, last
        extent(base, &low, &high)
        for view in views:
            if view._buffer is not base._buffer:
                raise ValueError("Views: a view of another buffer")
            extent(view, &first, &last)
            if view._size and (first < low or last > high):
                raise ValueError(f"Views: bytes {first} to {last} of a buffer, outside of {low} to {high}")
        self.views, self.base, self.layout = list(views), base, Layout(base)
        self.shifts = [view._offset * itemsize(view._dtype) - base._offset * itemsize(base._dtype) for view in views]

    cpdef point(self, NDArray base):
        """Show the memory of `base` from now on: an array of the same shape, strides, dtype and device."""
        cdef NDArray view
        cdef Py_ssize_t i, start
        if base is self.base:
            return
        if base is None or not self.layout.fits(base):
            given = "nothing" if base is None else f"{base.shape}, {base.dtype}"
            raise ValueError(f"a plan for shape {self.base.shape}, {self.base.dtype} was given {given}")
        for i in range(len(self.views)):
            view = <NDArray> PyList_GET_ITEM(self.views, i)
            start = base._offset * itemsize(base._dtype) + <Py_ssize_t> self.shifts[i]
            view._buffer = base._buffer
            view._offset = start // itemsize(view._dtype)
            view._ptr = base._ptr + <Py_ssize_t> self.shifts[i] if base._ptr is not NULL else NULL
        self.base = base

    cpdef bint renew(self, Py_ssize_t others=0) except -1:
        """Point at new memory, unless nobody but `others` arrays looks at what is there; whether it did."""
        cdef NDArray base = self.base
        cdef Py_ssize_t ours = len(self.views) + 1 + others
        if Py_REFCNT(<PyObject*> base) > 2 or Py_REFCNT(<PyObject*> base._buffer) > ours:
            del base
            self.move()
            return True
        return False

    cdef int move(self) except -1:
        """Point at new memory."""
        self.point(empty_compact(self.base._backend, self.base._dtype, self.base._ndim, self.base._shape))
        return 0


cdef void extent(NDArray a, Py_ssize_t* low, Py_ssize_t* high) noexcept:
    """The bytes of the buffer that an array reaches: low <= byte < high"""
    cdef Py_ssize_t first = a._offset, last = a._offset
    cdef int i
    for i in range(a._ndim):
        if a._strides[i] < 0:
            first += (a._shape[i] - 1) * a._strides[i]
        else:
            last += (a._shape[i] - 1) * a._strides[i]
    low[0], high[0] = first * itemsize(a._dtype), (last + 1) * itemsize(a._dtype)
    if a._size == 0:
        high[0] = low[0]


cdef class Runner:
    """What a replay of a whole function does to arrays: new memory for results, the calls, the results as arrays to hand out.

    Parameters
    ----------
    replay : the calls
    groups : Views of the results' memory, to be renewed
    results : arrays of the plan, of which the first `count` are handed out
    arenas : (Views of an arena, the numbers of the groups that lie in it too); where somebody looks at one of these when a replay
        begins, all of them get memory of their own, for good, and the arena new memory
    """

    cdef Replay replay
    cdef list groups, results, arenas
    cdef set inside                 # numbers of the groups that lie in arenas
    cdef Py_ssize_t count

    def __init__(self, Replay replay not None, list groups not None, list results not None, Py_ssize_t count, arenas=()):
        self.replay, self.groups, self.results, self.count = replay, list(groups), list(results), count
        self.arenas, self.inside = [], set()
        for arena, numbers in arenas:
            numbers = tuple(numbers)
            for i in numbers:
                if not 0 <= i < len(self.groups) or i in self.inside:
                    raise ValueError(f"Runner: group {i} of {len(groups)} in an arena")
                self.inside.add(i)
            if numbers:
                self.arenas.append((<Views?> arena, numbers))
        for group in groups:
            if not isinstance(group, Views):
                raise TypeError(f"Runner: expected Views, got {type(group).__name__}")
        for array in results:
            if not isinstance(array, NDArray):
                raise TypeError(f"Runner: expected arrays, got {type(array).__name__}")
        if not 0 <= count <= len(results):
            raise ValueError(f"Runner: {count} of {len(results)} results")

    def __call__(self, bytearray others not None):
        """Run; `others` has, for each of the groups, how many arrays of the caller's look at it, and then whether it is new.

        SEEN instead of a number: more arrays may do so.
        """
        cdef Py_ssize_t i, n = PyList_GET_SIZE(self.groups)
        cdef unsigned char* known = <unsigned char*> PyByteArray_AS_STRING(others)
        cdef list made
        if PyByteArray_GET_SIZE(others) != n:
            raise ValueError(f"Runner: {n} groups, {len(others)} numbers")
        if PyList_GET_SIZE(self.arenas):
            self.arenas = [entry for entry in self.arenas if not self.leaves(<tuple> entry, known)]
        for i in range(n):
            if i in self.inside:
                known[i] = False
            elif known[i] != MOVED:
                known[i] = (<Views> PyList_GET_ITEM(self.groups, i)).renew(known[i] if known[i] != SEEN else 0)
        self.replay.run()
        made = []
        for i in range(self.count):
            made.append(like(<NDArray> PyList_GET_ITEM(self.results, i)))
        return made

    cdef bint leaves(self, tuple entry, unsigned char* known) except -1:
        """Whether the groups in an arena have to leave it, since somebody looks at one of them; then they do."""
        cdef Views arena = <Views> entry[0], group
        cdef Py_ssize_t i, ours = PyList_GET_SIZE(arena.views) + 1
        cdef bint seen = False
        for i in <tuple> entry[1]:
            group = <Views> PyList_GET_ITEM(self.groups, i)
            ours += PyList_GET_SIZE(group.views) + 1 + (known[i] if known[i] != SEEN else 0)
            seen |= known[i] == SEEN
        if not seen and Py_REFCNT(<PyObject*> arena.base._buffer) <= ours:
            return False
        for i in <tuple> entry[1]:
            (<Views> PyList_GET_ITEM(self.groups, i)).move()
            self.inside.remove(i)
            known[i] = MOVED
        arena.move()
        return True


cpdef NDArray like(NDArray view):
    """Another object for the same view: what is handed out, while the plan points its own elsewhere."""
    if view is None:
        raise TypeError("like: expected an array, got None")
    return view_of(view, view._ndim, view._shape, view._strides, 0)
