# cython: embedsignature.format=clinic
"""Writing verbs down: compiled, since a recorded call is to cost little more than the call, and asking for a recording nothing."""

import sys
from _thread import get_ident          # threading is not imported by NumPy

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.ndarray cimport NDArray

from needle_ndarray.capture.calls import CHECKS, READS, Call, View
from needle_ndarray.capture.lines import place_in_library
from needle_ndarray.capture.verbs import ARGUMENTS, UPDATES, written_by

cdef object new_tuple = tuple.__new__
cdef dict places = {}


cdef class Tape:
    """The calls that one thread makes, and the buffers they are made on."""

    cdef readonly list calls
    cdef readonly dict made             # id of a buffer that is in use: its number
    cdef readonly list sizes            # bytes of the buffers made, by number
    cdef readonly list origins          # their backends
    cdef readonly dict outside          # id of a buffer: an array on it; held, so that the id stays its own
    cdef readonly dict outside_numbers
    cdef readonly dict slots            # id of a number: where it comes from
    cdef readonly set watched           # numbers read from arrays, which Python must not use
    cdef public Py_ssize_t depth        # above 0 inside a verb or a repeated function: what these do is not written down
    cdef readonly object origin         # says what asks for a verb, and the user's line
    cdef object thread

    def __init__(self, origin=None):
        self.origin = nobody_and_line if origin is None else origin
        self.calls, self.sizes, self.origins = [], [], []
        self.made, self.outside, self.outside_numbers, self.slots = {}, {}, {}, {}
        self.watched = set()
        self.thread = get_ident()

    cpdef bint is_here(self) except -1:
        """Whether what is done now is to be written down."""
        return self.depth == 0 and get_ident() == self.thread

    cpdef bint is_mine(self) except -1:
        """Whether this is the thread that is recorded."""
        return get_ident() == self.thread

    def note(self, Backend backend not None, str verb not None, tuple args not None):
        """Run a verb and write it down; False where it is none of this recording's business."""
        if not self.is_here():
            return False
        if verb == "to_host" or verb == "share":
            self.shared(verb)
            return False
        self.depth += 1
        try:
            getattr(backend, verb)(*args)
        finally:
            self.depth -= 1
        if verb == "from_host":
            self.from_host(backend, *args)
        else:
            op, line = self.origin()
            self.calls.append(new_tuple(Call, (verb, backend, self.written_down(args), line, None, op)))
        return True

    cpdef object allocated(self, Backend backend, object buffer):
        """Give a new buffer a number."""
        if self.is_here():
            self.made[id(buffer)] = len(self.sizes)
            self.sizes.append(buffer.nbytes)
            self.origins.append(backend)
        else:
            self.made.pop(id(buffer), None)  # memory that was one of ours, and is somebody else's now
        return buffer

    cpdef object view(self, NDArray array):
        """An array as a View."""
        key = id(array._buffer)
        number = self.made.get(key)
        if number is None:
            number = self.outside_numbers.get(key)
            if number is None:
                self.outside[key] = array
                number = self.outside_numbers[key] = -1 - len(self.outside_numbers)
        return new_tuple(View, (number, array.dtype, array.shape, array.strides, array._offset))

    cpdef object written_down(self, object value):
        """An argument with Views for arrays and Slots for numbers of repeated functions."""
        if isinstance(value, NDArray):
            return self.view(<NDArray> value)
        if isinstance(value, float):
            slot = self.slots.get(id(value))
            if slot is None and value in self.watched:
                self.shared("number")       # the value of one of those, by a detour
            return value if slot is None else slot
        if type(value) is tuple:
            return tuple([self.written_down(each) for each in <tuple> value])
        if isinstance(value, (list, tuple)):
            return type(value)([self.written_down(each) for each in value])
        return value


cpdef tuple line_of_user():
    """The innermost line outside of the library, as file and number."""
    frame = sys._getframe()
    while True:
        name = frame.f_code.co_filename
        inside = places.get(name)
        if inside is None:
            inside = places[name] = bool(place_in_library(name))
        outer = frame.f_back
        if not inside or outer is None:
            return name, frame.f_lineno
        frame = outer


def nobody_and_line():
    """Where a verb comes from, if nobody knows of ops."""
    return "", line_of_user()


cdef class Ear:
    """Listens to one backend for a tape."""

    cdef Tape tape
    cdef Backend backend
    numbers = True                      # single numbers that the host reads and writes are heard of

    def __init__(self, Tape tape not None, Backend backend not None):
        self.tape, self.backend = tape, backend

    def heard(self, str verb not None, tuple args not None):
        return self.tape.note(self.backend, verb, args)

    def allocated(self, buffer):
        return self.tape.allocated(self.backend, buffer)


# ---- What a call touches --------------------------------------------------------------------------------------------------

cdef dict known_roles = {}


cpdef dict roles(object call):
    """{argument of a verb: (whether it is read, whether it is written)}"""
    cdef str verb = call[0]
    cdef tuple args = call[2]
    cdef Op op = <Op> args[0] if len(args) and isinstance(args[0], Op) else None
    key = (verb, None if op is None else op.name)
    found = known_roles.get(key)
    if found is None:
        written, updated = written_by(verb, op), UPDATES.get(verb, ())
        found = known_roles[key] = {
            name: (name not in written or name in updated, name in written) for name in ARGUMENTS[verb]
        }
    return found


cdef class Touched:
    """The buffers that a call reads and writes; `buffers` has all of them."""

    cdef object call                    # held, so that its id stays its own
    cdef readonly set reads, writes, buffers

    def __init__(self, call):
        cdef tuple args = call[2]
        self.call, self.reads, self.writes = call, set(), set()
        if call[0] == "repeat":
            self.add(args, True, call[4] not in CHECKS)     # a function may do either
        else:
            for (read, written), arg in zip(roles(call).values(), args):
                self.add(arg, read, written)
        self.buffers = self.reads | self.writes

    cdef int add(self, object arg, bint read, bint written) except -1:
        if type(arg) is View:
            buffer = (<tuple> arg)[0]
            if read:
                self.reads.add(buffer)
            if written:
                self.writes.add(buffer)
        elif type(arg) is tuple or type(arg) is list:
            for each in arg:
                self.add(each, read, written)
        return 0


# ---- The recording of this thread ------------------------------------------------------------------------------------

cdef Tape under_way = None


def record_on(Tape tape):
    """From now on this is the recording that is under way; None: there is none."""
    global under_way
    under_way = tape


cpdef object active_recorder():
    """The recording that is under way in this thread, if one is."""
    return under_way if under_way is not None and under_way.is_mine() else None


def repeat(function, *args):
    """function(*args); where a captured function is being recorded, every replay calls it again, at this place among the verbs.

    For what Python does besides calling verbs: counting steps, drawing random numbers, reading a norm. What the function does to
    arrays is not recorded. It may return floats: where these go into later verbs, a replay uses the new ones.

    >>> from itertools import count
    >>> steps = count(1)
    >>> repeat(lambda: 1 / next(steps))
    1.0
    """
    found = active_recorder()
    return function(*args) if found is None else found.repeat(function, args)


def reading(function, *args):
    """repeat(function, *args) of one that does nothing but read its arrays: a replay that has no use for its numbers leaves it out.

    >>> import needle_ndarray as nd
    >>> reading(nd.NDArray.item, nd.array([2.0]))
    2.0
    """
    CHECKS.add(function)
    READS.add(function)
    return repeat(function, *args)


def again(check, NDArray array not None, *args):
    """check(array, *args), which raises an error for some values and writes nothing; where recorded, in every replay too.

    On the CPU once is enough: there the verbs check their indices themselves.
    """
    found = active_recorder()
    if found is None or array._backend.name == "cpu":
        return check(array, *args)
    CHECKS.add(check)
    return found.repeat(check, (array, *args))


def depends(container, *keys):
    """Say, while recording, that a replay is right only as long as these entries of a dictionary stay; none: all entries."""
    found = active_recorder()
    if found is not None:
        found.dependencies += [(container, key) for key in keys or (None,)]
