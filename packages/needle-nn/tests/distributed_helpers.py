"""Programs run as several ranks, by `needle launch`; what is left running afterwards."""

import os
import subprocess
import sys
import time
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
needs_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed")
MARK = "NEEDLE_TEST_MARK"


class Done(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float
    left: list[int]  # processes that were still running a moment later
    found: object = None  # what `meanwhile` gave
    gone: float = 0.0  # when the last process had ended, on time.monotonic's clock


def run(arguments, timeout=60, signals=None, meanwhile=None, **env):
    """Run Python with arguments; every process that it starts is found again by a mark in its environment.

    signals: (file, number): once the program has made the file, the process gets the signal.
    meanwhile: called with the mark while the program runs.
    """
    mark = uuid.uuid4().hex
    env = {**os.environ, "NEEDLE_NUM_THREADS": "1", **env, MARK: mark}
    process = subprocess.Popen(
        [sys.executable, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE
    )
    began = time.monotonic()
    if signals is not None:
        while not signals[0].exists() and process.poll() is None and time.monotonic() - began < timeout:
            time.sleep(0.05)
        process.send_signal(signals[1])
        began = time.monotonic()
    given = meanwhile(mark) if meanwhile is not None else None
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        for pid in [process.pid, *marked(mark)]:
            os.kill(pid, 9)
        out, err = process.communicate()
        pytest.fail(f"{arguments} did not end within {timeout} s\n{out}\n{err}")
    seconds = time.monotonic() - began
    deadline = time.monotonic() + 2  # a process that is being ended may take a moment
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    gone = time.monotonic()
    for pid in left:
        os.kill(pid, 9)
    return Done(process.returncode, out, err, seconds, left, given, gone)


def launch(ranks, *program, options=(), **more):
    """`needle launch` a program of this folder."""
    command = ("-m", "needle_nn.command.main", "launch", "--as-root", "-n", str(ranks), *options)
    return run([*command, *map(str, program)], **more)


def marked(mark):
    """The processes with this mark that are running or stopped."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def lines_of(done, text):
    """The lines of both outputs that hold a text."""
    return [line for line in (done.out + done.err).splitlines() if text in line]
