"""needle serve: a page and a JSON endpoint on this machine, behind which a model writes."""

import argparse
from pathlib import Path
from typing import Any

from needle_nn.command.arguments import UsageError
from needle_nn.command.generate import add_model
from needle_nn.command.writers import open_writer


def add_to(commands: Any) -> None:
    told = "let a language model write behind a page on this machine"
    made = commands.add_parser("serve", help=told, description=told.capitalize() + ".")
    made.set_defaults(run=run)
    add_model(made)
    made.add_argument(
        "--port", type=int, default=8000, metavar="N", help="of 127.0.0.1; 0: a free one (default: %(default)s)"
    )
    made.add_argument(
        "--tokens", type=int, default=1000, metavar="N", help="of an answer, at most (default: %(default)s)"
    )
    made.add_argument(
        "--seconds", type=float, default=120, metavar="X", help="of an answer, at most (default: %(default)s)"
    )
    made.add_argument("--requests", type=int, default=128, metavar="N", help="at once, at most (default: %(default)s)")
    made.add_argument("--quiet", action="store_true", help="write no line for each request")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.port < 65536:
        raise UsageError(f"--port {args.port}: expected 0 to 65535")
    for name in ("tokens", "seconds", "requests"):
        if not getattr(args, name) > 0:
            raise UsageError(f"--{name} {getattr(args, name)}: expected above 0")
    from needle_nn.serving import Limits, Server

    writer, _ = open_writer(args.model_folder, args.checkpoint, args.device, args.weights)
    limits = Limits(tokens=args.tokens, seconds=args.seconds, requests=args.requests)
    try:
        server = Server(writer, args.port, Path(args.model_folder).resolve().name, limits, args.quiet)
    except OSError as error:
        raise OSError(f"port {args.port} of 127.0.0.1: {error.strerror}") from None
    with server:
        print(f"{server.address} writes with {args.model_folder}; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            print("stopped", flush=True)
    return 0
