"""The command `needle`: arguments, and one line for whatever goes wrong."""

import argparse
import os
import sys
from collections.abc import Sequence

from needle_nn import __version__

EPILOG = """\
A first run, on data that comes with the package:
  needle train digits              train, and leave checkpoints, metrics.jsonl and report.html in runs/digits
  needle eval runs/digits          measure the trained model
  needle train text --steps 300    a small GPT on the documentation of Python
  needle generate runs/text        what it writes

NEEDLE_TRACEBACK=1 shows where an error comes from."""


def parser() -> argparse.ArgumentParser:
    """The whole command line. Recipes are imported here, so that --version stays quick."""
    from needle_nn.command import bench, evaluate, generate, info, train

    made = argparse.ArgumentParser(
        prog="needle",
        description="Train models, measure them, and look at what they do.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"needle-nn {__version__}")
    commands = made.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for module in (train, evaluate, generate, info, bench):
        module.add_to(commands)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it went well, 1 where it failed, 2 for a wrong command line, 130 after Ctrl-C."""
    from needle_nn.command.recipes import UsageError

    try:
        chosen = parser().parse_args(arguments)
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    try:
        return int(chosen.run(chosen) or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `needle ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("NEEDLE_TRACEBACK"):
            raise
        told = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.filename and error.strerror:
            told = f"{error.filename}: {error.strerror}"
        print(f"needle {chosen.command}: {told}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
