"""Small pictures for a page: PNG, written by hand, in the address itself."""

import base64
import struct
import zlib
from typing import Any

import numpy as np


def png(image: Any) -> bytes:
    """A PNG of (H, W) or (H, W, 3) numbers: uint8, or floats in [0, 1].

    >>> png(np.zeros((2, 3)))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3) or not pixels.size:
        raise ValueError(f"png: shape {np.shape(image)}: expected (H, W), (H, W, 1) or (H, W, 3)")
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(np.nan_to_num(pixels), 0, 1) * 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    rows = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1
    )  # filter 0 before each row
    kind = 2 if pixels.ndim == 3 else 0  # colour or grey
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def data_address(image: Any) -> str:
    """The picture as the address of an <img>."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
