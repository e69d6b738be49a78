"""A Python without what Windows does not have: every module imports, and a program trains, writes, locks and reads.

Run in a process of its own by test_other_systems.py. It is not Windows:
what is absent or refuses there is absent or refuses here.
"""

import asyncio  # noqa: F401  the standard library has made its choices before `sys.platform` changes
import builtins
import fcntl
import http.server  # noqa: F401
import importlib
import multiprocessing.pool  # noqa: F401
import os
import pkgutil
import re
import selectors  # noqa: F401
import signal
import socket  # noqa: F401
import subprocess  # noqa: F401
import sys
import types
import uuid  # noqa: F401
from pathlib import Path

import numpy as np

MODULES = {"fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty"}
OF_OS = "O_CLOEXEC O_NONBLOCK O_NOFOLLOW fork getuid geteuid killpg pread preadv pwrite sched_getaffinity setsid sysconf uname"
OF_SIGNAL = "SIGKILL SIGALRM SIGHUP SIGUSR1 alarm setitimer"
EXTRAS = {"mpi4py", "onnx", "PIL", "datasets", "pyarrow", "pytest", "hypothesis"}
EXCEPT = r"\.testing|\.chapter|__main__|\.v\d\.|distributed\.(mpi|nccl)"
real_import, real_open, real_fsync = builtins.__import__, os.open, os.fsync


def import_module(name, *args, **kwargs):
    if name.partition(".")[0] in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real_import(name, *args, **kwargs)


def open_file(path, *args, **kwargs):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return real_open(path, *args, **kwargs)


def fsync(handle):
    assert fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE, "flushed through a handle that only reads"
    real_fsync(handle)


def kill(process, number):
    raise AssertionError("os.kill ends the process on Windows, whatever the signal")


def locking(handle, mode, count):
    """msvcrt.locking: at the handle's place, and for one handle alone."""
    assert (mode, count) == (2, 1) and os.lseek(handle, 0, os.SEEK_CUR) > 1 << 20
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def take_away():
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names.split():
            delattr(module, name)
    builtins.__import__, os.open, os.fsync, os.kill = import_module, open_file, fsync, kill
    sys.platform = "win32"


def import_optional(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert (error.name or "").partition(".")[0] in EXTRAS, name


def import_everything():
    """Every module but those of tests, students' text, programs, and libraries of ranks, which load themselves."""
    import needle

    needle.cpu()
    for root in ("needle_ndarray", "needle", "needle_nn"):
        found = pkgutil.walk_packages(importlib.import_module(root).__path__, f"{root}.")
        for module in found:
            if not re.search(EXCEPT, module.name):
                import_optional(module.name)


def train():
    import needle as ndl
    import needle.nn as nn

    model = nn.Linear(3, 2)
    optimizer = ndl.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.reset_grad()
        (model(ndl.Tensor(np.ones((4, 3)))) ** 2).sum().backward()
        optimizer.step()
    return model


def lock(path):
    from needle_nn.locking import InUseError, Lock

    with Lock(path, "the run"):
        try:
            with Lock(path, "the run"):
                raise SystemExit("two have the lock")
        except InUseError as error:
            assert f"process {os.getpid()}" in str(error), error
    assert not path.exists()
    with Lock(path, "the run"):
        pass


def save_and_load(state, path):
    from needle_nn.checkpoint import load, save

    save(path, state)
    loaded = load(path)
    assert set(loaded) == set(state) and all(
        np.array_equal(loaded[name].numpy(), state[name].numpy()) for name in state
    )


def check_exercises(folder):
    from needle_nn.command.main import main as needle

    assert needle(["learn", "start", "1", folder]) == 0
    needle(["learn", "check", "1", folder])


def main():
    take_away()
    import_everything()
    model = train()
    lock(Path("run") / ".lock")
    save_and_load(model.state_dict(), Path("weights.safetensors"))
    check_exercises("course")
    print("works")


if __name__ == "__main__":
    main()
