"""What the tests of checkpoints have in common."""

import json

import numpy as np

import needle as ndl
from needle_ndarray import NDArray


def same(a, b):
    """Equal in value and in type, arrays to the bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (ndl.Tensor, NDArray)):
        return str(a.dtype) == str(b.dtype) and same(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return repr(a) == repr(b)  # tells 0.0 from -0.0, and nan equals nan


def write_file(path, header, data=b""):
    """A safetensors file with this header, given as an object or as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
