"""Weights in safetensors files of any framework, read when they are asked for.

A header says where each tensor lies. A tensor is read from there by position, in blocks, straight into the array that keeps it, so
that loading takes little more memory than the weights do. The file is not mapped: one that another process shortens meanwhile is
an error here, where it would end a process that has it mapped.

>>> import os, tempfile
>>> from needle_nn.checkpoint import save
>>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
>>> save(path, {"fc.weight": Tensor([[1.0, 2.0]]), "fc.bias": Tensor([3.0])})
>>> with Weights(path) as weights:
...     sorted(weights), weights.shape("fc.weight"), weights["fc.bias"].tolist()
(['fc.bias', 'fc.weight'], (1, 2), [3.0])
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from needle import Tensor
from needle_ndarray import NDArray, bfloat16_words, empty, from_words, shared_words
from needle_nn.files import open_regular, read_at, size_of

#: safetensors' dtypes: NumPy's, and the one a Needle tensor gets.
DTYPES = {
    "F64": ("<f8", "float64"),
    "F32": ("<f4", "float32"),
    "F16": ("<f2", "float16"),
    "BF16": ("<u2", "bfloat16"),  # the upper half of a float32
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
_MAX_HEADER = 100_000_000  # bytes, as safetensors has it
_BLOCK = 1 << 20  # bytes read at once where they are converted or transposed: they stay in the cache
_INDEX = "model.safetensors.index.json"


class CheckpointError(ValueError):
    """A file that cannot be used; the message names it and the reason, in one line."""


@contextlib.contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Errors of opening and reading a file as a CheckpointError that names it."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except CheckpointError:
        raise
    except ValueError as error:  # not a regular file
        raise CheckpointError(str(error)) from None


# ---- Headers -----------------------------------------------------------------------------------------------


def read_header(path: Any, file: BinaryIO, size: int | None = None) -> tuple[bytes, dict[str, Any]]:
    """The first bytes of a safetensors file, up to its data, and the header in them; data and header must be of one length."""
    size, start = size_of(file) if size is None else size, file.read(4096)
    first, length = start[:8], int.from_bytes(start[:8], "little")
    if len(first) < 8 or length > min(size - 8, _MAX_HEADER):
        reason = f"a header of {length} bytes" if len(first) == 8 else "no header"
        raise CheckpointError(_foreign(path, start) or damaged(path, size, reason))
    file.seek(8)
    head = file.read(length)
    try:
        header = json.loads(head)
        held = max((view["data_offsets"][1] for name, view in header.items() if name != "__metadata__"), default=0)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise CheckpointError(_foreign(path, head) or damaged(path, size, "its header is none")) from None
    if held != size - 8 - length:
        reason = f"its header tells of {held} bytes of data, not of {size - 8 - length}"
        raise CheckpointError(damaged(path, size, reason))
    return first + head, header


def damaged(path: Path, size: int, reason: str) -> str:
    return f"{path}: truncated, damaged or no safetensors file ({size} bytes): {reason}"


def _foreign(path: Any, start: bytes) -> str | None:
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


class Entry(NamedTuple):
    """Where a tensor lies in a file, as its header says."""

    stored: str  # one of DTYPES
    shape: tuple[int, ...]
    start: int  # from the beginning of the file
    size: int  # bytes


def _entry(path: Path, name: str, view: Any, base: int, data: int) -> Entry:
    """An entry of the header, whose numbers must be right."""
    stored, shape, offsets = view.get("dtype"), view.get("shape"), view["data_offsets"]
    if not isinstance(stored, str) or stored not in DTYPES:
        raise CheckpointError(f"{path}: {name} is of dtype {stored!s:.40}; known are {', '.join(DTYPES)}")
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
    if len(offsets) != 2 or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise CheckpointError(f"{path}: damaged: {name} has shape {shape!s:.60} and offsets {offsets!s:.60}")
    begin, end = offsets
    size = math.prod(shape) * np.dtype(DTYPES[stored][0]).itemsize
    if not begin <= end <= data or end - begin != size:
        raise CheckpointError(
            f"{path}: damaged: {name} of shape {tuple(shape)!s:.60} takes {size} bytes, its offsets are {offsets}"
        )
    return Entry(stored, tuple(shape), base + begin, size)


def _entries(path: Path, header: dict[str, Any], base: int, data: int) -> dict[str, Entry]:
    """The tensors of a header by name; they must lie one after the other."""
    found = {name: _entry(path, name, view, base, data) for name, view in header.items() if name != "__metadata__"}
    at = base
    for name, entry in sorted(found.items(), key=lambda item: (item[1].start, item[1].size)):
        if entry.start != at:
            raise CheckpointError(f"{path}: damaged: {name} begins at byte {entry.start}, expected {at}")
        at += entry.size
    return found


# ---- Reading -----------------------------------------------------------------------------------------------


class _File:
    """An open safetensors file and its entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with refusing(path):
            self.file = open_regular(path)
            try:
                head, header = read_header(path, self.file)
                self.entries = _entries(path, header, len(head), size_of(self.file) - len(head))
            except BaseException:
                self.file.close()
                raise

    def fill(self, name: str, buffer: memoryview, start: int) -> None:
        """Read so many bytes from a place in the file."""
        done = 0
        while done < len(buffer):
            try:
                count = read_at(self.file, buffer[done:], start + done)
            except OSError as error:
                raise CheckpointError(f"{self.path}: {name}: {error.strerror or error}") from None
            if not count:
                raise CheckpointError(f"{self.path}: {name}: the file has become shorter")
            done += count

    def blocks(self, name: str, entry: Entry) -> Iterator[np.ndarray]:
        """The bytes of a tensor, in blocks that are one piece of memory, time after time."""
        held = np.empty(min(_BLOCK, entry.size), np.uint8)
        for begin in range(0, entry.size, _BLOCK):
            block = held[: entry.size - begin]
            self.fill(name, block.data, entry.start + begin)
            yield block


class Weights(Mapping[str, Tensor]):
    """{name: Tensor} of a safetensors file, or of all such files of a folder; a tensor is read each time it is asked for.

    Parameters
    ----------
    path : a file; or a folder with model.safetensors, or with several files and model.safetensors.index.json
    device : of the tensors

    float16 and bfloat16 stay what they are, small integers become int32.
    """

    def __init__(self, path: str | os.PathLike, device: Any = None) -> None:
        self.path, self.device = Path(path), device
        self._held: dict[str, tuple[_File, Entry]] = {}
        self._files: list[_File] = []
        try:
            for part, wanted in _parts(self.path):
                self._open(part, wanted)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path, wanted: list[str] | None) -> None:
        file = _File(path)
        self._files.append(file)
        for name in file.entries if wanted is None else wanted:
            if name not in file.entries:
                raise CheckpointError(f"{path}: {name} is not in it, though {_INDEX} says so")
            self._held[name] = (file, file.entries[name])

    def close(self) -> None:
        for file in self._files:
            file.file.close()

    def __enter__(self) -> "Weights":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __getitem__(self, name: str) -> Tensor:
        array = self._words(name)
        try:
            kind = DTYPES[self._held[name][1].stored][1]
            made = from_words(array, kind, self.device) if kind == "bfloat16" else array
            return Tensor(made, device=self.device, dtype=kind, requires_grad=False)
        except (ValueError, TypeError) as error:  # NumPy's arrays have more axes than ours
            raise CheckpointError(f"{self._held[name][0].path}: {name}: {error}") from None

    def __repr__(self) -> str:
        return f"Weights({str(self.path)!r}: {len(self)} tensors)"

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read for that."""
        return self._held[name][1].shape

    def array(self, name: str) -> np.ndarray:
        """A tensor as a NumPy array; bfloat16, which NumPy does not have, as float32."""
        array = self._words(name)
        return from_words(array, "bfloat16", "cpu").numpy() if self._held[name][1].stored == "BF16" else array

    def _words(self, name: str) -> np.ndarray:
        """A tensor as a NumPy array; bfloat16 as words of uint16."""
        file, entry = self._held[name]
        stored, target = DTYPES[entry.stored]
        try:
            raw = np.empty(entry.shape, stored)
        except ValueError as error:  # an empty array of too many axes or too long ones
            raise CheckpointError(f"{file.path}: {name} of {len(entry.shape)} axes: {error}") from None
        if entry.size:
            file.fill(name, _bytes(raw), entry.start)
        if entry.stored == "U64" and raw.size and int(raw.max()) >= 2**63:
            raise CheckpointError(f"{file.path}: {name} holds {int(raw.max())}, which is too large for int64")
        return raw if entry.stored == "BF16" else raw.astype(target, copy=False)

    def same(self, one: str, other: str) -> bool:
        """Whether two tensors of one shape hold the same numbers, or both NaN; only where their bytes differ all is in memory."""
        (file, a), (peer, b) = self._held[one], self._held[other]
        if a.stored == b.stored:
            blocks = zip(file.blocks(one, a), peer.blocks(other, b), strict=True)
            if all(np.array_equal(x, y) for x, y in blocks):
                return True
        return same_numbers(self.array(one), self.array(other))

    def copy_to(self, name: str, out: NDArray, axes: tuple[int, ...] | None = None) -> None:
        """out = a tensor, its axes permuted; both have as many elements.

        Parameters
        ----------
        out : contiguous; where it lies in the memory of the CPU it is written to directly
        axes : of the tensor, in the order in which `out` has them; None: as they are
        """
        file, entry = self._held[name]
        try:
            here = _memory(out) if out.size else None
        except (BufferError, TypeError, ValueError):  # on a GPU
            held = empty(out.shape, str(out.dtype), "cpu")
            self.copy_to(name, held, axes)
            out[...] = held
            return
        if here is None:
            return
        if axes is None or axes == tuple(range(len(entry.shape))):
            here = here.reshape(entry.shape)  # a bias of shape (n,) may be (1, n) here
            if DTYPES[entry.stored] == (out.dtype.storage.newbyteorder("<").str, out.dtype) and out.dtype.is_float:
                file.fill(name, _bytes(here), entry.start)
                return
        else:
            here = here.transpose(np.argsort(axes))
        if not entry.shape:
            here[...] = _stored(self.array(name), out)
            return
        for begin, block in self._blocks(name):
            here[begin : begin + len(block)] = _stored(block, out)

    def _blocks(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        """(first index, rows from there) of a tensor, along its first axis."""
        file, entry = self._held[name]
        if math.prod(entry.shape) * 8 <= _BLOCK or entry.stored not in ("F32", "F16", "BF16"):
            yield 0, self.array(name)
            return
        row = entry.size // entry.shape[0]
        count = max(1, _BLOCK // row)
        for begin in range(0, entry.shape[0], count):
            raw = np.empty((min(count, entry.shape[0] - begin), *entry.shape[1:]), DTYPES[entry.stored][0])
            file.fill(name, _bytes(raw), entry.start + begin * row)
            yield begin, from_words(raw, "bfloat16", "cpu").numpy() if entry.stored == "BF16" else raw


def same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays are equal, or both NaN; without a NaN in a tenth of the time that equal_nan takes."""
    return np.array_equal(a, b) or np.array_equal(a, b, equal_nan=True)


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _memory(out: NDArray) -> np.ndarray:
    """The memory of a contiguous array on the CPU."""
    if not out.is_compact() and not out.size == 1:
        raise ValueError(f"expected a contiguous array, got strides {out.strides}")
    return shared_words(out).reshape(out.shape)


def _stored(values: np.ndarray, out: NDArray) -> np.ndarray:
    """Numbers as they are kept in the memory of `out`."""
    return bfloat16_words(values) if out.dtype == "bfloat16" else values


def _parts(path: Path) -> list[tuple[Path, list[str] | None]]:
    """The files that `path` stands for, and which of their tensors; None: all."""
    if not path.is_dir():
        return [(path, None)]
    index, whole = path / _INDEX, path / "model.safetensors"
    if whole.exists() or not index.exists():
        found = [whole] if whole.exists() else sorted(path.glob("*.safetensors"))
        if len(found) != 1:
            raise CheckpointError(
                f"{path}: expected model.safetensors or {_INDEX} there, found {len(found)} such files"
            )
        return [(found[0], None)]
    try:
        with open_regular(index) as file:
            places = json.loads(file.read(_MAX_HEADER))["weight_map"].items()
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, OSError):
        raise CheckpointError(f"{index}: expected JSON with weight_map, the file of each tensor") from None
    files: dict[str, list[str]] = {}
    for name, place in places:
        if not isinstance(place, str) or Path(place).name != place:
            raise CheckpointError(f"{index}: {name} is in {place!r:.80}, expected the name of a file beside it")
        files.setdefault(place, []).append(name)
    return [(path / place, names) for place, names in files.items()]
