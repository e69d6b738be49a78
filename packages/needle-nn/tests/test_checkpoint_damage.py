"""Checkpoints that are damaged, foreign or hostile are refused by name and reason, in one line."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_helpers import same, write_file

from needle_nn import checkpoint
from needle_nn.checkpoint import CheckpointError, load, load_checkpoint, save_checkpoint


def entry(**changes):
    held = {"format": 1, "sha256": checkpoint._digest({}, "{}"), "state": "{}"} | changes
    return {"__metadata__": {"needle": json.dumps({k: v for k, v in held.items() if v is not None})}}


FOREIGN = {
    "empty file": (b"", "truncated, damaged or no safetensors file"),
    "text": (b"hello, I am a text file of some length\n" * 9, "no safetensors file"),
    "pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.", "no safetensors file"),
    "zip": (b"PK\x03\x04" + b"\0" * 60, "no safetensors file"),
    "header longer than the file": ((2**40).to_bytes(8, "little") + b"{}", "no safetensors file"),
    "header is a list": ([1, 2], "no safetensors file"),
    "offsets outside": ({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, "no safetensors file"),
    "shape and size differ": (
        {"x": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 0]}},
        "no safetensors file",
    ),
    "unknown dtype": ({"x": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]}}, "x is of dtype F8_E4M3"),
    "other program's": ({"__metadata__": {"format": "pt"}}, "no checkpoint of needle"),
    "entry is no JSON": ({"__metadata__": {"needle": "{"}}, "no checkpoint of needle"),
    "entry is deep": ({"__metadata__": {"needle": "[" * 100_000}}, "no checkpoint of needle"),
    "entry is a list": ({"__metadata__": {"needle": "[1]"}}, "no checkpoint of needle"),
    "digest missing": (entry(sha256=None), "no checkpoint of needle"),
    "format of the future": (entry(format=99), "checkpoint format 99, this version of needle reads 1"),
    "digest wrong": (entry(sha256="0" * 64), "do not match its SHA-256"),
    "state is no text": (entry(state=[1]), "do not match its SHA-256"),
}
STATES_REFUSED = {
    "no JSON": ("{", "its JSON is damaged"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "unknown mark": ('{"$code": "1+1"}', r"holds \$code"),
    "absent array": ('{"$tensor": "x"}', "names an array 'x'"),
    "array named by a number": ('{"$numpy": 1}', "names an array 1"),
    "odd float": ('{"$float": "1e5"}', r"holds \$float"),
    "odd dict": ('{"$dict": [[1]]}', r"holds \$dict"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused(tmp_path, name):
    content, reason = FOREIGN[name]
    path = tmp_path / "checkpoint-00000001.safetensors"
    path.write_bytes(content) if isinstance(content, bytes) else write_file(path, content)
    with pytest.raises(CheckpointError, match=reason) as caught:
        load_checkpoint(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", STATES_REFUSED)
def test_hostile_json_is_refused(tmp_path, name):
    text, reason = STATES_REFUSED[name]
    write_file(tmp_path / "a", entry(state=text, sha256=checkpoint._digest({}, text)))
    with pytest.raises(CheckpointError, match=reason) as caught:
        load_checkpoint(tmp_path / "a")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("make", "reason"), [(None, "No such file"), (os.mkdir, "Is a directory")])
def test_no_file(tmp_path, make, reason):
    if make:
        make(tmp_path / "a")
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(tmp_path / "a")


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path):
    path, state = tmp_path / "a", {"model": {"w": np.arange(5.0)}, "step": 7}
    save_checkpoint(path, state)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        try:
            read = load_checkpoint(path)
        except CheckpointError:
            continue
        assert same(read, state), place  # a name may have changed into one that means the same


def test_too_large_for_int64(tmp_path):
    safetensors.numpy.save_file({"x": np.array([2**63], np.uint64)}, tmp_path / "a")
    with pytest.raises(CheckpointError, match="x holds 9223372036854775808"):
        load(tmp_path / "a")
