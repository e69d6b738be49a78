"""Every op: a class with its formula, and a function."""

from types import FunctionType as _FunctionType
from types import SimpleNamespace as _SimpleNamespace

from needle.ops.arithmetic import *
from needle.ops.choosing import *
from needle.ops.conversion import *
from needle.ops.convolution import *
from needle.ops.extremes import *
from needle.ops.functions import *
from needle.ops.fused import *
from needle.ops.indexing import *
from needle.ops.linalg import *
from needle.ops.network import *
from needle.ops.rearranging import *
from needle.ops.recurrent import *
from needle.ops.reductions import *
from needle.ops.running import *
from needle.ops.shapes import *
from needle.ops.sorting import *
from needle.ops.spelling import any_spelling as _any_spelling
from needle.ops.trigonometry import *
from needle.ops.tuples import *

_SHARED = ("needle.ops.helpers", "needle.ops.spelling")
__all__ = [
    name
    for name, value in list(globals().items())
    if not name.startswith("_")
    and isinstance(value, (type, _FunctionType))
    and value.__module__.startswith("needle.ops.")
    and value.__module__ not in _SHARED
]

#: The functions by the names of arguments that they are defined with: what the engine calls.
PLAIN = _SimpleNamespace(**{name: globals()[name] for name in __all__})
globals().update(
    {name: _any_spelling(value) for name, value in vars(PLAIN).items() if isinstance(value, _FunctionType)}
)

# What the modules import, not what they offer: modules, and the names of types.
_TYPES = "Any Axes Callable ClassVar DTypeLike DeviceLike Key Number Operand Pair Sequence Shape SupportsIndex Tensors annotations"
for _name in ["accumulate", "math", "np", "pairwise", *_TYPES.split()]:
    globals().pop(_name, None)
