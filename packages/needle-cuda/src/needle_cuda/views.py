"""Layouts of arrays as the structs of common.cuh, which kernels get by value."""

from functools import lru_cache
from typing import Any

import numpy as np

MAX_DIMS = 32  # NDArray has no more axes
MAX_OPERANDS = 4
TILE = 32  # of a transposition

#: struct View: the layout of one array.
VIEW = np.dtype([("shape", np.int64, MAX_DIMS), ("strides", np.int64, MAX_DIMS), ("ndim", np.int64)])
#: struct Joint: the layouts of up to four arrays of one shape.
JOINT = np.dtype([("shape", np.int64, MAX_DIMS), ("strides", np.int64, (MAX_OPERANDS, MAX_DIMS)), ("ndim", np.int64)])


def view(array: Any) -> np.ndarray:
    """The layout of one array, its axes merged where the memory allows: place(view, i) is where element i lies."""
    return view_of(*merged(array.shape, array.strides))


def views(*arrays: Any) -> list[np.ndarray]:
    """The layouts of arrays of one shape, merged alike."""
    shape, *strides = merged(arrays[0].shape, *[a.strides for a in arrays])
    return [view_of(shape, each) for each in strides]


def joint(*arrays: Any) -> np.ndarray:
    """The layouts of up to four arrays of one shape in one struct, out first; its axes lie as out has them in memory.

    Elements come in another order than row-major: for operations where each stands for itself.
    """
    return joint_of(arrays[0].shape, *[a.strides for a in arrays])


def dense(array: Any) -> bool:
    """Whether the elements lie in row-major order without gaps, anywhere in the buffer."""
    return is_dense(array.shape, array.strides)


def compact(array: Any) -> Any:
    """The array itself where it is dense, else a compact copy."""
    return array if dense(array) else array.copy()


def step(array: Any) -> int | None:
    """1 for a dense array, 0 for one element broadcast to its shape, None for every other layout."""
    return _step(array.shape, array.strides)


@lru_cache(4096)
def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return 0 in shape or merged(shape, strides) in (((), ()), (_whole(shape), (1,)))


@lru_cache(4096)
def _step(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    if is_dense(shape, strides):
        return 1
    return 0 if all(s == 0 for n, s in zip(shape, strides, strict=True) if n != 1) else None


def _whole(shape: tuple[int, ...]) -> tuple[int]:
    return (int(np.prod(shape, dtype=np.int64)),)


@lru_cache(4096)
def merged(shape: tuple[int, ...], *strides: tuple[int, ...]) -> tuple:
    """(shape, strides of each): axes of size 1 left out, neighbours made one where all operands allow it.

    >>> merged((2, 3, 4), (12, 4, 1), (4, 0, 1))
    ((2, 3, 4), (12, 4, 1), (4, 0, 1))
    >>> merged((2, 3, 4), (12, 4, 1), (24, 8, 2))
    ((24,), (1,), (2,))
    """
    axes: list[list] = []
    for n, *steps in zip(shape, *strides, strict=True):
        if n == 1:
            continue
        if axes and all(before == n * step for before, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = [axes[-1][0] * n, *steps]
        else:
            axes.append([n, *steps])
    return tuple(zip(*axes, strict=True)) if axes else ((),) * (1 + len(strides))


@lru_cache(4096)
def view_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The struct View."""
    out = np.zeros((), VIEW)
    out["ndim"] = len(shape)
    out["shape"][: len(shape)] = shape
    out["strides"][: len(shape)] = strides
    out.flags.writeable = False
    return out


@lru_cache(4096)
def joint_of(shape: tuple[int, ...], *strides: tuple[int, ...], by: int = 0) -> np.ndarray:
    """The struct Joint; its axes lie as operand `by` has them in memory."""
    order = sorted(range(len(shape)), key=lambda axis: -abs(strides[by][axis]))
    shape, *steps = merged(*[tuple([each[axis] for axis in order]) for each in (shape, *strides)])
    out = np.zeros((), JOINT)
    out["ndim"] = len(shape)
    out["shape"][: len(shape)] = shape
    for k, each in enumerate(steps):
        out["strides"][k, : len(shape)] = each
    out.flags.writeable = False
    return out


def transposition(out: Any, a: Any) -> tuple | None:
    """What the kernel `transpose` needs, and its grid, where neighbours in `a` are not neighbours in `out`; else None."""
    return _transposition(out.shape, out.strides, a.strides)


@lru_cache(4096)
def _transposition(shape: tuple[int, ...], out: tuple[int, ...], a: tuple[int, ...]) -> tuple | None:
    order = sorted(range(len(shape)), key=lambda axis: -abs(out[axis]))
    shape, out, a = merged(*[tuple([each[axis] for axis in order]) for each in (shape, out, a)])
    across = [axis for axis in range(len(shape) - 1) if a[axis] == 1 and shape[axis] >= TILE // 2]
    if not across or out[-1] != 1 or shape[-1] < TILE // 2:
        return None
    row = across[0]
    rest = [axis for axis in range(len(shape) - 1) if axis != row]
    others = joint_of(*[tuple([each[axis] for axis in rest]) for each in (shape, out, a)])
    count = int(np.prod([shape[axis] for axis in rest], dtype=np.int64))
    given = (shape[row], shape[-1], out[row], a[-1], count)
    tiles = count * -(-shape[row] // TILE) * -(-shape[-1] // TILE)
    return (*[np.int64(each) for each in given], others), (min(tiles, 1 << 20),)
