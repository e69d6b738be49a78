"""The checkpoints of a run: which are kept, which is the latest, whatever killed the writer; and generators that go on."""

import subprocess
import sys
import time

import numpy as np
import pytest
from checkpoint_helpers import same

import needle.random
from needle_nn.checkpoint import (
    CheckpointError,
    Checkpoints,
    load_checkpoint,
    random_state,
    save_checkpoint,
    set_random_state,
)


def steps(kept):
    return [int(path.name[11:19]) for path in kept.files()]


@pytest.mark.parametrize(
    ("keep", "saved", "left"),
    [
        (1, [1, 2, 3], [3]),
        (2, [1], [1]),
        (2, [1, 2, 3], [2, 3]),
        (3, [5, 5, 6], [5, 6]),
        (2, [10, 20, 15], [10, 15]),  # went on from 10: 20 was left behind
        (2, [99_999_999, 100_000_000], [99_999_999, 100_000_000]),
    ],
)
def test_which_are_kept(tmp_path, keep, saved, left):
    kept = Checkpoints(tmp_path / "run", keep)
    for step in saved:
        kept.save(step, {"step": step})
    assert [load_checkpoint(path)["step"] for path in kept.files()] == left
    assert kept.load() == {"step": left[-1]}


def test_what_else_is_in_the_folder(tmp_path):
    kept = Checkpoints(tmp_path)
    for name in (
        "checkpoint-1.safetensors",
        "checkpoint-00000009.safetensors.bak",
        "model.safetensors",
        ".checkpoint-00000009.safetensors.77.tmp",
    ):
        (tmp_path / name).write_text("x")
    kept.save(1, {})
    assert steps(kept) == [1]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert ".checkpoint-00000009.safetensors.77.tmp" not in left and len(left) == 4


def test_damaged_latest_names_the_previous(tmp_path):
    kept = Checkpoints(tmp_path)
    for step in (1, 2):
        kept.save(step, {"step": step})
    latest = kept.find()
    latest.write_bytes(latest.read_bytes()[:-1] + b"?")
    with pytest.raises(
        CheckpointError, match=r"00000002.safetensors: .*; the previous checkpoint is checkpoint-00000001"
    ):
        kept.load()
    assert kept.load("previous") == {"step": 1}
    kept.save(2, {"step": 2})
    assert kept.load() == {"step": 2}


@pytest.mark.parametrize(
    ("saved", "which", "told"),
    [
        ([], "latest", "no latest checkpoint there"),
        ([1], "previous", "no previous"),
        ([1], "best", "expected latest or previous"),
    ],
)
def test_nothing_to_load(tmp_path, saved, which, told):
    kept = Checkpoints(tmp_path / "run")
    for step in saved:
        kept.save(step, {})
    with pytest.raises(ValueError, match=told):
        kept.load(which)
    with pytest.raises(ValueError, match="keep must be at least 1"):
        Checkpoints(tmp_path, 0)


# ---- Generators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 7])
def test_generators_go_on(tmp_path, seed):
    draw = lambda: (np.random.randn(3), needle.random.normal(3).numpy())  # noqa: E731, NPY002
    np.random.seed(1)  # noqa: NPY002
    needle.random.seed(seed)
    try:
        np.random.randn()  # noqa: NPY002  leaves a second normal number waiting
        save_checkpoint(tmp_path / "a", random_state())
        first = draw()
        np.random.seed(2)  # noqa: NPY002
        needle.random.seed(3)
        set_random_state(load_checkpoint(tmp_path / "a"))
        assert same(draw(), first)
        assert needle.random.get_state() is None if seed is None else needle.random.get_state()["seed"] == seed
    finally:
        needle.random.seed(None)


# ---- Killed while writing -------------------------------------------------------------------------------------------

WRITER = """
import sys, numpy as np
from needle_nn.checkpoint import Checkpoints
kept = Checkpoints(sys.argv[1])
step = kept.load()["step"] if kept.files() else 0
print("ready", flush=True)
while True:
    step += 1
    kept.save(step, {"step": step, "w": np.full(200_000, step)})
"""


def test_killed_while_writing(tmp_path):
    """Whenever SIGKILL comes, the latest checkpoint is whole, and not older than what was there before."""
    rng, reached = np.random.RandomState(0), 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE) as run:
            run.stdout.readline()
            while not reached and not Checkpoints(tmp_path).files():  # the first one, on a busy machine
                time.sleep(0.001)
            try:
                run.wait(rng.uniform(0.02, 0.1))
            except subprocess.TimeoutExpired:
                run.kill()
        state = Checkpoints(tmp_path).load()
        assert state["step"] >= reached and (state["w"] == state["step"]).all()
        reached = state["step"]
    assert reached > 4
    assert len(Checkpoints(tmp_path).files()) in (2, 3)
