"""A folder has one writer: who it is, what the second one is told, and what a killed one leaves (no lock)."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from trainer_helpers import points, seeded, trainer  # noqa: F401  a fixture

from needle_nn.checkpoint import Checkpoints
from needle_nn.data import DataLoader
from needle_nn.locking import InUseError, Lock
from needle_nn.training import Callback, MetricsFile, SaveCheckpoints
from needle_nn.training.callbacks import read_metrics

HOLDER = """
import sys
from needle_nn.locking import Lock
with Lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A lock that another process holds until its standard input ends."""
    path = tmp_path / "run" / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield path, process
        process.kill()


def told(process):
    return rf"is in use by process {process.pid} on {re.escape(socket.gethostname())} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d$"


def test_another_process_is_named(held):
    path, process = held
    with pytest.raises(InUseError, match=re.escape(str(path.parent)) + " " + told(process)), Lock(path):
        pass
    process.stdin.close()
    assert process.wait(20) == 0 and not path.parent.exists()  # made for the lock, and empty
    with Lock(path):
        assert path.exists()


def test_a_killed_process_leaves_no_lock(held):
    path, process = held
    process.kill()
    process.wait()
    assert path.exists()
    with Lock(path):
        assert str(os.getpid()) in path.read_text()
    assert not path.exists()


def test_in_one_process(tmp_path):
    path = tmp_path / ".lock"
    lock = Lock(path)
    with lock, lock:
        with pytest.raises(InUseError, match=f"process {os.getpid()} on"), Lock(path):
            pass
        assert path.exists()
    with Lock(path, "it"), pytest.raises(InUseError, match=r"^that is in use"), Lock(path, "that"):
        pass


def test_many_threads_one_at_a_time(tmp_path):
    """The file is removed with the lock: who has opened it before must not take that for a lock."""
    path, inside, refused, together = tmp_path / "run" / ".lock", [], [], []

    def work():
        for _ in range(200):
            try:
                with Lock(path):
                    inside.append(1)
                    together.append(len(inside))
                    inside.pop()
            except InUseError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(together) == {1} and len(together) + len(refused) == 800 and not path.exists()


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ("", False),
        ("what is this", False),
        ("process {dead} on {host} since 2026-01-01 00:00:00", False),
        ("process {own} on {host} since 2026-01-01 00:00:00", False),
        ("process {alive} on {host} since 2026-01-01 00:00:00", True),
        ("process {alive} on elsewhere since 2026-01-01 00:00:00", False),
    ],
)
def test_where_a_file_system_has_no_locks(tmp_path, monkeypatch, content, refused):
    """The process that the file names counts, while it runs."""

    def no_locks(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alive:
        names = {"dead": gone.pid, "own": os.getpid(), "alive": alive.pid, "host": socket.gethostname()}
        (tmp_path / ".lock").write_text(content.format(**names))
        if refused:
            with pytest.raises(InUseError, match=f"process {alive.pid}"), Lock(tmp_path / ".lock"):
                pass
        else:
            with Lock(tmp_path / ".lock"):
                assert str(os.getpid()) in (tmp_path / ".lock").read_text()
        alive.kill()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("elsewhere", path)])
def test_something_else_in_its_place(tmp_path, make):
    (tmp_path / "elsewhere").write_text("mine")
    make(tmp_path / ".lock")
    with pytest.raises((OSError, ValueError), match=r"\.lock"), Lock(tmp_path / ".lock"):
        pass
    assert (tmp_path / "elsewhere").read_text() == "mine"


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), lambda path: path.symlink_to("nothing")])
def test_no_folder(tmp_path, make):
    make(tmp_path / "run")
    with pytest.raises(OSError, match="run"), Lock(tmp_path / "run" / ".lock"):
        pass


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_folder_that_cannot_be_made():
    with pytest.raises(OSError, match="/proc/none"), Lock("/proc/none/.lock"):
        pass


def test_a_full_disk_is_no_reason(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    path = tmp_path / ".lock"
    with Lock(path), pytest.raises(InUseError, match="by another process"), Lock(path):
        pass


# ---- A run ----------------------------------------------------------------------------------------------------------


def test_save_and_fit_want_the_folder(held):
    """Nothing in it has changed when they are refused: neither checkpoints nor metrics."""
    path, process = held
    folder = path.parent
    (folder / "metrics.jsonl").write_text("a line\n")
    with pytest.raises(InUseError, match=told(process)):
        Checkpoints(folder).save(1, {})
    with pytest.raises(InUseError, match=told(process)):
        trainer(callbacks=[MetricsFile(folder / "metrics.jsonl"), SaveCheckpoints(folder)]).fit(
            DataLoader(points(), 16), 1
        )
    assert (folder / "metrics.jsonl").read_text() == "a line\n"
    assert sorted(each.name for each in folder.iterdir()) == [".lock", "metrics.jsonl"]
    assert Checkpoints(folder).files() == []  # reading needs no lock


class Second(Callback):
    """Begins another training in the same place."""

    def __init__(self, make):
        self.make, self.told = make, []

    def on_step_end(self, trainer_):
        if trainer_.step == 1:
            with pytest.raises(InUseError) as caught:
                trainer(callbacks=[self.make()]).fit(DataLoader(points(), 16), 1)
            self.told.append(str(caught.value))


@pytest.mark.parametrize("what", ["folder", "metrics"])
def test_two_trainers_in_one_process(tmp_path, what):
    make = {"folder": lambda: SaveCheckpoints(tmp_path), "metrics": lambda: MetricsFile(tmp_path / "m", every=1)}[what]
    second = Second(make)
    trainer(callbacks=[make(), second]).fit(DataLoader(points(), 16), 1)
    assert len(second.told) == 1 and f"is in use by process {os.getpid()}" in second.told[0]
    if what == "metrics":
        assert [row["step"] for row in read_metrics(tmp_path / "m")] == [1, 2, 3, 3]


def test_two_files_in_one_folder_are_two(tmp_path):
    class Other(Callback):
        def on_step_end(self, trainer_):
            if trainer_.step == 1:
                trainer(callbacks=[MetricsFile(tmp_path / "b")]).fit(DataLoader(points(), 16), 1)

    trainer(callbacks=[MetricsFile(tmp_path / "a"), Other()]).fit(DataLoader(points(), 16), 1)
    assert read_metrics(tmp_path / "a")[-1]["step"] == read_metrics(tmp_path / "b")[-1]["step"] == 3


class Failing(Callback):
    def __init__(self, error):
        self.error = error

    def on_step_end(self, trainer_):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_given_back_however_fit_ends(tmp_path, error):
    """And so is the metrics file; the next fit with the same callbacks works."""
    callbacks = [MetricsFile(tmp_path / "metrics.jsonl"), SaveCheckpoints(tmp_path)]
    broken = trainer(callbacks=[*callbacks, Failing(error)])
    with pytest.raises(type(error)):
        broken.fit(DataLoader(points(), 16), 1)
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"] and callbacks[0]._file is None
    trainer(callbacks=callbacks).fit(DataLoader(points(), 16), 1)
    assert Checkpoints(tmp_path).load()["trainer"]["step"] == 3 and np.isfinite(
        read_metrics(tmp_path / "metrics.jsonl")[-1]["loss"]
    )
