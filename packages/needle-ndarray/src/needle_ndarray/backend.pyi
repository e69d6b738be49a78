"""The backend interface. Compiled; docs/extend/backend.md says what each verb is to do."""

from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt

from needle_ndarray.ndarray import NDArray
from needle_ndarray.typing import Number

INTERFACE_VERSION: int
TABLES: dict[str, dict[str, Op]]
REQUIRED: tuple[str, ...]
UNARY: dict[str, Op]
BINARY: dict[str, Op]
REDUCE: dict[str, Op]
ARG_REDUCE: dict[str, Op]
SCAN: dict[str, Op]
RANDOM: dict[str, Op]
SCATTER: dict[str, Op]
ROWS: dict[str, Op]
NORM: dict[str, Op]
CONV2D: dict[str, Op]
POOL2D: dict[str, Op]
CELL: dict[str, Op]
SEQUENCE: dict[str, Op]
STEP: dict[str, Op]

_Pair: TypeAlias = tuple[int, int]

class Op:
    def __init__(self, name: str, code: int, accepts: str, result: str, formula: str = "") -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def code(self) -> int: ...
    @property
    def result(self) -> str: ...
    @property
    def accepts(self) -> str: ...
    @property
    def formula(self) -> str: ...
    @property
    def out_dtype(self) -> list[int]: ...
    @property
    def compute_dtype(self) -> list[int]: ...

class Backend:
    name: str
    interface_version: ClassVar[int]
    numbered: ClassVar[bool]
    has_graphs: ClassVar[bool]
    has_epilogues: ClassVar[bool]
    tile_size: ClassVar[int]
    device: Any
    listener: Any

    # Hooks
    def why_disabled(self) -> str | None: ...
    def from_device(self, a: NDArray) -> NDArray | None: ...
    def ahead(self) -> AbstractContextManager[Any] | None: ...
    def graph(self, calls: list[Any], shared: dict[Any, Any], moving: list[NDArray], written: list[NDArray]) -> Any: ...
    def dlpack_device(self) -> tuple[int, int] | None: ...
    def to_dlpack(
        self,
        a: NDArray,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def from_dlpack(self, x: Any, copy: bool | None = None) -> NDArray: ...
    def matmul_tiled(self, a: Any, b: Any, out: Any, m: int, n: int, p: int) -> None: ...

    # Verbs
    def allocate(self, nbytes: int) -> Any: ...
    def from_host(self, values: npt.NDArray[Any], out: NDArray) -> None: ...
    def to_host(self, a: NDArray) -> npt.NDArray[Any]: ...
    def synchronize(self) -> None: ...
    def fill(self, out: NDArray, value: Number) -> None: ...
    def copy(self, a: NDArray, out: NDArray) -> None: ...
    def unary(self, op: Op, a: NDArray, out: NDArray) -> None: ...
    def binary(self, op: Op, a: NDArray, b: NDArray, out: NDArray) -> None: ...
    def where(self, condition: NDArray, a: NDArray, b: NDArray, out: NDArray) -> None: ...
    def reduce(self, op: Op, a: NDArray, out: NDArray, axes: tuple[int, ...]) -> None: ...
    def arg_reduce(self, op: Op, a: NDArray, out: NDArray, axis: int) -> None: ...
    def scan(self, op: Op, a: NDArray, out: NDArray, axis: int) -> None: ...
    def matmul(self, a: NDArray, b: NDArray, out: NDArray) -> None: ...
    def take(self, a: NDArray, index: NDArray, out: NDArray) -> None: ...
    def scatter(self, op: Op, a: NDArray, index: NDArray, out: NDArray) -> None: ...
    def random(self, op: Op, out: NDArray, seed: int, counter: int) -> None: ...
    def linear(self, x: NDArray, weight: NDArray, bias: Any, out: NDArray) -> None: ...
    def matmul_weight(self, a: NDArray, weight: NDArray, scale: NDArray | None, out: NDArray) -> None: ...
    def rows(self, op: Op, a: NDArray, out: NDArray) -> None: ...
    def rows_grad(self, op: Op, grad: NDArray, x: NDArray | None, y: NDArray, out: NDArray) -> None: ...
    def cross_entropy(self, logits: NDArray, labels: NDArray, out: NDArray) -> None: ...
    def cross_entropy_grad(self, grad: NDArray, logits: NDArray, labels: NDArray, out: NDArray) -> None: ...
    def norm(
        self,
        op: Op,
        x: NDArray,
        weight: Any,
        bias: Any,
        out: NDArray,
        mean: Any,
        var: Any,
        eps: float,
    ) -> None: ...
    def norm_grad(
        self,
        op: Op,
        grad: NDArray,
        x: NDArray,
        weight: Any,
        mean: Any,
        var: Any,
        dx: Any,
        dweight: Any,
        dbias: Any,
        eps: float,
    ) -> None: ...
    def attention(
        self, q: NDArray, k: NDArray, v: NDArray, mask: Any, out: NDArray, causal: bool, scale: float
    ) -> None: ...
    def attention_grad(
        self,
        grad: NDArray,
        q: NDArray,
        k: NDArray,
        v: NDArray,
        mask: Any,
        dq: NDArray,
        dk: NDArray,
        dv: NDArray,
        causal: bool,
        scale: float,
    ) -> None: ...
    def conv2d(
        self,
        op: Op,
        x: NDArray,
        weight: NDArray,
        y: NDArray,
        stride: _Pair,
        padding: tuple[_Pair, _Pair],
        dilation: _Pair,
        groups: int,
    ) -> None: ...
    def pool2d(
        self, op: Op, x: NDArray, out: NDArray, size: _Pair, stride: _Pair, padding: tuple[_Pair, _Pair]
    ) -> None: ...
    def pool2d_grad(
        self, op: Op, grad: NDArray, x: Any, out: NDArray, size: _Pair, stride: _Pair, padding: tuple[_Pair, _Pair]
    ) -> None: ...
    def cell(
        self,
        op: Op,
        x: NDArray,
        y: NDArray,
        bias: Any,
        state: NDArray,
        h_out: NDArray,
        c_out: Any,
        gates: Any,
    ) -> None: ...
    def cell_grad(
        self,
        op: Op,
        dy: NDArray,
        dh: NDArray,
        dc: Any,
        gates: NDArray,
        state: NDArray,
        c_out: Any,
        dx: Any,
        ds: Any,
        dstate: Any,
    ) -> None: ...
    def sequence(
        self,
        op: Op,
        x: NDArray,
        weight: NDArray,
        bias: Any,
        h: NDArray,
        c: Any,
        gates: Any,
    ) -> None: ...
    def sequence_grad(
        self,
        op: Op,
        dy: NDArray,
        weight: NDArray,
        h: NDArray,
        c: Any,
        gates: Any,
        dx: Any,
        ds: Any,
        dh: NDArray,
        dc: Any,
    ) -> None: ...
    def step(
        self,
        op: Op,
        params: list[NDArray],
        grads: list[NDArray],
        m: list[NDArray] | None,
        v: list[NDArray] | None,
        hyperparameters: tuple[float, ...],
    ) -> None: ...

__all__ = [
    "Backend",
    "INTERFACE_VERSION",
    "Op",
    "REQUIRED",
    "TABLES",
    "UNARY",
    "BINARY",
    "REDUCE",
    "ARG_REDUCE",
    "SCAN",
    "RANDOM",
    "SCATTER",
    "ROWS",
    "NORM",
    "CONV2D",
    "POOL2D",
    "CELL",
    "SEQUENCE",
    "STEP",
]
