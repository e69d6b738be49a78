"""Compile the autograd engine. Everything else of needle-core is plain Python."""

from Cython.Build import cythonize
from setuptools import Extension, setup

DIRECTIVES = {
    "language_level": 3,
    "wraparound": False,  # bounds are checked: lists and tuples come from users
    "nonecheck": True,
    "binding": False,  # plain method descriptors check what self is; Cython's own functions do not
    "embedsignature": True,
}
ENGINE = Extension("needle.autograd", ["src/needle/autograd.pyx"], extra_compile_args=["-O3", "-g0"])

setup(ext_modules=cythonize([ENGINE], include_path=["src"], compiler_directives=DIRECTIVES))
