"""No sequence of public calls may crash the interpreter.

Every row runs in a process of its own kind of danger (hostile_worker.py), so a crash is one failed case. Rows with an error say
which one, and what numbers it names.
"""

# ruff: noqa: E501  (a row of the table is one line)
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import needle_ndarray as nd
from needle_ndarray.testing.tables import each

WORKER = Path(__file__).with_name("hostile_worker.py")
SIZES = "ValueError|IndexError|TypeError|MemoryError"

#: name: (snippet, the error it must end with, or "ok", or None for either)
CASES = {
    # shapes
    "a petabyte": ("nd.zeros((2**48,))", r"MemoryError: .*bytes"),
    "a petabyte of cpu_numpy": ("nd.zeros((2**48,), device='cpu_numpy')", "MemoryError"),
    "product beyond 64 bits": ("nd.zeros((2**33, 2**33))", r"ValueError: .*8589934592"),
    "product wraps to 0": ("nd.zeros((2**32, 2**32))", r"ValueError: .*4294967296"),
    "product wraps to small": ("nd.zeros((2**32 + 1, 2**32 + 1))", "ValueError"),
    "bytes beyond 64 bits": ("nd.zeros((2**61,), 'float64')", "ValueError|MemoryError"),
    "huge with a zero": ("nd.zeros((2**40, 0, 2**40))", None),
    "size beyond 64 bits": ("nd.zeros((2**70,))", r"ValueError: .*1180591620717411303424"),
    "negative size": ("nd.zeros((-1,))", r"ValueError: .*-1"),
    "negative sizes": ("nd.zeros((-2, -3))", r"ValueError: .*-2"),
    "33 axes": ("nd.zeros((1,) * 33)", r"ValueError: .*33"),
    "float size": ("nd.zeros((2.0,))", r"TypeError: .*2\.0"),
    "string shape": ("nd.zeros('abc')", "TypeError"),
    "array as shape": ("nd.zeros(array())", "TypeError"),
    "huge broadcast": ("nd.zeros(()).broadcast_to((2**60,))", None),
    "huge broadcast + 1": ("nd.zeros(()).broadcast_to((2**59,)) + 1", SIZES),
    "huge broadcast of broadcast": ("nd.zeros((1, 1)).broadcast_to((2**40, 2**40))", "ValueError"),
    "outer sum": ("nd.zeros((2**20, 1)) + nd.zeros((1, 2**45 // 2**20))", r"MemoryError"),
    "outer product overflow": ("nd.zeros(()).broadcast_to((2**40, 1)) * nd.zeros(()).broadcast_to((2**40,))", "ValueError"),
    "huge copy": ("nd.zeros(()).broadcast_to((2**50,)).copy()", "MemoryError|ValueError"),
    "huge astype": ("nd.zeros(()).broadcast_to((2**50,)).astype('int32')", "MemoryError"),
    "huge to host": ("nd.zeros(()).broadcast_to((2**50,)).numpy()", "MemoryError|ValueError"),
    "huge reshape": ("nd.zeros(()).broadcast_to((2**40,)).reshape((2**20, 2**20))", None),
    "huge flatten": ("nd.zeros((2,)).broadcast_to((2**45, 2)).reshape(-1)", "MemoryError"),
    "huge repr": ("repr(nd.zeros(()).broadcast_to((2**50,)))", None),
    "huge pickle": ("import pickle; pickle.dumps(nd.zeros(()).broadcast_to((2**50,)))", "MemoryError|ValueError"),
    "huge flat": ("nd.zeros((2,)).broadcast_to((2**45, 2)).flat[5]", None),
    "huge softmax": ("nd.zeros(()).broadcast_to((2, 2**45)).softmax()", "MemoryError"),
    "huge matmul": ("nd.zeros(()).broadcast_to((2**30, 2)) @ nd.zeros(()).broadcast_to((2, 2**20))", "MemoryError"),
    "huge cumsum": ("nd.zeros(()).broadcast_to((2**45,)).cumsum()", "MemoryError"),
    "huge sum over nothing": ("nd.zeros(()).broadcast_to((2**45, 1)).sum(1)", "MemoryError"),
    "huge argmax": ("nd.zeros(()).broadcast_to((2**45, 1)).argmax(1)", "MemoryError"),
    "huge pad": ("array().pad(((2**50, 0), (0, 0)))", "MemoryError|ValueError"),
    "pad overflow": ("array().pad(((2**62, 2**62), (0, 0)))", "ValueError|MemoryError"),
    "huge tile": ("nd.tile(array(), (2**30, 2**30))", SIZES),
    "tile overflow": ("nd.tile(array(), 2**62)", SIZES),
    "huge repeat": ("nd.repeat(array(), 2**45)", SIZES),
    "huge stack": ("nd.stack([nd.zeros(()).broadcast_to((2**45,))] * 3)", "MemoryError"),
    "huge concatenate": ("nd.concatenate([nd.zeros(()).broadcast_to((2**59,))] * 9)", "MemoryError|ValueError"),
    "huge eye": ("nd.eye(2**24)", "MemoryError"),
    "huge arange": ("nd.arange(2**62)", "ValueError|MemoryError"),
    "huge arange of memory": ("nd.arange(2**45)", "MemoryError"),
    "endless arange": ("nd.arange(float('inf'))", "ValueError|OverflowError"),
    "nan arange": ("nd.arange(float('nan'))", "ValueError"),
    "huge linspace": ("nd.linspace(0, 1, 2**45)", "MemoryError"),
    "negative linspace": ("nd.linspace(0, 1, -5)", "ValueError"),
    "huge one_hot": ("nd.one_hot(2**60, [0, 1, 2])", SIZES),
    "huge random": ("nd.random.seed(0); nd.random.uniform(2**45)", "MemoryError"),
    "negative random": ("nd.random.seed(0); nd.random.uniform(-3)", "ValueError"),
    "huge random of numpy": ("nd.random.uniform(2**45)", "MemoryError|ValueError"),
    "huge meshgrid": ("nd.meshgrid(nd.zeros(2**23), nd.zeros(2**23))", "MemoryError"),
    "huge einsum": ("a = nd.zeros(2**21); nd.einsum('a,b,c->abc', a, a, a)", "MemoryError|ValueError"),
    # strides and offsets
    "as_strided past the end": ("array().as_strided((3, 4), (4, 100))", r"ValueError: .*buffer"),
    "as_strided before the start": ("array().as_strided((2,), (-1,))", "ValueError"),
    "as_strided overflow": ("array().as_strided((2, 2), (2**62, 2**62))", "ValueError"),
    "as_strided wraps": ("array().as_strided((5,), (2**62,))", "ValueError"),
    "as_strided negative wraps": ("array().as_strided((3,), (-(2**63),))", "ValueError"),
    "as_strided offset": ("array().as_strided((1,), (1,), 10**6)", "ValueError"),
    "as_strided negative offset": ("array().as_strided((1,), (1,), -1)", "ValueError"),
    "as_strided huge offset": ("array().as_strided((1,), (1,), 2**70)", SIZES + "|OverflowError"),
    "as_strided huge offset of nothing": ("array().as_strided((0,), (1,), 2**70)", None),
    "as_strided float offset": ("array().as_strided((1,), (1,), 1.5)", "TypeError"),
    "as_strided of a view goes back": ("v = array()[1:]; v.as_strided((1,), (1,), -4)", "ok"),
    "as_strided of one": ("v = array().as_strided((1, 1), (2**62, -(2**62))); v[::-1, ::-1] + v; v[0, 0].item(); v.T.sum()", "ok"),
    "as_strided of nothing": ("v = array().as_strided((0, 3), (2**62, 2**62)); v[:, 2]; v + 1; v.T.sum(0); v[:, ::-1].copy()", "ok"),
    "overlapping windows": ("v = array().as_strided((5, 5), (1, 1)); v += v; v[...] = v.T; v.sum(0)", None),
    "make with a small handle": ("NDArray.make((10**6,), handle=array()._handle)", r"ValueError: .*1000000|ValueError: .*999999"),
    "make with strides": ("NDArray.make((3, 3), (100, 1))", "ValueError|ok"),
    "make with negative offset": ("NDArray.make((3,), offset=-1)", "ValueError"),
    "make nothing with negative offset": ("v = NDArray.make((0,), offset=-100); v + 1; v.sum()", None),
    "make with huge offset": ("NDArray.make((3,), offset=2**62)", SIZES + "|OverflowError"),
    "make with huge strides": ("NDArray.make((3,), strides=(2**62,))", "ValueError"),
    "make with junk handle": ("NDArray.make((3,), handle='handle')", "TypeError"),
    "make with bytes": ("NDArray.make((3,), handle=b'123456789012')", "TypeError"),
    "make on another device": ("v = NDArray.make((3,), handle=array()._handle, device='cpu_numpy'); v + 1; v.sum()", None),
    "make with a lying handle": (
        "class Lie:\n nbytes = 10**12\n version = 0\n def ptr(self): return 64\n def mark_written(self): pass\n"
        "v = NDArray.make((10**6,), handle=Lie())\nfor f in (v.sum, v.numpy, v.item, v.exp, lambda: v + 1, lambda: memoryview(v), "
        "lambda: np.asarray(v), v.copy, lambda: v.fill(0), lambda: repr(v), v.softmax, v.cumsum, v.argmax): attempt(f)",
        "ok|TypeError",
    ),
    "make with an empty handle": ("v = NDArray.make((0,), handle=Buffer(bytearray(0))); v.sum(); v.numpy(); v + 1", None),
    "make with another dtype": ("v = NDArray.make((6,), handle=array()._handle, dtype='float64'); v.sum()", "ok"),
    "make with bools": ("v = NDArray.make((48,), handle=array()._handle, dtype='bool'); v.sum(); v.any(); ~v; v + v; v.argmax()", "ok"),
    "bools that are not 0 or 1 as an index": (
        "v = NDArray.make((48,), handle=array()._handle, dtype='bool'); w = nd.zeros(48); w[v]; w[v] = 1",
        None,
    ),
    "matmul_tiled too small": ("h = array()._handle; nd.cpu().matmul_tiled(h, h, h, 800, 800, 800)", "ValueError"),
    "matmul_tiled overflow": ("h = array()._handle; nd.cpu().matmul_tiled(h, h, h, 2**40, 2**40, 2**40)", "ValueError|OverflowError"),
    "matmul_tiled negative": ("h = array()._handle; nd.cpu().matmul_tiled(h, h, h, -8, -8, 8)", "ValueError"),
    "matmul_tiled junk": ("nd.cpu().matmul_tiled(None, 1, 'a', 8, 8, 8)", "TypeError"),
    "matmul_tiled odd": ("h = array()._handle; nd.cpu().matmul_tiled(h, h, h, 7, 8, 8)", r"ValueError: .*7"),
    # buffers
    "Buffer.__new__": ("b = Buffer.__new__(Buffer); b.ptr(); b.nbytes; NDArray.make((0,), handle=b)", None),
    "Buffer.__new__ in make": ("b = Buffer.__new__(Buffer); v = NDArray.make((1,), handle=b); v.sum()", SIZES + "|AttributeError"),
    "Buffer initialised again": ("a = array(); a._handle.__init__(bytearray(1)); a.sum(); a.fill(1); a.numpy()", None),
    "Buffer of read-only bytes": ("Buffer(b'1234')", "TypeError|ValueError|BufferError"),
    "Buffer of junk": ("Buffer(None)", "TypeError"),
    "Buffer of strided bytes": ("Buffer(memoryview(bytearray(8))[::2])", "TypeError|ValueError|BufferError"),
    "Buffer of a bytearray that wants to grow": (
        "b = bytearray(400); v = NDArray.make((100,), handle=Buffer(b))\ntry: b.extend(b'x' * 10**7)\nexcept BufferError: pass\n"
        "v.fill(1); v.sum()",
        "ok",
    ),
    "NDArray initialised again": ("a = array(); v = a[2:]; v.__init__([1, 2]); v.as_strided((2,), (1,), -4); v.sum(); v.numpy()", None),
    "NDArray initialised again under a memoryview": (
        "a = array(); m = memoryview(a); attempt(a.__init__, np.zeros(10**6)); nd.empty_cache()\n"
        "x = [np.ones(12, np.float32) for _ in range(100)]; np.asarray(m).sum(); np.asarray(m)[...] = 3",
        None,
    ),
    "NDArray initialised again under numpy": (
        "a = nd.zeros(10**6); x = np.asarray(a); attempt(a.__init__, [1]); nd.empty_cache(); x[...] = 1; x.sum()",
        None,
    ),
    "initialised to more axes": ("a = array(); a.__init__(np.zeros((1,) * 32)); a.__init__([1]); a.__init__(np.zeros((1,) * 20)); a.sum()", None),
    "failed initialisation": ("a = NDArray.__new__(NDArray); attempt(a.__init__, 'x'); a.sum()", None),
    "memoryview outlives": ("m = memoryview(nd.zeros(10**6)); nd.empty_cache(); np.asarray(m).sum(); m.release()", "ok"),
    "memoryview cast": ("m = memoryview(array()).cast('B'); m[0] = 255; m.tobytes()", "ok"),
    "memoryview of a view": ("m = memoryview(array().T); m.tolist(); m.tobytes(); m[2, 1]", "ok"),
    "memoryview of nothing": ("m = memoryview(nd.zeros((3, 0))); m.tolist(); bytes(m)", None),
    # uninitialised objects
    **{
        f"uninitialised: {code}": (f"u = NDArray.__new__(NDArray); a = array(); {code}", None)
        for code in (
            "u + 1; u + u; u - a", "a + u", "u @ a", "a @ u", "u[...]", "u[0]", "u[...] = 1", "u[[0]]", "u[None] = a", "a[u]",
            "a[...] = u", "a[u] = 1", "nd.exp(u)", "nd.exp(a, out=u)", "nd.add(a, a, out=u)", "u == a", "u.sum()", "u.argmax()",
            "u.cumsum()", "u.softmax()", "u.mean()", "u.copy()", "u.numpy()", "u.item()", "u.tolist()", "repr(u)", "str(u)",
            "hash(u)", "len(u)", "list(u)", "bool(u)", "float(u)", "int(u)", "u.T", "u.mT", "u.flat", "u.reshape(1)", "u.fill(1)",
            "u.as_strided((1,), (1,))", "u.as_strided((0,), (1,))", "u.broadcast_to((3,))", "u.astype('int32')", "u.to('cpu')",
            "u.device", "u.backend", "u.dtype", "u.version", "u._handle", "u.shape; u.strides; u.size; u.offset; u.nbytes",
            "memoryview(u)", "np.asarray(u)", "u.__dlpack__()", "nd.from_dlpack(u)", "np.from_dlpack(u)", "u.__dlpack_device__()",
            "import pickle; pickle.dumps(u)", "import copy; copy.deepcopy(u); copy.copy(u)", "nd.where(u, a, a)", "nd.where(a > 1, u, u)",
            "nd.stack([u, u])", "nd.concatenate([a, u])", "nd.einsum('->', u)", "nd.matmul(u, u)", "nd.take(a, u, axis=0)",
            "nd.scatter_add(a, [0], u)", "nd.scatter_add(u, [0], a)", "nd.pad(u, ())", "NDArray(u)", "nd.array(u)", "nd.asarray(u)",
            "u.is_compact(); u.compact()", "u += 1", "u.flip()", "u.squeeze()", "u.permute(())", "u.exp", "u.sqrt()", "-u; abs(u); ~u",
            "nd.zeros_like(u)", "u.clip(0, 1)", "u.max(0)", "u.var()", "u in [u]", "a.maximum(u)", "format(u, '.2f')", "u ** 2; 2 ** u",
        )
    },
    "a subclass that forgets __init__": (
        "class Mine(NDArray):\n def __init__(self): pass\nm = Mine()\nsweep_methods(Mine, 3)\nattempt(lambda: m + m); attempt(lambda: m[0])",
        "ok",
    ),
    "a subclass with attributes": (
        "class Mine(NDArray):\n pass\nm = Mine([1, 2]); m.note = m; m.other = [m]; m + m; del m\nimport gc; gc.collect()",
        "ok",
    ),
    "a subclass of many": ("import gc\nclass Mine(NDArray): pass\nfor i in range(1000): Mine(np.zeros((1,) * (i % 33)))\ngc.collect()", "ok"),
    "deleting attributes": ("a = array()\ndel a.shape", "AttributeError|TypeError"),
    "setting attributes": ("a = array()\na.shape = (12,)", "AttributeError|TypeError"),
    "setting _offset": ("a = array()\na._offset = 10**9", "AttributeError|TypeError"),
    "unary method by hand": ("type(array().sqrt)(None, None)()", None),
    "unary method without init": ("M = type(array().sqrt); M.__new__(M)", "TypeError"),
    "unary method repr": ("repr(type(array().sqrt)(None, None))", None),
    # ops and helpers that can be reached
    "op made by hand": (
        "from needle_ndarray.ndarray import unary_op, binary_op, reduce_op, arg_reduce_op, scan_op\n"
        "for code in (-1, 99, 2**30):\n for result in ('same', 'bool', 'index', 'sum'):\n"
        "  op = nd.Op('mine', code, 'any', result)\n"
        "  for f in (lambda: unary_op(op, array()), lambda: binary_op(op, array(), array()), lambda: reduce_op(op, array()),\n"
        "            lambda: arg_reduce_op(op, array(), 0), lambda: scan_op(op, array(), 0)): attempt(f)",
        "ok",
    ),
    "op of another table": (
        "from needle_ndarray.ndarray import unary_op, binary_op, reduce_op, arg_reduce_op, scan_op\n"
        "for t in tables.TABLES.values():\n for op in t.values():\n"
        "  for f in (lambda: unary_op(op, array()), lambda: binary_op(op, array(), array()), lambda: reduce_op(op, array()),\n"
        "            lambda: arg_reduce_op(op, array(), 0), lambda: scan_op(op, array(), 0)): attempt(f)",
        "ok",
    ),
    "op of nothing": ("nd.Op.__new__(nd.Op).name; from needle_ndarray.ndarray import unary_op; unary_op(nd.Op.__new__(nd.Op), array())", None),
    "None where an op belongs": ("from needle_ndarray.ndarray import unary_op; unary_op(None, array())", None),
    "None where an op of two belongs": ("from needle_ndarray.ndarray import binary_op; binary_op(None, array(), array())", None),
    "None where an array belongs": ("from needle_ndarray.ndarray import reduce_op; reduce_op(tables.REDUCE['sum'], None)", None),
    "None where arg_reduce belongs": ("from needle_ndarray.ndarray import arg_reduce_op; arg_reduce_op(tables.ARG_REDUCE['argmax'], None, 0)", None),
    "None where a scan belongs": ("from needle_ndarray.ndarray import scan_op; scan_op(tables.SCAN['cumsum'], None, 0)", None),
    "None where rows belong": ("from needle_ndarray.ndarray import last_axis_op; last_axis_op('softmax', None, 0, True)", None),
    "unbound methods": ("for name in dir(NDArray):\n f = getattr(NDArray, name)\n for x in (None, 1, Buffer): attempt(f, x) if callable(f) else 0", "ok"),
    "bare Backend": (
        "b = nd.Backend()\nfor v in ('allocate', 'synchronize', 'why_disabled', 'to_host'):\n attempt(getattr(b, v))\n attempt(getattr(b, v), 8)",
        "ok",
    ),
    "a backend that returns junk": (
        "class Bad(nd.Backend):\n name = 'bad'\n def allocate(self, n): return None\n def fill(self, o, v): pass\n def to_host(self, a): return None\n"
        "d = nd.Device('bad'); d._backend = Bad(); d._backend.device = d\n"
        "for f in (lambda: nd.zeros(3, device=d), lambda: nd.zeros(3, device=d) + 1, lambda: nd.array([1], device=d).item()): attempt(f)",
        "ok",
    ),
    # scalars of every type
    "every NumPy scalar": ("check_scalars()", "ok"),
    "a scalar that is its own item": ("class Own(np.longdouble):\n def item(self): return self\nassert (array() * Own(2))[0, 1].item() == 2", "ok"),
    # answers that differ the second time
    "as_strided with two offsets": ("v = array().as_strided((4,), (1,), Twice(0, 10**10)); v[...] = 1; v.offset == 0 or 1 / 0", "ok"),
    "make with two offsets": ("v = NDArray.make((4,), (1,), offset=Twice(0, 10**10)); v[...] = 1", "ok"),
    "make of a handle with two offsets": ("v = NDArray.make((4,), handle=array()._handle, offset=Twice(0, 10**10)); v[...] = 1", "ok"),
    "make of a handle with a shape that is read once": ("assert NDArray.make(iter((2, 3)), handle=array()._handle).shape == (2, 3)", "ok"),
    "as_strided with two shapes": ("v = array().as_strided((Twice(2, 10**10),), (Twice(1, 10**10),)); v[...] = 1", "ok"),
    "axes that change in a verb": (
        "for axes in ((Twice(0, 10**6),), (Twice(0, -10**6), 1), (0,) * 40, (1, 1)):\n"
        " attempt(nd.cpu().backend.reduce, tables.REDUCE['sum'], array(), nd.zeros(4), axes); attempt(nd.cpu().backend.reduce, tables.REDUCE['sum'], array(), nd.zeros((1, 4)), axes)", "ok"),
    "paddings that change in a verb": (
        "x = nd.ones((1, 2, 2, 1)); w = nd.ones((3, 3, 1, 1))\nfor late in (0, 10**6, -10**6, 2**62):\n"
        " attempt(nd.cpu().backend.conv2d, tables.CONV2D['conv2d'], x, w, nd.ones((1, 2, 2, 1)), (1, 1), ((1, Twice(1, late)), (Twice(1, late), 1)), (1, 1), 1)", "ok"),
    "a slice that changes": ("array()[slice(Twice(0, 10**9), Twice(2, 10**9))].sum()", None),
    "sizes that change in matmul_tiled": (
        "h = nd.ones(64)._handle\nclass Size(int):\n def __mul__(self, other): return 0\n __rmul__ = __mul__\n"
        "nd.cpu().matmul_tiled(h, h, h, Size(8000), Size(8000), Size(8000))", "ValueError"),
    "permute twice": ("array().permute(Twice([1, 0], [99, 10**10]))", None),
    # lists that are empty, or end nowhere
    "dlpack for no version": ("array().__dlpack__(max_version=())", r"TypeError: .*\(\)"),
    "dlpack for half a version": ("array().__dlpack__(max_version=[1])", "TypeError"),
    "dlpack for a version of words": ("array().__dlpack__(max_version=('a', 'b'))", "TypeError"),
    "more axes than the array has, kept": (
        "for n in range(3, 60):\n for out in (nd.zeros((1, 4)), nd.zeros((1,) * 6), nd.zeros(4)):\n"
        "  for op in tables.REDUCE.values(): attempt(nd.cpu().backend.reduce, op, nd.ones((4, 4)), out, tuple(range(n)))", "ok"),
    "a step without lists": ("from needle_ndarray.ndarray import run_step; run_step('sgd_step', tables.STEP['sgd'], (), (3,))", "ValueError: .*0 lists"),
    "a step with one list": ("from needle_ndarray.ndarray import run_step; run_step('sgd_step', tables.STEP['sgd'], ([],), (3,))", "ValueError: .*1 lists"),
    "a step with empty lists": ("from needle_ndarray.ndarray import run_step; run_step('sgd_step', tables.STEP['sgd'], ([], []), ())", "ok"),
    **{
        f"endless: {code}": (f"import itertools; e = itertools.count(); r = itertools.repeat(nd.ones(2))\n{code}", r"ValueError: .*more|TypeError|ValueError: .*33")
        for code in (
            "nd.concatenate(r)", "nd.stack(r)", "array().permute(e)", "array().transpose(e)", "nd.permute(array(), e)", "nd.pad(array(), e)",
            "nd.pad(array(), itertools.repeat((1, 1)))", "nd.tile(array(), e)", "nd.split(array(), e)", "nd.moveaxis(array(), e, e)",
            "array().sum(e)", "array().reshape(e)", "array().broadcast_to(e)", "nd.zeros(e)", "NDArray.make(e)", "NDArray.compact_strides(e)",
            "array().as_strided(e, e)", "nd.sgd_step(r, r, lr=1.0)", "nd.array(e)", "nd.conv2d(nd.ones((1, 3, 3, 1)), nd.ones((1, 1, 1, 1)), e)",
            "class L(list):\n __iter__ = lambda self: itertools.repeat(0)\narray().sum(L([0]))",
            "class L(list):\n __iter__ = lambda self: itertools.repeat(nd.ones(2))\nnd.concatenate(L([0]))",
        )
    },
    # arrays that are made while they are used, and subclasses that lie
    "initialised while it is initialised": (
        "x = NDArray.__new__(NDArray); seen = []\nclass Evil:\n def __array__(self, dtype=None, copy=None):\n"
        "  x.__init__(np.ones(1 << 22, 'float32')); seen.append(memoryview(x)); return np.ones(3, 'float32')\n"
        "attempt(x.__init__, Evil()); nd.empty_cache(); assert seen[0][0] == 1 and x.shape == (1 << 22,)", "ok"),
    "initialised while it is indexed": (
        "x = NDArray.__new__(NDArray)\nclass Evil:\n def __index__(self): attempt(x.__init__, np.ones((1,) * 32)); return 0\n"
        "x[(None,) * 31 + (slice(Evil(), 1),)]", "RuntimeError"),
    "a buffer of an array that lies": (
        "for lie in (dict(T=5), dict(nbytes=10**12), dict(itemsize=8), dict(shape=(10**9,)), dict(strides=(10**9,)), dict(dtype='bool'), dict(copy=lambda: 5)):\n"
        " x = type('Lie', (NDArray,), {k: property(lambda self, v=v: v) for k, v in lie.items()})([1.0, 2.0])\n"
        " for f in (lambda: bytes(memoryview(x)), lambda: np.asarray(x).sum(), lambda: np.from_dlpack(x).sum(), lambda: nd.from_dlpack(x).sum(),\n"
        "           lambda: x.numpy().sum(), lambda: x.fill(1), lambda: (x + x).sum(), lambda: x.sum(), lambda: repr(x), lambda: x.T, lambda: nd.stack([x, x])): attempt(f)\n"
        " assert memoryview(x).nbytes == 8", "ok"),
    "a NumPy array that lies": ("x = np.ones(6, 'float32').view(HostLie); assert nd.from_numpy(x).shape == (6,) and nd.array(x).shape == (6,)", "ok"),
    "a dtype made by hand": ("from needle_ndarray.dtypes import DType\nfor c in (-1, 5, 99, 2**30):\n attempt(nd.zeros, 3, DType('float32', c)); attempt(array().astype, DType('float32', c))", "ok"),
    "an op of a table made anew": ("tables.UNARY['exp'].__init__('exp', 9999, 'any', 'same')", "TypeError"),
    # elements
    "indices beyond": ("array()[[0, 99]]", r"IndexError: .*99"),
    "indices far before": ("array()[[-99]]", r"IndexError: .*-99"),
    "index beyond 64 bits": ("array()[[2**70]]", "IndexError|OverflowError|TypeError"),
    "smallest index": ("array()[[-(2**63)]]", "IndexError"),
    "take beyond": ("nd.take(array(), [3], axis=0)", "IndexError"),
    "scatter_add beyond": ("nd.scatter_add(array(), [3], array()[:1])", "IndexError"),
    "gather beyond": ("nd.take_along_axis(array(), [[7]], axis=1)", "IndexError"),
    "one_hot beyond": ("nd.one_hot(3, [5])", r"IndexError: .*5"),
    "one_hot negative": ("nd.one_hot(3, [-1])", "IndexError"),
    "index changes meanwhile": (
        "i = nd.zeros(100000, 'int64'); a = nd.zeros(10); stop = []\n"
        "def flip():\n while not stop: i.fill(10**9); i.fill(0)\n"
        "t = threading.Thread(target=flip); t.start()\nfor _ in range(30): attempt(lambda: a[i])\nstop.append(1); t.join()",
        "ok",
    ),
    **{
        f"index changes meanwhile: {code}": (
            "i = nd.zeros(200000, 'int64'); host = np.asarray(i); a = nd.ones(1000); b = nd.ones((1000, 3)); v = nd.ones(200000); w = nd.ones((200000, 3)); stop = []\n"
            "def flip():\n while not stop: host[100000:] = 2**40; host[100000:] = -2**40; host[100000:] = 0\n"
            f"t = threading.Thread(target=flip); t.start()\nfor _ in range(60): attempt(lambda: {code})\nstop.append(1); t.join()",
            "ok",
        )
        for code in (
            "nd.take(a, i, axis=0)", "nd.take(b, i, axis=0)", "nd.take(b.T, i, axis=1)", "nd.scatter_add(a, i, v)", "nd.scatter_add(b, i, w)",
            "nd.scatter_add(b.T, i, w.T, axis=1)", "nd.scatter_add(b[:, ::2], i, w[:, ::2])", "a[i]", "a.__setitem__(i, v)", "nd.one_hot(1000, i)",
            "nd.cross_entropy(w, i)", "nd.take_along_axis(a, i, axis=0)", "nd.cpu().backend.take(a, i, v)", "nd.cpu().backend.scatter(tables.SCATTER['put'], v, i, a)",
            "nd.cpu().backend.scatter(tables.SCATTER['put'], w[:, ::2], i, b[:, ::2])", "nd.cpu().backend.scatter(tables.SCATTER['scatter_add'], v, i, a)", "nd.add_at(a, i, 1.0)",
        )
    },
    "mask changes meanwhile": (
        "m = nd.zeros(1000, 'bool'); a = nd.zeros(1000); stop = []\n"
        "def flip():\n while not stop: m.fill(True); m.fill(False)\n"
        "t = threading.Thread(target=flip); t.start()\nfor _ in range(200): attempt(lambda: a[m])\nstop.append(1); t.join()",
        "ok",
    ),
    "smallest integer over -1": ("a = nd.full(5, -(2**63), 'int64'); a // -1; a % -1; abs(a); -a; a // 0; a % 0", "ok"),
    "0-d everything": ("a = nd.array(3.0); a.sum(); a + a; a[...]; a[()]; a[None]; a.T; a.item(); a.softmax(None); a.flip(); a.flat[0]", "ok"),
    "self-referential list": ("x = []; x.append(x); nd.array(x)", SIZES + "|RecursionError"),
    "deep list": ("x = 1\nfor _ in range(2000): x = [x]\nnd.array(x)", SIZES + "|RecursionError"),
    "junk pickle": ("import pickle; pickle.loads(pickle.dumps(array()).replace(b'cpu', b'xyz'))", None),
    "rebuild junk": ("from needle_ndarray.ndarray import rebuild\nfor x in junk():\n for y in ('cpu', None, 'nope', 3): attempt(rebuild, x, y)", "ok"),
    "cut pickle": (
        "import pickle\np = pickle.dumps(array())\nfor i in range(len(p)): attempt(pickle.loads, p[:i])\n"
        "for i in range(len(p)): attempt(pickle.loads, p[:i] + b'\\x00' + p[i + 1:])",
        None,
    ),
    "einsum junk": (
        "for s in ('', '->', 'i', 'ii', 'ij,', ',', 'ij->k', 'ij->ii', '...', '......', 'i...j...', 'ij->i->j', 'é', '1', 'i j', "
        "None, 3, 'ab' * 30): attempt(nd.einsum, s, array()); attempt(nd.einsum, s, array(), array())",
        "ok",
    ),
    "threads junk": ("for x in junk(): attempt(nd.set_num_threads, x)\nnd.set_num_threads(2)", "ok"),
    "many threads": ("nd.set_num_threads(1024); nd.ones(200000).sum(); nd.set_num_threads(2)", None),
    "cache limit junk": ("for x in junk(): attempt(nd.set_cache_limit, x)\nnd.zeros(100); nd.empty_cache()", "ok"),
    "a million small arrays": ("x = [nd.zeros(3) for _ in range(200000)]; del x; nd.empty_cache()", "ok"),
    "deep view chain": ("a = array()\nfor _ in range(20000): a = a[...]\na.sum()", "ok"),
    "dlpack junk": ("for x in junk(): attempt(nd.from_dlpack, x); attempt(nd.from_numpy, x); attempt(nd.asarray, x)", "ok"),
    "dlpack capsule twice": ("c = array().__dlpack__()\nclass H:\n def __dlpack__(self, **k): return c\n def __dlpack_device__(self): return (1, 0)\n"
                             "nd.from_dlpack(H()); nd.from_dlpack(H())", None),
    # sweeps over everything public
    **{
        f"function {name}": (f"sweep_function(nd.{name}, {name!r})", "ok")
        for name in sorted(vars(nd))
        if callable(getattr(nd, name)) and not name.startswith("_") and name != "device"
    },
    **{f"random.{name}": (f"sweep_function(nd.random.{name}, {name!r}); nd.random.seed(None)", "ok")
       for name in ("seed", "uniform", "normal", "bernoulli", "get_state", "set_state", "Generator")},
    "methods on cpu": ("sweep_methods(array)", "ok"),
    "methods on cpu_numpy": ("sweep_methods(lambda: array('cpu_numpy'), 60)", "ok"),
    "methods on uninitialised arrays": ("sweep_methods(lambda: NDArray.__new__(NDArray), 10)", "ok"),
    "methods on arrays initialised again": ("def make():\n a = array()[1:]; attempt(a.__init__, [1, 2]); return a\nsweep_methods(make, 5)", "ok"),
    "verbs of cpu": ("sweep_verbs('cpu')", "ok"),
    "convolutions of cpu": ("sweep_convolutions('cpu')", "ok"),
    "verbs of cpu_numpy": ("sweep_verbs('cpu_numpy')", "ok"),
}  # fmt: skip


def run_all(cases):
    """Outcomes by name; a process that dies is started again behind the snippet that killed it."""
    outcomes, left = {}, list(cases)
    while left:
        command = [sys.executable, "-X", "faulthandler", str(WORKER)]
        done = subprocess.run(command, input=json.dumps(left), capture_output=True, text=True, timeout=600, check=False)
        reached = None
        for line in done.stdout.splitlines():
            if line.startswith("["):
                reached, outcome = json.loads(line)
                outcomes[reached] = outcome
        if reached is None:
            raise RuntimeError(done.stderr[-2000:])
        if outcomes[reached] is None:
            outcomes[reached] = f"crashed with {done.returncode}: {done.stderr.strip()[:300]}"
        names = [name for name, _ in left]
        left = left[names.index(reached) + 1 :]
    return outcomes


@pytest.fixture(scope="module")
def outcomes():
    return run_all([(name, code) for name, (code, _) in CASES.items()])


@each("name", CASES)
def test_hostile(outcomes, name):
    outcome, expected = outcomes[name], CASES[name][1]
    assert not outcome.startswith("crashed"), outcome
    assert not outcome.startswith(("SystemError", "KeyboardInterrupt", "SystemExit")), outcome
    if expected is not None:
        assert re.match(expected, outcome), f"{outcome!r}, expected {expected!r}"


#: Megabytes that a process may take on top of what it has when Needle is imported.
ROOM = (0, 20, 40, 60, 75, 90, 120, 160, 250)
PRODUCTS = """
import resource, sys, threading
import needle_ndarray as nd
nd.set_num_threads(2)
a = nd.ones((800, 800)); x = nd.ones((800, 1)); wrong = []; begin = threading.Event(); ready = threading.Barrier(4)
def wait():
    nd.ones((2, 2)) @ nd.ones((2, 2)); ready.wait(); begin.wait(); work()   # what a thread needs to live it has before
threads = [threading.Thread(target=wait) for _ in range(3)] if sys.argv[2] == "threads" else []
for thread in threads:
    thread.start()
if threads:
    ready.wait()
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
def work():
    for product in (lambda: a @ a, lambda: a @ x, lambda: a.T @ a):
        try:
            if not (product() == 800).all():
                wrong.append("numbers")
        except (MemoryError, RuntimeError):
            pass
work()
begin.set()
for thread in threads:
    thread.join()
print(wrong or "ok")
"""


@pytest.mark.skipif(
    sys.platform != "linux" or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="a limit on memory needs /proc, and no sanitizer that takes terabytes",
)
@each("room", ROOM)
@each("alone", ["alone", "threads"])
def test_products_with_little_memory(room, alone):
    """OpenBLAS ends the process where it finds no memory for its buffers: MemoryError comes first."""
    command = [sys.executable, "-c", PRODUCTS, str(room), alone]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "ok", (done.returncode, done.stdout, done.stderr[-500:])
