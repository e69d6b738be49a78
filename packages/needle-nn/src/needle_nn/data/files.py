"""Reading files nobody has checked: a size before a buffer, and one line that says what is wrong.

Errors are ValueErrors that name the file, what was found and what was expected; a missing file is a FileNotFoundError.
"""

import gzip
import stat
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

MAX_BYTES = 1 << 30  # of one file when unpacked; ImageNet aside, what people call a dataset file is smaller
# Deflate packs at most 258 bytes into 2 bits: a header that announces more than that cannot be true.
_MAX_RATIO = 1032


def file_size(path: Any) -> int:
    """The size of a regular file that is not empty and not larger than MAX_BYTES."""
    info = Path(path).stat()  # FileNotFoundError names the path
    if not stat.S_ISREG(info.st_mode):
        raise ValueError(f"{path}: not a regular file")
    if info.st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    if info.st_size > MAX_BYTES:
        raise ValueError(f"{path}: {info.st_size} bytes, more than the limit of {MAX_BYTES}")
    return info.st_size


@contextmanager
def open_packed(path: Any):
    """Open a file that may be gzipped; gives the stream of its contents and a bound on their size.

    Damage to the packing is reported as a ValueError.
    """
    size = file_size(path)
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            yield raw, size
            return
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream, min(MAX_BYTES, size * _MAX_RATIO)
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
