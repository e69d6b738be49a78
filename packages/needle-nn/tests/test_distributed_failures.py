"""A rank that fails ends the job: soon, with a line that says what happened, and nothing stays behind."""

import re
import signal
import time

import pytest
from distributed_helpers import launch, lines_of, needs_mpi

pytestmark = needs_mpi
CALL = r"all_reduce sum float32 \(4, 3\)"
#: How rank 1 fails: what is said about it. Those of the second part are seen by the watchdog, after the time limit.
ENDS = {
    "kill at start": "",
    "segfault": "",
    "exception": "ValueError: a mistake in the program",
    "memory": "MemoryError",
    "exit": "",
    "leaves": rf"rank \d: {CALL} \(call 21, step 19\) waits in vain: rank 1 has left, after 20 calls$|ranks disagree",
    "late leaves": rf"rank \d: {CALL} \(call 151, step 149\) waits in vain: rank 1 has left, after 150 calls$",
    "order": rf"call 21: ranks disagree: rank 0, 2: {CALL}; rank 1: barrier$",
    "late order": rf"call 151: ranks disagree: rank 0(, 2)?: {CALL}; rank 1: barrier$",
    "shape": rf"call 21: ranks disagree: rank 0, 2: {CALL}; rank 1: all_reduce sum float32 \(4, 2\)$",
    "late shape": r"MPI says: .*NEEDLE_DISTRIBUTED_CHECKS=1 says which$|Message truncated",  # MPICH ends the job by itself
    "dtype": rf"call 21: ranks disagree: rank 0, 2: {CALL}; rank 1: all_reduce sum float64 \(4, 3\)$",
    "op": rf"call 21: ranks disagree: rank 0, 2: {CALL}; rank 1: all_reduce max float32 \(4, 3\)$",
    "root": r"call 21: ranks disagree: rank 0, 2: broadcast from 0 float32 \(4, 3\); rank 1: broadcast from 1 float32 \(4, 3\)$",
    "no message": r"recv from 1 tag 0 float32 \(4,\) \(step 19\) waits in vain: rank 1 has left, after 20 calls$",
    "not received": r"for somebody to receive what was sent, \(step 19\) waits in vain: rank \d has left, after 20 calls$",
    "message": r"rank 0 expected float32 \(4,\) from rank 1 with tag 0, but rank 1 sent float32 \(3,\)$",
}
LIMIT = 2
LATE = {
    "stop": rf"{CALL} \(call 21, step 19\) has waited 2\.\d s; .*rank 1 does not answer",
    "sleep": rf"{CALL} \(call 21, step 19\) has waited 2\.\d s; .*rank 1 is at distributed_failing.py:\d+, after 20 calls",
    "stop at the end": r"at the end: no sign of life from rank 1 for 2 s$",
}


def failed_at(done):
    """When rank 1 said that it fails."""
    found = re.search(r"fails ([\d.]+)", done.out)
    return float(found[1]) if found else None


@pytest.mark.parametrize("how", ENDS)
def test_the_job_ends(how):
    done = launch(3, "distributed_failing.py", how)
    ended = time.time()
    assert done.code != 0 and done.left == [], done.err
    assert not ENDS[how] or [line for line in done.err.splitlines() if re.search(ENDS[how], line)], done.err
    assert lines_of(done, "done") == []
    assert failed_at(done) is None or ended - failed_at(done) < 5


@pytest.mark.parametrize("how", LATE)
def test_the_watchdog_ends_what_nobody_else_would(how):
    done = launch(3, "distributed_failing.py", how, options=("--timeout", str(LIMIT)))
    assert done.code != 0 and done.left == [], done.err
    assert re.search(LATE[how], done.err, re.MULTILINE), done.err
    assert failed_at(done) is None or time.time() - failed_at(done) < LIMIT + 3.5  # of which mpiexec takes its part


KILLS = [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]


@pytest.mark.parametrize("seed", KILLS)
def test_kill_at_a_random_moment_and_restart(seed):
    options = ("--restarts", "1", "--threads", "2")
    done = launch(2 + seed % 2, "distributed_failing.py", "kill at random", options=options, NEEDLE_TEST_SEED=str(seed))
    assert done.code == 0 and done.left == [], done.err
    assert len(lines_of(done, "start 2 of 2")) == 1
    assert sorted(lines_of(done, "done")) == [f"{r}: done {r} 1 2" for r in range(2 + seed % 2)]


def test_a_kill_without_restarts_is_a_failure():
    done = launch(2, "distributed_failing.py", "kill at random", NEEDLE_TEST_SEED="5")
    assert done.code != 0 and done.left == [] and lines_of(done, "done") == []


@pytest.mark.parametrize(("checks", "told"), [("0", "truncated"), ("1", "call 151: ranks disagree")])
def test_how_many_calls_are_compared(checks, told):
    done = launch(2, "distributed_failing.py", "late shape", NEEDLE_DISTRIBUTED_CHECKS=checks)
    assert done.code != 0 and lines_of(done, told), done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_the_ranks_end_with_needle_launch(number, code, tmp_path):
    """Also where it was to start them again: somebody has asked for the end."""
    sign = tmp_path / "sleeps"
    options = ("--restarts", "2")
    done = launch(2, "distributed_failing.py", "sleep", sign, options=options, signals=(sign, number))
    assert sign.exists() and done.left == [] and done.seconds < 5, done.err
    assert done.code == code and lines_of(done, "start 2 of 3") == []
