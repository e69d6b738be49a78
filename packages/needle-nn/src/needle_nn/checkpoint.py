"""Checkpoints: safetensors files with JSON in their header, written so that a crash at any moment leaves a whole one.

`save` and `load` write and read a bare `state_dict`, in files that the safetensors library of any framework reads.
`Checkpoints` keeps the latest states of a run in a folder. A checkpoint is one file: arrays under names like `model.fc.weight`,
everything else as JSON in the header's entry `needle`, with a SHA-256 of it all. It is written beside its place, flushed to disk
and renamed; which one is the latest follows from the names alone.

>>> import os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
>>> save(path, {"weight": Tensor([[1.0, 2.0]])})
>>> load(path)["weight"].tolist()
[[1.0, 2.0]]
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import needle.random
from needle import Tensor
from needle_nn.files import open_regular, replacing, size_of
from needle_nn.locking import Lock
from needle_nn.packing import BFLOAT16, host_copy, pack, unpack
from needle_nn.weights import DTYPES, CheckpointError, Weights, damaged, read_header, refusing

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "load",
    "load_checkpoint",
    "random_state",
    "save",
    "save_checkpoint",
    "set_random_state",
]

FORMAT = 1  # of the JSON in a checkpoint's header


# ---- A bare state_dict -------------------------------------------------------------------------------------


def save(path: str | os.PathLike, state: Mapping[str, Any]) -> None:
    """Write {name: Tensor or array} as a safetensors file, whole or not at all."""
    arrays = {}
    for name, value in state.items():
        if not isinstance(name, str) or not hasattr(value, "__array__"):
            raise TypeError(
                f"save: {name!r} is a {type(value).__name__}: expected tensors by name; Checkpoints keeps the rest"
            )
        arrays[name] = host_copy(value)
    _write(Path(path), arrays)


def load(path: str | os.PathLike, device: Any = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file of any framework by name; int8 and 16-bit ints become int32."""
    with Weights(path, device) as weights:
        return dict(weights)


# ---- A checkpoint: any nested state ------------------------------------------------------------------------


def save_checkpoint(path: Any, state: Any) -> None:
    """Write a nested state of dicts, lists, numbers, strings, tensors and arrays as one file, whole or not at all.

    `path` may be an open file, too; its owner takes care of what a crash leaves there.
    """
    arrays, text = pack(state)
    # One entry, so that equal states make equal files: the library writes several in any order.
    header = json.dumps({"format": FORMAT, "sha256": _digest(arrays, text), "state": text}, ensure_ascii=False)
    if hasattr(path, "write"):
        path.write(_file(arrays, {"needle": header}))
    else:
        _write(Path(path), arrays, {"needle": header})


def load_checkpoint(path: Any) -> Any:
    """The state in a file of `save_checkpoint`, by its name or open; CheckpointError where it is damaged or something else."""
    path = _Opened(path) if hasattr(path, "read") else Path(path)
    tensors, entries = _read(path)
    try:
        header = json.loads(entries["needle"])
        version, digest, text = header["format"], header["sha256"], header["state"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise CheckpointError(
            f"{path}: a safetensors file, but no checkpoint of needle; load() reads its tensors"
        ) from None
    if version != FORMAT:
        raise CheckpointError(f"{path}: checkpoint format {version!r:.40}, this version of needle reads {FORMAT}")
    if not isinstance(text, str) or digest != _digest(tensors, text):
        raise CheckpointError(f"{path}: damaged: its contents do not match its SHA-256")
    try:
        return unpack(tensors, text)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def _digest(arrays: dict[str, np.ndarray], text: str) -> str:
    sha = hashlib.sha256(text.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        array = arrays[name]
        sha.update(f"{name}\n{array.dtype.str}{array.shape}\n".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


# ---- Files -------------------------------------------------------------------------------------------------


class _Opened:
    """An open file, in the place of a path."""

    def __init__(self, file: Any) -> None:
        self.file = file
        named = Path(str(getattr(file, "name", "the file")))
        self.name, self.stem, self.suffix = named.name, named.stem, named.suffix

    def __str__(self) -> str:
        return self.name

    def content(self) -> tuple[bytes, dict[str, Any]]:
        data = io.BytesIO(self.file.read())
        head, header = read_header(self, data, len(data.getbuffer()))
        return head + data.read(), header


def _read(path: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """{name: array} and the header's own entries. Read at once, for a digest of it all."""
    content, header = _content(path)
    try:
        views = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise CheckpointError(damaged(path, len(content), str(error))) from None
    tensors = {}
    for name, view in views:
        if view["dtype"] not in DTYPES:
            raise CheckpointError(f"{path}: {name} is of dtype {view['dtype']}; known are {', '.join(DTYPES)}")
        try:
            array = np.frombuffer(view["data"], DTYPES[view["dtype"]][0]).reshape(view["shape"])
        except ValueError as error:  # an empty array of too many axes or too long ones
            raise CheckpointError(f"{path}: {name} of {len(view['shape'])} axes: {error}") from None
        tensors[name] = array.view(BFLOAT16) if view["dtype"] == "BF16" else array
    return tensors, header.get("__metadata__") or {}


def _content(path: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a safetensors file, and its header. The rest is read only if it is as long as the header says."""
    if isinstance(path, _Opened):
        return path.content()
    with refusing(path), open_regular(path) as file:
        head, header = read_header(path, file)
        return head + file.read(size_of(file) - len(head)), header


def _file(arrays: dict[str, np.ndarray], entries: dict[str, str] | None = None) -> bytes:
    """A safetensors file. Its library takes the words of bfloat16 for numbers, so the header is told what they are."""
    brain = [name for name, array in arrays.items() if array.dtype == BFLOAT16]
    if not brain:
        return safetensors.numpy.save(arrays, entries)
    content = safetensors.numpy.save(
        {name: a.view(np.uint16) if name in brain else a for name, a in arrays.items()}, entries
    )
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    for name in brain:
        header[name]["dtype"] = "BF16"
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _write(path: Path, arrays: dict[str, np.ndarray], entries: dict[str, str] | None = None) -> None:
    with replacing(path) as unfinished:
        # Not by its save_file, which would make a file that only the owner can read.
        unfinished.write_bytes(_file(arrays, entries))


# ---- A run's folder ----------------------------------------------------------------------------------------


class Checkpoints:
    """The latest `keep` states of a run, in files checkpoint-<step>.safetensors of one folder.

    `lock` keeps others from writing there: `save` takes it, a training holds it until its end. Reading needs none.

    >>> import tempfile
    >>> kept = Checkpoints(tempfile.mkdtemp())
    >>> for step in (10, 20, 30):
    ...     kept.save(step, {"step": step}).name
    'checkpoint-00000010.safetensors'
    'checkpoint-00000020.safetensors'
    'checkpoint-00000030.safetensors'
    >>> [path.name for path in kept.files()], kept.load()
    (['checkpoint-00000020.safetensors', 'checkpoint-00000030.safetensors'], {'step': 30})
    """

    NAME = re.compile(r"checkpoint-(\d{8,})\.safetensors")

    def __init__(self, folder: str | os.PathLike, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"Checkpoints: keep must be at least 1, got {keep}")
        self.folder, self.keep = Path(folder), keep
        self.lock = Lock(self.folder / ".lock")

    def files(self) -> list[Path]:
        """The checkpoints that are there, oldest first; a folder, a pipe or a device of such a name is none."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        steps = {path: int(match[1]) for path in found if (match := self.NAME.fullmatch(path.name)) and path.is_file()}
        return sorted(steps, key=steps.__getitem__)

    def save(self, step: int, state: Any) -> Path:
        """Write a checkpoint, then remove what it makes useless: the oldest ones, and what killed runs left unfinished.

        Later ones go too: a run that went on from an earlier checkpoint has left them behind.
        """
        path = self.folder / f"checkpoint-{step:08d}.safetensors"
        with self.lock:
            save_checkpoint(path, state)
            files = self.files()
            here = files.index(path)
            useless = files[: max(0, here + 1 - self.keep)] + files[here + 1 :]
            for old in (*useless, *self.folder.glob(".checkpoint-*.tmp")):
                if not old.is_dir():
                    old.unlink(missing_ok=True)
        return path

    def find(self, which: str = "latest") -> Path:
        """The path of the `latest` or the `previous` checkpoint."""
        if which not in ("latest", "previous"):
            raise ValueError(f"Checkpoints: expected latest or previous, got {which!r}")
        files, back = self.files(), 1 if which == "latest" else 2
        if len(files) < back:
            raise CheckpointError(f"{self.folder}: no {which} checkpoint there ({len(files)} found)")
        return files[-back]

    def load(self, which: str = "latest") -> Any:
        """The state of the `latest` checkpoint; if it is damaged, the error names the `previous` one, where there is one."""
        path = self.find(which)
        try:
            return load_checkpoint(path)
        except CheckpointError as error:
            if which == "previous" or len(self.files()) < 2:
                raise
            raise CheckpointError(f"{error}; the previous checkpoint is {self.find('previous').name}") from None


# ---- Generators --------------------------------------------------------------------------------------------


def random_state() -> dict[str, Any]:
    """State of NumPy's global generator and of needle.random, fit for a checkpoint."""
    return {"numpy": np.random.get_state(), "needle": needle.random.get_state()}  # noqa: NPY002  the course's generator


def set_random_state(state: dict[str, Any]) -> None:
    """Go on drawing where `random_state` was asked."""
    np.random.set_state(state["numpy"])  # noqa: NPY002
    needle.random.set_state(state["needle"])
