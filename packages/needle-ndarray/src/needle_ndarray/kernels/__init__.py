"""Compiled loops of the CPU backend, built from one source for several instruction sets: `kernels/<level>/`.

Importing this package chooses the best level that was built and that this processor runs; NEEDLE_ISA=v2 (v3, v4) overrides.
"""

import os
from typing import Any

from needle_ndarray.buffer import cpu_levels

_HERE = os.path.dirname(__file__)
BUILT = [level for level in ("v2", "v3", "v4", "base") if os.path.isdir(os.path.join(_HERE, level))]
USABLE = [level for level in BUILT if level in cpu_levels()]


def _choose() -> str:
    wanted = os.environ.get("NEEDLE_ISA")
    if wanted is not None and wanted not in USABLE:
        raise ImportError(f"NEEDLE_ISA={wanted}: expected one of {', '.join(USABLE)} (built: {', '.join(BUILT)})")
    if not USABLE:
        raise ImportError(f"needle_ndarray: this processor runs none of the built kernel levels {', '.join(BUILT)}")
    return wanted or USABLE[-1]


LEVEL = _choose()
__path__ = [os.path.join(_HERE, LEVEL)]


def check_ops(ops: dict[str, Any], codes: set[int], source: str) -> None:
    """Raise NotImplementedError where a table has an op whose code the kernel does not know."""
    for op in ops.values():
        if op.code not in codes:
            raise NotImplementedError(f"cpu backend: {op.name}: no loop in {source}")
