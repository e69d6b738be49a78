"""The process that runs a student's file: `python -m needle_nn.learning.worker CHAPTER FILE FIRST_CHECK RESULTS_FD`."""

import importlib
import json
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .catalogue import Chapter, chapter
from .expect import THE_FILE, Check, Student, explain

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MEMORY = 8 << 30  # bytes of address space: an endless list ends in MemoryError before the machine swaps


def load(path: Path) -> Student:
    """Run the student's file; for a kernel in another language there is nothing to run yet."""
    if path.suffix != ".py":
        return Student(path, {"text": path.read_text(encoding="utf-8")})
    text = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    linecache.checkcache(str(path))
    exec(compile(text, str(path), "exec"), names)
    return Student(path, names)


def checks_of(which: Chapter) -> list[Check]:
    return list(importlib.import_module(f"needle_nn.learning.chapter{which.number}.checks").checks)


def run(check: Check, student: Student) -> tuple[str, str]:
    """(state, what there is to say) of one check."""
    try:
        check.run(student)
    except NotImplementedError:
        return "empty", "not written yet"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a function is an error of the file, too
        return "failed", explain(error, student.path)
    return "passed", ""


def results(which: Chapter, path: Path, first: int) -> Iterator[dict]:
    try:
        student = load(path)
    except NotImplementedError as error:
        yield {"title": THE_FILE, "state": "empty", "told": explain(error, path), "hint": ""}
        return
    except BaseException as error:
        yield {"title": THE_FILE, "state": "failed", "told": explain(error, path), "hint": ""}
        return
    for number, check in list(enumerate(checks_of(which)))[first:]:
        yield {"start": number, "title": check.title, "hint": check.hint}
        state, told = run(check, student)
        yield {"title": check.title, "state": state, "told": told, "hint": check.hint}
    yield {"finished": True}


def limit_memory() -> None:
    if resource is None:
        return
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY if soft == resource.RLIM_INFINITY else min(soft, MEMORY), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):
        pass  # a system without these limits: the time limit still holds


def main(arguments: list[str]) -> None:
    number, path, first, descriptor = arguments
    report: Callable[[dict], int] = lambda line: os.write(int(descriptor), json.dumps(line).encode() + b"\n")  # noqa: E731
    if path.endswith(".py"):
        limit_memory()  # the emulation of CUDA reserves more address space than it uses
    for line in results(chapter(int(number)), Path(path), int(first)):
        sys.stdout.flush()
        report(line)


if __name__ == "__main__":
    main(sys.argv[1:])
