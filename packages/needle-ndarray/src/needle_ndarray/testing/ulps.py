"""How far functions of float32 are from what float64 gives, in units in the last place: of all 2^32 numbers, or of every n-th.

python -m needle_ndarray.testing.ulps [--step N] [OP ...]
"""

import argparse
import math
import sys
import time

import numpy as np

import needle_ndarray as nd
from needle_ndarray.backend import UNARY
from needle_ndarray.testing.oracle import MATH, ULPS, WIDER

CHUNK = 1 << 20
#: x times what need not be a normal number: up to 1024 times the smallest normal number, a unit is what it is there.
SCALED = {"gelu", "silu"}


def _gelu(x: np.ndarray) -> np.ndarray:
    """x erfc(z) / 2 with z = -x / sqrt 2, and with what z loses when it is made a double"""
    z = -x / np.sqrt(x.dtype.type(2))
    near = z.astype(np.float64)
    lost = np.where(np.isfinite(x), z - near, 0) * (2 / math.sqrt(math.pi)) * np.exp(-near * near)
    return x * (np.array([math.erfc(v) for v in near.tolist()], x.dtype) - lost) / 2


#: Functions that take and return arrays in wider precision.
REFERENCES = {name: MATH[name] for name in UNARY if name in MATH} | {
    "gelu": _gelu,
    "silu": lambda x: x * MATH["sigmoid"](x),
}


def float32_numbers(start: int, count: int, step: int = 1) -> np.ndarray:
    """The float32 whose bits are start, start + step, ..."""
    return (
        (np.arange(start, start + count * step, step, dtype=np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    )


def ulps(got: np.ndarray, wide: np.ndarray, least: float = 0) -> np.ndarray:
    """|got - wide| in units in the last place of what `wide` rounds to, or of `least`; infinite where only one is NaN."""
    with np.errstate(all="ignore"):
        rounded = wide.astype(got.dtype)
        info = np.finfo(got.dtype)
        unit = np.minimum(np.spacing(np.clip(np.abs(rounded), info.dtype.type(least), info.max)), info.max).astype(
            wide.dtype
        )
        finite = np.clip(
            got.astype(wide.dtype), info.min, info.max
        )  # the step from the largest number to infinity is one unit
        error = np.abs(finite - np.clip(wide, info.min, info.max)) / unit + (np.isinf(got) & np.isfinite(rounded))
    error = np.where((got == rounded) & ~np.isfinite(rounded), 0, error)
    wrong_zero = (wide == 0) & (np.signbit(got) != np.signbit(wide))
    both = np.isnan(got) & np.isnan(rounded)
    return np.where(both, 0, np.where(np.isnan(error) | wrong_zero, np.inf, error))


def worst(op: str, x: np.ndarray) -> tuple[float, float]:
    """The largest error of an op among the elements of x, and where it is."""
    with np.errstate(all="ignore"):
        wide = REFERENCES[op](x.astype(WIDER[x.dtype.name]))
    least = 1024 * float(np.finfo(x.dtype).tiny) if op in SCALED else 0
    errors = ulps(getattr(nd, op)(nd.array(x, x.dtype.name, nd.cpu())).numpy(), wide, least)
    at = int(np.argmax(errors))
    return float(errors[at]), float(x[at])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="ulps", description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"some of: {' '.join(REFERENCES)} (default: all)")
    parser.add_argument("--step", type=int, default=1, metavar="N", help="every N-th number only")
    given = parser.parse_args(arguments)
    if given.step < 1:
        parser.error(f"--step {given.step}: expected 1 or more")
    if unknown := [op for op in given.ops if op not in REFERENCES]:
        parser.error(f"{' '.join(unknown)}: expected some of {' '.join(REFERENCES)}")
    failed = False
    for op in given.ops or REFERENCES:
        start, found = time.perf_counter(), (0.0, 0.0)
        for first in range(0, 1 << 32, CHUNK * given.step):
            found = max(found, worst(op, float32_numbers(first, CHUNK, given.step)))
        failed |= not found[0] <= ULPS
        print(f"{op:8} {found[0]:6.3f} ulp at {found[1]!r} ({time.perf_counter() - start:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
