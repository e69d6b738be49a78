"""needle train --ranks: the same command in several processes."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from needle_nn.command.arguments import UsageError
from needle_nn.distributed import Communicator
from needle_nn.distributed.starting import launched


def is_to_launch(args: argparse.Namespace) -> bool:
    """Whether the ranks are still to be started: this is none of them."""
    if args.ranks < 1 or args.restarts < 0:
        name, least = ("ranks", 1) if args.ranks < 1 else ("restarts", 0)
        raise UsageError(f"--{name} must be at least {least}, got {getattr(args, name)}")
    return args.ranks > 1 and launched()[1] == 1


def check_ranks(settings: Mapping[str, Any], ranks: int) -> None:
    if settings["accumulate"] < ranks:
        raise UsageError(
            f"{ranks} ranks, but a step has --accumulate {settings['accumulate']} part(s): each rank needs one or more"
        )


def launch_train(args: argparse.Namespace, settings: Mapping[str, Any]) -> int:
    """Start this command as several ranks.

    A new run that says nothing of the parts of a step gets one for each rank, of equal size, and so many examples in a step as
    one process would take.
    """
    from needle_nn.distributed.launching import launch

    more: list[str] = []
    if settings["accumulate"] == 1 and args.accumulate is None and not args.resume:
        batch = settings["batch_size"]
        if batch % args.ranks:
            raise UsageError(
                f"--batch-size {batch} cannot be cut into {args.ranks} equal parts; --accumulate says how many parts a step has"
            )
        more = ["--accumulate", str(args.ranks), "--batch-size", str(batch // args.ranks)]
        if not args.quiet:
            print(f"a step has {args.ranks} parts of {batch // args.ranks} examples: {' '.join(more)}", flush=True)
    else:
        check_ranks(settings, args.ranks)
    again = [] if args.resume else ["--resume"]
    return launch(
        ["-m", "needle_nn.command.main", *args.given, *more],
        args.ranks,
        restarts=args.restarts,
        as_root=args.as_root,
        prefix=False,
        again=again,
    )


@contextmanager
def first_alone(world: Communicator) -> Iterator[None]:
    """Let rank 0 go first, the others when it has done this without an error, which they would meet too."""
    if world.rank:
        world.barrier()
    yield
    if world.rank == 0:
        world.barrier()
