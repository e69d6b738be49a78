"""The recipe lora: what it learns and keeps, what its folder is good for, and what it is told where something is missing."""
# ruff: noqa: F811  (fixtures are imported, then named as arguments)

import json
import shutil

import numpy as np
import pytest
from command_helpers import arguments, data, generators_as_before, one_thread  # noqa: F401  fixtures

from needle_nn.checkpoint import Checkpoints
from needle_nn.command.main import main
from needle_nn.command.runs import open_run, options, rebuild
from needle_nn.command.writers import open_writer
from needle_nn.lora import merge_lora
from needle_nn.models import load_pretrained
from needle_nn.training.callbacks import read_metrics


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("lora") / "run"
    more = ["--steps", "60", "--lr", "0.03", "--maps", "c_attn,c_fc,mlp.c_proj"]
    assert main(arguments("lora", data, out, *more)) == 0
    return out


def test_it_learns_and_keeps_only_what_it_learnt(run, data, capsys):
    state = Checkpoints(run).load()
    assert {name.rpartition(".lora_")[2] for name in state["model"]} == {"A.weight", "B.weight"}
    assert len(state["model"]) == 6
    assert main(["eval", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] < read_metrics(run / "metrics.jsonl")[0]["loss"] - 0.3
    base, found = load_pretrained(data / "base"), open_run(str(run))
    for name, p in rebuild(found, options(found.settings)).model.named_parameters():
        if ".lora_" not in name:
            there = dict(base.named_parameters())[name.replace(".linear.", ".")]
            np.testing.assert_array_equal(p.numpy(), there.numpy())


def test_its_folder_writes(run, capsys):
    assert main(["generate", str(run), "--prompt", "the cat", "--length", "20", "--temperature", "0"]) == 0
    text = capsys.readouterr().out
    for weights in ("int8", "bfloat16"):
        assert main(["generate", str(run), "--prompt", "the cat", "--length", "5", "--weights", weights]) == 0
    writer, _ = open_writer(str(run))
    merge_lora(writer.model)
    assert text == "the cat" + writer.write(["the cat"], 20, temperature=0)[0] + "\n"


def test_a_base_that_has_moved(run, data, tmp_path, capsys):
    copy, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(run, copy)
    shutil.copytree(data / "base", moved)
    again = ["train", "lora", "--resume", "--out", str(copy), "--base", str(moved), "--steps", "61", "--quiet"]
    assert main(again) == 0 and open_run(str(copy)).settings["base"] == str(moved)
    shutil.rmtree(moved)
    assert main(["generate", str(copy)]) == 1
    told = capsys.readouterr().err
    assert f"{moved}/config.json: No such file" in told and told.count("\n") == 1


WRONG = {
    "no base": (["--base", ""], 2, "lora: give --base, a folder with config.json"),
    "no such base": (["--base", "{tmp}/none"], 1, "none/config.json: No such file"),
    "no such map": (["--maps", "c_attn,nope"], 1, "no Linear of GPT2 is called nope"),
    "a context beyond the model's": (["--context", "17"], 2, "--context 17: the model in"),
    "rank": (["--rank", "0"], 2, "--rank must be above 0, got 0"),
    "no text": (["--data", "{tmp}/none.txt"], 1, "none.txt: No such file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_things_are_told(data, tmp_path, capsys, case):
    more, code, message = WRONG[case]
    more = [word.format(tmp=tmp_path) for word in more]
    assert main(arguments("lora", data, tmp_path / "out", *more)) == code
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
    assert not list((tmp_path / "out").glob("checkpoint*"))
