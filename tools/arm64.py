"""Build needle-ndarray and needle-core for 64-bit ARM with Linux and run tests of theirs on an emulated processor.

    python tools/arm64.py NDARRAY CORE --into FOLDER [--pytest ARGUMENTS]

NDARRAY and CORE are clean copies of the packages. Python is Debian's, NumPy, OpenBLAS and the compiler (ziglang) are PyPI's, and
qemu-user runs it all without a container: `apt install mmdebstrap qemu-user-static`, or unpack the two on PATH.
"""

import argparse
import contextlib
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import ziglang

SUITE = "bookworm"
PYTHON = "3.11"  # of that Debian
WHEELS = [
    "numpy",
    "scipy-openblas32",
    "pytest>=8",
    "hypothesis>=6.100",
    "array-api-strict>=2.4",
    "setuptools>=77",
    "cython>=3.2,<4",
]
PLATFORMS = ["manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64"]
#: With the processor that qemu calls `max`, kernels of OpenBLAS for SVE give NaN.
PROCESSOR = "cortex-a72"
#: (folder of tests, files, arguments): each line is a process of its own.
SUITES = [
    ("needle-ndarray", ["test_contract", "test_views"], []),
    ("needle-ndarray", ["test_matmul_cpu", "test_short_rows", "test_fused", "test_threads"], []),
    ("needle-core", ["test_ops"], ["-k", "forward and cpu and not cpu_numpy"]),
]
ROOT = Path(__file__).resolve().parent.parent


def tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        sys.exit(f"{name} is not installed: apt install mmdebstrap qemu-user-static")
    return found


def debian(into: Path) -> Path:
    """A folder with Debian's Python for ARM, unpacked only: nothing of it has run."""
    root = into / "root"
    if not root.exists():
        unfinished = into / "root.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        wanted = f"--include=python3,libpython{PYTHON}-dev,libstdc++6"
        subprocess.run(
            [tool("mmdebstrap"), "-q", "--variant=extract", "--arch=arm64", wanted, SUITE, unfinished], check=True
        )
        unfinished.rename(root)
    return root


def packages(into: Path) -> Path:
    """A folder with the wheels for ARM that the two packages and their tests need."""
    site = into / "site"
    if not site.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(into / "site.new")]
        command += ["--python-version", PYTHON, "--only-binary=:all:"]
        subprocess.run([*command, *(f"--platform={name}" for name in PLATFORMS), *WHEELS], check=True)
        (into / "site.new").rename(site)
    return site


def headers(into: Path, root: Path) -> Path:
    """Debian's headers of Python alone: those of C are the compiler's."""
    folder = into / "include"
    folder.mkdir(exist_ok=True)
    for name in (f"python{PYTHON}", "aarch64-linux-gnu"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(root / "usr/include" / name)
    return folder


class Machine:
    """An ARM machine's Python: qemu reads its programs and libraries from Debian's root, its files are those of this machine."""

    def __init__(self, into: Path, sources: list[Path]):
        root = debian(into)
        self.python = [
            tool("qemu-aarch64-static"),
            "-cpu",
            PROCESSOR,
            "-L",
            str(root),
            str(root / f"usr/bin/python{PYTHON}"),
        ]
        # what sys.executable becomes: a process of an ARM program can be started by qemu alone
        started = into / "started"
        started.mkdir(exist_ok=True)
        (started / "python").write_text(f'#!/bin/sh\nexec {shlex.join(self.python)} "$@"\n')
        (started / "python").chmod(0o755)
        (started / "sitecustomize.py").write_text(f"import sys\n\nsys.executable = {str(started / 'python')!r}\n")
        include = headers(into, root)
        zig = Path(ziglang.__file__).parent / "zig"
        compiler = into / "cc"  # runs on this machine: the emulated process starts it like any other
        compiler.write_text(f'#!/bin/sh\nexec {shlex.quote(str(zig))} cc -target aarch64-linux-gnu.2.36 "$@"\n')
        compiler.chmod(0o755)
        paths = [started, packages(into), *(source / "src" for source in sources)]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CC": str(compiler),
            "LDSHARED": f"{compiler} -shared",
            "CFLAGS": f"-I{include}/python{PYTHON} -I{include} -Wall -Werror -Wno-unused-function -Wno-tautological-compare",
            "NEEDLE_HYPOTHESIS": "small",
        }

    def run(self, *arguments: str, folder: Path = ROOT) -> int:
        return subprocess.run([*self.python, *arguments], cwd=folder, env=self.environment).returncode


def translate(source: Path) -> None:
    """Cython's part of the build, which is the same on every machine, without an emulation."""
    with contextlib.chdir(source), mock.patch("setuptools.setup"):
        runpy.run_path("setup.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs=2, type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="its arguments, instead of the suites")
    asked = parser.parse_args()
    sources = [source.resolve() for source in asked.sources]
    into = asked.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    machine = Machine(into, sources)
    for source in sources:
        translate(source)
        if machine.run("setup.py", "-q", "egg_info", "build_ext", "--inplace", folder=source):
            sys.exit(f"{source} does not build for ARM")
    told = "import platform, needle as ndl; print(platform.machine(), ndl.cpu(), ndl.Tensor([1.0, 2.0]).sum())"
    if machine.run("-c", told):
        sys.exit("needle cannot be imported")
    common = [
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        "-m",
        "not parity and not slow",
        "-p",
        "no:xdist",
    ]
    runs = (
        [asked.pytest]
        if asked.pytest
        else [
            [*(str(ROOT / "packages" / package / "tests" / f"{name}.py") for name in names), *arguments]
            for package, names, arguments in SUITES
        ]
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = sum(1 for code in pool.map(lambda run: machine.run(*common, *run), runs) if code)
    if failed:
        sys.exit(f"{failed} of {len(runs)} runs failed")


if __name__ == "__main__":
    main()
