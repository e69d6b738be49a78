"""Compile the autograd engine. Everything else of needle-core is plain Python.

NEEDLE_BUILD_OPTIMIZE=0  without optimisation: builds sooner, runs slower
NEEDLE_BUILD_WINDOWS=1  try where nobody has built it
"""

import multiprocessing
import os
import sys

if sys.platform == "win32" and os.environ.get("NEEDLE_BUILD_WINDOWS") != "1":
    sys.exit("needle-core has not been built on Windows yet: use WSL, or try with Clang and NEEDLE_BUILD_WINDOWS=1")

from Cython.Build import cythonize
from setuptools import Extension, setup

DIRECTIVES = {
    "language_level": 3,
    "wraparound": False,  # bounds are checked: lists and tuples come from users
    "nonecheck": True,
    "binding": False,  # plain method descriptors check what self is; Cython's own functions do not
    "embedsignature": True,
    "embedsignature.format": "clinic",  # what inspect.signature reads
}
WARN = ["-Wno-unused-function"]  # Cython writes more than a module needs
# Tensors are made by compiled code, for which Cython's other way of making objects is a detour.
COMPILE = ["-g0", "-DCYTHON_VECTORCALL_TPNEW=0", *WARN]
# Fields that were just written one by one are read: loads of two at a time would wait for the stores.
COMPILE += ["-fno-tree-slp-vectorize", "-falign-functions=64"]
ENGINE = [
    "values",
    "recording",
    "memory",
    "topology",
    "backward",
    "tensor",
    "arguments",
    "dtype_rules",
    "modes",
    "operators",
    "guards",
    "replaying",
    "tracing",
]

# What every recorded operation goes through is compiled with -O3, the other modules with -O2; with -O1, `a + b` takes 1.1 of
# the time.
FAST = {"values", "recording", "backward"}


def optimize(name):
    """The compiler's flag, at a level that the environment may choose instead."""
    return f"-O{os.environ.get('NEEDLE_BUILD_OPTIMIZE', 3 if name in FAST else 2)}"


extensions = [
    Extension(
        f"needle.autograd.{name}", [f"src/needle/autograd/{name}.pyx"], extra_compile_args=[*COMPILE, optimize(name)]
    )
    for name in ENGINE
]
CORES = os.cpu_count() or 1
# Cython's processes come from a fork: started in another way each would run this file again
TRANSLATORS = CORES if multiprocessing.get_start_method() == "fork" else 0
setup(
    ext_modules=cythonize(extensions, include_path=["src"], compiler_directives=DIRECTIVES, nthreads=TRANSLATORS),
    options={"build_ext": {"parallel": CORES}},
)
