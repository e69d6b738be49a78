"""Sequences of different lengths, padded and packed.

>>> import needle as ndl
>>> pad_sequence([ndl.ones(3), ndl.ones(1)], batch_first=True).tolist()
[[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
"""

from needle_nn.nn.sequences import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpad_sequence,
)

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpad_sequence",
]  # fmt: skip
