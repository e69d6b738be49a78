"""needle launch: a program as several ranks, by the mpiexec that belongs to the MPI loaded."""

import argparse
import os
from typing import Any

from needle_nn.command.arguments import UsageError

DESCRIPTION = """\
Run a program as several ranks, which find each other by needle.distributed.init(). When a rank fails, all are ended."""
EPILOG = """\
  needle launch -n 4 train.py --lr 0.1             four ranks on this machine
  needle launch -n 4 -m package.train              a module
  needle launch -n 8 --hosts a,b train.py          four on each of two machines, reached by ssh
  needle launch -n 4 --restarts 3 train.py         start again when a rank was killed; the program resumes"""


def add_to(commands: Any) -> None:
    made = commands.add_parser(
        "launch",
        help="run a program as several ranks",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=run)
    made.add_argument("-n", "--ranks", type=int, required=True, metavar="N", help="how many processes")
    made.add_argument("--hosts", metavar="A,B", default="", help="machines to share them out to (default: this one)")
    made.add_argument("--restarts", type=int, default=0, metavar="N", help="start again so often when ranks fail")
    made.add_argument(
        "--timeout", type=float, metavar="S", help="seconds a call may wait for other ranks (default: 300)"
    )
    made.add_argument("--threads", type=int, metavar="N", help="of each rank (default: the cores, shared out)")
    made.add_argument("--as-root", action="store_true", help="let Open MPI start as root, as in a container")
    made.add_argument("--no-prefix", action="store_true", help="do not begin lines of output with the rank")
    made.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    made.add_argument("program", metavar="PROGRAM", help="a script, or with -m a module")
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the program takes")


def run(args: argparse.Namespace) -> int:
    from needle_nn.distributed.launching import launch

    for name, value, least in (("ranks", args.ranks, 1), ("restarts", args.restarts, 0), ("threads", args.threads, 1)):
        if value is not None and value < least:
            raise UsageError(f"--{name} must be at least {least}, got {value}")
    if args.timeout is not None and not 0 < args.timeout < 1e9:
        raise UsageError(f"--timeout must be above 0, got {args.timeout:g}")
    if not args.module and not os.path.exists(args.program):
        raise UsageError(f"{args.program}: there is no such program")
    return launch(
        [*(["-m"] if args.module else []), args.program, *args.arguments],
        args.ranks,
        [host for host in args.hosts.split(",") if host],
        restarts=args.restarts,
        timeout=args.timeout,
        threads=args.threads,
        as_root=args.as_root,
        prefix=not args.no_prefix,
    )
