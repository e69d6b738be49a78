"""Checkpoints: what comes back is what went in, others read it, a crash leaves the old one."""

import math
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_helpers import same, write_file

import needle as ndl
import needle.random
import needle_ndarray as nd
from needle_ndarray import NDArray
from needle_nn.checkpoint import (
    load,
    load_checkpoint,
    random_state,
    save,
    save_checkpoint,
)  # fmt: skip
from needle_nn.packing import pack, unpack

DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]
SHAPES = [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]


# ---- What comes back -----------------------------------------------------------------------------------------

STATES = {
    "empty": {},
    "numbers": {"a": 1, "b": -(2**70), "c": 0.1, "d": -0.0, "e": 5e-324, "f": True, "g": None},
    "not finite": [math.inf, -math.inf, math.nan],
    "text": {"ключ": "äöü\n\"'\\\x00 🧵", "": ""},
    "nested": {"a": [{"b": (1, [2, (3,)])}], "c": ()},
    "keys that are no strings": {0: {"m": np.ones(2)}, (1, 2): "x", None: 1},
    "keys that look like marks": {"$tensor": "x", "$float": "nan", "a": {"$tuple": [1]}},
    "names that meet": {"a": {"b": np.zeros(2)}, "a.b": np.ones(2)},
    "kinds of arrays": [np.arange(3, dtype=np.uint32), NDArray(np.ones(2, "float32")), ndl.Tensor([1.0, math.nan])],
    "dtypes of arrays": [nd.array([1 / 3, 2], dtype) for dtype in DTYPES],
    "views": {
        "t": np.arange(12.0).reshape(3, 4).T,
        "s": np.arange(9)[::-2],
        "b": np.broadcast_to(np.float32(1), (2, 2)),
    },
    "generators": random_state(),
    "one array": np.ones(3),
}


@pytest.mark.parametrize("name", STATES)
def test_state_comes_back(tmp_path, name):
    save_checkpoint(tmp_path / "a.safetensors", STATES[name])
    assert same(load_checkpoint(tmp_path / "a.safetensors"), STATES[name])


def test_numpy_scalars_become_numbers():
    assert same(unpack(*pack([np.float32(0.1), np.int64(7), np.bool_(True)])), [float(np.float32(0.1)), 7, True])


@pytest.mark.parametrize(
    ("value", "told"), [(object(), "model.x is a object"), ({1}, "set"), (np.array(["a"]), "array of <U1")]
)
def test_what_has_no_form_is_refused(value, told):
    with pytest.raises(TypeError, match=told):
        pack({"model": {"x": value}})


def test_equal_states_make_equal_files(tmp_path):
    for name in "ab":
        save_checkpoint(tmp_path / name, {"model": {str(i): np.full(i, i) for i in range(20)}, "step": 3})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_state_is_copied_when_it_is_packed():
    array = np.zeros(2)
    arrays, _ = pack({"a": array})
    array += 1
    assert arrays["a"].tolist() == [0, 0]


# ---- Bare state_dicts, and other libraries ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensors_for_and_from_other_libraries(tmp_path, dtype, shape):
    values = (np.arange(math.prod(shape)) % 5).astype(dtype).reshape(shape)
    save(tmp_path / "ours", {"x.weight": ndl.Tensor(values, dtype=dtype, requires_grad=False)})
    assert same(safetensors.numpy.load_file(tmp_path / "ours"), {"x.weight": values})
    safetensors.numpy.save_file({"x.weight": values}, tmp_path / "theirs", {"format": "pt"})
    (tensor,) = load(tmp_path / "theirs").values()
    assert same(tensor.numpy(), values) and not tensor.requires_grad


@pytest.mark.parametrize(
    ("stored", "becomes"),
    [("float16", "float16"), ("uint32", "int64"), ("uint64", "int64")]
    + [(small, "int32") for small in ("int8", "int16", "uint16")],
)
def test_foreign_dtypes_are_converted(tmp_path, stored, becomes):
    values = np.array([0, 1, 100], stored)
    safetensors.numpy.save_file({"x": values}, tmp_path / "a")
    assert same(load(tmp_path / "a")["x"].numpy(), values.astype(becomes))


def test_bools_with_other_bytes_are_true(tmp_path):
    """What another program may have written."""
    bytes_ = np.array([0, 1, 2, 255], np.uint8)
    safetensors.numpy.save_file({"x": bytes_.view(np.bool_)}, tmp_path / "a")
    for device in (ndl.cpu(), ndl.cpu_numpy()):
        x = load(tmp_path / "a", device)["x"]
        assert x.dtype == "bool" and x.numpy().view(np.uint8).tolist() == [0, 1, 1, 1] and x.sum().item() == 3


def test_bfloat16_is_read(tmp_path):
    values = np.array([1.0, -2.5, math.inf, 3e38], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    write_file(tmp_path / "a", {"x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, halves.tobytes())
    wanted = (halves.astype(np.uint32) << 16).view(np.float32)
    assert same(load(tmp_path / "a")["x"].numpy(), wanted)


def test_checkpoint_shows_parameters_to_other_libraries(tmp_path):
    model = ndl.nn.Linear(3, 2)
    save_checkpoint(tmp_path / "a", {"model": model.state_dict(), "step": 1})
    theirs = safetensors.numpy.load_file(tmp_path / "a")
    assert same(theirs, {"model.bias": model.bias.numpy(), "model.weight": model.weight.numpy()})
    other = ndl.nn.Linear(3, 2)
    other.load_state_dict(load_checkpoint(tmp_path / "a")["model"])
    assert same(other.weight.numpy(), model.weight.numpy())


@pytest.mark.parametrize("state", [{"a": 1}, {"a": {"b": np.ones(2)}}, {1: np.ones(2)}])
def test_save_takes_tensors_only(tmp_path, state):
    with pytest.raises(TypeError, match="expected tensors by name"):
        save(tmp_path / "a", state)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parity
def test_torch_reads_and_writes(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    def values(tensors):
        return {name: tensors[name].numpy() for name in sorted(tensors)}

    model = ndl.nn.Linear(3, 2)
    save(tmp_path / "ours", model.state_dict())
    assert same(values(load_file(tmp_path / "ours")), values(model.state_dict()))
    theirs = {"a": torch.randn(2, 3), "b": torch.randn(4).to(torch.bfloat16), "c": torch.arange(3)}
    save_file(theirs, tmp_path / "theirs")
    assert same(values(load(tmp_path / "theirs")), values({**theirs, "b": theirs["b"].float()}))


# ---- Writing ----------------------------------------------------------------------------------------------------


def test_order_of_writing(tmp_path, monkeypatch):
    """Flushed before it is renamed, the folder after."""
    done = []
    fsync, replace = os.fsync, os.replace
    named = lambda handle: os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: E731
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append(("fsync", named(handle))), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(("replace", os.path.basename(b))), replace(a, b)))
    save(tmp_path / "a", {"x": np.ones(2)})
    assert done == [("fsync", f".a.{os.getpid()}.tmp"), ("replace", "a"), ("fsync", tmp_path.name)]


@pytest.mark.parametrize("failing", ["Path.write_bytes", "files._flush", "os.replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, failing):
    save(tmp_path / "a", {"x": np.ones(2)})

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"needle_nn.{'' if failing.startswith('files') else 'checkpoint.'}{failing}", fail)
    with pytest.raises(OSError, match="No space") as caught:
        save(tmp_path / "a", {"x": np.zeros(2)})
    assert caught.value.filename == str(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert load(tmp_path / "a")["x"].tolist() == [1, 1]


@pytest.mark.parametrize("path", ["missing/a", "file/a"])
def test_a_folder_that_is_none(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"No such file|Not a directory"):
        save(tmp_path / path, {"x": np.ones(2)})


def test_permissions_are_those_of_any_file(tmp_path):
    save(tmp_path / "a", {"x": np.ones(2)})
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_torch_is_not_needed():
    code = "import sys, needle_nn.checkpoint; assert not {'torch', 'tensorflow'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0 and find_spec("safetensors")
