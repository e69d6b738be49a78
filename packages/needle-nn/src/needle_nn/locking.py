"""A lock that one process holds on a file, and that nobody holds any more when the process has ended, however it did."""

import contextlib
import datetime
import errno
import os
import re
import socket
import stat
import sys
from pathlib import Path
from typing import Any

from .files import FLAGS

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

# What flock says where the file system has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
# Windows locks bytes, and lets nobody else read them: one that is far behind what the file says.
_LOCKED_BYTE = 1 << 30
_HOLDER = re.compile(r"process (\d+) on (\S+) since [-\d]+ [:\d]+")


class InUseError(RuntimeError):
    """Another process, or another part of this one, writes there."""


class Lock:
    """`with Lock(path):` holds the file `path` for this object; InUseError says who has it. It may be taken several times.

    The file tells who holds it, the kernel (flock) whether it is held: a killed process leaves the first behind, never the second.
    Where a file system has no locks, the file counts as long as the process it names runs on this machine. The file is
    removed with the lock, and so are folders that were made for it and stayed empty.

    Parameters
    ----------
    path : the file
    what : what an error says is in use (default: its folder)

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), ".lock")
    >>> with Lock(path, "the run"), Lock(path, "the run"):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    needle_nn.locking.InUseError: the run is in use by process ... on ... since ...
    """

    def __init__(self, path: str | os.PathLike, what: Any = None) -> None:
        self.path = Path(path)
        self.what = what or self.path.parent
        self._depth, self._handle = 0, -1
        self._made: list[Path] = []  # folders, innermost first

    def __enter__(self) -> "Lock":
        if not self._depth:
            self._take()
        self._depth += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._give_back()
            self._clear()

    def _take(self) -> None:
        folders = [self.path.parent, *self.path.parent.parents]
        self._made = [folder for folder in folders if not folder.exists()]
        try:
            handle = self._locked_file()
        except BaseException:
            self._clear()
            raise
        self._handle = handle
        now = datetime.datetime.now().isoformat(" ", "seconds")
        with contextlib.suppress(OSError):  # on a full disk it is held by "another process"
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()} since {now}\n".encode())

    def _give_back(self) -> None:
        if fcntl:
            self.path.unlink(missing_ok=True)
        os.close(self._handle)  # and with it the lock
        if not fcntl:
            with contextlib.suppress(OSError):  # Windows removes no open file: one that the next holder has stays
                self.path.unlink(missing_ok=True)

    def _locked_file(self) -> int:
        for left in reversed(range(100)):
            try:
                if (handle := self._try()) is not None:
                    return handle
            except (FileNotFoundError, FileExistsError):
                if not left:
                    raise  # before: the last holder may have removed the folder as we came, and the next one made it
        raise InUseError(f"{self.what} is in use by others, one after the other")

    def _try(self) -> int | None:
        """The locked file; None if its last holder has removed it in between."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | FLAGS | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(self.path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ValueError(f"{self.path}: not a regular file")
            self._lock(handle)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self.path), os.fstat(handle)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return None

    def _lock(self, handle: int) -> None:
        try:
            _hold(handle)
        except OSError as error:
            os.lseek(handle, 0, os.SEEK_SET)
            told = os.read(handle, 300).decode(errors="replace").strip()
            holder = _HOLDER.fullmatch(told)
            if error.errno in _NO_LOCKS and not (holder and _runs(int(holder[1]), holder[2])):
                return
            by = told if holder else "another process"  # which has not written its name yet
            raise InUseError(f"{self.what} is in use by {by}") from None

    def _clear(self) -> None:
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:  # not empty, as it should be
                break
        self._made = []


def _hold(handle: int) -> None:
    """Let the kernel hold an open file for this handle; OSError where another one has it."""
    if fcntl:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
    msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def _runs(process: int, host: str) -> bool:
    """Whether another process of this number runs here; this process's own number is that of a container's earlier life."""
    if host != socket.gethostname() or process == os.getpid():
        return False
    if sys.platform == "win32":
        return True  # os.kill would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
