"""Every verb of the backend interface is a kernel of this package, and every kernel is launched by a verb.

Verbs are called on arrays of no particular values with launches recorded instead of started: nothing is compiled or computed.
"""

import re
import subprocess
from functools import lru_cache, partial
from typing import Any

import pytest

from needle_cuda.backend import CUDABackend
from needle_cuda.catalogue import accepted, modules
from needle_cuda.launch import Launcher, options, source
from needle_ndarray.backend import TABLES, Backend
from needle_ndarray.devices import device
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.testing.calls import call

NAMES = [str(each) for each in DTYPES]
HALVES = ["float16", "bfloat16"]
FLOATS = ["float32", "float64"]
VERBS = [name for name in vars(Backend) if name[0] != "_" and callable(getattr(Backend, name))]
#: A product and a sum, and loops over time of matmul and the cells: the defaults are all there is to do.
COMPOSED = {"matmul_tiled", "linear", "matmul_weight", "sequence", "sequence_grad"}
#: Verbs of the host's side, which launch nothing of their own.
HOST = {"why_disabled", "allocate", "from_host", "to_host", "synchronize"}
HOST |= {"from_device", "ahead", "graph", "dlpack_device", "to_dlpack", "from_dlpack"}
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(")


# ---- Methods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in COMPOSED])
def test_every_verb_is_implemented(verb):
    owner = next(each for each in CUDABackend.__mro__ if verb in vars(each))
    assert owner.__module__.startswith("needle_cuda."), f"{verb} is the default of {owner.__name__}"


# ---- Kernels ---------------------------------------------------------------------------------------------------------


@lru_cache(None)
def kernels(file: str, dtype: str, defines: tuple[str, ...]) -> frozenset[str]:
    """The names of a module's kernels, as the preprocessor leaves them."""
    given = [each for each in options(file, dtype, defines) if each.startswith("-D")]
    command = ["g++", "-E", "-P", "-w", "-x", "c++", *given, "-"]
    text = subprocess.run(command, input=source(file), capture_output=True, text=True, check=True).stdout
    return frozenset(KERNEL.findall(text))


@pytest.fixture
def backend(monkeypatch):
    """The backend, its launches recorded: `backend.launches` is [((file, dtype, defines), function)]."""
    backend = device("cuda").backend
    launches: list = []

    def record(self, file, function, dtype, args, block, shared, grid, defines):
        launches.append(((file, str(dtype), defines), function))

    monkeypatch.setattr(Launcher, "_start", record)
    backend.launches = launches
    yield backend
    del backend.launches


class Calls:
    """Calls of every verb, with layouts and sizes that take all of its ways."""

    def __init__(self, backend: Any):
        self.backend = backend

    def array(self, *shape: int, dtype: str = "float32", way: str = "dense") -> Any:
        """Dense, every second element along the last axis, or with its axes turned."""
        if way == "strided" and shape:
            return self.backend._empty((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        return self.backend._empty(shape[::-1], dtype).T if way == "turned" else self.backend._empty(shape, dtype)

    def call(self, name: str, *operands: Any) -> None:
        call(self.backend, name, *operands)

    def elementwise(self) -> None:
        for way in ("dense", "strided"):
            for dtype in NAMES:
                array = partial(self.array, 6, 5, dtype=dtype, way=way)
                self.backend.fill(array(), 1)
                if dtype not in HALVES:
                    self.backend.where(self.array(6, 5, dtype="bool", way=way), array(), array(), array())
                for source_dtype in NAMES:
                    self.backend.copy(self.array(6, 5, dtype=source_dtype, way=way), array())
            for verb, table, count in (("unary", "unary", 1), ("binary", "binary", 2)):
                for op in TABLES[table].values():
                    for dtype in accepted(op):
                        given = [self.array(6, 5, dtype=dtype, way=way) for _ in range(count)]
                        out = self.array(6, 5, dtype=self.result(op, dtype), way=way)
                        getattr(self.backend, verb)(op, *given, out)
        for dtype in NAMES:
            for source_dtype in NAMES:
                self.backend.copy(self.array(40, 40, dtype=source_dtype, way="turned"), self.array(40, 40, dtype=dtype))
            one = self.array(dtype=dtype)
            self.backend.fill(one, 1)
            one._handle.ptr()
        for op in TABLES["random"].values():
            for dtype in accepted(op):
                self.backend.random(op, self.array(9, dtype=dtype), 0, 0)

    @staticmethod
    def result(op: Any, dtype: str) -> str:
        code = next(each.code for each in DTYPES if each == dtype)
        return next(str(each) for each in DTYPES if each.code == op.out_dtype[code])

    def reductions(self) -> None:
        for op in TABLES["reduce"].values():
            for dtype in accepted(op):
                for shape, axes in (((3, 9000), (1,)), ((9000, 3), (0,))):
                    out = self.array(3, dtype=self.result(op, dtype))
                    self.backend.reduce(op, self.array(*shape, dtype=dtype), out, axes)
        for op in TABLES["arg_reduce"].values():
            for dtype in accepted(op):
                for shape, axis in (((3, 9000), 1), ((9000, 3), 0)):
                    self.backend.arg_reduce(op, self.array(*shape, dtype=dtype), self.array(3, dtype="int64"), axis)
        for op in TABLES["scan"].values():
            for dtype in ("int64", *FLOATS):
                for shape, axis in (((3, 9000), 1), ((9, 64), 0)):
                    self.backend.scan(op, self.array(*shape, dtype=dtype), self.array(*shape, dtype=dtype), axis)

    def indexing(self) -> None:
        for dtype in NAMES:
            for n in (5, 1000):
                index, rows = self.array(n, dtype="int64"), self.array(n, 3, dtype=dtype)
                self.backend.take(self.array(9, 3, dtype=dtype), index, rows)
                for name in ("put",) if dtype in HALVES else ("put", "scatter_add"):
                    self.call(name, self.array(9, 3, dtype=dtype), index, rows)

    def products(self) -> None:
        shapes = [(3, 4, 5), (100, 30, 1000), (2000, 64, 2000), (4, 5000, 4), (1, 9, 9), (9, 9, 1)]
        for dtype in ("uint8", "int32", "int64", *FLOATS):
            for m, k, n in shapes:
                for way in ("dense", "turned"):
                    self.backend.matmul(*[self.array(*s, dtype=dtype, way=way) for s in ((m, k), (k, n), (m, n))])

    def network(self) -> None:
        for dtype in FLOATS:
            array = partial(self.array, dtype=dtype)
            x, row, column, labels = array(6, 5), array(5), array(6), self.array(6, dtype="int64")
            for name in ("softmax", "log_softmax"):
                self.call(name, x, x)
            self.call("logsumexp", x, column)
            for name in ("softmax_grad", "log_softmax_grad"):
                self.call(name, x, x, x)
            self.call("logsumexp_grad", column, x, column, x)
            self.call("cross_entropy", x, labels, column)
            self.call("cross_entropy_grad", column, x, labels, x)
            self.call("layer_norm", x, None, None, 0.1, x)
            self.call("layer_norm_grad", x, x, None, 0.1, x, row, row)
            self.call("batch_norm", x, None, None, 0.1, x, row, row)
            self.call("batch_norm_grad", x, x, row, row, None, 0.1, x, row, row)
            self.call("attention", x, x, x, None, True, 1.0, x)
            self.call("attention_grad", x, x, x, x, None, True, 1.0, x, x, x)
            self.call("lstm_cell", array(6, 20), array(6, 20), None, x, x, x, None)
            self.call("lstm_cell_grad", x, x, x, array(6, 20), x, x, array(6, 20), x)
            self.call("gru_cell", array(6, 15), array(6, 15), None, x, x, None)
            self.call("gru_cell_grad", x, x, x, array(6, 20), array(6, 15), array(6, 15), x)
            self.call("sgd_step", [x], [x], None, *[0.0] * 5, False, 1.0)
            self.call("adam_step", [x], [x], [x], [x], *[0.0] * 5, False, 1.0, 1.0)

    def convolution(self) -> None:
        for dtype in FLOATS:
            for groups in (1, 16):
                x, weight, y = (
                    self.array(*s, dtype=dtype) for s in ((2, 5, 5, 16), (3, 3, 16 // groups, 16), (2, 3, 3, 16))
                )
                given = ((1, 1), ((0, 0), (0, 0)), (1, 1), groups)
                self.call("conv2d", x, weight, *given, y)
                self.call("conv2d_input_grad", y, weight, *given, x)
                self.call("conv2d_weight_grad", x, y, *given, weight)
            x, y, window = (
                self.array(2, 6, 6, 3, dtype=dtype),
                self.array(2, 3, 3, 3, dtype=dtype),
                ((2, 2), (2, 2), ((0, 0), (0, 0))),
            )
            for name in ("max_pool2d", "avg_pool2d"):
                self.call(name, x, *window, y)
            self.call("max_pool2d_grad", y, x, *window, x)
            self.call("avg_pool2d_grad", y, *window, x)


PARTS = [name for name in vars(Calls) if name[0] != "_" and name not in ("array", "call", "result")]


def test_every_verb_is_called(backend, monkeypatch):
    """So that the next test speaks of all of them."""
    called = set()
    for verb in set(VERBS) - HOST:
        own = getattr(CUDABackend, verb)

        def call(self, *args, own=own, verb=verb):
            called.add(verb)
            return own(self, *args)

        monkeypatch.setattr(CUDABackend, verb, call)
    for part in PARTS:
        getattr(Calls(backend), part)()
    assert set(VERBS) - HOST - COMPOSED <= called


def test_every_kernel_is_launched_and_every_launch_is_of_a_kernel(backend):
    for part in PARTS:
        getattr(Calls(backend), part)()
    for module, function in backend.launches:
        assert function in kernels(*module), f"{function} is not in {module}"
        assert module in modules(), f"{module} is not in the catalogue"
    launched = {(module[0], function) for module, function in backend.launches}
    written = {(file, name) for file, dtype, defines in modules() for name in kernels(file, dtype, defines)}
    assert written == launched


@pytest.mark.parametrize("verb", ["unary", "binary", "reduce", "arg_reduce", "scan", "random"])
def test_every_op_has_a_kernel(backend, verb):
    """For each dtype it computes in: the call launches one whose name carries the op's, unless the table has but one op."""
    calls = Calls(backend)
    for op in TABLES[verb].values():
        for dtype in accepted(op):
            if verb == "scan" and dtype not in ("int64", *FLOATS):
                continue  # ints are widened first
            out = calls.array(6, dtype=calls.result(op, dtype))
            given = {
                "unary": (calls.array(6, dtype=dtype), out),
                "binary": (calls.array(6, dtype=dtype), calls.array(6, dtype=dtype), out),
                "reduce": (calls.array(6, 5, dtype=dtype), out, (1,)),
                "arg_reduce": (calls.array(6, 5, dtype=dtype), out, 1),
                "scan": (calls.array(6, dtype=dtype), out, 0),
                "random": (out, 0, 0),
            }[verb]
            backend.launches.clear()
            getattr(backend, verb)(op, *given)
            assert backend.launches
            assert len(TABLES[verb]) == 1 or any(op.name in function for _, function in backend.launches)
