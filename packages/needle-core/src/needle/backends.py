"""PyTorch's switches of its backends, which programs set and ask: here they change nothing, results are the same in every run.

>>> import needle as ndl
>>> ndl.backends.cudnn.benchmark = True
>>> ndl.backends.mps.is_available()
False
"""

import sys
from types import ModuleType

from needle.torch_names.devices import is_available as _gpu

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]


def _module(name: str, available: bool | None, **switches: object) -> ModuleType:
    """A module of switches, which `import needle.backends.cudnn` finds."""
    made = ModuleType(f"{__name__}.{name}", "Switches that change nothing.")
    made.is_available = _gpu if available is None else lambda: available  # type: ignore[attr-defined]
    vars(made).update(switches)
    sys.modules[made.__name__] = made
    return made


cudnn = _module("cudnn", None, benchmark=False, deterministic=True, allow_tf32=False, enabled=True)
mps = _module("mps", False, is_built=lambda: False)
mkl, mkldnn, openmp = (_module(name, False) for name in ("mkl", "mkldnn", "openmp"))
cuda = _module("cuda", None, matmul=_module("cuda.matmul", None, allow_tf32=False))
