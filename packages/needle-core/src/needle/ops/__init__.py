"""Every op: a class with its formula, and a function."""

from needle.ops.arithmetic import *
from needle.ops.choosing import *
from needle.ops.conversion import *
from needle.ops.convolution import *
from needle.ops.functions import *
from needle.ops.fused import *
from needle.ops.indexing import *
from needle.ops.linalg import *
from needle.ops.network import *
from needle.ops.recurrent import *
from needle.ops.reductions import *
from needle.ops.shapes import *
from needle.ops.tuples import *

_SHARED = "needle.ops.helpers"
__all__ = [
    name
    for name, value in list(globals().items())
    if not name.startswith("_")
    and getattr(value, "__module__", "").startswith("needle.ops.")
    and value.__module__ != _SHARED
]

del math, np  # noqa: F821  # what the modules import, not what they offer
