"""Files: only regular ones are opened, and what is written is there as a whole or not at all. Every error names the file."""

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: For os.open, as far as a system has them: not for child processes, nobody is waited for, bytes as they are (Windows).
FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))
_one_place = threading.Lock()  # where each read moves the file's position


def open_regular(path: Any) -> BinaryIO:
    """Open a regular file to read bytes; ValueError for a pipe, a device or a socket, at once.

    The open file itself is looked at, not its name: between two looks a name may get another meaning.
    """
    handle = os.open(path, os.O_RDONLY | FLAGS)  # a pipe would wait for somebody who writes
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


def read_at(file: BinaryIO, buffer: memoryview, start: int) -> int:
    """Read from a place in an open file into a buffer, as much as one call gives; return how many bytes that was."""
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [buffer], start)
    with _one_place:
        file.seek(start)
        return file.readinto(buffer)  # type: ignore[attr-defined]


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
    folder = path.is_dir()
    if folder and sys.platform == "win32":
        return  # Windows opens no folders, and flushes only what can be written to
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
