"""The command `needle`: arguments, and one line for whatever goes wrong.

Nothing but the standard library's smallest modules is imported with this one: what comes before `main` nobody can catch.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

EPILOG = """\
A first run, on data that comes with the package:
  needle train digits              train, and leave checkpoints, metrics.jsonl and report.html in runs/digits
  needle eval runs/digits          measure the trained model
  needle train text --steps 300    a small GPT on the documentation of Python
  needle generate runs/text        what it writes
  needle serve runs/text           the same behind a page on this machine
  needle export runs/digits m.onnx the model for onnxruntime and others

And a course: needle learn

NEEDLE_TRACEBACK=1 shows where an error comes from."""


def parser() -> Any:
    """The whole command line, an argparse.ArgumentParser."""
    import argparse

    from needle_nn import __version__
    from needle_nn.command import bench, evaluate, export, generate, info, launch, learn, serve, train
    from needle_nn.command.arguments import Parser

    made = Parser(
        prog="needle",
        description="Train models, measure them, and look at what they do.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"needle-nn {__version__}")
    commands = made.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for module in (train, evaluate, generate, serve, export, launch, learn, info, bench):
        module.add_to(commands)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it went well, 1 where it failed, 2 for a wrong command line, 130 after Ctrl-C."""
    name = "needle"
    try:
        with interrupts_later():
            made = parser()
        chosen = made.parse_args(arguments)
        chosen.given = list(sys.argv[1:] if arguments is None else arguments)
        name = f"needle {chosen.command}"
        with warnings_in_one_line(name), printable_output():
            code = int(chosen.run(chosen) or 0)
        sys.stdout.flush()  # a full disk is an error of this run, not of the interpreter's end
        return code
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    except KeyboardInterrupt as stop:
        if not stop.args:  # else `fit` has told what it saved
            print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `needle ... | head`
        discard_output()
        return 1
    except Exception as error:
        if os.environ.get("NEEDLE_TRACEBACK"):
            raise
        return told(name, error)


def told(name: str, error: Exception) -> int:
    """Print an error in one line; the command's exit code."""
    from needle_nn.command.arguments import UsageError

    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            discard_output()  # what is left in its buffer would fail once more
        text = f"{os.fsdecode(error.filename) if error.filename is not None else 'standard output'}: {error.strerror}"
    elif isinstance(error, MemoryError) and not str(error):
        text = "not enough memory"
    elif isinstance(error, (KeyError, AssertionError, AttributeError, IndexError)):  # no error of the user's
        text = f"{type(error).__name__}: {text} (NEEDLE_TRACEBACK=1 shows where)"
    print(f"{name}: {text}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let a Ctrl-C wait for the end of this block: imports take a third of a second, and must not be cut in two."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, asked = signal.getsignal(signal.SIGINT), []
    if before is not signal.default_int_handler:  # ignored in a background job, or somebody's own
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def printable_output() -> Iterator[None]:
    """Write what standard output has no characters for as escapes: a text, or a folder's name, may hold any."""
    errors = getattr(sys.stdout, "errors", None)
    if errors != "strict" or not hasattr(sys.stdout, "reconfigure"):
        yield
        return
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        sys.stdout.reconfigure(errors=errors)


@contextmanager
def warnings_in_one_line(name: str) -> Iterator[None]:
    """Show warnings in this block without the line of the program that gave them."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *place, **more: f"{name}: warning: {' '.join(str(message).split())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


if __name__ == "__main__":
    sys.exit(main())
