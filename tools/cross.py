"""Compile every C file for systems that are not this one, by a Clang from PyPI and with Python's headers; a warning is an error.

    python tools/cross.py SOURCES... --into FOLDER [--target NAME]

SOURCES are folders with a setup.py, whose extensions and flags are taken. Nothing is linked and nothing runs: what is seen here is
what a compiler on such a machine would complain about.
"""

import argparse
import contextlib
import os
import platform
import runpy
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import ziglang


class Unit(NamedTuple):
    """A C file, the folder its paths are relative to, and how it is compiled."""

    folder: Path
    source: str
    flags: tuple[str, ...]


#: name -> further flags. A Mac's compiler and Python's own flags there warn of these; Linux and Windows are held to the same.
TARGETS = {
    "aarch64-macos": [],
    "x86_64-macos": ["-mcpu=x86_64_v3"],
    "aarch64-linux-gnu": [],
    "x86_64-windows-gnu": ["-mcpu=x86_64_v3"],
}
WARNINGS = ["-Wall", "-Wsign-compare", "-Werror", "-Wno-unused-command-line-argument"]

# Linux's pyconfig.h says what is so on a Mac, too, as far as the headers ask. Windows has sizes and threads of its own; this is
# what the headers ask of the one there (PC/pyconfig.h of CPython).
WINDOWS = """
#pragma once
#include <io.h>
#define MS_WIN32 1
#define MS_WIN64 1
#define MS_WINDOWS 1
#define NT_THREADS 1
#define WITH_THREAD 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_OFF_T 4
#define SIZEOF_PID_T 4
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF__BOOL 1
#define ALIGNOF_LONG 4
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_MAX_ALIGN_T 8
#define HAVE_SSIZE_T 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_UINTPTR_T 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_WCHAR_H 1
#define STDC_HEADERS 1
#define HAVE_DECL_ISFINITE 1
#define HAVE_DECL_ISINF 1
#define HAVE_DECL_ISNAN 1
#define PY_FORMAT_SIZE_T "z"
"""


def units(folder: Path) -> list[Unit]:
    """The C files of a package, translated, with the flags of its setup.py; a kernel once, not once per level."""
    given: dict[str, Any] = {}
    with contextlib.chdir(folder), mock.patch("setuptools.setup", given.update):
        runpy.run_path("setup.py")
    found = {}
    for extension in given["ext_modules"]:
        includes = [f"-I{path}" for path in extension.include_dirs]
        flags = [flag for flag in extension.extra_compile_args if not flag.startswith("-march=")]
        (source,) = extension.sources
        found[source] = Unit(folder, source, (*includes, *flags))
    return list(found.values())


def headers(target: str, into: Path) -> Path:
    """A folder with Python's headers as they are for a target."""
    own = Path(sysconfig.get_path("include"))
    if "windows" not in target:
        return own
    folder = into / "include"
    shutil.copytree(own, folder, dirs_exist_ok=True)
    (folder / "pyconfig.h").write_text(WINDOWS)
    return folder


def compile_unit(unit: Unit, target: str, include: Path, out: Path) -> str:
    """What the compiler says; nothing where all is well."""
    zig = Path(ziglang.__file__).parent / "zig"
    command = [str(zig), "cc", "-target", target, *WARNINGS, *TARGETS[target], *unit.flags, f"-I{include}"]
    done = subprocess.run(
        [*command, "-c", unit.source, "-o", str(out)], cwd=unit.folder, capture_output=True, text=True
    )
    return done.stderr if done.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--target", action="append", choices=TARGETS)
    asked = parser.parse_args()
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ["NEEDLE_BUILD_LEVELS"] = "v3"
    into = asked.into.resolve()
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(into / "cache"))
    all_units = [unit for folder in asked.sources for unit in units(folder.resolve())]
    failed = 0
    for target in asked.target or TARGETS:
        objects = into / target
        objects.mkdir(parents=True, exist_ok=True)
        include = headers(target, objects)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [
                pool.submit(compile_unit, unit, target, include, objects / f"{number}.o")
                for number, unit in enumerate(all_units)
            ]
        for unit, job in zip(all_units, jobs, strict=True):
            if job.result():
                failed += 1
                print(f"--- {unit.source} for {target}\n{job.result()}", file=sys.stderr)
        print(f"{target}: {len(all_units)} C files", flush=True)
    if failed:
        sys.exit(f"{failed} did not compile without a warning")


if __name__ == "__main__":
    main()
