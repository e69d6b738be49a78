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
from needle_nn.packing import pack, unpack

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
_MAX_HEADER = 100_000_000  # bytes, as safetensors has it

#: safetensors' dtypes: NumPy's, and the one a Needle tensor gets.
_DTYPES = {
    "F64": ("<f8", "float64"),
    "F32": ("<f4", "float32"),
    "F16": ("<f2", "float32"),
    "BF16": ("<u2", "float32"),  # the upper half of a float32
    "I64": ("<i8", "int64"),
    "I32": ("<i4", "int32"),
    "I16": ("<i2", "int32"),
    "I8": ("i1", "int32"),
    "U64": ("<u8", "int64"),
    "U32": ("<u4", "int64"),
    "U16": ("<u2", "int32"),
    "U8": ("u1", "uint8"),
    "BOOL": ("?", "bool"),
}


class CheckpointError(ValueError):
    """A file that cannot be used; the message names it and the reason, in one line."""


# ---- A bare state_dict -------------------------------------------------------------------------------------


def save(path: str | os.PathLike, state: Mapping[str, Any]) -> None:
    """Write {name: Tensor or array} as a safetensors file, whole or not at all."""
    arrays = {}
    for name, value in state.items():
        if not isinstance(name, str) or not hasattr(value, "__array__"):
            raise TypeError(
                f"save: {name!r} is a {type(value).__name__}: expected tensors by name; Checkpoints keeps the rest"
            )
        arrays[name] = np.array(value, order="C")
    _write(Path(path), arrays)


def load(path: str | os.PathLike, device: Any = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file of any framework by name; int8 and 16-bit ints become int32, 16-bit floats float32."""
    tensors, _ = _read(Path(path))
    return {name: _tensor(Path(path), name, *held, device) for name, held in tensors.items()}


def _tensor(path: Path, name: str, array: np.ndarray, dtype: str, device: Any) -> Tensor:
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise CheckpointError(f"{path}: {name} holds {int(array.max())}, which is too large for int64")
    array = array.astype(dtype, copy=False)
    try:
        return Tensor(array, device=device, dtype=dtype, requires_grad=False)
    except (ValueError, TypeError) as error:  # NumPy's arrays have more axes than ours
        raise CheckpointError(f"{path}: {name}: {error}") from None


# ---- A checkpoint: any nested state ------------------------------------------------------------------------


def save_checkpoint(path: str | os.PathLike, state: Any) -> None:
    """Write a nested state of dicts, lists, numbers, strings, tensors and arrays as one file, whole or not at all."""
    arrays, text = pack(state)
    # One entry, so that equal states make equal files: the library writes several in any order.
    header = json.dumps({"format": FORMAT, "sha256": _digest(arrays, text), "state": text}, ensure_ascii=False)
    _write(Path(path), arrays, {"needle": header})


def load_checkpoint(path: str | os.PathLike) -> Any:
    """The state in a file of `save_checkpoint`; CheckpointError where it is damaged or something else."""
    path = Path(path)
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
    arrays = {name: array for name, (array, _) in tensors.items()}
    if not isinstance(text, str) or digest != _digest(arrays, text):
        raise CheckpointError(f"{path}: damaged: its contents do not match its SHA-256")
    try:
        return unpack(arrays, text)
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


def _read(path: Path) -> tuple[dict[str, tuple[np.ndarray, str]], dict[str, str]]:
    """{name: (array, dtype of its tensor)} and the header's own entries. Read at once: a mapped file may shrink under us."""
    content, header = _content(path)
    try:
        views = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise CheckpointError(_damaged(path, len(content), str(error))) from None
    tensors = {}
    for name, view in views:
        if view["dtype"] not in _DTYPES:
            raise CheckpointError(f"{path}: {name} is of dtype {view['dtype']}; known are {', '.join(_DTYPES)}")
        stored, target = _DTYPES[view["dtype"]]
        try:
            array = np.frombuffer(view["data"], stored).reshape(view["shape"])
        except ValueError as error:  # an empty array of too many axes or too long ones
            raise CheckpointError(f"{path}: {name} of {len(view['shape'])} axes: {error}") from None
        if view["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = (array, target)
    return tensors, header.get("__metadata__") or {}


def _content(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a safetensors file, and its header. The rest is read only if it is as long as the header says."""
    try:
        with open_regular(path) as file:
            size, start = size_of(file), file.read(4096)
            first, length = start[:8], int.from_bytes(start[:8], "little")
            if len(first) < 8 or length > min(size - 8, _MAX_HEADER):
                reason = f"a header of {length} bytes" if len(first) == 8 else "no header"
                raise CheckpointError(_foreign(path, start) or _damaged(path, size, reason))
            file.seek(8)
            head = file.read(length)
            header, held = _header(path, size, head)
            if held != size - 8 - length:
                reason = f"its header tells of {held} bytes of data, not of {size - 8 - length}"
                raise CheckpointError(_damaged(path, size, reason))
            return first + head + file.read(held), header
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except CheckpointError:
        raise
    except ValueError as error:  # not a regular file
        raise CheckpointError(str(error)) from None


def _header(path: Path, size: int, head: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the data of its last tensor end."""
    try:
        header = json.loads(head)
        return header, max(
            (view["data_offsets"][1] for name, view in header.items() if name != "__metadata__"), default=0
        )
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise CheckpointError(_foreign(path, head) or _damaged(path, size, "its header is none")) from None


def _damaged(path: Path, size: int, reason: str) -> str:
    return f"{path}: truncated, damaged or no safetensors file ({size} bytes): {reason}"


def _foreign(path: Path, start: bytes) -> str | None:
    """What to do with a file that another library has written as a pickle or an archive; None where it is nothing known."""
    zipped = start.startswith(b"PK\3\4")
    pickled = start[:1] == b"\x80" and any(start[2:8])  # else the length of a safetensors header
    if (zipped and b"data.pkl" in start) or pickled or path.suffix in (".pt", ".pth"):
        return (
            f"{path}: no safetensors file but a pickle, as PyTorch writes; where PyTorch is, convert it:"
            f" safetensors.torch.save_file(torch.load({path.name!r}, weights_only=True), {path.stem + '.safetensors'!r})"
        )
    if (zipped and b".npy" in start) or start.startswith(b"\x93NUMPY"):
        return f"{path}: no safetensors file but one of NumPy; np.load reads it, and load_state_dict takes its arrays by name"
    return None


def _write(path: Path, arrays: dict[str, np.ndarray], entries: dict[str, str] | None = None) -> None:
    with replacing(path) as unfinished:
        # Not by its save_file, which would make a file that only the owner can read.
        unfinished.write_bytes(safetensors.numpy.save(arrays, entries))


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

    def __init__(self, folder: str | os.PathLike, keep: int = 2):
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
