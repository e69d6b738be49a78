"""Reading files nobody has checked: a size before a buffer, and one line that says what is wrong.

Errors are ValueErrors that name the file, what was found and what was expected; a missing file is a FileNotFoundError.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from needle_nn.files import open_regular, size_of

MAX_BYTES = 1 << 30  # of one file when unpacked; ImageNet aside, what people call a dataset file is smaller
# What a packed file may hold: MNIST's images are 5 times as large as their file, zeros 1030 times (deflate packs at most 258
# bytes into 2 bits). A small file may hold what it can.
MAX_RATIO, DEFLATE_RATIO, SMALL = 100, 1032, 64 << 20


@contextmanager
def open_data(path: Any) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file that is not empty and not larger than MAX_BYTES; gives the file and its size."""
    try:
        file = open_regular(path)  # FileNotFoundError names the path
    except IsADirectoryError:
        raise ValueError(f"{path}: not a regular file, but a folder") from None
    with file:
        size = size_of(file)
        if size == 0:
            raise ValueError(f"{path}: the file is empty")
        if size > MAX_BYTES:
            raise ValueError(f"{path}: {size} bytes, more than the limit of {MAX_BYTES}")
        yield file, size


@contextmanager
def open_packed(path: Any) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file that may be gzipped; gives the stream of its contents and a bound on their size, which is all that is read.

    Damage to the packing is reported as a ValueError.
    """
    with open_data(path) as (raw, size):
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            yield raw, size
            return
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream, min(MAX_BYTES, max(min(SMALL, size * DEFLATE_RATIO), size * MAX_RATIO))  # type: ignore[misc]
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip file: {error}") from error


def read_exactly(stream: BinaryIO, count: int, bound: int, path: Any, what: str) -> np.ndarray:
    """The rest of a stream as `count` bytes: a ValueError if there are fewer or more, or cannot be that many."""
    expected = f"expected {count} bytes of {what}"
    if count > bound:
        raise ValueError(f"{path}: {expected}, but the file holds at most {bound} bytes")
    out = np.empty(count, dtype=np.uint8)
    view, got = out.data, 0
    while got < count and (step := stream.readinto(view[got : got + (1 << 20)])):  # type: ignore[attr-defined]
        got += step
    if got < count:
        raise ValueError(f"{path}: {expected}, found {got}: the file is cut short")
    if stream.read(1):
        raise ValueError(f"{path}: {expected}, found more")
    return out
