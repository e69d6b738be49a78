"""Weights in files: read one by one, converted, from one file or several; what is wrong with them in one line."""

import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_helpers import write_file

import needle as ndl
import needle_ndarray as nd
from needle_nn.weights import CheckpointError, Weights

rng = np.random.default_rng


def stored(kind, values):
    """Bytes of float32 values as safetensors keeps them."""
    if kind == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[kind]).tobytes()


def file_of(path, kind, values):
    data = stored(kind, values)
    write_file(path, {"x": {"dtype": kind, "shape": list(values.shape), "data_offsets": [0, len(data)]}}, data)


#: shape, axes: those that are read in blocks have more than a megabyte
COPIES = {
    "whole": ((5, 7), None),
    "transposed": ((5, 7), (1, 0)),
    "large": ((700, 900), None),
    "large, transposed": ((700, 900), (1, 0)),
    "convolution": ((80, 70, 9, 11), (2, 3, 1, 0)),
    "one row": ((1, 600_000), (1, 0)),
    "row of ours": ((1, 9), (0, 1)),
    "empty": ((0, 3), (1, 0)),
    "number": ((), None),
}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "F64"])
@pytest.mark.parametrize("case", COPIES)
def test_copies(tmp_path, case, kind):
    shape, axes = COPIES[case]
    values = np.asarray((rng(0).integers(-64, 64, shape) / 8).astype("float32"))  # the same in every format
    file_of(tmp_path / "a", kind, values)
    wanted = values if axes is None else values.transpose(axes)
    with Weights(tmp_path / "a") as weights:
        assert weights.shape("x") == shape
        np.testing.assert_array_equal(weights["x"].numpy(), values)
        for dtype in ("float32", "float64"):
            for device in (nd.cpu(), nd.cpu_numpy()):
                out = nd.full(wanted.shape, -1, dtype, device)
                weights.copy_to("x", out, axes)
                np.testing.assert_array_equal(out.numpy(), wanted)


def test_what_half_precision_holds_is_kept(tmp_path):
    """Subnormals, infinities, NaN and both zeros, in both formats, against struct and shifted bits."""
    bits = np.arange(2**16, dtype=np.uint16)
    for kind in ("F16", "BF16"):
        write_file(tmp_path / "a", {"x": {"dtype": kind, "shape": [2**16], "data_offsets": [0, 2**17]}}, bits.tobytes())
        with Weights(tmp_path / "a") as weights:
            found = weights["x"].numpy()
        if kind == "F16":
            wanted = np.array(struct.unpack(f"<{2**16}e", bits.tobytes()), np.float32)
        else:
            wanted = np.frombuffer(np.stack([np.zeros_like(bits), bits], 1).tobytes(), np.float32)
        np.testing.assert_array_equal(found, wanted)
        assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


def test_nothing_is_read_before_it_is_asked_for(tmp_path):
    safetensors.numpy.save_file({"a": np.ones(3, "f4"), "b": np.ones(1000, "f4")}, tmp_path / "w")
    weights = Weights(tmp_path / "w")
    size = os.path.getsize(tmp_path / "w")
    assert "a" in weights and "c" not in weights and len(weights) == 2 and set(weights) == {"a", "b"}
    with open(tmp_path / "w", "r+b") as file:
        file.truncate(size - 1)
    held = {name: weights.shape(name) for name in weights}
    assert held == {"a": (3,), "b": (1000,)}
    with pytest.raises(CheckpointError, match="w: b: the file has become shorter") as caught:
        dict(weights)
    assert "\n" not in str(caught.value)
    with pytest.raises(KeyError):
        weights["c"]


def test_another_file_in_its_place_changes_nothing(tmp_path):
    safetensors.numpy.save_file({"a": np.ones(3, "f4")}, tmp_path / "w")
    with Weights(tmp_path / "w") as weights:
        safetensors.numpy.save_file({"a": np.zeros(3, "f4")}, tmp_path / "v")
        os.replace(tmp_path / "v", tmp_path / "w")
        assert weights["a"].tolist() == [1, 1, 1]


def test_several_files(tmp_path):
    parts = {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}
    for file in set(parts.values()):
        held = {name: np.full(2, ord(name), "f4") for name, place in parts.items() if place == file}
        safetensors.numpy.save_file(held, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with Weights(tmp_path) as weights:
        assert {name: x.tolist() for name, x in weights.items()} == {name: [ord(name)] * 2 for name in parts}


INDEXES = {
    "no JSON": ("{", "expected JSON with weight_map"),
    "a list": ("[]", "expected JSON with weight_map"),
    "elsewhere": ('{"weight_map": {"a": "../m.safetensors"}}', "expected the name of a file beside it"),
    "a number": ('{"weight_map": {"a": 1}}', "expected the name of a file beside it"),
    "no such file": ('{"weight_map": {"a": "n.safetensors"}}', "n.safetensors: No such file"),
    "not in it": ('{"weight_map": {"z": "m.safetensors"}}', "z is not in it"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_indexes_that_are_wrong(tmp_path, case):
    text, reason = INDEXES[case]
    safetensors.numpy.save_file({"a": np.ones(2, "f4")}, tmp_path / "m.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match=reason) as caught:
        Weights(tmp_path)
    assert "\n" not in str(caught.value)


def test_folders_without_weights(tmp_path):
    with pytest.raises(CheckpointError, match=r"expected model.safetensors or .* found 0"):
        Weights(tmp_path)


HEADERS = {
    "a hole": ({"a": [0, 8], "b": [16, 24]}, 24, "b begins at byte"),
    "overlapping": ({"a": [0, 8], "b": [4, 12], "c": [8, 16]}, 16, "b begins at byte"),
    "not from the start": ({"a": [4, 12]}, 12, "a begins at byte"),
    "shape and size differ": ({"a": [0, 12]}, 12, r"a of shape \(2,\) takes 8 bytes"),
    "backwards": ({"a": [8, 0], "b": [0, 8]}, 8, "a of shape"),
    "negative": ({"a": [-8, 0], "b": [0, 8]}, 8, "offsets"),
    "fractions": ({"a": [0.0, 8.0]}, 8, "offsets"),
    "bools": ({"a": [False, 8]}, 8, "offsets"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_lie(tmp_path, case):
    offsets, size, reason = HEADERS[case]
    header = {name: {"dtype": "F32", "shape": [2], "data_offsets": at} for name, at in offsets.items()}
    write_file(tmp_path / "a", header, bytes(size))
    with pytest.raises(CheckpointError, match=reason) as caught:
        Weights(tmp_path / "a")
    assert str(caught.value).startswith(str(tmp_path / "a")) and "\n" not in str(caught.value)


def test_pipes_and_folders_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        Weights(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="No such file"):
        Weights(tmp_path / "none")


MEMORY = """
import sys
from pathlib import Path
from needle import nn, init
from needle_nn.interop import from_torch
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
with init.without_draws():
    model = nn.Sequential(*[nn.Linear(1000, 2500) for _ in range(6)])
before = peak()
from_torch(model, sys.argv[1])
print(peak() - before, sum(p.size for p in model.parameters()) * 4)
"""


@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_loading_needs_no_memory_beside_the_weights(tmp_path, kind):
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs /proc")
    data, header, at = b"", {}, 0
    for i in range(6):
        for name, shape in ((f"{i}.weight", [2500, 1000]), (f"{i}.bias", [2500])):
            part = stored(kind, np.ones(shape, "f4"))
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(part)]}
            data, at = data + part, at + len(part)
    write_file(tmp_path / "a", header, data)
    done = subprocess.run([sys.executable, "-c", MEMORY, tmp_path / "a"], capture_output=True, text=True, check=True)
    grown, held = map(int, done.stdout.split())
    assert grown < 0.2 * held


def test_integers_and_bools(tmp_path):
    held = {"i": np.arange(4, dtype="i2"), "u": np.arange(4, dtype="u1"), "b": np.array([True, False])}
    safetensors.numpy.save_file(held, tmp_path / "a")
    with Weights(tmp_path / "a") as weights:
        assert {name: str(x.dtype) for name, x in weights.items()} == {"i": "int32", "u": "uint8", "b": "bool"}
        out = nd.zeros((4,), "float32")
        weights.copy_to("i", out)
        assert out.tolist() == [0, 1, 2, 3] and isinstance(weights["u"], ndl.Tensor)
