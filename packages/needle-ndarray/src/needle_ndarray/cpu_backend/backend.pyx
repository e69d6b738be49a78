# cython: embedsignature.format=clinic
"""The CPU backend: hands NDArrays to the kernels, with threads where there is enough work."""

from needle_ndarray.backend cimport (
    ARG_REDUCE_OP, BINARY_OP, RANDOM_OP, REDUCE_OP, SCAN_OP, SCATTER_OP, UNARY_OP, Backend, Op
)
from needle_ndarray.blas cimport blas, make_room, make_room_for_numpy
from needle_ndarray.buffer cimport Buffer, allocate as allocate_buffer
from needle_ndarray.cpu_backend cimport convolution, network, optimizers, recurrent
from needle_ndarray.cpu_backend.guard cimport (
    LARGEST, NOGIL_FROM, THREADS_FROM, THREADS_FROM_FLOPS, THREADS_FROM_MATH, agree, done, host, known
)
from needle_ndarray.kernels cimport ewise, strided
from needle_ndarray.kernels cimport index as indexing, matmul as products, random as generators, reduce as reductions, scan as scans
from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.views cimport View, int64
from needle_ndarray.ndarray cimport NDArray, empty_compact
from needle_ndarray.optable cimport EXP, FLOAT32, GELU_GRAD, INT64, POWER, PUT
from needle_ndarray.threads cimport threads_for

import numpy as np

from needle_ndarray.dtypes import DTYPES

cdef enum:
    TILE_SIZE = 8


cdef inline bint constant(NDArray a) noexcept:
    """Whether every element is the same place in memory."""
    cdef int i
    for i in range(a._ndim):
        if a._strides[i] != 0 and a._shape[i] != 1:
            return False
    return True


cdef int kept_first(const View* a, tuple axes, View* out, bint* last) except -1:
    """out = a with the given axes last; how many come before them. last[i]: whether axis i is one of the given, room for 32"""
    cdef int i, n = 0, ndim = a.ndim, kept = ndim - <int> len(axes)
    cdef Py_ssize_t axis
    if kept < 0:
        raise ValueError(f"axes {axes} of {ndim}")
    out[0] = a[0]
    for i in range(ndim):
        last[i] = False
    for i in range(len(axes)):
        axis = axes[i]
        if not 0 <= axis < ndim or last[axis]:
            raise ValueError(f"axes {axes} of {ndim}")
        last[axis] = True
        out.shape[kept + i], out.strides[kept + i] = a.shape[axis], a.strides[axis]
    for i in range(ndim):
        if not last[i]:
            out.shape[n], out.strides[n] = a.shape[i], a.strides[i]
            n += 1
    return kept


cdef int check_index(const View* index, Py_ssize_t count) except -1:
    """The kernels read an index as it lies, and check each entry when they read it."""
    if index.dtype != INT64 or index.ndim != 1 or index.shape[0] != count or (count > 1 and index.strides[0] != 1):
        raise ValueError("a verb of the cpu backend was given an index that is not 1-d, compact int64 of the right length")
    return 0


cdef int indexed(int status, Py_ssize_t bound) except -1:
    if status == indexing.OUTSIDE:
        raise IndexError(f"an index is out of bounds for an axis of size {bound}")
    return done(status)


cdef bint first_axes(tuple axes, NDArray a, NDArray out) except -1:
    """Whether the axes are a's first ones, and out has the shape of the others, or 1 for each and then that."""
    cdef int n = len(axes), i
    cdef int skipped = out._ndim - (a._ndim - n)
    if n > a._ndim or (skipped != 0 and skipped != n):
        return False
    for i in range(n):
        if <int> axes[i] != i or (skipped and out._shape[i] != 1):
            return False
    for i in range(a._ndim - n):
        if out._shape[skipped + i] != a._shape[n + i]:
            return False
    return True


cdef class CPUBackend(Backend):
    """Cython kernels on host memory."""

    name = "cpu"

    cpdef object allocate(self, Py_ssize_t nbytes):
        if self.listener is not None:
            return self.listener.allocated(allocate_buffer(nbytes))
        return allocate_buffer(nbytes)

    cpdef from_host(self, object values, object out):
        if self.listener is not None and self.listener.heard("from_host", (values, out)):
            return
        cdef View target
        host(out, &target)
        np.asarray(out)[...] = values

    cpdef object to_host(self, object a):
        if self.listener is not None:
            heard = self.listener.heard("to_host", (a,))
            if heard is not False:
                return heard
        cdef View source
        cdef NDArray array = host(a, &source)
        cdef NDArray out
        dtype = DTYPES[array._dtype]
        values = np.empty(tuple([array._shape[i] for i in range(array._ndim)]), dtype.numpy)
        if array._size:
            out = NDArray.make(values.shape, device=self.device, handle=Buffer(values.reshape(-1)), dtype=dtype)
            self.copy(a, out)
        return values

    cpdef fill(self, object out, object value):
        if self.listener is not None and self.listener.heard("fill", (out, value)):
            return
        cdef View target
        cdef View source
        cdef NDArray one
        host(out, &target)
        one = empty_compact(self, target.dtype, 0, NULL)
        host(one, &source)
        np.asarray(one)[...] = value
        cdef int threads = threads_for(target.size, THREADS_FROM)
        if target.size:
            with nogil:
                strided.fill(&target, source.data, threads)

    cpdef copy(self, object a, object out):
        if self.listener is not None and self.listener.heard("copy", (a, out)):
            return
        cdef View source, target
        cdef int threads, status
        host(a, &source)
        host(out, &target)
        agree(&source, &target, False)
        if target.size == 0:
            return
        threads = threads_for(target.size, THREADS_FROM)
        if target.size < NOGIL_FROM:
            status = strided.copy(&source, &target, 1)
        else:
            with nogil:
                status = strided.copy(&source, &target, threads)
        done(status)

    cpdef unary(self, Op op, object a, object out):
        if self.listener is not None and self.listener.heard("unary", (op, a, out)):
            return
        known(op, UNARY_OP)
        cdef NDArray x = <NDArray?> a, result = <NDArray?> out
        cdef View source, target
        cdef int threads, status
        if x._compact and result._compact and x._size < NOGIL_FROM and x._size == result._size and x._ptr is not result._ptr \
                and x._ptr is not NULL and result._ptr is not NULL and op.out_code[x._dtype] == result._dtype:
            ewise.unary(op.code, x._dtype, x._ptr, result._ptr, x._size)
            return
        host(a, &source)
        host(out, &target)
        agree(&source, &target, False)
        if op.out_code[source.dtype] != target.dtype or op.compute_code[source.dtype] != source.dtype:
            raise TypeError(f"{op.name}: {x.dtype} to {result.dtype}")
        if target.size == 0:
            return
        threads = threads_for(target.size, THREADS_FROM_MATH if op.code >= EXP else THREADS_FROM)
        with nogil:
            status = ewise.unary_views(op.code, &source, &target, threads)
        done(status)

    cpdef binary(self, Op op, object a, object b, object out):
        if self.listener is not None and self.listener.heard("binary", (op, a, b, out)):
            return
        known(op, BINARY_OP)
        cdef NDArray x = <NDArray?> a, y = <NDArray?> b, result = <NDArray?> out
        cdef View left, right, target
        cdef int threads, status
        if result._compact and x._dtype == y._dtype and x._size < NOGIL_FROM and x._size == y._size \
                and x._size == result._size and op.out_code[x._dtype] == result._dtype \
                and x._ptr is not NULL and y._ptr is not NULL and result._ptr is not NULL \
                and x._ptr is not result._ptr and y._ptr is not result._ptr:
            if x._compact and (y._compact or constant(y)) or y._compact and constant(x):
                ewise.binary(op.code, x._dtype, x._ptr, y._ptr, result._ptr, x._size, x._compact, y._compact)
                return
        host(a, &left)
        host(b, &right)
        host(out, &target)
        agree(&left, &right, True)
        agree(&left, &target, False)
        if op.out_code[left.dtype] != target.dtype or op.compute_code[left.dtype] != left.dtype:
            raise TypeError(f"{op.name}: {x.dtype} to {result.dtype}")
        if target.size == 0:
            return
        threads = threads_for(target.size, THREADS_FROM_MATH if op.code == POWER or op.code >= GELU_GRAD else THREADS_FROM)
        if target.size < NOGIL_FROM:
            status = ewise.binary_views(op.code, &left, &right, &target, 1)
        else:
            with nogil:
                status = ewise.binary_views(op.code, &left, &right, &target, threads)
        done(status)

    cpdef where(self, object condition, object a, object b, object out):
        if self.listener is not None and self.listener.heard("where", (condition, a, b, out)):
            return
        cdef View choice, left, right, target
        cdef int threads, status
        host(condition, &choice)
        host(a, &left)
        host(b, &right)
        host(out, &target)
        agree(&choice, &target, False)
        agree(&left, &target, True)
        agree(&right, &target, True)
        if choice.dtype != 0:
            raise TypeError("where: the condition is not bool")
        if target.size == 0:
            return
        threads = threads_for(target.size, THREADS_FROM)
        with nogil:
            status = ewise.where_views(&choice, &left, &right, &target, threads)
        done(status)

    cpdef reduce(self, Op op, object a, object out, tuple axes):
        if self.listener is not None and self.listener.heard("reduce", (op, a, out, axes)):
            return
        known(op, REDUCE_OP)
        cdef View given, source, target
        cdef int kept, threads, status, i, n = 0
        cdef bint fits
        cdef bint reduced[32]
        cdef NDArray x = <NDArray?> a, result = <NDArray?> out
        if x._compact and x._size < NOGIL_FROM and result._size == 1 and len(axes) == x._ndim and x._ptr is not NULL \
                and result._ptr is not NULL and op.out_code[x._dtype] == result._dtype:
            reductions.reduce_rows(op.code, x._dtype, x._ptr, x._size, 1, result._dtype, result._ptr)
            return
        if x._compact and result._compact and x._size < NOGIL_FROM and 4 <= result._size <= 1024 and x._ptr is not NULL \
                and result._ptr is not NULL and op.out_code[x._dtype] == result._dtype and first_axes(axes, x, result):
            reductions.reduce_rows(op.code, x._dtype, x._ptr, x._size // result._size, result._size, result._dtype, result._ptr)
            return
        host(a, &given)
        host(out, &target)
        kept = kept_first(&given, axes, &source, reduced)
        fits = op.out_code[source.dtype] == target.dtype and (target.ndim == kept or target.ndim == given.ndim)
        if fits and target.ndim != kept:            # out has the reduced axes too, with size 1: leave them out
            for i in range(target.ndim):
                if reduced[i]:
                    fits = fits and target.shape[i] == 1
                else:
                    target.shape[n], target.strides[n] = target.shape[i], target.strides[i]
                    n += 1
            target.ndim = kept
        for i in range(kept if fits else 0):
            fits = fits and source.shape[i] == target.shape[i]
        if not fits:
            raise ValueError(f"{op.name}: out does not fit")
        if target.size == 0:
            return
        threads = threads_for(source.size, THREADS_FROM)
        if source.size < NOGIL_FROM:
            status = reductions.reduce_views(op.code, &source, kept, &target, 1)
        else:
            with nogil:
                status = reductions.reduce_views(op.code, &source, kept, &target, threads)
        done(status)

    cpdef arg_reduce(self, Op op, object a, object out, int axis):
        if self.listener is not None and self.listener.heard("arg_reduce", (op, a, out, axis)):
            return
        known(op, ARG_REDUCE_OP)
        cdef View given, source, target
        cdef bint reduced[32]
        cdef int threads, status
        host(a, &given)
        host(out, &target)
        kept_first(&given, (axis,), &source, reduced)
        if target.dtype != INT64 or source.shape[source.ndim - 1] == 0 \
                or target.size * source.shape[source.ndim - 1] != source.size:
            raise ValueError(f"{op.name}: out does not fit")
        threads = threads_for(source.size, THREADS_FROM)
        with nogil:
            status = scans.arg_reduce_views(op.code, &source, &target, threads)
        done(status)

    cpdef scan(self, Op op, object a, object out, int axis):
        if self.listener is not None and self.listener.heard("scan", (op, a, out, axis)):
            return
        known(op, SCAN_OP)
        cdef bint scanned[32]
        cdef View given, given_out, source, target
        cdef int threads, status
        host(a, &given)
        host(out, &given_out)
        agree(&given, &given_out, True)
        kept_first(&given, (axis,), &source, scanned)
        kept_first(&given_out, (axis,), &target, scanned)
        threads = threads_for(source.size, THREADS_FROM)
        with nogil:
            status = scans.scan_views(&source, &target, threads)
        done(status)

    cpdef matmul(self, object a, object b, object out):
        if self.listener is not None and self.listener.heard("matmul", (a, b, out)):
            return
        self.multiply(a, b, NULL, out)

    cpdef linear(self, object x, object weight, object bias, object out):
        if self.listener is not None and self.listener.heard("linear", (x, weight, bias, out)):
            return
        cdef NDArray result = <NDArray?> out, row = <NDArray?> bias
        cdef Py_ssize_t largest = max(result._size, max((<NDArray?> x)._size, (<NDArray?> weight)._size))
        if result._ndim == 2 and result._compact and result._dtype >= FLOAT32 and row._ndim == 1 and row._compact \
                and row._ptr is not NULL and row._dtype == result._dtype and row._shape[0] == result._shape[1] \
                and blas().sgemm is not NULL and largest <= LARGEST:
            self.multiply(x, weight, row._ptr, out)
        else:
            Backend.linear(self, x, weight, bias, out)

    cdef int multiply(self, object a, object b, const char* bias, object out) except -1:
        """out = a @ b; for two axes of floats, compact, plus a row `bias` unless that is NULL"""
        cdef View left, right, target
        cdef int threads, status, n, i
        cdef const Blas* blas_found
        cdef Py_ssize_t largest
        host(a, &left)
        host(b, &right)
        host(out, &target)
        n = target.ndim
        if n < 2 or left.ndim != n or right.ndim != n or left.dtype != target.dtype or right.dtype != target.dtype \
                or left.shape[n - 1] != right.shape[n - 2] or left.shape[n - 2] != target.shape[n - 2] \
                or right.shape[n - 1] != target.shape[n - 1]:
            raise ValueError("a verb of the cpu backend was given arrays whose shapes or dtypes differ")
        for i in range(n - 2):
            if left.shape[i] != target.shape[i] or right.shape[i] != target.shape[i]:
                raise ValueError("a verb of the cpu backend was given arrays whose shapes or dtypes differ")
        if target.size == 0:
            return 0
        if target.strides[n - 1] != 1 and target.shape[n - 1] > 1 or target.strides[n - 2] < target.shape[n - 1] \
                and target.shape[n - 2] > 1:
            temporary = empty_compact(self, target.dtype, n, target.shape)
            self.matmul(a, b, temporary)
            self.copy(temporary, out)
            return 0
        largest = max(max(left.shape[n - 1], target.strides[n - 2]), max(target.shape[n - 1], target.shape[n - 2]))
        if target.dtype >= FLOAT32 and (blas().sgemm is NULL or largest > LARGEST):
            make_room_for_numpy(target.size * target.itemsize)
            np.asarray(out)[...] = np.matmul(np.asarray(a), np.asarray(b))
            return 0
        blas_found = blas()
        threads = threads_for(target.size * left.shape[n - 1], THREADS_FROM_FLOPS)
        if target.dtype >= FLOAT32 and products.needs_blas(target.shape[n - 2], left.shape[n - 1], target.shape[n - 1]):
            make_room(threads)
        if target.size * left.shape[n - 1] < NOGIL_FROM:
            status = products.matmul_views(blas_found, &left, &right, bias, &target, 1)
        else:
            with nogil:
                status = products.matmul_views(blas_found, &left, &right, bias, &target, threads)
        return done(status)

    cpdef take(self, object a, object index, object out):
        if self.listener is not None and self.listener.heard("take", (a, index, out)):
            return
        cdef View source, at, target
        cdef int threads, status, i
        host(a, &source)
        host(index, &at)
        host(out, &target)
        if source.ndim != target.ndim or source.ndim == 0 or source.dtype != target.dtype:
            raise ValueError("take: out does not fit")
        for i in range(1, source.ndim):
            if source.shape[i] != target.shape[i]:
                raise ValueError("take: out does not fit")
        check_index(&at, target.shape[0])
        threads = threads_for(target.size, THREADS_FROM)
        if target.size:
            with nogil:
                status = indexing.take_views(&source, <const int64*> at.data, &target, threads)
            indexed(status, source.shape[0])

    cpdef scatter(self, Op op, object a, object index, object out):
        if self.listener is not None and self.listener.heard("scatter", (op, a, index, out)):
            return
        known(op, SCATTER_OP)
        cdef View source, at, target
        cdef int threads, status, i
        cdef bint fits
        host(a, &source)
        host(index, &at)
        host(out, &target)
        fits = source.ndim == target.ndim and source.ndim > 0 and source.dtype == target.dtype
        for i in range(1, source.ndim if fits else 0):
            fits = fits and source.shape[i] == target.shape[i]
        if not fits:
            raise ValueError(f"{op.name}: out does not fit")
        check_index(&at, source.shape[0])
        threads = threads_for(source.size, THREADS_FROM)
        if source.size:
            with nogil:
                if op.code == PUT:
                    status = indexing.put_views(&target, <const int64*> at.data, &source)
                else:
                    status = indexing.scatter_add_views(&target, <const int64*> at.data, &source, threads)
            indexed(status, target.shape[0])

    cpdef random(self, Op op, object out, unsigned long long seed, unsigned long long counter):
        if self.listener is not None and self.listener.heard("random", (op, out, seed, counter)):
            return
        known(op, RANDOM_OP)
        cdef View target
        cdef NDArray array = host(out, &target)
        cdef int threads
        if target.dtype < FLOAT32 or not array._compact:
            raise ValueError(f"{op.name}: expected a compact float array")
        threads = threads_for(target.size, THREADS_FROM_MATH)
        with nogil:
            generators.fill_random(op.code, target.dtype, seed, counter, target.data, target.size, threads)

    # ---- Fused: the modules of this package --------------------------------------------------------------------------

    cpdef rows(self, Op op, object a, object out):
        if self.listener is not None and self.listener.heard("rows", (op, a, out)):
            return
        network.rows(op, a, out)

    cpdef cross_entropy(self, object logits, object labels, object out):
        if self.listener is not None and self.listener.heard("cross_entropy", (logits, labels, out)):
            return
        network.cross_entropy(None, logits, labels, out)

    cpdef cross_entropy_grad(self, object grad, object logits, object labels, object out):
        if self.listener is not None and self.listener.heard("cross_entropy_grad", (grad, logits, labels, out)):
            return
        network.cross_entropy(grad, logits, labels, out)

    cpdef norm(self, Op op, object x, object weight, object bias, object out, object mean, object var, double eps):
        if self.listener is not None and self.listener.heard("norm", (op, x, weight, bias, out, mean, var, eps)):
            return
        network.norm(op, x, weight, bias, out, mean, var, eps)

    cpdef norm_grad(self, Op op, object grad, object x, object weight, object mean, object var, object dx, object dweight,
                    object dbias, double eps):
        if self.listener is not None and self.listener.heard(
                "norm_grad", (op, grad, x, weight, mean, var, dx, dweight, dbias, eps)):
            return
        network.norm_grad(op, grad, x, weight, mean, var, dx, dweight, dbias, eps)

    cpdef attention(self, object q, object k, object v, object mask, object out, bint causal, double scale):
        if self.listener is not None and self.listener.heard("attention", (q, k, v, mask, out, causal, scale)):
            return
        if not network.attention(q, k, v, mask, out, causal, scale):
            Backend.attention(self, q, k, v, mask, out, causal, scale)

    cpdef attention_grad(self, object grad, object q, object k, object v, object mask, object dq, object dk, object dv, bint causal,
                         double scale):
        if self.listener is not None and self.listener.heard("attention_grad", (grad, q, k, v, mask, dq, dk, dv, causal, scale)):
            return
        if not network.attention_grad(grad, q, k, v, mask, dq, dk, dv, causal, scale):
            Backend.attention_grad(self, grad, q, k, v, mask, dq, dk, dv, causal, scale)

    cpdef conv2d(self, Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups):
        if self.listener is not None and self.listener.heard("conv2d", (op, x, weight, y, stride, padding, dilation, groups)):
            return
        convolution.conv2d(self, op, x, weight, y, stride, padding, dilation, groups)

    cpdef pool2d(self, Op op, object x, object out, tuple size, tuple stride, tuple padding):
        if self.listener is not None and self.listener.heard("pool2d", (op, x, out, size, stride, padding)):
            return
        convolution.pool2d(self, op, False, None, x, out, size, stride, padding)

    cpdef pool2d_grad(self, Op op, object grad, object x, object out, tuple size, tuple stride, tuple padding):
        if self.listener is not None and self.listener.heard("pool2d_grad", (op, grad, x, out, size, stride, padding)):
            return
        convolution.pool2d(self, op, True, grad, x, out, size, stride, padding)

    cpdef cell(self, Op op, object x, object y, object bias, object state, object h_out, object c_out, object gates):
        if self.listener is not None and self.listener.heard("cell", (op, x, y, bias, state, h_out, c_out, gates)):
            return
        recurrent.cell(op, x, y, bias, state, h_out, c_out, gates)

    cpdef cell_grad(self, Op op, object dy, object dh, object dc, object gates, object state, object c_out, object dx, object ds,
                    object dstate):
        if self.listener is not None and self.listener.heard("cell_grad", (op, dy, dh, dc, gates, state, c_out, dx, ds, dstate)):
            return
        recurrent.cell_grad(op, dy, dh, dc, gates, state, c_out, dx, ds, dstate)

    cpdef sequence(self, Op op, object x, object weight, object bias, object h, object c, object gates):
        if self.listener is not None and self.listener.heard("sequence", (op, x, weight, bias, h, c, gates)):
            return
        recurrent.Run(op, h, x, weight).forward(x, weight, bias, h, c, gates)

    cpdef sequence_grad(self, Op op, object dy, object weight, object h, object c, object gates, object dx, object ds, object dh,
                        object dc):
        if self.listener is not None and self.listener.heard("sequence_grad", (op, dy, weight, h, c, gates, dx, ds, dh, dc)):
            return
        recurrent.Run(op, dy, ds, weight).backward(dy, weight, h, c, gates, dx, ds, dh, dc)

    cpdef step(self, Op op, list params, list grads, list m, list v, tuple hyperparameters):
        if self.listener is not None and self.listener.heard("step", (op, params, grads, m, v, hyperparameters)):
            return
        optimizers.step(op, params, grads, m, v, hyperparameters)

    # ---- The course's teaching pieces --------------------------------------------------------------------------

    tile_size = TILE_SIZE

    def matmul_tiled(self, a, b, out, m, n, p):
        """out = a @ b over handles that hold float32 tiles [M/T][N/T][T][T]; m, n, p are multiples of the tile size."""
        cdef Buffer left = <Buffer?> a, right = <Buffer?> b, target = <Buffer?> out
        for name, size in (("m", m), ("n", n), ("p", p)):
            if type(size) is not int or size <= 0 or size % TILE_SIZE:
                raise ValueError(f"matmul_tiled: {name} = {size!r} is not a positive multiple of the tile size {TILE_SIZE}")
        for name, held, size in (("a", left.nbytes, m * n), ("b", right.nbytes, n * p), ("out", target.nbytes, m * p)):
            if held < 4 * size:
                raise ValueError(f"matmul_tiled: {name} holds {held} bytes, {4 * size} are needed")
        cdef Py_ssize_t rows = m, inner = n, columns = p
        cdef const float* left_at = <const float*> &left.data[0]
        cdef const float* right_at = <const float*> &right.data[0]
        cdef float* target_at = <float*> &target.data[0]
        with nogil:
            products.matmul_tiled(left_at, right_at, target_at, rows, inner, columns)
        target.mark_written()
