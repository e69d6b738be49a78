"""The same bits on any number of ranks and threads, however a run is cut: checkpoints, metrics and logs are compared."""

import json
import os
import re

import pytest
from distributed_helpers import launch, needs_mpi, run
from distributed_training import KINDS

import needle.distributed as dist
from needle_nn import nn, optim
from needle_nn.training import Trainer

PROGRAM = "distributed_training.py"
COMPARED = ("sha", "step", "logs", "rows", "stopped")
_alone: dict = {}


def train(ranks, folder, threads=1, code=0, environment=None, **options):
    """What a run says of itself; its error output where it was to fail."""
    folder.mkdir(parents=True, exist_ok=True)
    given = json.dumps({"folder": str(folder), "steps": 12, **options})
    env = {"NEEDLE_NUM_THREADS": str(threads), **(environment or {})}
    done = run([PROGRAM, given], **env) if ranks == 1 else launch(ranks, PROGRAM, given, options=["--no-prefix"], **env)
    assert done.left == []
    if code:
        assert done.code != 0
        return done.err
    assert done.code == 0, done.err
    return json.loads(done.out.splitlines()[-1])


def alone(tmp_path_factory, **options):
    """The run in one process on one thread, which is made once."""
    key = json.dumps(options, sort_keys=True)
    if key not in _alone:
        _alone[key] = train(1, tmp_path_factory.mktemp("alone"), **options)
    return _alone[key]


def check(found, wanted):
    assert {name: found[name] for name in COMPARED} == {name: wanted[name] for name in COMPARED}


#: kind, ranks, threads of each, further options
QUICK = [
    ("mlp", 1, 2, {}),
    ("mlp", 2, 1, {"zero": True, "slices": True}),
    ("cnn", 2, 1, {"seeded": False}),
    ("cnn", 3, 1, {"parts": 5, "zero": True, "slices": True}),
    ("gpt", 4, 1, {"zero": True, "clip": None}),
    ("lstm", 2, 2, {}),
    ("cnn", 3, 1, {"parts": 5, "overlap": True}),
    ("gpt", 2, 1, {"zero": True, "clip": None, "overlap": True, "slices": True}),
]
ALL = [
    (
        kind,
        ranks,
        threads,
        {"zero": zero, "slices": zero, "overlap": ranks > 1 and threads == 2, "steps": 50, "every": 20},
    )
    for kind in KINDS
    for ranks in (1, 2, 4)
    for threads in (1, 2)
    for zero in (False, True)
    if (ranks, threads) != (1, 1) and (ranks > 1 or not zero)
]


@needs_mpi
@pytest.mark.parametrize(("kind", "ranks", "threads", "options"), QUICK)
def test_same_bits(tmp_path, tmp_path_factory, kind, ranks, threads, options):
    plain = {name: value for name, value in options.items() if name not in ("zero", "slices", "overlap")}
    found = train(ranks, tmp_path, threads, kind=kind, **options)
    check(found, alone(tmp_path_factory, kind=kind, **plain))
    if options.get("zero"):  # of a share of the elements, which sizes that do not divide make a little larger
        whole = alone(tmp_path_factory, kind=kind, **plain)["kept"]
        assert all(mine <= each / ranks + 1 for mine, each in zip(found["kept"], whole, strict=True))


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ranks", "threads", "options"), ALL)
def test_same_bits_everywhere(tmp_path, tmp_path_factory, kind, ranks, threads, options):
    found = train(ranks, tmp_path, threads, kind=kind, **options)
    check(found, alone(tmp_path_factory, kind=kind, steps=50, every=20))


#: Open MPI and MPICH without shared memory.
TCP_ONLY = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "MPIR_CVAR_NOLOCAL": "1"}
TCP = [
    ("mlp", 4, True),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("cnn", 2, False), ("gpt", 4, True), ("lstm", 2, True))),
]


@needs_mpi
@pytest.mark.parametrize(("kind", "ranks", "zero"), TCP)
def test_same_bits_by_tcp(tmp_path, tmp_path_factory, kind, ranks, zero):
    found = train(ranks, tmp_path, kind=kind, zero=zero, slices=zero, environment=TCP_ONLY)
    check(found, alone(tmp_path_factory, kind=kind))


@needs_mpi
def test_captured_steps_too(tmp_path, tmp_path_factory):
    """Replayed steps put statistics off as well."""
    found = train(2, tmp_path, kind="cnn", capture=True, slices=True)
    check(found, alone(tmp_path_factory, kind="cnn"))
    assert found["replays"] > 10


def test_captured_in_one_process(tmp_path, tmp_path_factory):
    found = train(1, tmp_path, kind="cnn", capture=True)
    check(found, alone(tmp_path_factory, kind="cnn"))
    assert found["replays"] > 20


@needs_mpi
def test_all_ranks_end_where_a_callback_of_rank_0_says(tmp_path, tmp_path_factory):
    found = train(4, tmp_path, kind="mlp", stop=7)
    check(found, alone(tmp_path_factory, kind="mlp", stop=7))
    assert (found["step"], found["stopped"]) == (7, "enough")


#: kind, ranks before and after, (step, rank, whether while a checkpoint is written) of a SIGKILL
KILLED = [
    ("lstm", 1, 2, (8, 0, False)),
    ("mlp", 4, 1, (10, 0, True)),
    ("lstm", 2, 4, (9, 1, False)),
]
KILLED_MORE = [
    (kind, before, after, (step, rank, writing))
    for kind in KINDS
    for before, after in ((1, 4), (2, 1), (4, 2))
    for step, rank, writing in ((5, 0, True), (7, before - 1, False))
]


def cut(tmp_path, tmp_path_factory, kind, before, after, kill):
    zero = kind != "cnn"
    train(before, tmp_path, kind=kind, kill=kill, zero=zero, code=1)
    unfinished = [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    assert bool(unfinished) == kill[2]
    found = train(after, tmp_path, kind=kind, zero=zero)
    assert found["begun"] in ((5, 8) if kind != "lstm" else (5,)) or kill[0] <= 7
    wanted = alone(tmp_path_factory, kind=kind)
    assert (found["sha"], found["rows"]) == (wanted["sha"], wanted["rows"])


@needs_mpi
@pytest.mark.parametrize(("kind", "before", "after", "kill"), KILLED)
def test_a_killed_run_goes_on_with_other_ranks(tmp_path, tmp_path_factory, kind, before, after, kill):
    cut(tmp_path, tmp_path_factory, kind, before, after, kill)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "before", "after", "kill"), KILLED_MORE)
def test_killed_runs_go_on(tmp_path, tmp_path_factory, kind, before, after, kill):
    cut(tmp_path, tmp_path_factory, kind, before, after, kill)


@needs_mpi
def test_a_full_disk_on_one_rank_ends_all_and_the_run_goes_on(tmp_path, tmp_path_factory):
    """The checkpoint before is whole; with room again, the run ends with the bits of one that was not cut."""
    told = train(2, tmp_path, kind="mlp", full=8, code=1)
    assert "File too large" in told and "OSError" in told
    found = train(3, tmp_path, kind="mlp")
    wanted = alone(tmp_path_factory, kind="mlp")
    assert (found["begun"], found["sha"]) == (5, wanted["sha"])


@needs_mpi
def test_mistakes_are_one_line_on_all_ranks():
    done = launch(2, "distributed_mistakes.py")
    assert done.code == 0, done.out + done.err
    assert done.out.count("all mistakes are told") == 2


def test_a_step_needs_a_part_for_each_rank():
    class Two(dist.Alone):
        size = 2

    model = nn.Linear(2, 2)
    for world, error, told in (
        (Two(), ValueError, "accumulate=1, but there are 2 ranks: a step needs a part for each of them"),
        (2, TypeError, "world is a int, expected what needle.distributed.init() gives"),
    ):
        with pytest.raises(error, match=re.escape(told)):
            Trainer(model, optim.SGD(model.parameters()), nn.SoftmaxLoss(), world=world)


# ---- The command -----------------------------------------------------------------------------------------------------------

DIGITS = ["--epochs", "1", "--quiet", "--checkpoint-every", "7"]


def needle_train(*arguments, **env):
    return run(["-m", "needle_nn.command.main", "train", *map(str, arguments)], **env)


def held(folder):
    """{name of a checkpoint: its parameters}, and the metrics without their times."""
    from needle_nn.checkpoint import load_checkpoint

    states = {path.name: load_checkpoint(path) for path in folder.glob("checkpoint-*.safetensors")}
    bits = {name: [value.numpy().tobytes() for value in state["model"].values()] for name, state in states.items()}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return bits, [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@needs_mpi
@pytest.mark.parametrize("how", ["--sharded", "--overlap"])
def test_needle_train_on_ranks(tmp_path, how):
    """One report, one writer; a step of 64 examples becomes two parts of 32, as the same command without ranks can have them."""
    options = ["digits", "--epochs", "1", "--checkpoint-every", "7"]
    two = needle_train(*options, "--ranks", 2, how, "--as-root", "--out", tmp_path / "two")
    assert two.code == 0, two.err
    assert "a step has 2 parts of 32 examples: --accumulate 2 --batch-size 32" in two.out
    assert two.out.count("epoch 1/1") == two.out.count("report: ") == 1
    assert "30,762 parameters, on cpu(), 2 ranks, to" in two.out
    one = needle_train(*options, "--accumulate", 2, "--batch-size", 32, "--out", tmp_path / "one")
    assert one.code == 0, one.err
    assert held(tmp_path / "one") == held(tmp_path / "two")
    assert (tmp_path / "two" / "report.html").exists()


WRONG = [
    (["--ranks", "0"], "--ranks must be at least 1, got 0"),
    (["--restarts", "-1"], "--restarts must be at least 0, got -1"),
    (["--ranks", "3"], "--batch-size 64 cannot be cut into 3 equal parts"),
    (["--ranks", "4", "--accumulate", "2"], "4 ranks, but a step has --accumulate 2 part(s)"),
    (["--ranks", "2", "--overlap", "--capture"], "--overlap and --capture exclude each other"),
]


@pytest.mark.parametrize(("arguments", "told"), WRONG)
def test_wrong_numbers_of_ranks(tmp_path, arguments, told):
    done = needle_train("digits", *arguments, "--out", tmp_path / "run")
    assert done.code == 2 and done.err.startswith(f"needle train: {told}") and not (tmp_path / "run").exists()


@needs_mpi
def test_what_is_wrong_is_told_once(tmp_path):
    done = needle_train(
        "mnist", "--data", tmp_path / "nowhere", "--batch-size", 8, "--ranks", 2, "--as-root", "--out", tmp_path
    )
    assert done.code != 0 and done.err.count("holds no train-images-idx3-ubyte") == 1 and done.left == []
