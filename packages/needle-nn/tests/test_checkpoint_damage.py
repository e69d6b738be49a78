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
    "65 axes": ({"x": {"dtype": "F32", "shape": [0] * 65, "data_offsets": [0, 0]}}, "x of 65 axes"),
    "huge and empty": (
        {"x": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}},
        "x of 3 axes|no safetensors file",
    ),
    "huge and empty, last": (
        {"x": {"dtype": "F32", "shape": [2**62, 0], "data_offsets": [0, 0]}},
        "x of 2 axes",
    ),
    "more data than told": (b"\x02" + bytes(7) + b"{}" + bytes(9), "tells of 0 bytes of data, not of 9"),
    "offsets are no numbers": ({"x": {"dtype": "F32", "shape": [1], "data_offsets": "ab"}}, "no safetensors file"),
    "offsets are missing": ({"x": {"dtype": "F32", "shape": [1]}}, "no safetensors file"),
    "tensor is a number": ({"x": 5}, "no safetensors file"),
    "number of 5000 digits": (b"\x88\x13" + bytes(6) + b"1" * 5000, "no safetensors file"),
    "deep header": (b"\x88\x13" + bytes(6) + b"[" * 5000, "no safetensors file"),
    "header is not UTF-8": (b"\x02" + bytes(7) + b"\xff\xff", "no safetensors file"),
    "unknown dtype": ({"x": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]}}, "x is of dtype F8_E4M3"),
    "other program's": ({"__metadata__": {"format": "pt"}}, "no checkpoint of needle"),
    "entry is no JSON": ({"__metadata__": {"needle": "{"}}, "no checkpoint of needle"),
    "entry is deep": ({"__metadata__": {"needle": "[" * 100_000}}, "no checkpoint of needle"),
    "entry is a list": ({"__metadata__": {"needle": "[1]"}}, "no checkpoint of needle"),
    "digest missing": (entry(sha256=None), "no checkpoint of needle"),
    "format of the future": (entry(format=99), "checkpoint format 99, this version of needle reads 1"),
    "format of lines": (entry(format="1\n2" * 99), "checkpoint format '1.n21"),
    "state with half a character": (entry(state='"\ud800"'), "do not match its SHA-256"),
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
    "list as key": ('{"$dict": [[[1], 2]]}', "a list as a key"),
    "dict as key": ('{"$dict": [[{"a": 1}, 2]]}', "a dict as a key"),
    "list in a tuple as key": ('{"$dict": [[{"$tuple": [[1]]}, 2]]}', "a list as a key"),
    "array as key": ('{"$dict": [[{"$numpy": "x"}, 2]]}', "names an array 'x'"),
    "large int as key": ('{"$dict": [[1152921504606846976, 2]]}', "more than 60 bits"),
    "large int in a tuple as key": ('{"$dict": [[{"$tuple": [-1152921504606846976]}, 2]]}', "more than 60 bits"),
    "number of 5000 digits": ("1" * 5000, "4300 digits"),
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


def forged(path, text, arrays):
    """A checkpoint whose digest is right, whatever the state says."""
    held = {"format": 1, "sha256": checkpoint._digest(arrays, text), "state": text}
    checkpoint._write(path, arrays, {"needle": json.dumps(held)})


ARRAYS_REFUSED = {
    "named twice": ('[{"$tensor": "x"}, {"$tensor": "x"}]', np.ones(2), "an array 'x' that it does not hold, or twice"),
    "dtype of no tensor": ('{"$tensor": "x"}', np.ones(2, np.complex64), "C64"),
    "33 axes": ('{"$tensor": "x"}', np.ones((1,) * 33), "at most 32"),
}


@pytest.mark.parametrize("name", ARRAYS_REFUSED)
def test_hostile_arrays_are_refused(tmp_path, name):
    text, array, reason = ARRAYS_REFUSED[name]
    forged(tmp_path / "a", text, {"x": array})
    with pytest.raises(CheckpointError, match=reason) as caught:
        load_checkpoint(tmp_path / "a")
    assert str(tmp_path / "a") in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("axes", [33, 64, 65])
def test_too_many_axes_for_a_tensor(tmp_path, axes):
    write_file(tmp_path / "a", {"x": {"dtype": "F32", "shape": [1] * axes, "data_offsets": [0, 4]}}, bytes(4))
    with pytest.raises(CheckpointError, match=rf"a: x.*{axes}"):
        load(tmp_path / "a")


def test_forged_headers_of_every_kind(tmp_path):
    """A header with any of its parts replaced: it loads, or a CheckpointError names the file."""
    odd = [
        None,
        True,
        -1,
        0,
        1,
        2,
        2**31,
        2**62,
        2**63,
        2**64,
        1.5,
        "",
        "F32",
        "x" * 99,
        [],
        [0],
        [0, 8],
        [2],
        [[2]],
        {},
        {"a": 1},
    ]
    odd += [
        [0, 2**62, 2**62],
        [2**62, 2**62, 0],
        [1] * 33,
        [1] * 65,
        [0] * 33,
        [0] * 65,
        [2**63],
        [-1],
        [2.0],
        ["2"],
        [None],
    ]
    path, loaded = tmp_path / "a", 0
    whole = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for part in (*whole, "new", "x", "__metadata__"):
        for value in odd:
            header = {"x": {**whole, part: value}} if part in (*whole, "new") else {"x": whole, part: value}
            for data in (bytes(8), b"", bytes(4)):
                write_file(path, header, data)
                for read in (load, load_checkpoint):
                    try:
                        read(path)
                        loaded += 1
                    except CheckpointError as error:
                        assert str(error).startswith(str(path)) and "\n" not in str(error) and len(str(error)) < 1000
    assert loaded


def test_keys_that_all_have_one_hash(tmp_path):
    """Multiples of 2^61 - 1: each would be compared with all before it."""
    text = json.dumps({"$dict": [[(2**61 - 1) * i, 0] for i in range(1, 60_000)]})
    forged(tmp_path / "a", text, {})
    with pytest.raises(CheckpointError, match="more than 60 bits"):
        load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize("key", [2**60, -(2**60), (1, 2**60), [1], np.int64(2**62), frozenset()], ids=repr)
def test_keys_that_would_not_load_are_not_saved(tmp_path, key):
    with pytest.raises((ValueError, TypeError), match=r"as a key|unhashable"):
        save_checkpoint(tmp_path / "a", {key: 1})
    assert not list(tmp_path.iterdir())


def test_half_a_character_survives(tmp_path):
    """As in a path that is no UTF-8: os.fsdecode gives such strings."""
    state = {"data": os.fsdecode(b"/data/\xff"), "words": ["é", "𝄞", "\ud800"]}
    save_checkpoint(tmp_path / "a", state)
    assert load_checkpoint(tmp_path / "a") == state


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
