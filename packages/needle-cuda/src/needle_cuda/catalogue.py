"""Every module that the backend may ask for: a file, a dtype, and what else is defined. Tests compile them all."""

from needle_ndarray.backend import ARG_REDUCE, BINARY, RANDOM, REDUCE, UNARY, Op
from needle_ndarray.extension import DTYPES

NAMES = [str(each) for each in DTYPES if not each.is_half]
STORED = [str(each) for each in DTYPES]  # with float16 and bfloat16, which are only moved and cast
FLOATS = ["float32", "float64"]
NETWORK = ["attention.cu", "conv.cu", "nn.cu", "norm.cu", "optim.cu", "pool.cu", "recurrent.cu"]

Module = tuple[str, str, tuple[str, ...]]


def modules() -> list[Module]:
    """(file, dtype, defines) of each."""
    return [
        *_per_op("ewise.cu", "UNARY_OP", UNARY),
        *_per_op("ewise.cu", "BINARY_OP", BINARY),
        *_per_dtype("ewise.cu", NAMES),
        *_per_dtype("strided.cu", STORED),
        *[("strided.cu", dtype, (f"S_{source.upper()}",)) for dtype in STORED for source in STORED],
        *_per_op("reduce.cu", "REDUCE_OP", REDUCE | ARG_REDUCE),
        *_per_dtype("reduce.cu", ["int64", *FLOATS]),
        *_per_dtype("index.cu", STORED),
        *_per_dtype("random.cu", accepted(RANDOM["uniform"])),
        *_per_dtype("matmul.cu", ["uint8", "int32", "int64", *FLOATS]),
        *[module for file in NETWORK for module in _per_dtype(file, FLOATS)],
    ]


def accepted(op: Op) -> list[str]:
    """The dtypes that an op computes in."""
    return [str(each) for each in DTYPES if op.compute_dtype[each.code] == each.code]


def _per_op(file: str, macro: str, table: dict[str, Op]) -> list[Module]:
    return [(file, dtype, (f"{macro}={op.name}",)) for op in table.values() for dtype in accepted(op)]


def _per_dtype(file: str, dtypes: list[str]) -> list[Module]:
    return [(file, dtype, ()) for dtype in dtypes]
