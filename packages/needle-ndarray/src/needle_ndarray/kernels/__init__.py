"""Compiled loops of the CPU backend, built from one source for several instruction sets: `kernels/<level>/`.

Importing this package chooses the best level that was built and that this processor runs; NEEDLE_ISA=v2 (v3, v4) overrides. v4
is compared with v3 when the first kernel is needed, and refused if one family of kernels gives other results.
"""

import os
import sys
from _thread import RLock  # threading is not imported by NumPy
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
#: Levels whose kernels have run on few machines: used where nobody asks for them only if they give what the next lower one gives.
UNPROVEN = {"v4"}
#: What is compared, see selftest.pyx: every level makes the same bits of these ...
EXACT = ("moved", "reduced", "drawn", "stepped")
#: ... and of these, which have vector mathematics, every level that fuses its multiplications and additions ...
FUSED_EXACT = ("elementwise", "rows")
#: ... and nearly the same numbers of these, as products sum up in an order of their own.
NEAR = ("products", "attended", "windows", "recurrences")
FAMILIES = EXACT + FUSED_EXACT + NEAR
_settled = False
_settling = RLock()  # no thread may import kernels while another one exchanges them


def _load(level: str) -> dict[str, Any]:
    """The modules of a level, {name: module}, which others of these names replace when they are imported next."""
    from importlib import import_module

    prefix = f"{__name__}."
    __path__[:] = [os.path.join(_HERE, level)]
    import_module(f"{prefix}selftest")
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(prefix)}


def _results(modules: dict[str, Any]) -> dict[str, list[Any]]:
    return modules[f"{__name__}.selftest"].results()


def fuses(level: str) -> bool:
    """Whether kernels of a level fuse multiplications and additions: x86-64 with AVX2, 64-bit ARM."""
    import platform

    return level in ("v3", "v4") or (level == "base" and platform.machine().lower() in ("aarch64", "arm64"))


def difference(
    results: dict[str, list[Any]], proven: dict[str, list[Any]], exact: tuple[str, ...] = EXACT + FUSED_EXACT
) -> str | None:
    """The first family of which the arrays of a level are not the proven ones."""
    import numpy as np

    for family, expected in proven.items():
        for got, wanted in zip(results[family], expected, strict=True):
            if family in exact:
                same = np.array_equal(got, wanted, equal_nan=wanted.dtype.kind == "f")
            else:  # sums of some dozen products of numbers below 10
                atol = 1e-3 if wanted.dtype.itemsize == 4 else 1e-9
                same = np.allclose(got, wanted, rtol=1e-4, atol=atol, equal_nan=wanted.dtype.kind == "f")
            if not same:
                return family
    return None


def settle() -> str:
    """The level that is used, decided before the first kernel runs: an unproven one is compared with the next lower one."""
    global LEVEL, _settled
    with _settling:
        if not _settled and LEVEL in UNPROVEN and "NEEDLE_ISA" not in os.environ and USABLE[0] != LEVEL:
            LEVEL = _proven(LEVEL, USABLE[USABLE.index(LEVEL) - 1])
        _settled = True
    return LEVEL


def _proven(unproven: str, proven: str) -> str:
    """The level whose modules are left to be used: the unproven one if its results are right, else the other, with a warning."""
    modules = {level: _load(level) for level in (proven, unproven)}
    exact = EXACT + FUSED_EXACT if fuses(proven) == fuses(unproven) else EXACT
    wrong = difference(_results(modules[unproven]), _results(modules[proven]), exact)
    level = unproven
    if wrong:
        import warnings

        level = proven
        message = (
            f"needle_ndarray: {unproven} kernels give other results than {proven} kernels ({wrong}): {proven} is used"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    __path__[:] = [os.path.join(_HERE, level)]
    sys.modules.update(modules[level])
    return level


def check_ops(ops: dict[str, Any], codes: set[int], source: str) -> None:
    """Raise NotImplementedError where a table has an op whose code the kernel does not know."""
    for op in ops.values():
        if op.code not in codes:
            raise NotImplementedError(f"cpu backend: {op.name}: no loop in {source}")
