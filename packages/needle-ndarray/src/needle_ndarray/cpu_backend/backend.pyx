# cython: embedsignature.format=clinic
"""The CPU backend: hands NDArrays to the kernels, with threads where there is enough work."""

from cpython.object cimport PyObject

from needle_ndarray.backend cimport ARG_REDUCE_OP, BINARY_OP, RANDOM_OP, SCAN_OP, SCATTER_OP, UNARY_OP, Backend, Op
from needle_ndarray.blas cimport blas, reserve_buffers, reserve_buffers_of_numpy
from needle_ndarray.buffer cimport Buffer, allocate as allocate_buffer
from needle_ndarray.calls cimport Call
from needle_ndarray.cpu_backend cimport calls, convolution, network, optimizers, recurrent
from needle_ndarray.cpu_backend.calls cimport kept_first
from needle_ndarray.cpu_backend.guard cimport (
    THREADS_FROM, THREADS_FROM_FLOPS, THREADS_FROM_MATH, done, host, known, stored
)
from needle_ndarray.kernels cimport ewise, index as indexing, matmul as products, random as generators, scan as scans
from needle_ndarray.kernels.views cimport View, int64
from needle_ndarray.ndarray cimport NDArray, empty_compact
from needle_ndarray.optable cimport BFLOAT16, FLOAT16, FLOAT32, INT64, PUT, UINT8, itemsize
from needle_ndarray.rules cimport Borrowed, Rule
from needle_ndarray.threads cimport threads_for

import numpy as np

from needle_ndarray.dtypes import DTYPES
from needle_ndarray.rules import RULES

cdef Rule SCAN = RULES["scan"], TAKE = RULES["take"], SCATTER = RULES["scatter"]
cdef Rule WEIGHT = RULES["matmul_weight"]

cdef enum:
    TILE_SIZE = 8
    THIN = 8                    # rows for which a weight is widened as it is read, not before


cdef int check_side_by_side(const View* index) except -1:
    """The kernels read an index as it lies, and check each entry when they read it."""
    if index.shape[0] > 1 and index.strides[0] != 1:
        raise ValueError(f"a verb of the cpu backend was given an index of stride {index.strides[0]}, expected 1")
    return 0


cdef int indexed(int status, Py_ssize_t bound) except -1:
    if status == indexing.OUTSIDE:
        raise IndexError(f"an index is out of bounds for an axis of size {bound}")
    return done(status)


cdef bint is_thin(const View* a, const View* weight, const View* out) noexcept:
    """Whether few rows meet a weight that is contiguous one way: more rows are worth widening it for"""
    return a.shape[0] <= THIN and (a.strides[1] == 1 or a.shape[1] <= 1) and (out.strides[1] == 1 or out.shape[1] <= 1) \
        and (weight.strides[0] == 1 or weight.strides[1] == 1)


cdef class CPUBackend(Backend):
    """Cython kernels on host memory."""

    name = "cpu"
    has_epilogues = True

    cpdef object allocate(self, Py_ssize_t nbytes):
        if self.listener is not None:
            return self.listener.allocated(allocate_buffer(nbytes))
        return allocate_buffer(nbytes)

    cpdef from_host(self, object values, object out):
        if self.listener is not None and self.listener.heard("from_host", (values, out)):
            return
        cdef View target
        cdef NDArray array = stored(out, &target)
        if array._dtype == BFLOAT16:            # has no buffer: as float16, whose words have the same size
            array = NDArray.make(array.shape, array.strides, array.device, array._buffer, array._offset, "float16")
            np.asarray(array).view(np.uint16)[...] = values
        else:
            np.asarray(array)[...] = values

    cpdef object to_host(self, object a):
        if self.listener is not None:
            heard = self.listener.heard("to_host", (a,))
            if heard is not False:
                return heard
        cdef View source
        cdef NDArray array = stored(a, &source)
        cdef NDArray out
        dtype = DTYPES[array._dtype]
        values = np.empty(tuple([array._shape[i] for i in range(array._ndim)]), dtype.storage)
        if array._size:
            memory = values.reshape(-1)
            if array._dtype >= FLOAT16:                     # which no memoryview casts
                memory = memory.view(np.uint8)
            out = NDArray.make(values.shape, device=self.device, handle=Buffer(memory), dtype=dtype)
            self.copy(a, out)
        return values

    cpdef fill(self, object out, object value):
        if self.listener is not None and self.listener.heard("fill", (out, value)):
            return
        cdef Call call
        calls.prepare_fill(self, out, value, &call)
        calls.run(&call)

    cpdef copy(self, object a, object out):
        if self.listener is not None and self.listener.heard("copy", (a, out)):
            return
        cdef Call call
        calls.prepare_copy(a, out, &call)
        calls.run(&call)

    cpdef unary(self, Op op, object a, object out):
        if self.listener is not None and self.listener.heard("unary", (op, a, out)):
            return
        known(op, UNARY_OP)
        cdef NDArray x = <NDArray?> a, result = <NDArray?> out
        cdef Call call
        if calls.is_flat_unary(op, x, result):
            ewise.unary(op.code, x._dtype, x._ptr, result._ptr, x._size)
            return
        calls.prepare_strided_unary(op, x, result, &call)
        calls.run(&call)

    cpdef binary(self, Op op, object a, object b, object out):
        if self.listener is not None and self.listener.heard("binary", (op, a, b, out)):
            return
        known(op, BINARY_OP)
        cdef NDArray x = <NDArray?> a, y = <NDArray?> b, result = <NDArray?> out
        cdef Call call
        if calls.is_flat_binary(op, x, y, result):
            ewise.binary(op.code, x._dtype, x._ptr, y._ptr, result._ptr, x._size, x._compact, y._compact)
            return
        calls.prepare_strided_binary(op, x, y, result, &call)
        calls.run(&call)

    cpdef where(self, object condition, object a, object b, object out):
        if self.listener is not None and self.listener.heard("where", (condition, a, b, out)):
            return
        cdef Call call
        calls.prepare_where(condition, a, b, out, &call)
        calls.run(&call)

    cpdef reduce(self, Op op, object a, object out, tuple axes):
        if self.listener is not None and self.listener.heard("reduce", (op, a, out, axes)):
            return
        cdef Call call
        calls.prepare_reduce(op, a, out, axes, &call)
        calls.run(&call)

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
        cdef View[2] v
        cdef Borrowed[2] given = [<Borrowed> a, <Borrowed> out]
        cdef View source, target
        cdef int threads, status
        SCAN.guard(given, v)
        kept_first(&v[0], (axis,), &source, scanned)
        kept_first(&v[1], (axis,), &target, scanned)
        threads = threads_for(source.size, THREADS_FROM)
        with nogil:
            status = scans.scan_views(&source, &target, threads)
        done(status)

    cdef bint product(self, object a, object b, PyObject* bias, object out) except -1:
        """out = a @ b [+ bias] by the kernel; False where another way has to be found"""
        cdef Call call
        if not calls.prepare_product(a, b, bias, out, &call):
            return False
        if call.blas is not NULL:
            reserve_buffers(threads_for(call.work, THREADS_FROM_FLOPS))
        calls.run(&call)
        return True

    cpdef matmul(self, object a, object b, object out):
        if self.listener is not None and self.listener.heard("matmul", (a, b, out)):
            return
        if self.product(a, b, NULL, out):
            return
        cdef NDArray target = <NDArray> out
        if blas().sgemm is not NULL and not target._compact:        # rows that the kernel cannot write
            temporary = empty_compact(self, target._dtype, target._ndim, target._shape)
            self.matmul(a, b, temporary)
            self.copy(temporary, out)
            return
        reserve_buffers_of_numpy(target._size * itemsize(target._dtype))
        np.asarray(out)[...] = np.matmul(np.asarray(a), np.asarray(b))

    cpdef linear(self, object x, object weight, object bias, object out):
        if self.listener is not None and self.listener.heard("linear", (x, weight, bias, out)):
            return
        if not self.product(x, weight, <PyObject*> bias, out):
            Backend.linear(self, x, weight, bias, out)

    cpdef matmul_weight(self, object a, object weight, object scale, object out):
        if self.listener is not None and self.listener.heard("matmul_weight", (a, weight, scale, out)):
            return
        cdef View[4] v
        cdef Borrowed[4] given = [<Borrowed> a, <Borrowed> weight, <Borrowed> scale, <Borrowed> out]
        cdef products.Weights job
        cdef int threads
        WEIGHT.guard(given, v)
        if v[0].dtype != FLOAT32 or v[1].dtype < FLOAT16 and v[1].dtype != UINT8:
            raise TypeError(f"matmul_weight: {DTYPES[v[0].dtype]} @ {DTYPES[v[1].dtype]}")
        if not is_thin(&v[0], &v[1], &v[3]) or scale is not None and not (<NDArray> scale)._compact:
            Backend.matmul_weight(self, a, weight, scale, out)
            return
        job.format = 2 if v[1].dtype == UINT8 else v[1].dtype == BFLOAT16
        job.a, job.w, job.out = <const float*> v[0].data, v[1].data, <float*> v[3].data
        job.scale = <const float*> v[2].data if scale is not None else NULL
        job.m, job.k, job.n = v[0].shape[0], v[0].shape[1], v[1].shape[1]
        job.a_row, job.row, job.column, job.item = v[0].strides[0], v[1].strides[0], v[1].strides[1], v[1].itemsize
        job.out_row = v[3].strides[0]
        threads = threads_for(v[3].size * job.k, THREADS_FROM_FLOPS)
        if v[3].size:
            with nogil:
                products.matmul_weight(&job, threads)

    cpdef take(self, object a, object index, object out):
        if self.listener is not None and self.listener.heard("take", (a, index, out)):
            return
        cdef View[3] v
        cdef Borrowed[3] given = [<Borrowed> a, <Borrowed> index, <Borrowed> out]
        cdef int threads, status
        TAKE.guard(given, v)
        check_side_by_side(&v[1])
        threads = threads_for(v[2].size, THREADS_FROM)
        if v[2].size:
            with nogil:
                status = indexing.take_views(&v[0], <const int64*> v[1].data, &v[2], threads)
            indexed(status, v[0].shape[0])

    cpdef scatter(self, Op op, object a, object index, object out):
        if self.listener is not None and self.listener.heard("scatter", (op, a, index, out)):
            return
        known(op, SCATTER_OP)
        cdef View[3] v
        cdef Borrowed[3] given = [<Borrowed> a, <Borrowed> index, <Borrowed> out]
        cdef int threads, status
        SCATTER.guard(given, v)
        if op.code != PUT and v[0].dtype >= FLOAT16:
            raise TypeError(f"{op.name}: {DTYPES[v[0].dtype]} is added up as float32 only")
        check_side_by_side(&v[1])
        threads = threads_for(v[0].size, THREADS_FROM)
        if v[0].size:
            with nogil:
                if op.code == PUT:
                    status = indexing.put_views(&v[2], <const int64*> v[1].data, &v[0])
                else:
                    status = indexing.scatter_add_views(&v[2], <const int64*> v[1].data, &v[0], threads)
            indexed(status, v[2].shape[0])

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

    cdef bint prepare(self, str verb, tuple args, Call* call) except -1:
        if type(self) is not CPUBackend:        # a subclass may do something else in its verbs
            return False
        if verb == "binary":
            calls.prepare_binary(args[0], args[1], args[2], args[3], call)
        elif verb == "unary":
            calls.prepare_unary(args[0], args[1], args[2], call)
        elif verb == "copy":
            calls.prepare_copy(args[0], args[1], call)
        elif verb == "fill":
            calls.prepare_fill(self, args[0], args[1], call)
        elif verb == "where":
            calls.prepare_where(args[0], args[1], args[2], args[3], call)
        elif verb == "reduce":
            calls.prepare_reduce(args[0], args[1], args[2], args[3], call)
        elif verb == "matmul":
            return calls.prepare_product(args[0], args[1], NULL, args[2], call) and call.blas is NULL
        elif verb == "linear":
            return calls.prepare_product(args[0], args[1], <PyObject*> args[2], args[3], call) and call.blas is NULL
        elif verb == "conv2d":
            return convolution.prepare_conv2d(args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7], call)
        elif verb == "pool2d":
            return convolution.prepare_pool2d(args[0], args[1], args[2], args[3], args[4], args[5], call)
        else:
            return False
        return True

    cdef int fuse(self, Call* call, list steps) except -1:
        return convolution.fuse(call, steps)

    # ---- Fused: the modules of this package --------------------------------------------------------------------------

    cpdef rows(self, Op op, object a, object out):
        if self.listener is not None and self.listener.heard("rows", (op, a, out)):
            return
        network.rows(op, a, out)

    cpdef rows_grad(self, Op op, object grad, object x, object y, object out):
        if self.listener is not None and self.listener.heard("rows_grad", (op, grad, x, y, out)):
            return
        network.rows_grad(op, grad, x, y, out)

    cpdef cross_entropy(self, object logits, object labels, object out):
        if self.listener is not None and self.listener.heard("cross_entropy", (logits, labels, out)):
            return
        network.cross_entropy(False, None, logits, labels, out)

    cpdef cross_entropy_grad(self, object grad, object logits, object labels, object out):
        if self.listener is not None and self.listener.heard("cross_entropy_grad", (grad, logits, labels, out)):
            return
        network.cross_entropy(True, grad, logits, labels, out)

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
        recurrent.Run(op).forward(x, weight, bias, h, c, gates)

    cpdef sequence_grad(self, Op op, object dy, object weight, object h, object c, object gates, object dx, object ds, object dh,
                        object dc):
        if self.listener is not None and self.listener.heard("sequence_grad", (op, dy, weight, h, c, gates, dx, ds, dh, dc)):
            return
        recurrent.Run(op).backward(dy, weight, h, c, gates, dx, ds, dh, dc)

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
