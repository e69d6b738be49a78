# Recurrent layers: the cells, row by row, and sequences of them.
#
# A sequence packs its weights into tiles once. Each thread then takes some rows of the batch through all times: no thread waits
# for another between two times, and the bits of a row depend on nothing but the row.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from needle_ndarray.kernels.ewise cimport unary
from needle_ndarray.kernels.gemm cimport Gemm, Matrix, micro_panel, pack, panel_width, row_major, transposed
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.optable cimport RELU, TANH
from needle_ndarray.threads cimport share

cdef extern from "cells.h" nogil:           # what they compute is said there
    void lstm_float "needle_lstm_float"(const float* x, const float* y, const float* bias, const float* c,
                                        float* h_out, float* c_out, float* gates, Py_ssize_t n)
    void lstm_double "needle_lstm_double"(const double* x, const double* y, const double* bias, const double* c,
                                          double* h_out, double* c_out, double* gates, Py_ssize_t n)
    void lstm_grad_float "needle_lstm_grad_float"(const float* dy, const float* dh, const float* dc, const float* gates,
                                                  const float* c, const float* c_out,
                                                  float* ds, float* dc_out, Py_ssize_t n)
    void lstm_grad_double "needle_lstm_grad_double"(const double* dy, const double* dh, const double* dc, const double* gates,
                                                    const double* c, const double* c_out,
                                                    double* ds, double* dc_out, Py_ssize_t n)
    void gru_float "needle_gru_float"(const float* x, const float* y, const float* bias, const float* h,
                                      float* h_out, float* gates, Py_ssize_t n)
    void gru_double "needle_gru_double"(const double* x, const double* y, const double* bias, const double* h,
                                        double* h_out, double* gates, Py_ssize_t n)
    void gru_grad_float "needle_gru_grad_float"(const float* dy, const float* dh, const float* h, const float* gates,
                                                float* dx, float* ds, float* dh_out, Py_ssize_t n)
    void gru_grad_double "needle_gru_grad_double"(const double* dy, const double* dh, const double* h, const double* gates,
                                                  double* dx, double* ds, double* dh_out, Py_ssize_t n)

cdef enum:
    LINE = 64               # bytes: a vector that lies in two lines of the cache takes twice as long
    TASK_ROWS = 24          # of the batch that go through time together: full tiles, and a tile of weights serves all of them


# ---- Cells: one row --------------------------------------------------------------------------

cdef void rnn_row(int dtype, int op, const F* x, const F* y, const F* bias, F* h_out, F* room, Py_ssize_t n) noexcept nogil:
    """h_out = op(x + (y + bias))"""
    cdef Py_ssize_t j
    for j in range(n):
        room[j] = x[j] + (y[j] + bias[j])
    unary(op, dtype, <const char*> room, <char*> h_out, n)


cdef void rnn_grad_row(int op, const F* dy, const F* dh, const F* h, F* ds, Py_ssize_t n) noexcept nogil:
    """ds = (dy + dh) times the slope, by the result h"""
    cdef Py_ssize_t j
    if op == TANH:
        for j in range(n):
            ds[j] = (dy[j] + dh[j]) * (1 - h[j] * h[j])
    else:
        for j in range(n):
            ds[j] = dy[j] + dh[j] if h[j] > 0 else 0


cdef inline void lstm_row(const F* x, const F* y, const F* bias, const F* c, F* h_out, F* c_out, F* gates,
                          Py_ssize_t n) noexcept nogil:
    if F is float:
        lstm_float(x, y, bias, c, h_out, c_out, gates, n)
    else:
        lstm_double(x, y, bias, c, h_out, c_out, gates, n)


cdef inline void lstm_grad_row(const F* dy, const F* dh, const F* dc, const F* gates, const F* c, const F* c_out, F* ds, F* dc_out,
                               Py_ssize_t n) noexcept nogil:
    if F is float:
        lstm_grad_float(dy, dh, dc, gates, c, c_out, ds, dc_out, n)
    else:
        lstm_grad_double(dy, dh, dc, gates, c, c_out, ds, dc_out, n)


cdef inline void gru_row(const F* x, const F* y, const F* bias, const F* h, F* h_out, F* gates, Py_ssize_t n) noexcept nogil:
    if F is float:
        gru_float(x, y, bias, h, h_out, gates, n)
    else:
        gru_double(x, y, bias, h, h_out, gates, n)


cdef inline void gru_grad_row(const F* dy, const F* dh, const F* h, const F* gates, F* dx, F* ds, F* dh_out,
                              Py_ssize_t n) noexcept nogil:
    if F is float:
        gru_grad_float(dy, dh, h, gates, dx, ds, dh_out, n)
    else:
        gru_grad_double(dy, dh, h, gates, dx, ds, dh_out, n)


# ---- Cells: every row of any views --------------------------------------------------------------------------

cdef void cell_at(const CellRows* job, int dtype, Py_ssize_t row, const F* bias, F* staged) noexcept nogil:
    """One row of a cell; what is not contiguous is staged"""
    cdef F* at[8]
    cdef Py_ssize_t n = job.n
    cdef int k
    for k in range(job.count):
        at[k] = staged
        if job.at[k] is not NULL and contiguous(job.at[k]):
            at[k] = <F*> job.at[k].data + row * job.width[k]
        elif job.at[k] is not NULL and k < job.inputs:
            gather(job.at[k], row * job.width[k], job.width[k], <char*> staged)
        staged += job.width[k]
    if job.cell == LSTM:
        lstm_row(at[0], at[1], bias, at[2], at[3], at[4], at[5], n)
    elif job.cell == LSTM_GRAD:
        lstm_grad_row(at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], n)
    elif job.cell == GRU:
        gru_row(at[0], at[1], bias, at[2], at[3], at[4], n)
    else:
        gru_grad_row(at[0], at[1], at[2], at[3], at[4], at[5], at[6], n)
    for k in range(job.inputs, job.count):
        if job.at[k] is not NULL and not contiguous(job.at[k]):
            scatter(<char*> at[k], row * job.width[k], job.width[k], job.at[k])


cdef struct CellWork:           # what the rows of a call share
    const CellRows* job
    int dtype
    Py_ssize_t room             # elements of a thread's
    char* bias
    char* staged


cdef void one_row(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const CellWork* c = <const CellWork*> given
    if c.dtype == FLOAT32:
        cell_at(c.job, c.dtype, i, <const float*> c.bias, <float*> c.staged + thread * c.room)
    else:
        cell_at(c.job, c.dtype, i, <const double*> c.bias, <double*> c.staged + thread * c.room)


cdef int cell_rows(CellRows* job, int dtype, Py_ssize_t rows, int threads) noexcept nogil:
    """A cell over all rows; -1 when there is no memory for the staging buffers"""
    cdef Py_ssize_t item = 4 if dtype == FLOAT32 else 8, wide = 4 * job.n * item, i
    cdef CellWork c
    c.job, c.dtype, c.room = job, dtype, 0
    for i in range(job.count):
        c.room += job.width[i]
    c.bias = <char*> malloc(wide + threads * c.room * item)
    c.staged = c.bias + wide
    if c.bias is NULL:
        return -1
    if job.bias is NULL:
        memset(c.bias, 0, wide)
    else:
        gather(job.bias, 0, job.bias.size, c.bias)
    share(one_row, &c, rows, threads)
    free(c.bias)
    return 0


# ---- Products with packed weights --------------------------------------------------------------------------

cdef Py_ssize_t packed_size(int dtype, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t wide = panel_width(dtype)
    return k * ((n + wide - 1) // wide) * wide


cdef void product(int dtype, const F* a, Py_ssize_t row, Py_ssize_t rows, Py_ssize_t k, const F* packed, Py_ssize_t n,
                  F* out) noexcept nogil:
    """out (rows, n), compact, = a (rows, k), its rows `row` apart, times the packed weights (k, n)"""
    cdef Py_ssize_t wide = panel_width(dtype), column = 0
    cdef Gemm g
    g.a, g.base, g.m, g.k, g.alpha = row_major(a, row), row_major(NULL, 0), rows, k, 1
    while column < n:
        g.n = min(wide, n - column)
        g.b = row_major(packed + column * k, wide if g.n > wide // 2 else wide // 2)
        g.out = row_major(out + column, n)
        micro_panel(dtype, &g, 0)
        column += wide


# ---- Sequences --------------------------------------------------------------------------

cdef void forward_rows(const Sequence* q, const F* packed, const F* bias, Py_ssize_t first, Py_ssize_t rows,
                       F* room) noexcept nogil:
    """Rows first .. first + rows of the batch through all times; room for (rows, gates n) and 5 n"""
    cdef Py_ssize_t n = q.n, wide = q.gates * n, t, r, at
    cdef F* y
    cdef F* c
    cdef F* c_out
    cdef F* h_out
    cdef const F* x
    cdef F* staged = room + rows * wide
    cdef F* gates = staged + n
    for t in range(q.times):
        at = t * q.batch + first
        product(q.dtype, <F*> q.h + at * n, n, rows, n, packed, wide, room)
        for r in range(rows):
            x, y = <F*> q.x + (at + r) * wide, room + r * wide
            h_out = <F*> q.h + (at + q.batch + r) * n
            if q.kept is not NULL:
                gates = <F*> q.kept + (at + r) * 4 * n
            if q.cell == LSTM:
                c = <F*> q.c + ((at if q.kept is not NULL else first) + r) * n
                c_out = c + (q.batch * n if q.kept is not NULL else 0)
                lstm_row(x, y, bias, c, h_out, c_out, gates, n)
            elif q.cell == GRU:
                gru_row(x, y, bias, <F*> q.h + (at + r) * n, h_out, gates, n)
            else:
                rnn_row(q.dtype, TANH if q.cell == RNN_TANH else RELU, x, y, bias, h_out, staged, n)


cdef void backward_rows(const Sequence* q, const F* packed, Py_ssize_t first, Py_ssize_t rows, F* room) noexcept nogil:
    """The same rows from the last time to the first; room for (rows, n)"""
    cdef Py_ssize_t n = q.n, wide = q.gates * n, t, r, j, at
    cdef F* dh = <F*> q.dh + first * n
    cdef F* ds
    cdef F* dc
    cdef const F* dy
    cdef const F* h
    cdef const F* c
    for t in range(q.times - 1, -1, -1):
        at = t * q.batch + first
        for r in range(rows):
            dy, ds = <F*> q.dy + (at + r) * n, <F*> q.ds + (at + r) * wide
            if q.cell == LSTM:
                c, dc = <F*> q.c + (at + r) * n, <F*> q.dc + (first + r) * n
                lstm_grad_row(dy, dh + r * n, dc, <F*> q.kept + (at + r) * 4 * n, c, c + q.batch * n, ds, dc, n)
            elif q.cell == GRU:
                h = <F*> q.h + (at + r) * n
                gru_grad_row(dy, dh + r * n, h, <F*> q.kept + (at + r) * 4 * n, <F*> q.x + (at + r) * wide, ds, dh + r * n, n)
            else:
                h = <F*> q.h + (at + q.batch + r) * n
                rnn_grad_row(TANH if q.cell == RNN_TANH else RELU, dy, dh + r * n, h, ds, n)
        product(q.dtype, <F*> q.ds + at * wide, wide, rows, wide, packed, n, room)
        if q.cell == GRU:
            for j in range(rows * n):
                dh[j] += room[j]
        else:
            memcpy(dh, room, rows * n * sizeof(F))


cdef struct Run:                # what the tasks of a sequence share
    const Sequence* q
    bint backward
    Py_ssize_t rows             # of the batch in a task
    Py_ssize_t room             # elements of a thread's
    char* packed                # the weights in tiles
    char* bias
    char* staged


cdef void sequence_rows(const Run* c, Py_ssize_t i, const F* packed, const F* bias, F* room) noexcept nogil:
    cdef Py_ssize_t first = i * c.rows, rows = min(c.rows, c.q.batch - first)
    if c.backward:
        backward_rows(c.q, packed, first, rows, room)
    else:
        forward_rows(c.q, packed, bias, first, rows, room)


cdef void one_task(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Run* c = <const Run*> given
    if c.q.dtype == FLOAT32:
        sequence_rows(c, i, <const float*> c.packed, <const float*> c.bias, <float*> c.staged + thread * c.room)
    else:
        sequence_rows(c, i, <const double*> c.packed, <const double*> c.bias, <double*> c.staged + thread * c.room)


cdef void one_packed(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    """A micro-panel of the weights; backward: transposed"""
    cdef const Run* c = <const Run*> given
    cdef Py_ssize_t wide = c.q.gates * c.q.n, k = wide if c.backward else c.q.n, n = c.q.n if c.backward else wide
    cdef Py_ssize_t item = 4 if c.q.dtype == FLOAT32 else 8, width = panel_width(c.q.dtype), first = i * width
    cdef Matrix weight = row_major(c.q.weight, wide)
    if c.backward:
        weight = transposed(weight)
    weight.data = <char*> weight.data + first * weight.col * item
    pack(c.q.dtype, &weight, k, min(width, n - first), c.packed + first * k * item)


cdef int run_sequence(const Sequence* q, bint backward, int threads) noexcept nogil:
    """All times, forward or backward; batch and n are not 0. -1 when there is no memory for the weights in tiles"""
    cdef Py_ssize_t n = q.n, wide = q.gates * n, item = 4 if q.dtype == FLOAT32 else 8, tasks, size
    cdef Run c
    tasks = (q.batch + TASK_ROWS - 1) // TASK_ROWS
    tasks = min(q.batch, (tasks + threads - 1) // threads * threads)
    c.q, c.backward, c.rows = q, backward, (q.batch + tasks - 1) // tasks
    tasks = (q.batch + c.rows - 1) // c.rows
    c.room = c.rows * wide + 5 * n
    size = packed_size(q.dtype, wide, n) if backward else packed_size(q.dtype, n, wide)
    cdef char* memory = <char*> malloc((size + wide + threads * c.room) * item + LINE)
    if memory is NULL:
        return -1
    c.packed = memory + LINE - <size_t> memory % LINE
    c.bias = c.packed + size * item
    c.staged = c.bias + wide * item
    share(one_packed, &c, packed_size(q.dtype, 1, n if backward else wide) // panel_width(q.dtype), threads)
    if q.bias is NULL:
        memset(c.bias, 0, wide * item)
    else:
        memcpy(c.bias, q.bias, wide * item)
    share(one_task, &c, tasks, threads)
    free(memory)
    return 0
