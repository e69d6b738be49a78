"""Recurrent layers of the CPU backend: checks that guard the memory, threads, and the call of the kernel."""

from libc.string cimport memset

from needle_ndarray.backend cimport CELL_OP, SEQUENCE_OP, Op
from needle_ndarray.cpu_backend.guard cimport THREADS_FROM_FLOPS, THREADS_FROM_MATH, TOO_MANY, done, host, known, refuse
from needle_ndarray.kernels cimport recurrent as cells
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray, compact_copy, empty_compact
from needle_ndarray.optable cimport FLOAT32, GRU, GRU_GRAD, LSTM, LSTM_GRAD
from needle_ndarray.threads cimport threads_for


cdef int shaped(str verb, object given, int dtype, tuple shape, View* view) except -1:
    """An array of that dtype and shape"""
    cdef int i
    host(given, view)
    cdef bint fits = view.dtype == dtype and view.ndim == len(shape)
    for i in range(view.ndim if fits else 0):
        fits = fits and view.shape[i] == <Py_ssize_t> shape[i]
    if not fits:
        raise refuse(verb)
    if view.size > TOO_MANY:
        raise MemoryError(f"{verb}: {view.size} elements")
    return 0


# ---- Cells --------------------------------------------------------------------------

cdef int cell(Op op, object x, object y, object bias, object state, object h_out, object c_out, object gates) except -1:
    known(op, CELL_OP)
    if op.code == LSTM:
        return cell_rows(op.name, LSTM, (x, y, state, h_out, c_out, gates), (4, 4, 1, 1, 1, 4), 3, state, bias)
    return cell_rows(op.name, GRU, (x, y, state, h_out, gates), (3, 3, 1, 1, 4), 3, state, bias)


cdef int cell_grad(Op op, object dy, object dh, object dc, object gates, object state, object c_out, object dx, object ds,
                   object dstate) except -1:
    known(op, CELL_OP)
    if op.code == LSTM:
        return cell_rows(op.name, LSTM_GRAD, (dy, dh, dc, gates, state, c_out, ds, dstate), (1, 1, 1, 4, 1, 1, 4, 1), 6, state,
                         None)
    return cell_rows(op.name, GRU_GRAD, (dy, dh, state, gates, dx, ds, dstate), (1, 1, 1, 4, 3, 3, 1), 4, state, None)


cdef int cell_rows(str verb, int kind, tuple arrays, tuple widths, int inputs, object state, object bias) except -1:
    """A cell over the rows of (B, width n) arrays, the inputs first; `state` (B, n) tells the sizes. The last one may be None"""
    cdef cells.CellRows job
    cdef View views[8]
    cdef View like, column
    cdef int k, threads, status
    host(state, &like)
    if like.ndim != 2 or like.dtype < FLOAT32 or like.shape[1] > TOO_MANY:
        raise refuse(verb)
    job.cell, job.inputs, job.count, job.n, job.bias = kind, inputs, len(arrays), like.shape[1], NULL
    for k in range(job.count):
        job.width[k], job.at[k] = widths[k] * job.n, NULL
        if arrays[k] is None and (k + 1 < job.count or kind > GRU):
            raise refuse(verb)
        if arrays[k] is not None:
            shaped(verb, arrays[k], like.dtype, (like.shape[0], job.width[k]), &views[k])
            job.at[k] = &views[k]
    if bias is not None:
        shaped(verb, bias, like.dtype, (job.width[0],), &column)
        job.bias = &column
    if like.size == 0:
        return 0
    threads = threads_for(4 * like.size, THREADS_FROM_MATH)
    with nogil:
        status = cells.cell_rows(&job, like.dtype, like.shape[0], threads)
    return done(status)


# ---- Sequences --------------------------------------------------------------------------

cdef class Run:
    """A cell over a sequence: the arrays as the kernel wants them, compact, and what has to go back to where it came from"""

    def __cinit__(self, Op op, states, preactivations, weight):
        """Sizes, by (T or T + 1, B, n) states, (T, B, gates n) preactivations and the weight (n, gates n)"""
        known(op, SEQUENCE_OP)
        cdef View like, wide, w
        cdef int cell = op.code
        cdef str verb = op.name
        host(states, &like)
        host(preactivations, &wide)
        host(weight, &w)
        memset(&self.job, 0, sizeof(cells.Sequence))
        self.verb, self.held, self.results = verb, [], []
        if like.ndim != 3 or wide.ndim != 3 or w.ndim != 2 or like.dtype < FLOAT32 or like.shape[2] > TOO_MANY:
            raise refuse(verb)
        self.job.cell, self.job.dtype = cell, like.dtype
        self.job.time_steps, self.job.batch, self.job.n = wide.shape[0], like.shape[1], like.shape[2]
        self.job.gate_count = 4 if cell == LSTM else 3 if cell == GRU else 1

    cdef char* take(self, object given, tuple shape, bint read, bint written, bint wanted=True) except? NULL:
        """The elements of an array, or of a compact copy; NULL for None, where the cell does without it"""
        cdef View view
        cdef NDArray a, room
        if given is None and not wanted:
            return NULL
        shaped(self.verb, given, self.job.dtype, shape, &view)
        a = room = <NDArray> given
        if not a._compact:
            room = compact_copy(a) if read else empty_compact(a._backend, a._dtype, a._ndim, a._shape)
            if written:
                self.results.append((room, a))
        self.held.append(room)
        return room._ptr

    cdef int run(self, bint backward) except -1:
        cdef Py_ssize_t work = self.job.time_steps * self.job.batch * self.job.n
        cdef int threads, status = 0
        threads = threads_for(work * self.job.gate_count * self.job.n, THREADS_FROM_FLOPS)
        if work:
            with nogil:
                status = cells.run_sequence(&self.job, backward, threads)
        done(status)
        for room, result in self.results:
            (<NDArray> result)._backend.copy(room, result)
        return 0

    cdef int forward(self, x, weight, bias, h, c, gates) except -1:
        cdef cells.Sequence* q = &self.job
        q.x = self.take(x, (q.time_steps, q.batch, q.gate_count * q.n), True, False)
        q.weight = self.take(weight, (q.n, q.gate_count * q.n), True, False)
        q.bias = self.take(bias, (q.gate_count * q.n,), True, False, False)
        q.h = self.take(h, (q.time_steps + 1, q.batch, q.n), True, True)
        if q.cell == LSTM:
            q.c = self.take(c, (1 if gates is None else q.time_steps + 1, q.batch, q.n), True, True)
        if q.gate_count > 1:
            q.gates = self.take(gates, (q.time_steps, q.batch, 4 * q.n), False, True, False)
        return self.run(False)

    cdef int backward(self, dy, weight, h, c, gates, dx, ds, dh, dc) except -1:
        cdef cells.Sequence* q = &self.job
        q.dy = self.take(dy, (q.time_steps, q.batch, q.n), True, False)
        q.weight = self.take(weight, (q.n, q.gate_count * q.n), True, False)
        if q.cell != LSTM:
            q.h = self.take(h, (q.time_steps + 1, q.batch, q.n), True, False)
        if q.gate_count > 1:
            q.gates = self.take(gates, (q.time_steps, q.batch, 4 * q.n), True, False)
        if q.cell == GRU:
            q.x = self.take(dx, (q.time_steps, q.batch, q.gate_count * q.n), False, True)
        q.ds = self.take(ds, (q.time_steps, q.batch, q.gate_count * q.n), False, True)
        q.dh = self.take(dh, (q.batch, q.n), True, True)
        if q.cell == LSTM:
            q.c = self.take(c, (q.time_steps + 1, q.batch, q.n), True, False)
            q.dc = self.take(dc, (q.batch, q.n), True, True)
        return self.run(True)
