"""Files: only regular ones are opened, and what is written is there as a whole or not at all. Every error names the file."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


def open_regular(path: Any) -> BinaryIO:
    """Open a regular file to read bytes; ValueError for a pipe, a device or a socket, at once.

    The open file itself is looked at, not its name: between two looks a name may get another meaning.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for somebody who writes
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise ValueError(f"{os.fspath(path)}: not a regular file")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def size_of(file: BinaryIO) -> int:
    """Bytes in an open file."""
    return os.fstat(file.fileno()).st_size


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; at the end of the block it is flushed to disk and takes the place of `path`."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path):
        try:
            yield unfinished
            _flush(unfinished)
            os.replace(unfinished, path)
            _flush(path.parent)  # the new name too must outlast a power failure
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def naming(path: Any) -> Iterator[None]:
    """Put `path` into the OSErrors of a block: write() and fsync() do not know the name of their file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = os.fspath(path), None
        raise


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
