"""A rank of `needle launch`: output with the rank's number before each line, then mpi4py runs the program.

`python -m mpi4py` ends all ranks when one has an exception that nobody catches; without it the others would wait forever.
"""

import io
import os
import sys
from typing import Any

#: What launchers tell a process about its number.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class Prefixed(io.RawIOBase):
    """A stream that puts a prefix before each line, and writes lines whole: those of several ranks never mix.

    >>> import os
    >>> ours, theirs = os.pipe()
    >>> stream = Prefixed(theirs, b"2: ")
    >>> _ = stream.write(b"loss 0.5\\nhalf a "), stream.write(b"line\\n")
    >>> os.read(ours, 100)
    b'2: loss 0.5\\n2: half a line\\n'
    """

    def __init__(self, fd: int, prefix: bytes) -> None:
        self.fd, self.prefix, self.held = fd, prefix, b""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.fd

    def write(self, given: Any) -> int:
        text = bytes(given)
        *lines, self.held = (self.held + text).splitlines(keepends=True) + [b""]
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            self.held = lines.pop()
        if lines:
            _write(self.fd, b"".join(self.prefix + line for line in lines))
        return len(text)

    def close(self) -> None:
        if not self.closed and self.held:
            _write(self.fd, self.prefix + self.held + b"\n")
            self.held = b""
        super().close()


def _write(fd: int, text: bytes) -> None:
    while text:
        text = text[os.write(fd, text) :]


def prefix_output() -> None:
    rank = next((os.environ[name] for name in RANKS if name in os.environ), None)
    if rank is None or os.environ.get("NEEDLE_DISTRIBUTED_PREFIX") != "1":
        return
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        buffered = io.BufferedWriter(Prefixed(old.fileno(), f"{rank}: ".encode()), 8192)
        new = io.TextIOWrapper(buffered, old.encoding, "backslashreplace", line_buffering=True)
        setattr(sys, name, new)


def main() -> None:
    prefix_output()
    from mpi4py.run import main

    main()


if __name__ == "__main__":
    main()
