"""Runs the checks of a chapter in a process of their own: whatever the student's file does, it ends in one line.

The process writes a line of JSON before and after each check. When it dies or takes too long, that check has failed, and another
process goes on with the next one.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .catalogue import Chapter
from .expect import THE_FILE

LOADING = 20.0  # seconds to import Needle and the student's file


@dataclass(frozen=True)
class Result:
    title: str
    state: str  # "passed", "failed" or "empty": not written yet
    told: str = ""
    hint: str = ""


def check_file(chapter: Chapter, path: Path, seconds: float | None = None) -> Iterator[Result]:
    """Yield a Result per check; one only, of the title `THE_FILE`, if the file cannot be loaded.

    Parameters
    ----------
    chapter : whose checks to run.
    path : the student's file.
    seconds : a check may take; the chapter's number unless given.
    """
    following, title = 0, ""
    while True:
        started = None
        for line in _lines(chapter, path, following, seconds or chapter.seconds):
            if "start" in line:
                following, title, started = line["start"] + 1, line["title"], line
            elif "died" in line:
                hint = started["hint"] if started else ""
                yield Result(title if started else THE_FILE, "failed", line["died"], hint)
            elif "finished" in line:
                return
            else:
                started = None
                yield Result(line["title"], line["state"], line["told"], line["hint"])
                if line["title"] == THE_FILE:
                    return
        if started is None:
            return


def _lines(chapter: Chapter, path: Path, first: int, seconds: float) -> Iterator[dict]:
    """What the worker reports, as dictionaries; {"died": why} where it ends without having finished."""
    reading, writing = os.pipe()
    command = [
        sys.executable,
        "-m",
        "needle_nn.learning.worker",
        str(chapter.number),
        str(path),
        str(first),
        str(writing),
    ]
    worker = subprocess.Popen(command, pass_fds=(writing,), start_new_session=True, stdin=subprocess.DEVNULL)
    os.close(writing)
    limit, finished, pending = LOADING, False, b""
    deadline = time.monotonic() + limit
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(reading, selectors.EVENT_READ)
            while not finished:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    yield {"died": f"took longer than {limit:g} seconds and was stopped: is there an endless loop?"}
                    return
                piece = os.read(reading, 1 << 16)
                if not piece:
                    break
                *whole, pending = (pending + piece).split(b"\n")
                for text in whole:
                    line = json.loads(text)
                    limit = seconds
                    deadline = time.monotonic() + limit
                    finished = finished or "finished" in line
                    yield line
        if not finished:
            yield {"died": _end_of(worker.wait())}
    finally:
        os.close(reading)
        _stop(worker)


def _stop(worker: subprocess.Popen) -> None:
    """End the worker and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _end_of(code: int) -> str:
    if code == -signal.SIGSEGV or code == -signal.SIGBUS:
        return "segmentation fault: compiled code used memory that is not its own; look at the bounds of its loops"
    if code == -signal.SIGFPE:
        return "arithmetic error in compiled code: an integer division by zero"
    if code == -signal.SIGABRT:
        return "abort: compiled code damaged memory or called abort()"
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended (exit code {code}) before the check did: is there a call of exit?"
