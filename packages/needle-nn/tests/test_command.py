"""The command `needle`: what it leaves behind, how it is stopped and goes on."""
# ruff: noqa: F811  (fixtures are imported, then named as arguments)

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_helpers import SHORT, arguments, data, generators_as_before, one_thread, writer  # noqa: F401  fixtures

from needle_nn.checkpoint import Checkpoints, load_checkpoint
from needle_nn.command.main import main
from needle_nn.command.recipes import RECIPES
from needle_nn.data import stdlib_docstrings
from needle_nn.training.callbacks import read_metrics


def contents(folder):
    """Everything a run's latest checkpoint holds, as bytes, without times."""
    from needle_nn.packing import pack

    state = Checkpoints(folder).load()
    state["trainer"]["seconds"] = 0
    arrays, text = pack(state)
    return text, {name: array.tobytes() for name, array in arrays.items()}


# ---- Recipes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_of_every_recipe(recipe, data, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(arguments(recipe, data, out, "--epochs", "2")) == 0
    assert capsys.readouterr() == ("", "")
    names = sorted(path.name for path in out.iterdir())
    assert names[-2:] == ["metrics.jsonl", "report.html"] and len(names) == 4
    rows = read_metrics(out / "metrics.jsonl")
    assert [row["epoch"] for row in rows if row["kind"] == "epoch"] == [1, 2]
    assert {"loss", "valid_loss"} <= set(rows[-1])
    page = (out / "report.html").read_text()
    wanted = {"Learning curves", "Model", "Settings"} | (
        {"Generated text"} if RECIPES[recipe].text else {"Confusion matrix", "Sample predictions"}
    )
    assert all(f"<h2>{section}</h2>" in page for section in wanted)

    assert main(["eval", str(out), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["loss"] == pytest.approx(rows[-1]["valid_loss"], rel=1e-4)
    if not RECIPES[recipe].text:
        assert measured["accuracy"] == pytest.approx(rows[-1]["valid_accuracy"])
    assert main(["eval", str(out)]) == 0
    assert f"loss         {measured['loss']:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", RECIPES)
def test_same_seed_same_bits_other_seed_others(recipe, data, tmp_path):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert main(arguments(recipe, data, tmp_path / name, "--steps", "2", "--seed", seed)) == 0
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b and a[1] != c[1]
    assert (
        Checkpoints(tmp_path / "c").load()["random"]["needle"]["seed"] == 2
    )  # the generator that threads do not change


@pytest.mark.parametrize("recipe", RECIPES)
def test_longer_in_two_runs_is_the_same(recipe, data, tmp_path):
    assert main(arguments(recipe, data, tmp_path / "whole", "--epochs", "3", "--steps", "5")) == 0
    assert main(arguments(recipe, data, tmp_path / "parts", "--epochs", "3", "--steps", "2")) == 0
    assert main(["train", recipe, "--resume", "--steps", "5", "--out", str(tmp_path / "parts"), *SHORT]) == 0
    whole, parts = contents(tmp_path / "whole"), contents(tmp_path / "parts")
    assert parts[1] == whole[1] and parts[0].replace(str(tmp_path / "parts"), "") == whole[0].replace(
        str(tmp_path / "whole"), ""
    )


@pytest.mark.parametrize(
    ("recipe", "model"), [(name, model) for name, r in RECIPES.items() for model in r.models if len(r.models) > 1]
)
def test_every_model(recipe, model, data, tmp_path):
    assert main(arguments(recipe, data, tmp_path / "run", "--steps", "2", "--model", model)) == 0
    if RECIPES[recipe].text:
        assert main(["generate", str(tmp_path / "run"), "--length", "5"]) == 0


def test_digits_learn(tmp_path, capsys):
    """What the demonstration promises, in fewer epochs."""
    assert main(["train", "digits", "--epochs", "4", "--out", str(tmp_path)]) == 0
    assert "report:" in capsys.readouterr().out
    assert main(["eval", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] >= 0.97


def test_digits_of_ones_own(data, tmp_path):
    assert main(arguments("digits", data, tmp_path, "--data", str(data), "--steps", "1")) == 0
    assert "60 images of 8 × 8 pixels, 20 for testing" in (tmp_path / "report.html").read_text()


def test_text_comes_from_the_docstrings_by_default(tmp_path, monkeypatch):
    monkeypatch.setattr("needle_nn.command.recipes.stdlib_docstrings", lambda: stdlib_docstrings(20_000))
    assert (
        main(["train", "text", "--steps", "1", "--width", "32", "--layers", "1", "--out", str(tmp_path), *SHORT]) == 0
    )
    assert len(Checkpoints(tmp_path).load()["run"]["facts"]["characters"]) > 60


# ---- Writing ------------------------------------------------------------------------------------------------------------


def written(capsys, *args):
    assert main(["generate", *args]) == 0
    return capsys.readouterr().out


def test_generate(writer, capsys):
    text = written(capsys, writer, "--prompt", "the cat", "--length", "40")
    assert text.startswith("the cat") and len(text) == 7 + 40 + 1
    assert written(capsys, writer, "--prompt", "the cat", "--length", "40") == text
    assert written(capsys, writer, "--prompt", "the cat", "--length", "40", "--seed", "1") != text
    likeliest = {written(capsys, writer, "--temperature", "0", "--seed", seed) for seed in "123"}
    assert likeliest == {written(capsys, writer, "--top-k", "1")}


def test_generate_takes_a_checkpoint_file(writer, capsys):
    files = Checkpoints(writer).files()
    assert written(capsys, str(files[-1]), "--length", "9") == written(capsys, writer, "--length", "9")
    previous = written(capsys, writer, "--length", "9", "--checkpoint", "previous")
    assert previous == written(capsys, str(files[-2]), "--length", "9")


# ---- Stopped, killed, damaged --------------------------------------------------------------------------------------------------

COMMAND = next(
    ([str(path)] for path in [Path(sys.executable).with_name("needle")] if path.exists()),
    [sys.executable, "-m", "needle_nn.command.main"],
)


def started(*args):
    return subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_ctrl_c_saves_and_says_how_to_go_on(data, tmp_path):
    out = tmp_path / "a run"  # a name that needs quotes
    run = started(*arguments("digits", data, out, "--epochs", "1000"))
    wait_for(lambda: Checkpoints(out).files())
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in told
    assert "interrupted; saved" in told and f"go on with: needle train digits --resume --out '{out}'" in told
    reached = Checkpoints(out).load()["trainer"]["step"]
    done = subprocess.run(
        [*COMMAND, *arguments("digits", data, out, "--resume", "--steps", str(reached + 2))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Checkpoints(out).load()["trainer"]["step"] == reached + 2


def test_killed_and_resumed_it_is_the_same_run(data, tmp_path):
    """The hardest recipe: carried states, a position in the text, dropout-free but clipped; SIGKILL several times."""
    long = ["--epochs", "6"]
    assert main(arguments("ptb", data, tmp_path / "whole", *long)) == 0
    out = tmp_path / "killed"
    for steps in (4, 11, 17):
        run = started(*arguments("ptb", data, out, "--resume", *long))
        wait_for(lambda steps=steps: any(row["step"] >= steps for row in read_metrics(out / "metrics.jsonl")))
        run.kill()
        run.communicate()
        assert not (out / "report.html").exists()
    assert main(arguments("ptb", data, out, "--resume", *long)) == 0
    assert contents(out) == contents(tmp_path / "whole")
    lines = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(f / "metrics.jsonl")]
        for f in (out, tmp_path / "whole")
    ]
    assert lines[0] == lines[1]


def test_damaged_checkpoint_is_named_and_the_previous_used_if_asked(data, tmp_path, capsys):
    for name in ("whole", "run"):
        assert main(arguments("digits", data, tmp_path / name, "--steps", "8")) == 0
    latest, out = Checkpoints(tmp_path / "run").find(), tmp_path / "run"
    latest.write_bytes(latest.read_bytes()[:-7])
    capsys.readouterr()
    assert main(arguments("digits", data, out, "--resume")) == 1
    told = capsys.readouterr().err
    assert (
        told.count("\n") == 1 and str(latest) in told and "truncated" in told and "the previous checkpoint is" in told
    )
    assert main(arguments("digits", data, out, "--resume", "previous", "--steps", "8")) == 0
    assert contents(out) == contents(tmp_path / "whole")


def test_resume_with_nothing_there_starts(data, tmp_path, capsys):
    assert main(arguments("digits", data, tmp_path / "new", "--resume", "--steps", "1")) == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_overwrite_begins_again(data, tmp_path):
    for more in ([], ["--overwrite"]):
        assert main(arguments("digits", data, tmp_path, "--steps", "2" if more else "5", *more)) == 0
    assert [path.name for path in Checkpoints(tmp_path).files()] == ["checkpoint-00000002.safetensors"]
    assert max(row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")) == 2


# ---- Help, info, bench -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [[], ["train"], ["eval"], ["generate"], ["info"], ["bench"], *(["train", name] for name in RECIPES)],
    ids=" ".join,
)
def test_help(args, capsys):
    assert main([*args, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: needle") and all(len(line) <= 120 for line in shown.splitlines())
    if len(args) == 2:
        assert f"default: runs/{args[1]}" in shown and f"default: {RECIPES[args[1]].defaults['lr']}" in shown


def test_installed_command():
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "needle-nn")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes as in POSIX")
def test_closed_pipe_is_no_traceback(tmp_path):
    shell = " ".join(map(str, COMMAND)) + " info | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_info(capsys):
    assert main(["info"]) == 0
    names = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert {"needle-core", "needle-nn", "needle-ndarray", "NumPy", "instruction set", "BLAS", "cpu()", "cuda()"} <= set(
        names
    )


def test_bench(capsys):
    assert main(["bench", "--seconds", "0.001"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("matmul, 512", "LeNet", "GPT", "GFLOP", "examples"))


def test_checkpoints_of_a_run_can_be_read_elsewhere(writer):
    from safetensors.numpy import load_file

    path = Checkpoints(writer).find()
    theirs, ours = load_file(path), load_checkpoint(path)["model"]
    assert {name.removeprefix("model.") for name in theirs if name.startswith("model.")} == set(ours)


# ---- Profiles --------------------------------------------------------------------------------------------------------


def test_profile(data, tmp_path, capsys):
    trace, run = tmp_path / "trace.json", arguments("mnist", data, tmp_path / "run", "--steps", "6")
    assert main([*[flag for flag in run if flag != "--quiet"], "--profile", str(trace)]) == 0
    out = capsys.readouterr().out
    assert f"trace of 3 steps: {trace}" in out
    assert "Linear backward" in out and "between operations" in out
    events = json.loads(trace.read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X" and event["args"].get("verb") == "step adam"]
    assert len(steps) == 3


def test_profile_changes_nothing_and_is_quiet(data, tmp_path, capsys):
    for name, more in (("a", []), ("b", ["--profile", str(tmp_path / "trace.json")])):
        assert main(arguments("text", data, tmp_path / name, "--steps", "6", *more)) == 0
    assert contents(tmp_path / "a")[1] == contents(tmp_path / "b")[1]
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "trace.json").is_file()


def test_profile_without_a_folder(data, tmp_path, capsys):
    missing = tmp_path / "missing" / "trace.json"
    assert main(arguments("mnist", data, tmp_path / "run", "--profile", str(missing))) == 2
    assert f"--profile {missing}: there is no such folder" in capsys.readouterr().err
