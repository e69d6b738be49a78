"""Files: what is no regular file is refused at once, and what cannot be written is named and leaves nothing behind."""

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from needle_nn.checkpoint import Checkpoints, load, load_checkpoint
from needle_nn.command.loaders import read_text
from needle_nn.command.runs import open_run
from needle_nn.data import Corpus, MNISTDataset
from needle_nn.data.cifar10 import _read
from needle_nn.data.mnist import read_idx
from needle_nn.files import open_regular, replacing
from needle_nn.report import Report, write_report
from needle_nn.training.history import append_row, read_metrics

# ---- Reading --------------------------------------------------------------------------------------------------------


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)  # its name may be too long for an address
        made.bind(path.name)


NOT_REGULAR = {
    "pipe": (os.mkfifo, "not a regular file"),
    "zeros": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), "not a regular file|No such device"),
    "socket": (a_socket, "not a regular file|No such device"),
    "folder": (os.mkdir, "not a regular file|Is a directory"),
    "link in a circle": (lambda path: path.symlink_to(path), "symbolic links"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "No such file|no such"),
}
READERS = {
    "open_regular": open_regular,
    "load": load,
    "load_checkpoint": load_checkpoint,
    "open_run": lambda path: open_run(str(path)),
    "metrics": read_metrics,
    "text": lambda path: read_text(str(path)),
    "idx": lambda path: read_idx(path, 3),
    "mnist": lambda path: MNISTDataset(path, path),
    "cifar pickle": _read,
    "cifar records": _read,
    "corpus": lambda path: Corpus(path.parent),
}
NAMES = {"corpus": "train.txt", "cifar records": "data_batch_1.bin"}


@pytest.fixture
def alarm(monkeypatch, tmp_path):
    """A reader that waits, or reads without end, is stopped, and fails."""
    monkeypatch.chdir(tmp_path)

    def late(number, frame):
        raise AssertionError("it waits for a file that never ends")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", NOT_REGULAR)
@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_read(tmp_path, alarm, kind, reader):
    path = tmp_path / NAMES.get(reader, "file")
    make, reason = NOT_REGULAR[kind]
    make(path)
    if reader == "metrics" and kind == "link to nothing":
        assert read_metrics(path) == []
        return
    if reader == "open_run" and kind == "folder":
        reason = "no latest checkpoint"
    if reader == "load" and kind == "folder":
        reason = "expected model.safetensors"
    with pytest.raises((ValueError, OSError), match=reason) as caught:
        READERS[reader](path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


LENGTHS = [b"", b"\xff" * 8, (2**39).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"{}"]


@pytest.mark.parametrize("first", LENGTHS, ids=len)
def test_a_sparse_file_is_not_read(tmp_path, first):
    """A terabyte of nothing: the header says that it is no checkpoint."""
    path = tmp_path / "checkpoint-00000001.safetensors"
    with path.open("wb") as file:
        file.write(first)
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"no safetensors file \(1099511627776 bytes\)"):
        load_checkpoint(path)


@pytest.mark.parametrize("kind", [name for name in NOT_REGULAR if name != "socket"])
@pytest.mark.parametrize("name", ["checkpoint-99999999.safetensors", ".checkpoint-00000009.safetensors.1.tmp"])
def test_what_is_no_file_is_no_checkpoint(tmp_path, alarm, kind, name):
    """And does not keep later ones from being saved and found."""
    NOT_REGULAR[kind][0](tmp_path / name)
    kept = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        kept.save(step, {"step": step})
    assert kept.load() == {"step": 3} and len(kept.files()) == 2


# ---- Writing --------------------------------------------------------------------------------------------------------

WRITERS = {
    "save": "checkpoint.save('{}', {{'x': np.zeros(100_000)}})",
    "save_checkpoint": "checkpoint.save_checkpoint('{}', {{'x': np.zeros(100_000)}})",
    "report": "report.write_report('{}', report.Report('x' * 200_000))",
    "metrics": "history.write_rows(Path('{}'), [b'x' * 200_000])",
}
LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from needle_nn import checkpoint, report
from needle_nn.training import history
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    {}
except OSError as error:
    print(error.filename, error.strerror, sep="\\n")
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_too_large_for_the_file_system(tmp_path, writer):
    path = tmp_path / "file"
    path.write_text("as before")
    code = LIMITED.format(WRITERS[writer].format(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(path), "File too large"], done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["file"] and path.read_text() == "as before"


@pytest.mark.parametrize("failing", ["write", "os.fsync", "os.replace"])
def test_no_space_is_told_with_the_name(tmp_path, monkeypatch, failing):
    path = tmp_path / "report.html"
    path.write_text("as before")

    def fail(*args, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((Path, "write_text") if failing == "write" else (os, failing[3:])), fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_report(path, Report("x"))
    monkeypatch.undo()
    assert caught.value.filename == str(path) and path.read_text() == "as before"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_in_its_place_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="Is a directory") as caught, replacing(tmp_path / "a") as unfinished:
        unfinished.write_text("x")
    assert caught.value.filename == str(tmp_path / "a") and [each.name for each in tmp_path.iterdir()] == ["a"]


class Full:
    """A file on a disk that takes `room` bytes more."""

    def __init__(self, file, room):
        self.file, self.room = file, room
        self.seek, self.truncate = file.seek, file.truncate

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(bytes(data[: self.room]))
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 30, 62])
def test_a_row_is_written_whole_or_not_at_all(tmp_path, room):
    path, row = tmp_path / "m", {"kind": "step", "epoch": 1, "step": 1, "loss": 0.25}
    with path.open("ab", buffering=0) as file:
        append_row(file, path, row)
        with pytest.raises(OSError, match="No space") as caught:
            append_row(Full(file, room), path, row | {"step": 2, "more": "x" * 9})
        assert caught.value.filename == str(path) and read_metrics(path) == [row]
        append_row(Full(file, 1000), path, row | {"step": 3})
    assert [each["step"] for each in read_metrics(path)] == [1, 3] and path.read_bytes().endswith(b"\n")


def test_checkpoints_are_as_they_were(tmp_path):
    """A save that fails for want of space leaves the older ones, and the next one works."""
    kept = Checkpoints(tmp_path)
    kept.save(1, {"x": np.zeros(10)})
    code = LIMITED.format(f"checkpoint.Checkpoints({str(tmp_path)!r}).save(2, {{'x': np.zeros(100_000)}})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(tmp_path / "checkpoint-00000002.safetensors"), "File too large"]
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint-00000001.safetensors"]
    assert kept.load()["x"].shape == (10,)
