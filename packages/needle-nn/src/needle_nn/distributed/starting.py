"""Which communicator this process has: MPI's where a launcher started it as one of several, else that of one process."""

import os
from typing import Any

from needle_nn.distributed.communicator import Alone, Communicator, DistributedError

GROUP = "needle.communicators"
BUILT_IN = {"alone": "needle_nn.distributed.communicator:Alone", "mpi": "needle_nn.distributed.mpi:MPI"}
#: What launchers tell a process: how many there are. Open MPI's mpiexec, MPICH's and Intel's, Slurm's srun.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")

_world: Communicator | None = None
_name: str | None = None


def launched() -> tuple[str, int]:
    """(variable, number) by which a launcher said how many processes it started; ("", 1) where none did."""
    for name in SIZES:
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 1:
            return name, int(text)
    return "", 1


def init(backend: str | None = None) -> Communicator:
    """The communicator of this process; call it once, near the start, in every rank. Later calls give the same one.

    backend: "mpi", "alone" or the name of an installed communicator (entry point group needle.communicators); by default MPI where
    a launcher started several processes, and `Alone` where this one was started by itself.

    >>> init().size
    1
    """
    global _world, _name
    variable, count = launched()
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"init: backend: expected a name, got {backend!r}")
    name = backend or ("mpi" if count > 1 else "alone")
    if _world is not None:
        if backend is not None and name != _name:
            raise ValueError(f"init: {name!r}: this process has the communicator {_name!r} already")
        return _world
    made = _load(name, f"init: one of {count} processes ({variable}={count})" if variable else "init")()
    if name == "mpi" and made.size < count:
        raise DistributedError(
            f"init: {variable}={count}, but MPI counts {made.size}: the launcher belongs to another MPI than the one loaded"
            f" ({made}); `needle launch` finds the right one, and Slurm may need srun --mpi=pmix"
        )
    _world, _name = made, name
    return made


def current(world: Communicator | None = None) -> Communicator:
    """The communicator given, or the one of this process."""
    if world is None:
        return _world if _world is not None else init()
    if not isinstance(world, Communicator):
        raise TypeError(f"world: expected a Communicator, as init() gives, got {type(world).__name__}")
    return world


def _load(name: str, told: str) -> Any:
    """The class of a communicator."""
    if name == "alone":
        return Alone
    try:
        if name in BUILT_IN:
            module, _, attribute = BUILT_IN[name].partition(":")
            return getattr(__import__(module, fromlist=[attribute]), attribute)
        from importlib.metadata import entry_points

        found = {point.name: point for point in entry_points(group=GROUP)}
        if name in found:
            return found[name].load()
    except ModuleNotFoundError as error:
        if error.name != "mpi4py":
            raise
        raise DistributedError(f"{told}: mpi4py is not installed: pip install 'needle-nn[mpi]'") from None
    known = ", ".join(sorted({*BUILT_IN, *found}))
    raise DistributedError(f"init: {name!r}: no such communicator here (installed: {known})")
