"""SIGKILL for a random rank at a random moment: nothing stays behind, and the run goes on to the bits of one that was not cut."""

import json
import os
import random
import signal
import time

import pytest
from distributed_helpers import launch, marked, needs_mpi, run

pytestmark = [needs_mpi, pytest.mark.slow]
PROGRAM = "distributed_killed.py"
KINDS = ("mlp", "cnn", "gpt", "lstm")
_whole: dict = {}


def options(kind, folder):
    return json.dumps({"kind": kind, "folder": str(folder), "steps": 25, "every": 1, "zero": kind == "gpt"})


def whole(kind, tmp_path_factory):
    """(sha of the run in one process that nobody cuts, seconds of the run on ranks)"""
    if kind not in _whole:
        folder = tmp_path_factory.mktemp("whole")
        done = run(["distributed_training.py", options(kind, folder)], timeout=120)
        assert done.code == 0, done.err
        other = tmp_path_factory.mktemp("ranks")
        (other / "says").mkdir()
        ranks = launch(3, PROGRAM, options(kind, other), other / "says", options=["--no-prefix"], timeout=120)
        assert json.loads(ranks.out.splitlines()[-1])["sha"] == json.loads(done.out.splitlines()[-1])["sha"]
        _whole[kind] = json.loads(done.out.splitlines()[-1])["sha"], ranks.seconds
    return _whole[kind]


def killer(chance, says, ranks, latest):
    """What kills one of the ranks of a job with this mark: (what it was doing, when it was killed)."""

    def kill(mark):
        deadline = time.monotonic() + 60
        while len(there := [name for name in os.listdir(says) if name.isdigit()]) < ranks:
            if time.monotonic() > deadline or not marked(mark):
                return None
            time.sleep(0.01)
        pid, early = int(chance.choice(sorted(there))), chance.random() < 0.2
        while not early and (says / str(pid)).read_bytes().startswith(b"start-up") and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep((0.5 if early else latest) * chance.random())
        try:
            os.kill(pid, signal.SIGSTOP)  # so that what it says is what it was doing
            doing = (says / str(pid)).read_bytes().decode().strip()
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return doing, time.monotonic()

    return kill


@pytest.mark.parametrize("seed", range(50))
def test_a_random_rank_at_a_random_moment(seed, tmp_path, tmp_path_factory, capsys):
    chance, kind = random.Random(seed), KINDS[seed % 4]
    sha, seconds = whole(kind, tmp_path_factory)
    before, after = chance.choice((2, 3, 4)), chance.choice((1, 2, 3))
    for attempt in range(5):  # a run that had ended before it was to be killed is made again
        folder = tmp_path / str(attempt)
        says = folder / "says"
        says.mkdir(parents=True)
        kill = killer(chance, says, before, seconds / 3 * 0.6**attempt)
        done = launch(
            before, PROGRAM, options(kind, folder), says, options=["--no-prefix"], meanwhile=kill, timeout=120
        )
        if done.found is not None and done.found[0] != "the end":
            break
    doing, moment = done.found
    gone = done.gone - moment
    assert done.code != 0 and done.left == [] and gone < 5, (doing, gone, done.err)
    (tmp_path / "again").mkdir()
    arguments = (PROGRAM, options(kind, folder), tmp_path / "again")
    again = (
        run([*map(str, arguments)], timeout=120)
        if after == 1
        else launch(after, *arguments, options=["--no-prefix"], timeout=120)
    )
    assert again.code == 0, again.err
    found = json.loads(again.out.splitlines()[-1])
    assert found["sha"] == sha, (seed, kind, doing)
    with capsys.disabled():
        print(
            f"{seed}: {kind}, {before} ranks, {doing}: gone after {gone:.2f} s; goes on at step {found['begun']} with {after}"
        )
