"""Compiled loops of the CPU backend, built from one source for several instruction sets: `kernels/<level>/`.

Importing this package chooses the best level that was built and that this processor runs; NEEDLE_ISA=v2 (v3, v4) overrides.
"""

import os
from importlib import import_module

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


def _load_openmp() -> None:
    """Say to GNU's OpenMP how idle threads wait, before the first kernel loads it; it looks at the environment once.

    Left alone they spin for milliseconds. Where another process wants the core, that made a small train step ten times slower;
    some microseconds bridge the gap to the next parallel region as well. OMP_WAIT_POLICY and GOMP_SPINCOUNT overrule.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return
    os.environ["GOMP_SPINCOUNT"] = "1000"
    try:
        import_module(f"{__name__}.strided")
    finally:
        del os.environ["GOMP_SPINCOUNT"]


_load_openmp()
