"""The command `needle` among other processes, signals, damaged files and full disks: real processes throughout."""
# ruff: noqa: F811  (fixtures are imported, then named as arguments)

import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command_helpers import arguments, data, generators_as_before, one_thread  # noqa: F401  fixtures
from test_command import COMMAND, started, wait_for
from test_training_history import BAD

from needle_nn.checkpoint import Checkpoints, save_checkpoint
from needle_nn.command.main import interrupts_later, main
from needle_nn.training.callbacks import read_metrics


def run(*args, **more):
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120, **more)


@pytest.fixture(scope="module")
def short_run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("short") / "run"
    assert main(arguments("digits", data, out, "--steps", "3")) == 0
    return out


@pytest.fixture
def copied(short_run, tmp_path):
    return shutil.copytree(short_run, tmp_path / "run")


# ---- Damaged metrics --------------------------------------------------------------------------------------------------


def test_every_damaged_line_at_once(data, copied):
    """One warning, in one line; the run goes on, ends with a report, and has all its rows."""
    path = copied / "metrics.jsonl"
    good = b"".join(path.read_bytes().splitlines(keepends=True)[:3])  # the epoch that was cut short is told again
    path.write_bytes(b"".join(line + b"\n" for line, _ in BAD.values()) + good)
    done = run(*arguments("digits", data, copied, "--resume", "--steps", "5"))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"needle train: warning: {path}: lines 1-{len(BAD)} are not readable (blank in line 1):"
        " kept in metrics.jsonl.damaged\n"
    )
    assert path.read_bytes().startswith(good) and (copied / "report.html").exists()
    assert [row["step"] for row in read_metrics(path) if row["kind"] == "step"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", BAD)
def test_each_damaged_line(data, copied, name, capsys):
    with (copied / "metrics.jsonl").open("ab") as file:
        file.write(BAD[name][0] + b"\n")
    with pytest.warns(UserWarning, match="line 5 is not readable"):
        assert main(arguments("digits", data, copied, "--resume", "--steps", "4")) == 0
    assert [row["step"] for row in read_metrics(copied / "metrics.jsonl") if row["kind"] == "step"] == [1, 2, 3, 4]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_metrics_that_are_no_file(data, copied, make):
    (copied / "metrics.jsonl").unlink()
    make(copied / "metrics.jsonl")
    done = run(*arguments("digits", data, copied, "--resume", "--steps", "4"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "metrics.jsonl: " in done.stderr


# ---- Two processes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--resume"], ["--overwrite"]], ids=str)
def test_the_second_is_told_who_the_first_is(data, tmp_path, more):
    first = started(*arguments("digits", data, tmp_path / "run", "--epochs", "1000"))
    try:
        wait_for(lambda: Checkpoints(tmp_path / "run").files())
        second = run(*arguments("digits", data, tmp_path / "run", *more))
        assert second.returncode == 1 and second.stdout == "" and second.stderr.count("\n") == 1
        assert f"needle train: {tmp_path / 'run'} is in use by process {first.pid} on " in second.stderr
        assert run("eval", tmp_path / "run").returncode == 0  # a reader needs no lock
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    reached = Checkpoints(tmp_path / "run").load()["trainer"]["step"]
    done = run(*arguments("digits", data, tmp_path / "run", "--resume", "--steps", reached + 1, "--epochs", "1000"))
    assert done.returncode == 0, done.stderr  # a killed one has left no lock
    assert not list((tmp_path / "run").glob(".*"))


def test_started_at_once_one_of_them_runs(data, tmp_path):
    runs = [started(*arguments("digits", data, tmp_path / "run", "--steps", "40")) for _ in range(4)]
    told = [each.communicate(timeout=120)[1] for each in runs]
    codes = [each.returncode for each in runs]
    assert codes.count(0) == 1 and set(codes) <= {0, 1, 2}, told
    for code, line in zip(codes, told, strict=True):
        assert (line == "") if code == 0 else ("in use by" in line if code == 1 else "holds a run" in line)
    assert Checkpoints(tmp_path / "run").load()["trainer"]["step"] == 40
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "step"] == list(
        range(1, 41)
    )


# ---- What is no checkpoint ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize("command", ["eval", "train"])
def test_a_pipe_or_a_folder_of_a_checkpoints_name(data, copied, make, command):
    make(copied / "checkpoint-99999999.safetensors")
    more = ["eval", copied] if command == "eval" else arguments("digits", data, copied, "--resume", "--steps", "9")
    done = run(*more)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize(
    "args", [["eval", "{}"], ["generate", "{}"], ["train", "text", "--data", "{}", "--out", "{}x"]]
)
def test_a_pipe_in_place_of_a_file(tmp_path, make, args):
    path = tmp_path / "pipe"
    make(path)
    done = run(*(part.format(path) for part in args))
    assert done.returncode == 1 and done.stderr == f"needle {args[0]}: {path}: not a regular file\n"


PARTS = {
    "recipe is a list": ({"run": {"recipe": []}}, "not of `needle train`"),
    "no settings": ({"run": {"settings": None}}, "without settings"),
    "no facts": ({"run": {"facts": 5}}, "without facts"),
    "no trainer": ({"trainer": None}, "without trainer"),
    "no step": ({"trainer": {"step": ...}}, "without step"),
    "no lr": ({"run": {"settings": {"lr": ...}}}, "without lr"),
    "no model": ({"model": ...}, "without model"),
}


def changed(state, changes):
    for name, value in changes.items():
        if value is ...:
            state = {key: item for key, item in state.items() if key != name}
        else:
            state = {**state, name: changed(state[name], value) if isinstance(value, dict) else value}
    return state


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("command", ["eval", "train"])
def test_a_checkpoint_without_a_part(data, copied, name, command, capsys):
    changes, told = PARTS[name]
    kept = Checkpoints(copied)
    path = kept.find()
    save_checkpoint(path, changed(kept.load(), changes))
    more = ["eval", str(copied)] if command == "eval" else arguments("digits", data, copied, "--resume", "--steps", "9")
    assert main(more) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"needle {command}: {path}: ") and told in err and err.count("\n") == 1


# ---- No space ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "name"), [(100, "metrics.jsonl"), (50_000, "checkpoint-00000003.safetensors")])
def test_no_space_for_a_file(data, tmp_path, room, name):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))  # noqa: E731
    done = run(*arguments("digits", data, tmp_path / "run", "--steps", "5"), preexec_fn=limit)
    assert (done.returncode, done.stderr) == (1, f"needle train: {tmp_path / 'run' / name}: File too large\n")
    assert [each.name for each in (tmp_path / "run").iterdir()] == ["metrics.jsonl"]
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().count(b"\n") == len(rows)  # none is half there


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["info"], ["eval", "{}"]], ids=lambda args: args[0])
def test_no_space_for_what_is_printed(short_run, args):
    with open("/dev/full", "w") as full:
        command = [*COMMAND, *(part.format(short_run) for part in args)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("standard output: No space left on device\n")


def test_output_without_the_characters(data, tmp_path):
    """8 × 8 pixels, and a folder's name that is no text."""
    folder = os.fsencode(tmp_path) + b"/run \xff"
    command = [*COMMAND, "train", "digits", "--steps", "1", "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "") and "8 \\xd7 8" in done.stdout
    assert subprocess.run([*COMMAND, "eval", folder], capture_output=True).returncode == 0


def test_an_error_of_the_imports_is_a_line():
    done = run("info", env={**os.environ, "NEEDLE_NUM_THREADS": "many"})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("needle: NEEDLE_NUM_THREADS=many: expected a number")


# ---- Signals ------------------------------------------------------------------------------------------------------------------

SIGNALLED = """
import os, signal, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Sender())
from needle_nn.command.main import main
sys.exit(main(["info"]))
"""


@pytest.mark.parametrize(
    "name", ["argparse", "numpy", "needle_ndarray", "needle.ops", "needle_nn.command.train", "tqdm"]
)
def test_ctrl_c_during_the_imports(name):
    done = subprocess.run([sys.executable, "-c", SIGNALLED.format(name=name)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "needle: interrupted\n")


def test_ctrl_c_at_any_moment_of_the_start():
    """From the moment Python has started: 130 and one line. (What comes before is Python's own.)"""
    for delay in (0.02, 0.1, 0.25, 0.4):
        code = (
            "import sys; from needle_nn.command.main import main; print('here', flush=True); sys.exit(main(['bench']))"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True) as process:
            assert process.stdout.readline() == "here\n"
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        assert process.returncode == 130, told
        assert told in ("needle: interrupted\n", "needle bench: interrupted\n")


def test_what_is_imported_before_main_is_little():
    code = "import sys; before = set(sys.modules); import needle_nn.command.main; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "argparse", "needle", "needle_ndarray", "tqdm", "json"} & set(done.stdout.split())


def test_handlers_are_as_before():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_later():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_background_job_ignores_what_it_was_started_to_ignore(data, tmp_path, number):
    out = tmp_path / "run"
    command = [*COMMAND, *arguments("digits", data, out, "--steps", "60")]
    ignore = lambda: signal.signal(number, signal.SIG_IGN)  # noqa: E731
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, preexec_fn=ignore) as process:
        time.sleep(0.1)
        process.send_signal(number)  # during the imports
        wait_for(lambda: Checkpoints(out).files())
        for _ in range(3):
            process.send_signal(number)
            time.sleep(0.02)
        told = process.communicate(timeout=120)
    assert (process.returncode, told) == (0, ("", ""))
    assert Checkpoints(out).load()["trainer"]["step"] == 60


def test_a_job_of_a_shell(data, tmp_path):
    """What `needle train ... &` in a script is: the shell has SIGINT ignored, and a Ctrl-C is meant for another."""
    out = tmp_path / "run"
    line = " ".join([*COMMAND, *arguments("digits", data, out, "--steps", "60")])
    shell = subprocess.Popen(["sh", "-c", f"{line} & wait"], start_new_session=True)
    wait_for(lambda: Checkpoints(out).files())
    os.killpg(shell.pid, signal.SIGINT)
    wait_for(lambda: (out / "report.html").exists())
    assert Checkpoints(out).load()["trainer"]["step"] == 60
    shell.wait(60)
