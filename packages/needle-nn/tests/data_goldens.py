"""Small files in the formats the parsers read, and the arrays they hold."""

import gzip
import pickle
import struct

import numpy as np

SIDE = 28


def images(n=5, seed=0):
    """(n, 28, 28) uint8"""
    return np.random.default_rng(seed).integers(0, 256, (n, SIDE, SIDE), dtype=np.uint8)


def labels(n=5, seed=0):
    """(n,) uint8 below 10"""
    return np.random.default_rng(seed).integers(0, 10, n, dtype=np.uint8)


def idx(array, code=0x08, shape=None):
    """An array as an IDX file; `code` and `shape` may lie."""
    shape = array.shape if shape is None else shape
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


def write(path, content, packed=False):
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return str(path)


def mnist(folder, n=5, packed=True):
    """Paths of a pair of files."""
    return (
        write(folder / "images", idx(images(n)), packed),
        write(folder / "labels", idx(labels(n)), packed),
    )


def cifar_arrays(n=4, seed=0):
    """Pixels (n, 3072) uint8 and labels (n,) int64."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, 10, n)


def cifar_pickle(n=4, seed=0, protocol=2, **changes):
    """One batch as Python's layout has it; `changes` replace entries, None removes one."""
    pixels, kinds = cifar_arrays(n, seed)
    held = {
        "batch_label": b"one of five",
        "labels": kinds.tolist(),
        "data": pixels,
        "filenames": [b"a.png"] * n,
    } | changes
    return pickle.dumps({key.encode(): value for key, value in held.items() if value is not None}, protocol=protocol)


def cifar_python2(n=4, seed=0):
    """One batch as Python 2 wrote it: strings are bytes, names are numpy.core's."""
    pixels, kinds = cifar_arrays(n, seed)
    raw = pixels.tobytes()

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def integer(value):
        return b"J" + struct.pack("<i", value)

    numbers = b"".join(b"K" + bytes([int(kind)]) for kind in kinds)
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + integer(-1) + integer(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + integer(n) + integer(3072) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<I", len(raw)) + raw + b"tb"
    return b"\x80\x02}q\x01(" + text(b"labels") + b"]q\x02(" + numbers + b"e" + text(b"data") + array + b"u."


def cifar_records(n=4, seed=0):
    """One batch as the layout for C has it."""
    pixels, kinds = cifar_arrays(n, seed)
    return np.concatenate([kinds[:, None].astype(np.uint8), pixels], axis=1).tobytes()


def cifar(folder, make=cifar_pickle, suffix=""):
    """A folder with all six files, of 4 images each."""
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    for seed, name in enumerate(names):
        (folder / f"{name}{suffix}").write_bytes(make(seed=seed))
    return folder
