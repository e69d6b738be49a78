"""What the tests of the command have in common: small data for every recipe, short runs."""

import gzip
import json
import os
import struct

import numpy as np
import pytest

import needle.random
from needle_ndarray import get_num_threads, set_num_threads
from needle_nn.checkpoint import save
from needle_nn.command.main import main
from needle_nn.interop import to_torch
from needle_nn.models import GPT2

SHORT = ["--checkpoint-every", "3", "--log-every", "1", "--quiet"]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The networks here are too small for two, and a busy machine makes threads wait for each other."""
    before = get_num_threads()
    set_num_threads(1)
    os.environ["NEEDLE_NUM_THREADS"] = "1"  # of the processes started here
    yield
    del os.environ["NEEDLE_NUM_THREADS"]
    set_num_threads(before)


@pytest.fixture(autouse=True)
def generators_as_before():
    state = np.random.get_state()  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002
    needle.random.seed(None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files for every recipe."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.RandomState(0)
    for part, n in (("train", 60), ("t10k", 20)):
        for kind, array in (("images-idx3", rng.randint(0, 256, (n, 8, 8))), ("labels-idx1", np.arange(n) % 10)):
            sizes = struct.pack(f">{array.ndim}I", *array.shape)
            content = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        records = rng.randint(0, 256, (10, 3073)).astype(np.uint8)
        records[:, 0] = np.arange(10)
        (folder / name).write_bytes(records.tobytes())
    words = "the cat sat on the mat and the dog ran".split()
    for name, n in (("train", 60), ("test", 30)):
        (folder / f"{name}.txt").write_text("\n".join(" ".join(rng.choice(words, 6)) for _ in range(n)) + "\n")
    base = folder / "base"
    base.mkdir()
    shapes = {name: array.shape for name, array in to_torch(GPT2(256, 16, 16, 1, 2, tied=False)).items()}
    save(
        base / "model.safetensors",
        {name: rng.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()},
    )
    sizes = {
        "vocab_size": 256,
        "n_positions": 16,
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "tie_word_embeddings": False,
    }
    (base / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    return folder


def arguments(recipe, data, out, *more):
    """A run of a few steps."""
    small = {
        "digits": ["--batch-size", "256"],
        "mnist": ["--data", str(data), "--batch-size", "20"],
        "cifar10": ["--data", str(data), "--batch-size", "25"],
        "ptb": ["--data", str(data), "--batch-size", "4", "--width", "8", "--layers", "1", "--context", "10"],
        "text": [
            "--data",
            str(data / "train.txt"),
            "--batch-size",
            "8",
            "--width",
            "32",
            "--layers",
            "1",
            "--context",
            "16",
        ],
        "lora": ["--data", str(data / "train.txt"), "--base", str(data / "base"), "--context", "16", "--rank", "2"],
    }
    return ["train", recipe, *small[recipe], "--out", str(out), *SHORT, *more]


@pytest.fixture(scope="module")
def writer(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("writer") / "text"
    assert main(arguments("text", data, out, "--steps", "4")) == 0
    return str(out)
