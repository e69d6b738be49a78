# cython: wraparound=True
# A few small calls of every family of kernels: what one instruction level gives is compared with what another gives.

from libc.string cimport memset

from needle_ndarray.kernels.attention cimport Attention, attention_grad_views, attention_views
from needle_ndarray.kernels.conv cimport (
    CONV2D, INPUT_GRAD, WEIGHT_GRAD, Conv, Plan, convolve, needs_blas, planned, scratch_elements
)
from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.index cimport scatter_add_views, take_views
from needle_ndarray.kernels.matmul cimport matmul_views
from needle_ndarray.kernels.nn cimport (
    LOG_SOFTMAX, LOGSUMEXP, SOFTMAX, cross_entropy_views, softmax_grad_views, softmax_views
)
from needle_ndarray.kernels.norm cimport (
    batch_norm_grad_views, batch_norm_views, layer_norm_grad_views, layer_norm_views
)
from needle_ndarray.kernels.optim cimport ADAM, SGD, Item, Rule, run_steps
from needle_ndarray.kernels.pool cimport AVG_POOL, AVG_POOL_GRAD, MAX_POOL, MAX_POOL_GRAD, pool
from needle_ndarray.kernels.random cimport fill_random
from needle_ndarray.kernels.recurrent cimport GRU, LSTM, Sequence, run_sequence
from needle_ndarray.kernels.reduce cimport reduce_views
from needle_ndarray.kernels.scan cimport arg_reduce_views, scan_views
from needle_ndarray.kernels.staging cimport binary_views, unary_views, where_views
from needle_ndarray.kernels.strided cimport copy
from needle_ndarray.kernels.views cimport BOOL, FLOAT32, FLOAT64, INT32, INT64, UINT8, View, int64
from needle_ndarray.optable cimport ARGMAX, MAX, NORMAL, PROD, SUM, UNIFORM

import numpy as np

from needle_ndarray.backend import BINARY, UNARY

CODES = {"bool": BOOL, "uint8": UINT8, "int32": INT32, "int64": INT64, "float32": FLOAT32, "float64": FLOAT64}


cdef char* address(a):
    return <char*> <size_t> a.__array_interface__["data"][0]


cdef View seen(a):
    """A view of a NumPy array, which the caller holds"""
    cdef View v
    memset(&v, 0, sizeof(v))
    v.data, v.dtype, v.ndim, v.itemsize, v.size = address(a), CODES[a.dtype.name], a.ndim, a.itemsize, a.size
    for i in range(a.ndim):
        v.shape[i], v.strides[i] = a.shape[i], a.strides[i] // a.itemsize
    return v


def numbers(dtype, *shape):
    """Numbers between -2 and 2 in no order, or between 0 and 90"""
    n = np.arange(np.prod(shape)) * 7919 % 997
    return (n / 250 - 2 if dtype in ("float32", "float64") else n % 91).astype(dtype).reshape(shape)


# ---- Families --------------------------------------------------------------------------

def elementwise(dtype):
    """Every op of the table that computes in a dtype, on contiguous and on strided operands"""
    cdef View va, vb, vc, out
    cdef int code = CODES[dtype]
    a, b = numbers(dtype, 3, 83), numbers(dtype, 83, 3)[::-1].T
    results = []
    for op in UNARY.values():
        if op.compute_dtype[code] == code:
            for operand in (a, b):
                results.append(np.zeros((3, 83), "bool" if op.result == "bool" else dtype))
                va, out = seen(operand), seen(results[-1])
                unary_views(op.code, &va, &out, 1)
    for op in BINARY.values():
        if op.compute_dtype[code] == code:
            results.append(np.zeros((3, 83), "bool" if op.result == "bool" else dtype))
            va, vb, out = seen(a), seen(b), seen(results[-1])
            binary_views(op.code, &va, &vb, &out, 1)
    condition = numbers("int32", 3, 83) > 40
    results.append(np.zeros_like(a))
    va, vb, vc, out = seen(condition), seen(a), seen(b), seen(results[-1])
    where_views(&va, &vb, &vc, &out, 1)
    return results


def moved(dtype):
    """Copies with a change of dtype, elements by index, and sums into places"""
    cdef View va, vb
    a = numbers(dtype, 31, 5, 7)
    index = np.arange(40, dtype=np.int64) * 11 % 31
    results = [np.zeros((7, 5, 31), name) for name in CODES] + [np.zeros((40, 5, 7), dtype), numbers(dtype, 31, 5, 7)]
    for result in results[:-2]:
        va, vb = seen(a), seen(result.T)
        copy(&va, &vb, 1)
    va, vb = seen(a), seen(results[-2])
    take_views(&va, <const int64*> address(index), &vb, 1)
    va, vb = seen(results[-1]), seen(results[-2])
    scatter_add_views(&va, <const int64*> address(index), &vb, 1)
    return results


def reduced(dtype):
    """Sums, products and maxima of rows, the place of the largest, running sums"""
    cdef View va, vb
    cdef int op
    a = numbers(dtype, 9, 301)
    results = []
    for operand in (a, a.T):
        for op in (SUM, PROD, MAX):
            results.append(np.zeros(operand.shape[0], dtype))
            va, vb = seen(operand), seen(results[-1])
            reduce_views(op, &va, 1, &vb, 1)
        results.append(np.zeros(operand.shape[0], np.int64))
        va, vb = seen(operand), seen(results[-1])
        arg_reduce_views(ARGMAX, &va, &vb, 1)
        if va.dtype >= INT64:
            results.append(np.zeros(operand.shape, dtype))
            vb = seen(results[-1])
            scan_views(&va, &vb, 1)
    return results


def drawn(dtype):
    """Random numbers"""
    results = [np.zeros(1001, dtype) for _ in range(2)]
    for op, out in zip((UNIFORM, NORMAL), results, strict=True):
        fill_random(op, CODES[dtype], 7, 11, address(out), 1001, 1)
    return results


def rows(dtype):
    """Softmax and its relatives, cross-entropy, norms and their gradients"""
    cdef View[9] v
    cdef int op
    x, grad, column, labels = numbers(dtype, 9, 37) * 4, numbers(dtype, 37, 9).T.copy(), numbers(dtype, 37), np.arange(9)
    results = [np.zeros((9, 37), dtype), np.zeros((9, 37), dtype), np.zeros(9, dtype), np.zeros(9, dtype)]
    results += [np.zeros((9, 37), dtype) for _ in range(4)] + [np.zeros(37, dtype) for _ in range(6)]
    v[0] = seen(x)
    for i, op in enumerate((SOFTMAX, LOG_SOFTMAX, LOGSUMEXP)):
        v[0], v[1] = seen(x), seen(results[i])
        softmax_views(op, &v[0], &v[1], 1)
        results.append(np.zeros((9, 37), dtype))
        v[2], v[3] = seen(grad[:, 0] if op == LOGSUMEXP else grad), seen(results[-1])
        softmax_grad_views(op, &v[2], &v[0], &v[1], &v[3], 1)
    v[0], v[1], v[2] = seen(x), seen(labels), seen(results[3])
    cross_entropy_views(NULL, &v[0], &v[1], &v[2], 1)
    v[0], v[1], v[2], v[3] = seen(x), seen(column), seen(column), seen(results[4])
    layer_norm_views(&v[0], &v[1], &v[2], 1e-5, &v[3], 1)
    for i, a in enumerate((grad, x, column, results[5], results[8], results[9])):
        v[i] = seen(a)
    layer_norm_grad_views(&v[0], &v[1], &v[2], 1e-5, &v[3], &v[4], &v[5], 1)
    for i, a in enumerate((x, column, column, results[6], results[10], results[11])):
        v[i] = seen(a)
    batch_norm_views(&v[0], &v[1], &v[2], 1e-5, &v[3], &v[4], &v[5], 1)
    for i, a in enumerate((grad, x, results[10], results[11], column, results[7], results[12], results[13])):
        v[i] = seen(a)
    batch_norm_grad_views(&v[0], &v[1], &v[2], &v[3], &v[4], 1e-5, &v[5], &v[6], &v[7], 1)
    return results


def stepped(dtype):
    """Steps of SGD and of Adam"""
    cdef Rule rule
    cdef Item item
    results = []
    for op in (SGD, ADAM):
        memset(&rule, 0, sizeof(rule))
        memset(&item, 0, sizeof(item))
        rule.op, rule.lr, rule.beta1, rule.one_minus_beta1, rule.beta2, rule.one_minus_beta2 = op, 0.1, 0.9, 0.1, 0.99, 0.01
        rule.eps, rule.weight_decay, rule.correction1, rule.correction2 = 1e-8, 0.01, 0.1, 0.01
        item.size, item.dtype = 83, CODES[dtype]
        state = [numbers(dtype, 83), numbers(dtype, 83) / 3, np.zeros(83, dtype), np.zeros(83, dtype)]
        for i in range(4 if op == ADAM else 3):
            item.at[i] = address(state[i])
        run_steps(&rule, &item, 1, 1)
        results += state
    return results


def products(dtype):
    """Products of matrices of several shapes, with and without a bias"""
    cdef View va, vb, out
    results = []
    for m, k, n in ((3, 5, 4), (17, 19, 23), (29, 33, 70)):
        a, b, bias = numbers(dtype, m, k), numbers(dtype, n, k).T, numbers(dtype, n)
        for second in (b, b.copy()):
            results.append(np.zeros((m, n), dtype))
            va, vb, out = seen(a), seen(second), seen(results[-1])
            matmul_views(NULL, &va, &vb, address(bias) if m > 3 else NULL, &out, 1)
    return results


def attended(dtype):
    """Attention and its gradient"""
    cdef Blas blas
    cdef Attention job
    cdef View grad
    cdef View[3] out
    memset(&blas, 0, sizeof(blas))
    memset(&job, 0, sizeof(job))
    q, k, v, dy = numbers(dtype, 2, 9, 8), numbers(dtype, 2, 11, 8) / 2, numbers(dtype, 2, 11, 8), numbers(dtype, 2, 9, 8) / 3
    results = [np.zeros_like(a) for a in (q, q, k, v)]
    job.blas, job.q, job.k, job.v, job.causal, job.scale = &blas, seen(q), seen(k), seen(v), True, 0.35
    out[0] = seen(results[0])
    attention_views(&job, &out[0], 1)
    grad = seen(dy)
    for i in range(3):
        out[i] = seen(results[1 + i])
    attention_grad_views(&job, &grad, &out[0], &out[1], &out[2], 1)
    return results


def windows(dtype):
    """Convolutions, dense and of single channels, poolings, and their gradients"""
    cdef Blas blas
    cdef Conv g
    cdef Plan plan
    memset(&blas, 0, sizeof(blas))
    results = []
    for groups in (1, 16):
        memset(&g, 0, sizeof(g))
        g.n, g.h, g.w, g.c, g.kh, g.kw, g.f, g.oh, g.ow, g.groups = 2, 7, 7, 16, 3, 3, 16, 7, 7, groups
        g.sh = g.sw = g.dh = g.dw = g.top = g.left = 1
        g.pitch = g.kw
        image, weight, y = numbers(dtype, 2, 7, 7, 16), numbers(dtype, 3, 3, 16 // groups, 16), numbers(dtype, 2, 7, 7, 16) / 5
        for op, arrays in ((CONV2D, (image, weight, None)), (INPUT_GRAD, (None, weight, y)), (WEIGHT_GRAD, (image, None, y))):
            plan = planned(op, CODES[dtype], &g)
            if needs_blas(&plan):
                continue
            x, w, z = [np.zeros_like(whole) if a is None else a for a, whole in zip(arrays, (image, weight, y), strict=True)]
            scratch = np.zeros(max(scratch_elements(&plan, 1), 1) + 64, dtype)
            convolve(&plan, &blas, address(x), address(w), address(z), NULL, address(scratch), 1)
            results.append(z if op == CONV2D else x if op == INPUT_GRAD else w)
    g.kh = g.kw = 2
    g.sh = g.sw = 2
    g.oh = g.ow = 4
    for op in (MAX_POOL, AVG_POOL, MAX_POOL_GRAD, AVG_POOL_GRAD):
        back = op in (MAX_POOL_GRAD, AVG_POOL_GRAD)
        results.append(np.zeros((2, 7, 7, 16) if back else (2, 4, 4, 16), dtype))
        y = numbers(dtype, 2, 4, 4, 16)
        pool(op, CODES[dtype], &g, address(image), address(y), address(results[-1]), 1)
    return results


def recurrences(dtype):
    """LSTM and GRU over a sequence"""
    cdef Sequence q
    results = []
    for cell, gates in ((LSTM, 4), (GRU, 3)):
        memset(&q, 0, sizeof(q))
        q.cell, q.dtype, q.time_steps, q.batch, q.n, q.gate_count = cell, CODES[dtype], 3, 5, 9, gates
        x, weight, bias = numbers(dtype, 3, 5, gates * 9), numbers(dtype, 9, gates * 9) / 4, numbers(dtype, gates * 9)
        h, c, kept = np.zeros((4, 5, 9), dtype), np.zeros((4, 5, 9), dtype), np.zeros((3, 5, 36), dtype)
        q.x, q.weight, q.bias, q.h, q.gates = address(x), address(weight), address(bias), address(h), address(kept)
        q.c = address(c) if cell == LSTM else NULL
        run_sequence(&q, False, 1)
        results += [h, c, kept]
    return results


def results():
    """{family: [arrays]} in float32 and float64, and what has to do with integers in these too; see FAMILIES in __init__.py"""
    families = (elementwise, moved, reduced, drawn, rows, stepped, products, attended, windows, recurrences)
    found = {}
    for family in families:
        integers = ("int32", "uint8") if family in (elementwise, moved, reduced) else ()
        with np.errstate(all="ignore"):
            found[family.__name__] = [a for dtype in ("float32", "float64", *integers) for a in family(dtype)]
    return found
