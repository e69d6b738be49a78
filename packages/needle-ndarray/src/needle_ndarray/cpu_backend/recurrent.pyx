"""Recurrent layers of the CPU backend: what guards the memory (rules), threads, and the call of the kernel."""

from libc.string cimport memset

from needle_ndarray.backend cimport CELL_OP, SEQUENCE_OP, Op
from needle_ndarray.cpu_backend.guard cimport THREADS_FROM_FLOPS, THREADS_FROM_MATH, done, known
from needle_ndarray.kernels cimport recurrent as cells
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray, compact_copy, empty_compact
from needle_ndarray.optable cimport GRU, GRU_GRAD, LSTM, LSTM_GRAD
from needle_ndarray.rules cimport Borrowed, Rule
from needle_ndarray.threads cimport threads_for

from needle_ndarray.backend import CELL
from needle_ndarray.rules import RULES


cdef Rule LSTM_RULE = RULES["lstm"], LSTM_INFERENCE = RULES["lstm_inference"], LSTM_GRAD_RULE = RULES["lstm_grad"]
cdef Rule GRU_RULE = RULES["gru"], GRU_GRAD_RULE = RULES["gru_grad"], RNN_RULE = RULES["rnn"], RNN_GRAD_RULE = RULES["rnn_grad"]
cdef dict CELL_RULES = {op.code: RULES[name] for name, op in CELL.items()}
cdef dict CELL_GRAD_RULES = {op.code: RULES[name + "_grad"] for name, op in CELL.items()}


# ---- Cells --------------------------------------------------------------------------

cdef int cell(Op op, object x, object y, object bias, object state, object h_out, object c_out, object gates) except -1:
    known(op, CELL_OP)
    cdef Borrowed[7] given = [<Borrowed> x, <Borrowed> y, <Borrowed> state, <Borrowed> bias, <Borrowed> h_out, <Borrowed> c_out,
                              <Borrowed> gates]
    if op.code == LSTM:
        return cell_rows(CELL_RULES[LSTM], LSTM, given, 7, 3, 3)
    given[5] = <Borrowed> gates
    return cell_rows(CELL_RULES[GRU], GRU, given, 6, 3, 3)


cdef int cell_grad(Op op, object dy, object dh, object dc, object gates, object state, object c_out, object dx, object ds,
                   object dstate) except -1:
    known(op, CELL_OP)
    cdef Borrowed[8] given = [<Borrowed> dy, <Borrowed> dh, <Borrowed> dc, <Borrowed> gates, <Borrowed> state, <Borrowed> c_out,
                              <Borrowed> ds, <Borrowed> dstate]
    if op.code == LSTM:
        return cell_rows(CELL_GRAD_RULES[LSTM], LSTM_GRAD, given, 8, 6, -1)
    given[:7] = [<Borrowed> dy, <Borrowed> dh, <Borrowed> state, <Borrowed> gates, <Borrowed> dx, <Borrowed> ds, <Borrowed> dstate]
    return cell_rows(CELL_GRAD_RULES[GRU], GRU_GRAD, given, 7, 4, -1)


cdef int cell_rows(Rule rule, int kind, Borrowed* given, int count, int inputs, int bias) except -1:
    """A cell over the rows of (B, gates H) arrays, the inputs first; one of them may be the bias. The last one may be None"""
    cdef cells.CellRows job
    cdef View views[8]
    cdef View* state = &views[0 if bias < 0 else 2]
    cdef int k, threads, status
    rule.guard(given, views)
    job.cell, job.inputs, job.count, job.n, job.bias = kind, inputs, 0, state.shape[1], NULL
    for k in range(count):
        if k == bias:
            job.bias = NULL if <object> given[k] is None else &views[k]
        else:
            job.at[job.count] = NULL if <object> given[k] is None else &views[k]
            job.width[job.count] = 4 * job.n if <object> given[k] is None else views[k].shape[1]
            job.count += 1
    if state.size == 0:
        return 0
    threads = threads_for(4 * state.size, THREADS_FROM_MATH)
    with nogil:
        status = cells.cell_rows(&job, state.dtype, state.shape[0], threads)
    return done(status)


# ---- Sequences --------------------------------------------------------------------------

cdef class Run:
    """A cell over a sequence: the arrays as the kernel wants them, compact, and what has to go back to where it came from"""

    def __cinit__(self, Op op):
        known(op, SEQUENCE_OP)
        memset(&self.job, 0, sizeof(cells.Sequence))
        self.job.cell, self.job.gate_count = op.code, 4 if op.code == LSTM else 3 if op.code == GRU else 1
        self.held, self.results = [], []

    cdef int measure(self, const View* preactivations, const View* weight) except -1:
        self.job.dtype, self.job.n = weight.dtype, weight.shape[0]
        self.job.time_steps, self.job.batch = preactivations.shape[0], preactivations.shape[1]
        return 0

    cdef char* take(self, object given, bint read, bint written) except? NULL:
        """The elements of an array, or of a compact copy; NULL for None"""
        cdef NDArray a, scratch
        if given is None:
            return NULL
        a = scratch = <NDArray> given
        if not a._compact:
            scratch = compact_copy(a) if read else empty_compact(a._backend, a._dtype, a._ndim, a._shape)
            if written:
                self.results.append((scratch, a))
        self.held.append(scratch)
        return scratch._ptr

    cdef int run(self, bint backward) except -1:
        cdef Py_ssize_t work = self.job.time_steps * self.job.batch * self.job.n
        cdef int threads, status = 0
        threads = threads_for(work * self.job.gate_count * self.job.n, THREADS_FROM_FLOPS)
        if work:
            with nogil:
                status = cells.run_sequence(&self.job, backward, threads)
        done(status)
        for scratch, result in self.results:
            (<NDArray> result)._backend.copy(scratch, result)
        return 0

    cdef int forward(self, x, weight, bias, h, c, gates) except -1:
        cdef cells.Sequence* q = &self.job
        cdef View views[6]
        cdef Borrowed[6] given = [<Borrowed> x, <Borrowed> weight, <Borrowed> bias, <Borrowed> h, <Borrowed> c, <Borrowed> gates]
        if q.cell != LSTM:
            c, given[4] = None, <Borrowed> gates
        if q.cell == LSTM:
            (LSTM_INFERENCE if gates is None else LSTM_RULE).guard(given, views)
        elif q.cell == GRU:
            GRU_RULE.guard(given, views)
        else:
            gates = None
            RNN_RULE.guard(given, views)
        self.measure(&views[0], &views[1])
        q.x, q.weight, q.bias = self.take(x, True, False), self.take(weight, True, False), self.take(bias, True, False)
        q.h, q.c, q.gates = self.take(h, True, True), self.take(c, True, True), self.take(gates, False, True)
        return self.run(False)

    cdef int backward(self, dy, weight, h, c, gates, dx, ds, dh, dc) except -1:
        cdef cells.Sequence* q = &self.job
        cdef View views[8]
        cdef Borrowed[8] given = [<Borrowed> gates, <Borrowed> dy, <Borrowed> weight, <Borrowed> c, <Borrowed> ds, <Borrowed> dh,
                                  <Borrowed> dc, NULL]
        if q.cell == LSTM:
            h = dx = None
            LSTM_GRAD_RULE.guard(given, views)
        elif q.cell == GRU:
            c = dc = None
            given[3:7] = [<Borrowed> h, <Borrowed> dx, <Borrowed> ds, <Borrowed> dh]
            GRU_GRAD_RULE.guard(given, views)
        else:
            c = dc = dx = gates = None
            given[2:6] = [<Borrowed> weight, <Borrowed> h, <Borrowed> ds, <Borrowed> dh]
            RNN_GRAD_RULE.guard(&given[1], &views[1])
        self.measure(&views[1], &views[2])
        q.dy, q.weight, q.gates = self.take(dy, True, False), self.take(weight, True, False), self.take(gates, True, False)
        q.h, q.c = self.take(h, True, False), self.take(c, True, False)
        q.x, q.ds = self.take(dx, False, True), self.take(ds, False, True)
        q.dh, q.dc = self.take(dh, True, True), self.take(dc, True, True)
        return self.run(True)
