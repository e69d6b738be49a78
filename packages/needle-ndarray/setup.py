"""Compile the Cython modules: the kernels once per instruction-set level, everything else once.

NEEDLE_BUILD_LEVELS   comma list out of v2, v3, v4 (x86-64 levels); default: all three
NEEDLE_BUILD_OPTIMIZE=0  without optimisation: builds sooner, runs slower
NEEDLE_BUILD_WINDOWS=1  try where nobody has built it
NEEDLE_BUILD_DEBUG=1  bounds checks, AddressSanitizer and UBSan, one level
"""

import multiprocessing
import os
import platform
import sys
from copy import copy
from pathlib import Path

if sys.platform == "win32" and os.environ.get("NEEDLE_BUILD_WINDOWS") != "1":
    sys.exit("needle-ndarray has not been built on Windows yet: use WSL, or try with Clang and NEEDLE_BUILD_WINDOWS=1")

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Cython's processes come from a fork: started in another way each would run this file again
TRANSLATORS = (os.cpu_count() or 1) if multiprocessing.get_start_method() == "fork" else 0
DEBUG = os.environ.get("NEEDLE_BUILD_DEBUG") == "1"
ROOT = "src/needle_ndarray"
# Cython's own code for memoryviews: once, instead of 8,000 lines of C in every module.
SHARED = "needle_ndarray._memoryviews"
MODULES = ["buffer", "backend", "threads", "blas", "interop", "extension", "replay", "prepared", "capture.tape"]
MODULES += ["ndarray", "layout", "operands", "dispatch", "geometry", "norms", "rules"]  # the array
MODULES += ["optimizer_steps"]
CPU_BACKEND = ["backend", "calls", "convolution", "network", "optimizers", "recurrent"]
KERNELS = [
    "ewise",
    "vector_math",
    "staging",
    "strided",
    "reduce",
    "scan",
    "gemm",
    "matmul",
    "index",
    "random",
    "nn",
    "norm",
    "attention",
    "conv",
    "direct",
    "epilogue",
    "pool",
    "optim",
    "recurrent",
    "selftest",
]
# Modules that are not kernels, and with which -O they are compiled; -O2 but for those named here.
# What most calls go through: beside -O2 a product of 8x8 takes 0.9 of the time, `where` 0.85.
FAST = {"buffer", "layout", "operands", "dispatch", "rules", "cpu_backend.calls"}
# Tables that are read once, and what is called a few times per array of NumPy's or captured function: not slower with -O1
RARE = {"backend", "interop", "capture.tape", "threads", "blas"}
X86_LEVELS = {"v2": "-march=x86-64-v2", "v3": "-march=x86-64-v3", "v4": "-march=x86-64-v4"}

# Wrapping integers and no errno: what NumPy does. No contraction: multiplications and additions are fused only where a kernel asks
# for it (products, vector mathematics), so v2, which cannot, differs in the last bits of those and in nothing else.
COMPILE = [
    "-fwrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fopenmp-simd",  # loops as vectors; threads are our own (thread_pool.h)
    "-Wno-unused-function",
    "-Wno-tautological-compare",
    "-DCYTHON_VECTORCALL_TPNEW=0",  # arrays are made by compiled code, for which Cython's other way is a detour
]
COMPILE += ["-g1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"] if DEBUG else ["-g0"]
# What is not a kernel reads fields that it has just written one by one: loads of two at a time would wait for the stores.
CALLS = ["-fno-tree-slp-vectorize", "-falign-functions=64"]
LINK = ["-fsanitize=address,undefined"] if DEBUG else []
# Lists and tuples come from users, so their bounds are checked; loops of the kernels run over memory that was.
# A kernel's memoryviews belong to no object (kernels/memoryviews.pxd): there is none to look for.
KERNEL_DIRECTIVES = {"boundscheck": DEBUG, "initializedcheck": False, "nonecheck": False}
DIRECTIVES = {
    "language_level": 3,
    "wraparound": False,
    "cdivision": True,
    "nonecheck": True,
    "binding": False,  # plain method descriptors check what self is; Cython's own functions do not
    "embedsignature": True,
    "embedsignature.format": "clinic",  # what inspect.signature reads
}


def kernel_levels():
    """{level: compiler flags} of the kernels to build; machines other than x86-64 have one level, 'base'."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return {"base": []}
    wanted = os.environ.get("NEEDLE_BUILD_LEVELS", "v2" if DEBUG else ",".join(X86_LEVELS)).split(",")
    unknown = set(wanted) - set(X86_LEVELS)
    if unknown:
        sys.exit(f"NEEDLE_BUILD_LEVELS: {', '.join(unknown)}: expected names out of {', '.join(X86_LEVELS)}")
    return {level: [X86_LEVELS[level]] for level in wanted}


def optimize(level):
    """The compiler's flag, at a level that the environment may choose instead."""
    return "-O0" if DEBUG else f"-O{os.environ.get('NEEDLE_BUILD_OPTIMIZE', level)}"


KERNEL_FLAGS = {
    "selftest": ["-O0"],  # Python that calls kernels
    # -O3 would repeat what is left after the last whole vector up to 16 times: half of the machine code, for nothing.
    "ewise": [optimize(2), "-ftree-vectorize", "-fvect-cost-model", "-Wno-ignored-optimization-argument"],
}


def extension(name, source, flags=()):
    libraries = [] if sys.platform == "win32" else ["m", "pthread"]
    return Extension(
        name,
        [source],
        include_dirs=[ROOT, f"{ROOT}/kernels"],
        depends=sorted(str(path) for path in Path(source).parent.glob("*.h")),
        extra_compile_args=[*COMPILE, *flags],
        extra_link_args=LINK,
        libraries=libraries,
    )


def translate(pyx, directives):
    return cythonize(
        pyx,
        include_path=["src"],
        compiler_directives=directives,
        nthreads=TRANSLATORS,
        shared_utility_qualified_name=SHARED,
    )


def extensions():
    """One C file per .pyx; a kernel's C file is compiled once per level into kernels/<level>/."""
    modules = [
        extension(
            f"needle_ndarray.{name}",
            f"{ROOT}/{name.replace('.', '/')}.pyx",
            [*CALLS, optimize(3 if name in FAST else 1 if name in RARE else 2)],
        )
        for name in [*MODULES, *(f"cpu_backend.{name}" for name in CPU_BACKEND)]
    ]
    shared = Extension(
        SHARED, [f"{ROOT}/_memoryviews.c"], extra_compile_args=[*COMPILE, optimize(1)], extra_link_args=LINK
    )
    once = translate([*modules, shared], DIRECTIVES)
    kernels = [extension(f"needle_ndarray.kernels.{name}", f"{ROOT}/kernels/{name}.pyx") for name in KERNELS]
    translate(kernels, DIRECTIVES | KERNEL_DIRECTIVES)
    kernels = [
        extension(
            f"needle_ndarray.kernels.{level}.{name}",
            f"{ROOT}/kernels/{name}.c",
            [*flags, *KERNEL_FLAGS.get(name, [optimize(3)])],
        )
        for level, flags in kernel_levels().items()
        for name in KERNELS
    ]
    # The longest first: the cores then end together.
    return sorted(once + kernels, key=lambda ext: Path(ext.sources[0]).stat().st_size, reverse=True)


class ParallelBuild(build_ext):
    """build_ext on every core: the kernels take most of the time and are independent."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext):
        # The levels of a kernel share a C file: each extension gets a folder of its own for its objects.
        one = copy(self)
        one.build_temp = str(Path(self.build_temp) / ext.name)
        build_ext.build_extension(one, ext)

    def copy_extensions_to_source(self):
        for ext in self.extensions:  # kernels/<level>/ are made by the build
            Path("src", *ext.name.split(".")[:-1]).mkdir(exist_ok=True)
        super().copy_extensions_to_source()


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
