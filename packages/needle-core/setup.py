"""Compile the autograd engine. Everything else of needle-core is plain Python.

NEEDLE_BUILD_OPTIMIZE=0  without optimisation: builds sooner, runs slower
"""

import os

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
COMPILE = ["-O" + os.environ.get("NEEDLE_BUILD_OPTIMIZE", "3"), "-g0"]
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

extensions = [
    Extension(f"needle.autograd.{name}", [f"src/needle/autograd/{name}.pyx"], extra_compile_args=COMPILE)
    for name in ENGINE
]
setup(ext_modules=cythonize(extensions, include_path=["src"], compiler_directives=DIRECTIVES))
