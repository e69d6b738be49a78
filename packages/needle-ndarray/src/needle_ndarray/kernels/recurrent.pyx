# Recurrent layers: the cells, over rows of a batch, and sequences of them.
#
# A sequence packs its weights into micro-panels once. Each thread then takes some rows of the batch through all time steps: no
# thread waits for another between two steps, and the bits of a row depend on nothing but the row.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from needle_ndarray.kernels.gemm cimport Gemm, Matrix, micro_panel, pack, panel_width, row_major, transposed
from needle_ndarray.kernels.memoryviews cimport matrices, matrix
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.vector_math cimport math_chunk
from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, F
from needle_ndarray.optable cimport SIGMOID, TANH
from needle_ndarray.threads cimport share

cdef enum:
    LINE = 64               # bytes: a vector that lies in two lines of the cache takes twice as long
    TASK_ROWS = 24          # of the batch that go through time together: full tiles, and a micro-panel serves all of them
    CELL_ROWS = 8           # of a single cell that are a task


# ---- Cells --------------------------------------------------------------------------
#
# Rows of a batch, gates, units j. Forward, the gates come in as y = h W, what the state gives; states that a cell replaces are
# replaced in place. A loop writes two arrays at most: GCC makes no vectors of it where it has to compare more than 10 addresses.
# Literals are of type F because Cython computes 1 - x in double.

cdef void rnn(int cell, const F[:, ::1] x, const F[:, ::1] bias, F[:, ::1] h) noexcept nogil:
    """h = tanh(x + (h + bias)), or relu, where h comes in as y"""
    cdef Py_ssize_t n = h.shape[1], r, j
    for r in range(h.shape[0]):
        for j in range(n):
            h[r, j] = x[r, j] + (h[r, j] + bias[0, j])
        if cell == RNN_TANH:
            math_chunk(TANH, &h[r, 0], &h[r, 0], n)
        else:
            for j in range(n):
                h[r, j] = 0 if h[r, j] <= 0 else h[r, j]


cdef void rnn_grad(int cell, const F[:, ::1] dy, const F[:, ::1] dh, const F[:, ::1] h, F[:, ::1] ds) noexcept nogil:
    """ds = (dy + dh) times the derivative, by the result h"""
    cdef Py_ssize_t r, j
    for r in range(h.shape[0]):
        if cell == RNN_TANH:
            for j in range(h.shape[1]):
                ds[r, j] = (dy[r, j] + dh[r, j]) * (1 - h[r, j] * h[r, j])
        else:
            for j in range(h.shape[1]):
                ds[r, j] = dy[r, j] + dh[r, j] if h[r, j] > 0 else 0


cdef void lstm(const F[:, :, ::1] x, const F[:, ::1] bias, F[:, :, ::1] gates, F[:, ::1] c, F[:, ::1] h_out) noexcept nogil:
    """i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of x + (y + bias);  c = f c + i g;  h_out = o tanh(c)"""
    cdef Py_ssize_t n = c.shape[1], r, k, j
    for r in range(c.shape[0]):
        for k in range(4):
            for j in range(n):
                gates[r, k, j] = x[r, k, j] + (gates[r, k, j] + bias[k, j])
        math_chunk(SIGMOID, &gates[r, 0, 0], &gates[r, 0, 0], 2 * n)
        math_chunk(TANH, &gates[r, 2, 0], &gates[r, 2, 0], n)
        math_chunk(SIGMOID, &gates[r, 3, 0], &gates[r, 3, 0], n)
        for j in range(n):
            c[r, j] = gates[r, 1, j] * c[r, j] + gates[r, 0, j] * gates[r, 2, j]
        math_chunk(TANH, &c[r, 0], &h_out[r, 0], n)
        for j in range(n):
            h_out[r, j] = gates[r, 3, j] * h_out[r, j]


cdef void lstm_grad(const F[:, ::1] dy, const F[:, ::1] dh, const F[:, :, ::1] gates, const F[:, ::1] c, const F[:, ::1] c_out,
                    F[:, :, ::1] ds, F[:, ::1] dc) noexcept nogil:
    """t = tanh(c_out), d = dy + dh, e = dc + d o (1 - t^2): ds of the four gates;  dc = e f"""
    cdef Py_ssize_t n = c.shape[1], r, j
    cdef F i, f, g, o, t, d, one = 1
    for r in range(c.shape[0]):
        math_chunk(TANH, &c_out[r, 0], &ds[r, 3, 0], n)
        for j in range(n):
            d = dy[r, j] + dh[r, j]
            o = gates[r, 3, j]
            t = ds[r, 3, j]
            dc[r, j] += d * o * (one - t * t)                       # e, from here on
            ds[r, 3, j] = d * t * o * (one - o)
        for j in range(n):
            i = gates[r, 0, j]
            g = gates[r, 2, j]
            ds[r, 0, j] = dc[r, j] * g * i * (one - i)
            ds[r, 2, j] = dc[r, j] * i * (one - g * g)
        for j in range(n):
            f = gates[r, 1, j]
            ds[r, 1, j] = dc[r, j] * c[r, j] * f * (one - f)
            dc[r, j] *= f


cdef void gru(const F[:, :, ::1] x, const F[:, ::1] bias, const F[:, ::1] h, F[:, :, ::1] gates, F[:, ::1] h_out) noexcept nogil:
    """r, z = sigmoid(x + (y + bias)), m = y + bias, new = tanh(x + r m);  h_out = new + z (h - new);  gates: r, z, new, m"""
    cdef Py_ssize_t n = h.shape[1], b, k, j
    for b in range(h.shape[0]):
        for k in range(2):
            for j in range(n):
                gates[b, k, j] = x[b, k, j] + (gates[b, k, j] + bias[k, j])
        math_chunk(SIGMOID, &gates[b, 0, 0], &gates[b, 0, 0], 2 * n)
        for j in range(n):
            gates[b, 3, j] = gates[b, 2, j] + bias[2, j]
            gates[b, 2, j] = x[b, 2, j] + gates[b, 0, j] * gates[b, 3, j]
        math_chunk(TANH, &gates[b, 2, 0], &gates[b, 2, 0], n)
        for j in range(n):
            h_out[b, j] = gates[b, 2, j] + gates[b, 1, j] * (h[b, j] - gates[b, 2, j])


cdef void gru_grad(const F[:, ::1] dy, const F[:, ::1] h, const F[:, :, ::1] gates, F[:, :, ::1] dx, F[:, :, ::1] ds,
                   F[:, ::1] dh) noexcept nogil:
    """d = dy + dh: dx and ds of the three gates;  dh = d z"""
    cdef Py_ssize_t n = h.shape[1], b, j
    cdef F r, z, new, dr, dz, one = 1
    for b in range(h.shape[0]):
        for j in range(n):
            z = gates[b, 1, j]
            new = gates[b, 2, j]
            dh[b, j] += dy[b, j]                                    # d, from here on
            dx[b, 2, j] = dh[b, j] * (one - z) * (one - new * new)
        for j in range(n):
            z = gates[b, 1, j]
            dz = dh[b, j] * (h[b, j] - gates[b, 2, j]) * z * (one - z)
            dx[b, 1, j] = dz
            ds[b, 1, j] = dz
        for j in range(n):
            r = gates[b, 0, j]
            dr = dx[b, 2, j] * gates[b, 3, j] * r * (one - r)
            dx[b, 0, j] = dr
            ds[b, 0, j] = dr
        for j in range(n):
            ds[b, 2, j] = dx[b, 2, j] * gates[b, 0, j]
            dh[b, j] *= gates[b, 1, j]


# ---- A cell over rows of any views --------------------------------------------------------------------------

cdef struct CellCall:           # what the tasks of a call share
    const CellRows* job
    int dtype
    Py_ssize_t rows
    Py_ssize_t task_rows        # of them in a task
    Py_ssize_t size             # elements of a row of all operands
    char* bias
    char* scratch


cdef void forward_cell(int cell, Py_ssize_t rows, Py_ssize_t n, F* bias_at, F** at) noexcept nogil:
    """x, y, c, h_out, c_out, gates of LSTM;  x, y, h, h_out, gates of GRU"""
    cdef Py_ssize_t count = 4 if cell == LSTM else 3, r
    cdef F* gates_at = at[5 if cell == LSTM else 4]
    cdef const F[:, :, ::1] x = matrices(at[0], rows, count, n)
    cdef const F[:, ::1] bias = matrix(bias_at, count, n)
    cdef F[:, ::1] h_out = matrix(at[3], rows, n)
    cdef F[:, :, ::1] gates = matrices(gates_at, rows, 4, n)
    for r in range(rows):
        memcpy(gates_at + r * 4 * n, at[1] + r * count * n, count * n * sizeof(F))
    if cell == LSTM:
        memcpy(at[4], at[2], rows * n * sizeof(F))
        lstm(x, bias, gates, matrix(at[4], rows, n), h_out)
    else:
        gru(x, bias, matrix(at[2], rows, n), gates, h_out)


cdef void backward_cell(int cell, Py_ssize_t rows, Py_ssize_t n, F** at) noexcept nogil:
    """dy, dh, dc, gates, c, c_out, ds, dc_out of LSTM;  dy, dh, h, gates, dx, ds, dh_out of GRU"""
    cdef bint is_lstm = cell == LSTM_GRAD
    cdef F* target = at[7 if is_lstm else 6]
    cdef const F[:, ::1] dy = matrix(at[0], rows, n), state = matrix(at[4 if is_lstm else 2], rows, n)
    cdef const F[:, :, ::1] gates = matrices(at[3], rows, 4, n)
    cdef F[:, :, ::1] ds = matrices(at[6 if is_lstm else 5], rows, 4 if is_lstm else 3, n)
    cdef F[:, ::1] dstate = matrix(target, rows, n)
    memcpy(target, at[2 if is_lstm else 1], rows * n * sizeof(F))
    if is_lstm:
        lstm_grad(dy, matrix(at[1], rows, n), gates, state, matrix(at[5], rows, n), ds, dstate)
    else:
        gru_grad(dy, state, gates, matrices(at[4], rows, 3, n), ds, dstate)


cdef void cell_at(const CellCall* c, Py_ssize_t first, Py_ssize_t rows, F* bias, F* scratch) noexcept nogil:
    """Some rows of a cell; what is not contiguous is staged"""
    cdef const CellRows* job = c.job
    cdef F* at[8]
    cdef int k, gates = job.count - 1
    cdef bint over_x = (job.cell == LSTM or job.cell == GRU) and job.at[gates] is not NULL \
        and job.at[gates].data is job.at[0].data           # y goes to the gates first: x would be lost
    for k in range(job.count):
        at[k] = scratch
        if job.at[k] is not NULL and contiguous(job.at[k]) and not (k == 0 and over_x):
            at[k] = <F*> job.at[k].data + first * job.width[k]
        elif job.at[k] is not NULL and k < job.inputs:
            gather(job.at[k], first * job.width[k], rows * job.width[k], <char*> scratch)
        scratch += rows * job.width[k]
    if job.cell == LSTM or job.cell == GRU:
        forward_cell(job.cell, rows, job.n, bias, at)
    else:
        backward_cell(job.cell, rows, job.n, at)
    for k in range(job.inputs, job.count):
        if job.at[k] is not NULL and not contiguous(job.at[k]):
            scatter(<char*> at[k], first * job.width[k], rows * job.width[k], job.at[k])


cdef void some_rows(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const CellCall* c = <const CellCall*> given
    cdef Py_ssize_t first = i * c.task_rows, rows = min(c.task_rows, c.rows - first), offset = thread * c.task_rows * c.size
    if c.dtype == FLOAT32:
        cell_at(c, first, rows, <float*> c.bias, <float*> c.scratch + offset)
    else:
        cell_at(c, first, rows, <double*> c.bias, <double*> c.scratch + offset)


cdef int cell_rows(CellRows* job, int dtype, Py_ssize_t rows, int threads) noexcept nogil:
    """A cell over all rows; -1 when there is no memory for the staging buffers"""
    cdef Py_ssize_t item = 4 if dtype == FLOAT32 else 8, bias_bytes = 4 * job.n * item, i
    cdef CellCall c
    c.job, c.dtype, c.rows, c.task_rows, c.size = job, dtype, rows, min(rows, <Py_ssize_t> CELL_ROWS), 0
    for i in range(job.count):
        c.size += job.width[i]
    c.bias = <char*> malloc(bias_bytes + threads * c.task_rows * c.size * item)
    if c.bias is NULL:
        return -1
    c.scratch = c.bias + bias_bytes
    if job.bias is NULL:
        memset(c.bias, 0, bias_bytes)
    else:
        gather(job.bias, 0, job.bias.size, c.bias)
    share(some_rows, &c, (rows + c.task_rows - 1) // c.task_rows, threads)
    free(c.bias)
    return 0


# ---- Sequences --------------------------------------------------------------------------

cdef struct Run:                # what the tasks of a sequence share
    const Sequence* q
    bint backward
    Py_ssize_t rows             # of the batch in a task
    Py_ssize_t size             # elements of a thread's scratch: the gates of those rows, where they are not kept
    char* packed                # the weights in micro-panels
    char* bias
    char* scratch


cdef Py_ssize_t packed_size(int dtype, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t width = panel_width(dtype)
    return k * ((n + width - 1) // width) * width


cdef void multiply(const F[:, ::1] a, const F* packed, Py_ssize_t n, bint add, F* out, Py_ssize_t out_row) noexcept nogil:
    """out (rows, n) = a (rows, k) times the packed weights (k, n) [+ out]"""
    cdef int dtype = FLOAT32 if F is float else FLOAT64
    cdef Py_ssize_t width = panel_width(dtype), column = 0
    cdef Gemm g
    g.a, g.m, g.k, g.alpha = row_major(&a[0, 0], a.shape[1]), a.shape[0], a.shape[1], 1
    while column < n:
        g.n = min(width, n - column)
        g.b = row_major(packed + column * g.k, width if g.n > width // 2 else width // 2)
        g.out = row_major(out + column, out_row)
        g.base = g.out if add else row_major(NULL, 0)
        micro_panel(dtype, &g, 0)
        column += width


cdef void forward_rows(const Run* run, const F* packed, F* bias_at, Py_ssize_t first, Py_ssize_t rows, F* scratch) noexcept nogil:
    """Rows first .. first + rows of the batch through all time steps"""
    cdef const Sequence* q = run.q
    cdef Py_ssize_t n = q.n, t, at
    cdef const F[:, ::1] bias = matrix(bias_at, q.gate_count, n)
    cdef F[:, ::1] h, h_out, c
    cdef F[:, :, ::1] gates
    for t in range(q.time_steps):
        at = t * q.batch + first
        h, h_out = matrix(<F*> q.h + at * n, rows, n), matrix(<F*> q.h + (at + q.batch) * n, rows, n)
        if q.gate_count == 1:
            multiply(h, packed, n, False, &h_out[0, 0], n)
            rnn(q.cell, matrix(<F*> q.x + at * n, rows, n), bias, h_out)
            continue
        gates = matrices(<F*> q.gates + at * 4 * n if q.gates is not NULL else scratch, rows, 4, n)
        multiply(h, packed, q.gate_count * n, False, &gates[0, 0, 0], 4 * n)
        if q.cell == GRU:
            gru(matrices(<F*> q.x + at * 3 * n, rows, 3, n), bias, h, gates, h_out)
            continue
        c = matrix(<F*> q.c + first * n, rows, n)
        if q.gates is not NULL:
            c = matrix(<F*> q.c + (at + q.batch) * n, rows, n)
            memcpy(&c[0, 0], <F*> q.c + at * n, rows * n * sizeof(F))
        lstm(matrices(<F*> q.x + at * 4 * n, rows, 4, n), bias, gates, c, h_out)


cdef void backward_rows(const Run* run, const F* packed, Py_ssize_t first, Py_ssize_t rows) noexcept nogil:
    """The same rows from the last time step to the first"""
    cdef const Sequence* q = run.q
    cdef Py_ssize_t n = q.n, t, at, later
    cdef F[:, ::1] dh = matrix(<F*> q.dh + first * n, rows, n), ds
    cdef const F[:, ::1] dy
    for t in range(q.time_steps - 1, -1, -1):
        at, later = t * q.batch + first, (t + 1) * q.batch + first
        dy, ds = matrix(<F*> q.dy + at * n, rows, n), matrix(<F*> q.ds + at * q.gate_count * n, rows, q.gate_count * n)
        if q.cell == LSTM:
            lstm_grad(dy, dh, matrices(<F*> q.gates + at * 4 * n, rows, 4, n), matrix(<F*> q.c + at * n, rows, n),
                      matrix(<F*> q.c + later * n, rows, n), matrices(&ds[0, 0], rows, 4, n),
                      matrix(<F*> q.dc + first * n, rows, n))
        elif q.cell == GRU:
            gru_grad(dy, matrix(<F*> q.h + at * n, rows, n), matrices(<F*> q.gates + at * 4 * n, rows, 4, n),
                     matrices(<F*> q.x + at * 3 * n, rows, 3, n), matrices(&ds[0, 0], rows, 3, n), dh)
        else:
            rnn_grad(q.cell, dy, dh, matrix(<F*> q.h + later * n, rows, n), ds)
        multiply(ds, packed, n, q.cell == GRU, &dh[0, 0], n)


cdef void sequence_rows(const Run* c, Py_ssize_t i, F* packed, F* bias, F* scratch) noexcept nogil:
    cdef Py_ssize_t first = i * c.rows, rows = min(c.rows, c.q.batch - first)
    if c.backward:
        backward_rows(c, packed, first, rows)
    else:
        forward_rows(c, packed, bias, first, rows, scratch)


cdef void one_task(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Run* c = <const Run*> given
    if c.q.dtype == FLOAT32:
        sequence_rows(c, i, <float*> c.packed, <float*> c.bias, <float*> c.scratch + thread * c.size)
    else:
        sequence_rows(c, i, <double*> c.packed, <double*> c.bias, <double*> c.scratch + thread * c.size)


cdef void one_packed(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    """A micro-panel of the weights; backward: transposed"""
    cdef const Run* c = <const Run*> given
    cdef Py_ssize_t columns = c.q.gate_count * c.q.n, k = columns if c.backward else c.q.n, n = c.q.n if c.backward else columns
    cdef Py_ssize_t item = 4 if c.q.dtype == FLOAT32 else 8, width = panel_width(c.q.dtype), first = i * width
    cdef Matrix weight = row_major(c.q.weight, columns)
    if c.backward:
        weight = transposed(weight)
    weight.data = <char*> weight.data + first * weight.col * item
    pack(c.q.dtype, &weight, k, min(width, n - first), c.packed + first * k * item)


cdef int run_sequence(const Sequence* q, bint backward, int threads) noexcept nogil:
    """All time steps, forward or backward; batch and n are not 0. -1 when there is no memory for the packed weights"""
    cdef Py_ssize_t n = q.n, columns = q.gate_count * n, item = 4 if q.dtype == FLOAT32 else 8, tasks, size
    cdef Run c
    tasks = (q.batch + TASK_ROWS - 1) // TASK_ROWS
    tasks = min(q.batch, (tasks + threads - 1) // threads * threads)
    c.q, c.backward, c.rows = q, backward, (q.batch + tasks - 1) // tasks
    tasks = (q.batch + c.rows - 1) // c.rows
    c.size = 0 if backward or q.gates is not NULL or q.gate_count == 1 else c.rows * 4 * n
    size = packed_size(q.dtype, columns, n) if backward else packed_size(q.dtype, n, columns)
    cdef char* memory = <char*> malloc((size + columns + threads * c.size) * item + LINE)
    if memory is NULL:
        return -1
    c.packed = memory + LINE - <size_t> memory % LINE
    c.bias = c.packed + size * item
    c.scratch = c.bias + columns * item
    share(one_packed, &c, packed_size(q.dtype, 1, n if backward else columns) // panel_width(q.dtype), threads)
    if q.bias is NULL:
        memset(c.bias, 0, columns * item)
    else:
        memcpy(c.bias, q.bias, columns * item)
    share(one_task, &c, tasks, threads)
    free(memory)
    return 0
