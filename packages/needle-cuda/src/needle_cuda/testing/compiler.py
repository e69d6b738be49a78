"""Compiles CUDA text with g++, once: what is compiled is kept in a private folder, by a hash of all it depends on."""

import hashlib
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .settings import settings

HERE = Path(__file__).parent / "cpp"
FLAGS = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fstack-clash-protection",
    "-fvisibility=hidden",
    "-w",
)
RUNTIME_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-Wall")
# Every load and store calls the function ThreadSanitizer would have; checks.cpp has them instead.
CHECKED_FLAGS = ("-g1", "-gdwarf-4", "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0")
COMPILER = os.environ.get("CXX", "g++")


class CompileError(Exception):
    """The compiler's message."""


class KernelText(NamedTuple):
    """A kernel as its text declares it."""

    name: str
    parameters: tuple[str, ...]
    bounds: str  # an expression of __launch_bounds__, or nothing


# ---- From CUDA to C++ ---------------------------------------------------------------------------------------------

_BOUNDS = r"(?:__launch_bounds__\s*\((?P<bounds{0}>(?:[^()]|\([^()]*\))*)\)\s*)?"
_KERNEL = re.compile(
    rf"__global__\s+{_BOUNDS.format(1)}void\s+{_BOUNDS.format(2)}(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)"
)
_ALIGNED = r"(?:(?:alignas|__align__)\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
_DYNAMIC = re.compile(rf"extern\s+__shared__\s+{_ALIGNED}([\w\s:<>,]+?)\s*\b(\w+)\s*\[\s*\]\s*;")
_SHARED = re.compile(rf"__shared__\s+{_ALIGNED}([^;]+);")
_DECLARATOR = re.compile(r"(?P<type>.*?)\b(?P<name>\w+)\s*(?P<sizes>(?:\[[^\]]*\]\s*)*)$", re.S)


def _split(text: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    depth, pieces = 0, [""]
    for letter in text:
        depth += letter in "(<[{"
        depth -= letter in ")>]}"
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces if piece.strip()]


def _shared(match: re.Match[str]) -> str:
    """One or more variables of shared memory become references into the block's arena."""
    kind, out = "", []
    for piece in _split(match[2]):
        found = _DECLARATOR.match(piece)
        if found is None:
            raise CompileError(f"the emulation does not understand `{match[0]}`")
        kind = found["type"].strip() or kind
        name, sizes = found["name"], found["sizes"]
        out.append(
            f"typedef {kind} needle_type_{name}{sizes}; static emulator::Site needle_site_{name}; "
            f"needle_type_{name}& {name} = *(needle_type_{name}*)emulator::emulator_shared("
            f'&needle_site_{name}, sizeof(needle_type_{name}), {match[1] or f"alignof(needle_type_{name})"}, "{name}");'
        )
    return " ".join(out)


def translate(text: str, checked: bool) -> str:
    """C++ for the shim, from text that has been preprocessed, with a table of its kernels; lines stay where they are."""
    kernels = []

    def rename(match: re.Match[str]) -> str:
        names = tuple(piece.rstrip("[] ").split()[-1].lstrip("*&") for piece in _split(match["parameters"]))
        bounds = _split(match["bounds1"] or match["bounds2"] or "")
        kernels.append(KernelText(match["name"], names, bounds[0] if bounds else ""))
        return f"void needle_kernel_{match['name']}({match['parameters']})"

    text = _KERNEL.sub(rename, text)
    if "__global__" in text:
        raise CompileError(
            "the emulation does not understand a declaration with __global__: it has to be `void name(...)`"
        )
    text = _DYNAMIC.sub(r"\2* \3 = (\2*)emulator::emulator_dynamic_shared();", text)
    text = _SHARED.sub(_shared, text)
    rows = "".join(
        f'    emulator::kernel("{name}", &needle_kernel_{name}, "{",".join(names)}", '
        f"{bounds or 'emulator::MAX_THREADS'}, {int(checked)}),\n"
        for name, names, bounds in kernels
    )
    table = f'\nextern "C" __attribute__((visibility("default"))) emulator::Kernel needle_kernels[] = {{\n{rows}    {{}}}};\n'
    return '#include "shim.h"\n' + text + table


# ---- Running the compiler --------------------------------------------------------------------------------------------


def run(*command: str, text: str | None = None) -> str:
    try:
        done = subprocess.run([COMPILER, *command], input=text, capture_output=True, text=True)
    except FileNotFoundError:
        raise CompileError(f"the emulation needs a C++ compiler: {COMPILER} was not found") from None
    if done.returncode:
        raise CompileError(done.stderr.strip())
    return done.stdout


@cache
def compiler_version() -> str:
    return run("-dumpfullversion", "-dumpmachine")


@cache
def headers() -> str:
    return "".join(path.read_text() for path in sorted(HERE.glob("*.[hc]*")))


def folder() -> Path:
    """The folder of compiled kernels. Its files are loaded as code, so nobody else may write there."""
    if not hasattr(os, "getuid"):
        raise CompileError("CUDA's emulation needs Linux or macOS; on Windows it runs within WSL")
    path = Path(settings.cache or Path(tempfile.gettempdir()) / f"needle-cuda-emulation-{os.getuid()}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path}: others can write to the folder of compiled kernels; remove it or chmod 700 it")
    return path


def once(key: Sequence[str], suffix: str, make) -> Path:
    """The file of this key, made by `make(path)` unless it is there; processes that want it together wait for one."""
    name = hashlib.sha256(repr((compiler_version(), headers(), tuple(key))).encode()).hexdigest()[:24]
    path = folder() / (name + suffix)
    if path.exists():
        return path
    import fcntl  # which Windows does not have

    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_suffix(f".{os.getpid()}.new")
            try:
                make(unfinished)
                unfinished.rename(path)
            finally:
                unfinished.unlink(missing_ok=True)
    return path


def runtime_library() -> Path:
    sources = [str(path) for path in sorted(HERE.glob("*.cpp"))]
    return once(("runtime", *RUNTIME_FLAGS), ".so", lambda path: run(*RUNTIME_FLAGS, *sources, "-o", str(path)))


def kernel_library(code: str, options: Sequence[str], checked: bool) -> Path:
    """The shared library of one kernel module."""
    defines = [option for option in options if option.startswith(("-D", "-U"))]
    flags = (*FLAGS, *(CHECKED_FLAGS if checked else ()))

    def make(path: Path) -> None:
        preprocessed = run("-E", "-x", "c++", "-std=c++17", "-nostdinc", *defines, "-D__CUDACC_RTC__", "-", text=code)
        text = translate(preprocessed, checked)
        piece = path.with_suffix(".o")
        try:
            run(*flags, "-x", "c++", "-c", "-I", str(HERE), "-o", str(piece), "-", text=text)
            run("-shared", str(piece), "-o", str(path))
        finally:
            piece.unlink(missing_ok=True)

    return once((code, *defines, *flags), ".so", make)


def line_of(path: Path, address: str) -> str:
    """The line of the text that an instruction of a checked library comes from, as far as addr2line is there to say."""
    try:
        found = subprocess.run(["addr2line", "-i", "-e", str(path), address], capture_output=True, text=True).stdout
    except FileNotFoundError:
        found = ""
    for frame in found.splitlines():  # the innermost first; atomics are inlined from the shim
        file, _, line = frame.partition(" ")[0].rpartition(":")
        if line.isdigit() and Path(file).parent != HERE:
            return f"line {line} of {Path(file).name}"
    return "a line"
