"""Sequences of different lengths: padded to one length, or packed without padding.

Packed, the sequences are in the order of their lengths, the longest first, and their elements time by time: all that there are at
time 0, all at time 1, and so on. A cell runs over a stretch of times in which no sequence ends in one op.

>>> import needle as ndl
>>> padded = pad_sequence([ndl.Tensor([1.0, 2.0]), ndl.Tensor([3.0, 4.0, 5.0])])  # (T, B)
>>> packed = pack_padded_sequence(padded, [2, 3], enforce_sorted=False)
>>> packed.data.tolist(), packed.batch_sizes
([3.0, 1.0, 4.0, 2.0, 5.0], [2, 2, 1])
>>> pad_packed_sequence(packed)[0].tolist()
[[1.0, 3.0], [2.0, 4.0], [0.0, 5.0]]
"""

from typing import Any, NamedTuple

import numpy as np

from needle import Tensor, ops
from needle_nn.nn.cells import run

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpad_sequence",
]  # fmt: skip


class PackedSequence(NamedTuple):
    """What `pack_padded_sequence` makes: elements (S, ...), how many there are at each time, and the order of the sequences.

    `sorted_indices` leads from the order of the user to that of the lengths, `unsorted_indices` back; None: they are the same.
    """

    data: Tensor
    batch_sizes: list[int]
    sorted_indices: np.ndarray | None = None
    unsorted_indices: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Of the sequences, the longest first."""
        return (np.asarray(self.batch_sizes)[:, None] > np.arange(self.batch_sizes[0])).sum(0)

    def mapped(self, function: Any) -> "PackedSequence":
        """With a function of the elements instead of them."""
        return self._replace(data=function(self.data))

    def sorted(self, x: Tensor, axis: int) -> Tensor:
        """An axis of the user's sequences in the order of the lengths."""
        return x if self.sorted_indices is None else ops.take(x, self.sorted_indices, axis)

    def unsorted(self, x: Tensor, axis: int) -> Tensor:
        """The inverse of `sorted`."""
        return x if self.unsorted_indices is None else ops.take(x, self.unsorted_indices, axis)


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0) -> Tensor:
    """Sequences (L, ...) of different lengths as one tensor (T, B, ...), or (B, T, ...), with a value where they have ended."""
    sequences = _sequences("pad_sequence", sequences)
    longest = max(len(s) for s in sequences)
    widths = [((0, longest - len(s)), *[(0, 0)] * (s.ndim - 1)) for s in sequences]
    padded = [ops.pad(s, w, padding_value) if w[0][1] else s for s, w in zip(sequences, widths, strict=True)]
    return ops.stack(padded, 0 if batch_first else 1)


def _sequences(what: str, sequences: Any) -> list[Tensor]:
    listed = list(sequences)
    if not listed:
        raise ValueError(f"{what}: no sequences given")
    for i, s in enumerate(listed):
        if not isinstance(s, Tensor) or not s.ndim or s.shape[1:] != listed[0].shape[1:]:
            got = f"shape {s.shape}" if isinstance(s, Tensor) else f"a {type(s).__name__}"
            raise ValueError(f"{what}: sequence {i} is {got}, expected Tensors (L, ...) that differ in L only")
    return listed


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The inverse of `pad_sequence`."""
    x = padded_sequences if batch_first else padded_sequences.swapaxes(0, 1)
    return [x[i, :n] for i, n in enumerate(_lengths("unpad_sequence", x, lengths).tolist())]


def _lengths(what: str, x: Tensor, lengths: Any) -> np.ndarray:
    """The lengths of the sequences of x (B, T, ...), checked."""
    given = np.asarray(lengths.numpy() if hasattr(lengths, "numpy") else lengths)
    if x.ndim < 2 or given.shape != x.shape[:1] or given.dtype.kind not in "iuf" or (given != given.astype(int)).any():
        raise ValueError(f"{what}: lengths of shape {given.shape} for sequences {x.shape}: expected {x.shape[:1]} ints")
    if given.size and (given.min() < 1 or given.max() > x.shape[1]):
        raise ValueError(f"{what}: lengths from {given.min()} to {given.max()}: expected 1 to {x.shape[1]}")
    return given.astype(np.int64)


def _places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The time and the sequence of each packed element, for lengths that do not increase."""
    times, rows = np.nonzero(np.arange(lengths[0])[:, None] < lengths)
    return times, rows


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The elements of padded sequences without the padding.

    Parameters
    ----------
    input : (T, B, ...), or (B, T, ...) with batch_first
    lengths : of the sequences, B ints; a Tensor, array or list
    enforce_sorted : refuse lengths that increase; else the sequences are sorted
    """
    x = input if batch_first else input.swapaxes(0, 1)
    given = _lengths("pack_padded_sequence", x, lengths)
    if not given.size:
        raise ValueError("pack_padded_sequence: no sequences given")
    order = np.argsort(-given, kind="stable")
    if (np.diff(given) > 0).any() and enforce_sorted:
        raise ValueError("pack_padded_sequence: lengths increase: sort them, or give enforce_sorted=False")
    times, rows = _places(given[order])
    flat = x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))
    data = ops.take(flat, order[rows] * x.shape[1] + times, 0)
    orders = (None, None) if enforce_sorted else (order, np.argsort(order))
    return PackedSequence(data, np.bincount(times).tolist(), *orders)


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """`pack_padded_sequence` of a list of sequences (L, ...)."""
    listed = _sequences("pack_sequence", sequences)
    return pack_padded_sequence(pad_sequence(listed), [len(s) for s in listed], enforce_sorted=enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Padded sequences (T, B, ...), or (B, T, ...), and their lengths.

    Parameters
    ----------
    sequence : what `pack_padded_sequence` or a recurrent layer returned
    padding_value : stands where a sequence has ended
    total_length : T, at least that of the longest sequence
    """
    x, lengths = sequence.data, sequence.lengths
    longest = len(sequence.batch_sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(f"pad_packed_sequence: total_length {total_length}: the longest sequence has {longest}")
    times, rows = _places(lengths)
    at = np.full((longest if total_length is None else total_length, len(lengths)), len(times))
    at[times, rows] = np.arange(len(times))
    y = ops.take(ops.pad(x, ((0, 1), *[(0, 0)] * (x.ndim - 1)), padding_value), at.reshape(-1), 0)
    y = sequence.unsorted(y.reshape((*at.shape, *x.shape[1:])), 1)
    order = sequence.unsorted_indices
    made = Tensor(lengths if order is None else lengths[order], requires_grad=False)
    return y.swapaxes(0, 1) if batch_first else y, made


# ---- Cells over packed sequences ----------------------------------------------------------------------------------------


def run_packed(cell: Any, x: PackedSequence, start: Any, back: bool = False) -> tuple[PackedSequence, list[Tensor]]:
    """A cell over packed sequences, each from its first element on or from its last: h, and the last state of each (B, h)."""
    turned = _turned(x) if back else None
    y, last = _run(cell, x if turned is None else x.mapped(lambda data: ops.take(data, turned, 0)), start)
    return y if turned is None else y.mapped(lambda data: ops.take(data, turned, 0)), last


def _turned(x: PackedSequence) -> np.ndarray:
    """Where the elements of the sequences are, each taken from its end."""
    lengths = x.lengths
    times, rows = _places(lengths)
    starts = np.cumsum([0, *x.batch_sizes])
    return starts[lengths[rows] - 1 - times] + rows


def _run(cell: Any, x: PackedSequence, start: Any) -> tuple[PackedSequence, list[Tensor]]:
    sizes, at, time = x.batch_sizes, 0, 0
    state, outputs, ended = list(start), [], []
    while time < len(sizes):
        b = sizes[time]
        stop = next((t for t in range(time, len(sizes)) if sizes[t] != b), len(sizes))
        after = sizes[stop] if stop < len(sizes) else 0
        part = x.data[at : at + (stop - time) * b].reshape((stop - time, b, *x.data.shape[1:]))
        y, state = run(cell, part, state)
        outputs.append(y.reshape(((stop - time) * b, y.shape[2])))
        ended.append([s[after:] if after else s for s in state])
        state = [s[:after] for s in state] if after else []
        at, time = at + (stop - time) * b, stop
    last = [ops.concatenate(list(parts), 0) for parts in zip(*reversed(ended), strict=True)]
    return x.mapped(lambda _: ops.concatenate(outputs, 0)), last


def side_by_side(parts: list[PackedSequence]) -> PackedSequence:
    """One packed sequence with the features of several."""
    return parts[0].mapped(lambda _: ops.concatenate([part.data for part in parts], 1))
