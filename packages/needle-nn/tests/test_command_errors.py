"""The command `needle` says what is wrong in one line, with the right exit code, and leaves everything as it was."""
# ruff: noqa: F811  (fixtures are imported, then named as arguments)

from pathlib import Path

import pytest
from command_helpers import arguments, data, generators_as_before, one_thread, writer  # noqa: F401  fixtures

from needle_nn.checkpoint import save_checkpoint
from needle_nn.command.main import main


@pytest.fixture(scope="module")
def run_of_digits(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("digits") / "run"
    assert main(arguments("digits", data, out, "--steps", "1")) == 0
    return str(out)


WRONG = {
    "no command": ([], 2, "the following arguments are required: COMMAND"),
    "unknown command": (["fly"], 2, "invalid choice: 'fly'"),
    "no recipe": (["train"], 2, "required: RECIPE"),
    "unknown recipe": (["train", "imagenet"], 2, "invalid choice: 'imagenet'"),
    "unknown flag": (["train", "digits", "--speed", "9"], 2, "unrecognized arguments: --speed"),
    "command, nearly": (["trian"], 2, "invalid choice: 'trian' (did you mean train?; choose from train, eval, "),
    "recipe, nearly": (["train", "digit"], 2, "needle train: error: argument RECIPE: invalid choice: 'digit' (did you mean d"),
    "flag, nearly": (["train", "digits", "--ephocs=3"], 2, "digits: error: unrecognized arguments: --ephocs=3 (did you mean --ep"),
    "choice, nearly": (["train", "digits", "--model", "lenett"], 2, "'lenett' (did you mean lenet?; choose from cnn, lenet, mlp)"),
    "seed below 0": (["train", "digits", "--seed", "-1", "--out", "{new}"], 2, "--seed must be from 0 to 4294967295, got -1"),
    "seed too large": (["train", "digits", "--seed", "4294967296", "--out", "{new}"], 2, "--seed must be from 0 to 4294967295"),
    "no number": (["train", "digits", "--lr", "fast"], 2, "invalid float value: 'fast'"),
    "lr of 0": (["train", "digits", "--lr", "0", "--out", "{new}"], 2, "--lr must be above 0"),
    "batch of -1": (["train", "digits", "--batch-size", "-1", "--out", "{new}"], 2, "--batch-size must be above 0"),
    "no epochs": (["train", "digits", "--epochs", "0", "--out", "{new}"], 2, "--epochs must be above 0"),
    "log never": (["train", "digits", "--log-every", "0", "--out", "{new}"], 2, "--log-every must be above 0"),
    "data missing": (["train", "mnist", "--out", "{new}"], 2, "give --data, the folder of the four IDX files"),
    "folder missing": (["train", "mnist", "--data", "{new}", "--out", "{new}"], 1, "holds no train-images-idx3-ubyte.gz"),
    "no text": (["train", "text", "--data", "{new}", "--out", "{new}"], 1, "absent: No such file"),
    "text is binary": (["train", "text", "--data", "{data}/test_batch.bin", "--out", "{new}"], 1, "not UTF-8"),
    "text is short": (["train", "text", "--data", "{data}/short", "--out", "{new}"], 1, "too few to learn from"),
    "device": (["train", "digits", "--device", "tpu", "--out", "{new}"], 1, "tpu(): no such backend here"),
    "out is a file": (["train", "digits", "--out", "{data}/train.txt"], 1, "train.txt: File exists"),
    "run is there": (["train", "digits", "--out", "{run}"], 2, "holds a run: --resume goes on with it"),
    "resume and overwrite": (["train", "digits", "--resume", "--overwrite"], 2, "exclude each other"),
    "resume, other lr": (["train", "digits", "--resume", "--lr", "9", "--out", "{run}"], 2, "it cannot change when it goes on"),
    "resume, other recipe": (["train", "text", "--resume", "--out", "{run}"], 2, "holds a run of digits, not of text"),
    "resume, no previous": (["train", "digits", "--resume", "previous", "--out", "{run}"], 1, "no previous checkpoint"),
    "eval of nothing": (["eval", "{new}"], 1, "absent: no such run"),
    "eval of an empty folder": (["eval", "{empty}"], 1, "no latest checkpoint there (0 found)"),
    "eval of a text": (["eval", "{data}/train.txt"], 1, "no safetensors file"),
    "eval of another checkpoint": (["eval", "{data}/other"], 1, "a checkpoint, but not of `needle train`"),
    "generate digits": (["generate", "{run}"], 2, "a run of digits, which writes nothing"),
    "temperature": (["generate", "{run}", "--temperature", "-1"], 2, "--temperature at least 0"),
    "temperature of nan": (["generate", "{run}", "--temperature", "nan"], 2, "--temperature nan: "),
    "draws of seed -1": (["generate", "{run}", "--seed", "-1", "--length", "0"], 2, "--length 0, --seed -1: "),
    "prompt": (["generate", "{writer}", "--prompt", "Ж"], 1, "'Ж' is not in the vocabulary"),
    "other text": (["eval", "{writer}", "--data", "{data}/other.txt"], 1, "its characters are not those"),
    "bench to nowhere": (["bench", "--json", "{new}/x"], 2, "expected a file in a folder that is there"),
    "bench to a folder": (["bench", "--json", "{data}"], 2, "expected a file in a folder that is there"),
    "bench": (["bench", "--seconds", "0"], 2, "--seconds must be above 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_one_line(name, data, run_of_digits, writer, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("NEEDLE_TRACEBACK", raising=False)
    (data / "short").write_text("too short")
    (data / "other.txt").write_text("xyz" * 100)
    save_checkpoint(data / "other", {"run": None})
    (tmp_path / "empty").mkdir()
    places = {
        "new": tmp_path / "absent",
        "data": data,
        "run": run_of_digits,
        "writer": writer,
        "empty": tmp_path / "empty",
    }
    arguments, code, told = WRONG[name]
    before = Path(run_of_digits, "metrics.jsonl").read_bytes()
    assert main([part.format(**places) for part in arguments]) == code
    out, err = capsys.readouterr()
    assert told in err and out == "" and "Traceback" not in err
    assert err.startswith("usage: ") or err.count("\n") == 1
    assert not list(tmp_path.glob("absent/*")) and Path(run_of_digits, "metrics.jsonl").read_bytes() == before


def test_traceback_if_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("NEEDLE_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no such run"):
        main(["eval", str(tmp_path / "absent")])
