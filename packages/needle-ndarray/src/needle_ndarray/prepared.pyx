"""Calls of a plan that were checked when it was made: runs of them are one loop, over structs and without the GIL."""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from needle_ndarray.backend cimport Backend
from needle_ndarray.calls cimport POINTERS, REWRITTEN, Call
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray

cdef enum:
    LONGEST = 64                    # calls that are run before signals (Ctrl-C) are looked for
    ENOUGH_WORK = 8192              # elements or multiplications of a run of calls from which letting other threads in pays


cdef inline int run_one(Prepared* one, Call* scratch) noexcept nogil:
    """Run a call on its arrays where they are now; a kernel that rewrites its views is given others."""
    cdef int i, k
    cdef View* a
    cdef View* copied
    for k in range(one.call.count):
        one.call.data[k] = one.sources[k][0]
    if one.call.reads == POINTERS:
        return one.call.run(&one.call)
    for k in range(one.call.count):
        one.call.views[k].data = one.call.data[k]
    if one.call.reads != REWRITTEN:
        return one.call.run(&one.call)
    memcpy(scratch, &one.call, sizeof(Call) - sizeof(scratch.views))
    for k in range(one.call.count):
        a, copied = &one.call.views[k], &scratch.views[k]
        copied.data, copied.dtype, copied.ndim, copied.itemsize, copied.size = a.data, a.dtype, a.ndim, a.itemsize, a.size
        for i in range(a.ndim):
            copied.shape[i], copied.strides[i] = a.shape[i], a.strides[i]
    return scratch.run(scratch)


cdef Py_ssize_t run_calls(Prepared** calls, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Run calls first to last - 1: last, or ~ the number of the one that failed"""
    cdef Py_ssize_t i = first
    cdef Call scratch
    while i < last:
        if run_one(calls[i], &scratch) != 0:
            return ~i
        i = calls[i].next
    return last


cdef class PreparedCalls:
    """Room for `count` calls, added from the last to the first."""

    def __cinit__(self, Py_ssize_t count):
        self.calls = <Prepared**> calloc(count + 1, sizeof(void*))
        if self.calls is NULL:
            raise MemoryError(f"no memory for a plan of {count} calls")
        self.count, self.backends, self.held = count, [None] * (count + 1), []

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count if self.calls is not NULL else 0):
            if self.calls[i] is not NULL:
                free(self.calls[i].call.epilogue)
            free(self.calls[i])
        free(self.calls)

    cdef bint add(self, Py_ssize_t i, Backend backend, str verb, tuple args) except -1:
        """Prepare call i and join it to the run that begins after it, if that is on the same backend; whether it could be."""
        cdef Call call
        cdef Prepared* one
        cdef size_t unused
        cdef int k
        call.epilogue = NULL
        try:
            if not backend.prepare(verb, args, &call):
                return False
        except Exception:               # its verb says so again, when its turn comes
            return False
        unused = sizeof(call.views) if call.reads == POINTERS else 0
        one = <Prepared*> malloc(sizeof(Prepared) - unused)
        if one is NULL:
            raise MemoryError(f"no memory for a plan of {self.count} calls")
        memcpy(&one.call, &call, sizeof(Call) - unused)
        for k in range(call.count):
            one.sources[k] = &(<NDArray> call.arrays[k])._ptr
        self.calls[i], self.backends[i] = one, backend
        self.held.append(args)          # with the arrays
        self.lead_to(i, i + 1)
        return True

    cdef void lead_to(self, Py_ssize_t i, Py_ssize_t following) noexcept:
        """Let call i be followed by this one, and join the run that begins there, if that is on the same backend."""
        cdef Prepared* one = self.calls[i]
        cdef Prepared* after = self.calls[following]
        one.next, one.until, one.work = following, following, one.call.work
        if after is not NULL and after.until - i <= LONGEST and self.backends[following] is self.backends[i]:
            one.until, one.work = after.until, min(one.call.work + after.work, <Py_ssize_t> ENOUGH_WORK)

    cdef int fuse(self, Py_ssize_t i, list steps) except -1:
        """Make as many of the calls after call i, (verb, args), a part of it as its backend can."""
        cdef int count
        if self.calls[i] is not NULL:
            count = (<Backend> self.backends[i]).fuse(&self.calls[i].call, steps)
            self.lead_to(i, i + 1 + count)
        return 0

    cdef Py_ssize_t run_from(self, Py_ssize_t first) noexcept:
        """Run the calls from this one on; the number of the one after them, or ~ the number of the one that failed."""
        if self.calls[first].work < ENOUGH_WORK:
            return run_calls(self.calls, first, self.calls[first].until)
        with nogil:
            first = run_calls(self.calls, first, self.calls[first].until)
        return first
