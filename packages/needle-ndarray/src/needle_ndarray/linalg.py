"""Matrix products and einsum."""

import math
from typing import Any

import numpy as np

from needle_ndarray.creation import empty, only_arrays
from needle_ndarray.dtypes import holding, promote_types, result_type
from needle_ndarray.ndarray import NDArray, bounded, broadcast_shapes, make_array, normal_axes
from needle_ndarray.rules import RULES

#: What products are computed in where that is another dtype: any of bools is a sum that is not 0, those of halves are rounded once.
COMPUTED = {"bool": "int32", "float16": "float32", "bfloat16": "float32"}


def matmul(x1: Any, x2: Any, /) -> NDArray:
    """(..., m, k) @ (..., k, n) -> (..., m, n); leading axes broadcast, 1-d operands are a row or a column.

    >>> from needle_ndarray import ones
    >>> matmul(ones((5, 2, 3)), ones((3, 4))).shape
    (5, 2, 4)
    """
    a, b = _operands("matmul", x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: {a.shape} @ {b.shape}: 0-d operands, use * instead")
    left = a.reshape((1, *a.shape)) if a.ndim == 1 else a
    right = b.reshape((*b.shape, 1)) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"matmul: {a.shape} @ {b.shape}: inner sizes {left.shape[-1]} and {right.shape[-2]} differ")
    dtype = promote_types(left.dtype, right.dtype)
    compute = COMPUTED.get(dtype, dtype)
    out = _batched(left.astype(compute, copy=False), right.astype(compute, copy=False))
    out = out if dtype == compute else out.astype(dtype)
    if a.ndim == 1 or b.ndim == 1:
        shape = out.shape[:-2] + (() if a.ndim == 1 else out.shape[-2:-1]) + (() if b.ndim == 1 else out.shape[-1:])
        out = out.reshape(shape)
    return out


def matmul_weight(x: NDArray, weight: NDArray, scale: NDArray | None = None, /) -> NDArray:
    """x @ weight times scale, for float32 x (..., k) and a weight (k, n) that is kept small, and is widened as it is read.

    Parameters
    ----------
    x : NDArray (..., k), float32
    weight : NDArray (k, n) of float16 or bfloat16, or of uint8, where w means w - 128
    scale : NDArray (n,), float32; None: 1

    >>> from needle_ndarray import array
    >>> matmul_weight(array([[1.0, 2.0]]), array([[130], [127]], "uint8"), array([0.5])).tolist()
    [[0.0]]
    """
    only_arrays("matmul_weight", x, weight, *[] if scale is None else [scale])
    if x.dtype != "float32" or not (weight.dtype.is_half or weight.dtype == "uint8"):
        kinds = f"{x.dtype} @ {weight.dtype}"
        raise TypeError(f"matmul_weight: {kinds}: expected float32 @ float16, bfloat16 or uint8")
    if x.ndim == 0:
        raise ValueError("matmul_weight: x is 0-d, expected (..., k)")
    rows = x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))
    *_, out = RULES["matmul_weight"].prepare(rows, weight, scale)
    out.backend.matmul_weight(rows, weight, scale, out)
    return out.reshape((*x.shape[:-1], weight.shape[1]))


def _operands(what: str, x1: Any, x2: Any) -> tuple[NDArray, NDArray]:
    device = next((x.device for x in (x1, x2) if isinstance(x, NDArray)), None)
    if device is None:
        raise TypeError(f"{what}: expected an NDArray, got {type(x1).__name__} and {type(x2).__name__}")
    a, b = (x if isinstance(x, NDArray) else make_array(x, holding(np.asarray(x).dtype), device) for x in (x1, x2))
    if a.device != b.device:
        raise ValueError(f"{what}: operands on {a.device} and {b.device}; move one with .to(device)")
    return a, b


def _batched(a: NDArray, b: NDArray) -> NDArray:
    """Operands of two axes or more and one dtype."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    if b.ndim == 2 and a.ndim > 2 and all(a.strides[i] == a.shape[i + 1] * a.strides[i + 1] for i in range(a.ndim - 2)):
        # One product instead of a batch: the leading axes of `a` are just more rows.
        rows = math.prod(a.shape[:-1])
        return _batched(a.reshape(rows, k), b).reshape((*a.shape[:-1], n))
    if a.shape[:-2] == b.shape[:-2]:
        out = empty((*a.shape[:-1], n), a.dtype, a.device)
    else:
        try:
            lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise ValueError(f"matmul: {a.shape} @ {b.shape}: leading axes do not broadcast") from None
        out = empty((*lead, m, n), a.dtype, a.device)
        a, b = a.broadcast_to((*lead, m, k)), b.broadcast_to((*lead, k, n))
    out.backend.matmul(a, b, out)
    return out


def tensordot(x1: NDArray, x2: NDArray, /, *, axes: Any = 2) -> NDArray:
    """Products summed over the last `axes` axes of x1 and the first of x2, or over a list of axes of each.

    >>> from needle_ndarray import ones
    >>> tensordot(ones((2, 3, 4)), ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    a, b = _operands("tensordot", x1, x2)
    if hasattr(axes, "__index__"):
        n = axes.__index__()
        if not 0 <= n <= min(a.ndim, b.ndim):
            raise ValueError(f"tensordot: {n} axes of shapes {a.shape} and {b.shape}")
        left, right = list(range(a.ndim - n, a.ndim)), list(range(n))
    else:
        left, right = (
            [normal_axes("tensordot", i, x.ndim)[0] for i in ((given,) if hasattr(given, "__index__") else given)]
            for given, x in zip(bounded("tensordot", axes), (a, b), strict=True)
        )
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        sizes = [a.shape[i] for i in left], [b.shape[i] for i in right]
        raise ValueError(f"tensordot: {a.shape} and {b.shape}: summed axes have sizes {sizes[0]} and {sizes[1]}")
    rows, columns = [i for i in range(a.ndim) if i not in left], [i for i in range(b.ndim) if i not in right]
    m, n, k = ([x.shape[i] for i in part] for x, part in ((a, rows), (b, columns), (a, left)))
    product = matmul(
        a.permute((*rows, *left)).reshape((math.prod(m), math.prod(k))),
        b.permute((*right, *columns)).reshape((math.prod(k), math.prod(n))),
    )
    return product.reshape((*m, *n))


def vecdot(x1: NDArray, x2: NDArray, /, *, axis: int = -1) -> NDArray:
    """The sum of products along an axis; the others broadcast."""
    a, b = _operands("vecdot", x1, x2)
    if not -min(a.ndim, b.ndim) <= axis < 0:
        raise ValueError(
            f"vecdot: axis {axis} of shapes {a.shape} and {b.shape}: expected one of both, counted from the end"
        )
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"vecdot: {a.shape} and {b.shape}: axis {axis} has sizes {a.shape[axis]} and {b.shape[axis]}")
    dtype = promote_types(a.dtype, b.dtype)
    if dtype.is_half:
        a, b = a.astype("float32"), b.astype("float32")
    return (a * b).sum(axis).astype(dtype, copy=False)


def einsum(subscripts: str, *operands: NDArray) -> NDArray:
    """Sums of products by index letters, as in NumPy: `einsum("bij,bjk->bik", a, b)`.

    Two operands at a time, from the left, each step a batched matmul. Repeated letters in an operand take its diagonal; `...`
    stands for leading axes that broadcast; without `->` the letters that occur once come out in alphabetical order.
    """
    inputs, output = _parse(subscripts, operands)
    dtype = result_type(*operands)  # sums of a small operand alone would wrap before they meet the others
    if dtype.is_half:
        return einsum(subscripts, *[x.astype("float32") for x in operands]).astype(dtype)
    operands = tuple([x.astype(dtype, copy=False) for x in operands])
    terms = [_diagonal(x, letters) for x, letters in zip(operands, inputs, strict=True)]
    sizes: dict[str, int] = {}
    for x, letters in terms:
        for letter, n in zip(letters, x.shape, strict=True):
            if sizes.setdefault(letter, n) != n and n != 1 and sizes[letter] != 1:
                raise ValueError(f"einsum: {subscripts!r}: index {letter!r} is {sizes[letter]} and {n}")
            sizes[letter] = max(sizes[letter], n) if n and sizes[letter] else 0
    x, letters = terms[0]
    for i, (y, others) in enumerate(terms[1:], 2):
        later = set(output).union(*(rest for _, rest in terms[i:]))
        x, letters = _contract(x, letters, y, others, later, sizes)
    x = x.broadcast_to(tuple(sizes[c] for c in letters))
    gone = tuple(i for i, c in enumerate(letters) if c not in output)
    if gone:
        x, letters = x.sum(gone).astype(x.dtype, copy=False), "".join(c for c in letters if c in output)
    return x.permute(tuple(letters.index(c) for c in output)).compact()


def _parse(subscripts: str, operands: tuple) -> tuple[list[str], str]:
    """Letters of every operand and of the result; axes under `...` become capital letters that are not in use."""
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum: expected subscripts like 'ij,jk->ik', got {subscripts!r}")
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(operands) or not operands:
        raise ValueError(f"einsum: {subscripts!r} names {len(inputs)} operands, {len(operands)} were given")
    spare = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in subscripts]
    most = 0
    for x, letters in zip(operands, inputs, strict=True):
        if not isinstance(x, NDArray):
            raise TypeError(f"einsum: expected NDArrays, got {type(x).__name__}")
        named = len(letters.replace("...", ""))
        if letters.count("...") > 1 or not all(c.isalpha() and c.isascii() for c in letters.replace("...", "")):
            raise ValueError(f"einsum: {subscripts!r}: {letters!r} is not a list of letters")
        if named > x.ndim or ("..." not in letters and named != x.ndim):
            raise ValueError(f"einsum: {subscripts!r}: {letters!r} does not fit an operand of shape {x.shape}")
        most = max(most, x.ndim - named if "..." in letters else 0)
    if most > len(spare):
        raise ValueError(f"einsum: {subscripts!r}: too many axes")
    dots = "".join(reversed(spare[:most]))
    full = []
    for x, letters in zip(operands, inputs, strict=True):
        count = x.ndim - len(letters.replace("...", ""))
        full.append(letters.replace("...", dots[len(dots) - count :]))
    if arrow:
        output = right.replace("...", dots)
    else:
        once = "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
        output = dots + once
    known = set("".join(full))
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ValueError(
            f"einsum: {subscripts!r}: the result {right!r} repeats a letter or has one that no operand has"
        )
    return full, output


def _diagonal(x: NDArray, letters: str) -> tuple[NDArray, str]:
    """x with one axis per letter: repeated letters walk along the diagonal, as a view."""
    unique = "".join(dict.fromkeys(letters))
    if unique == letters:
        return x, letters
    shape, strides = [], []
    for letter in unique:
        axes = [i for i, c in enumerate(letters) if c == letter]
        if len({x.shape[i] for i in axes}) > 1:
            raise ValueError(f"einsum: index {letter!r} repeats over sizes {[x.shape[i] for i in axes]}")
        shape.append(x.shape[axes[0]])
        strides.append(sum(x.strides[i] for i in axes))
    return x.as_strided(shape, strides), unique


def _contract(x: NDArray, a: str, y: NDArray, b: str, later: set[str], sizes: dict[str, int]) -> tuple[NDArray, str]:
    """Two operands to one, letters not needed later summed away: (batch, m, k) @ (batch, k, n)."""
    x, a = _sum_unshared(x, a, set(b) | later)
    y, b = _sum_unshared(y, b, set(a) | later)
    batch = "".join(c for c in a if c in b and c in later)
    inner = "".join(c for c in a if c in b and c not in later)
    rows, columns = ("".join(c for c in s if c not in batch + inner) for s in (a, b))
    left, right = _ordered(x, a, batch + rows + inner, sizes), _ordered(y, b, batch + inner + columns, sizes)
    lead, m, k, n = (tuple(sizes[c] for c in part) for part in (batch, rows, inner, columns))
    product = matmul(
        left.reshape((*lead, math.prod(m), math.prod(k))), right.reshape((*lead, math.prod(k), math.prod(n)))
    )
    return product.reshape((*lead, *m, *n)), batch + rows + columns


def _sum_unshared(x: NDArray, letters: str, needed: set[str]) -> tuple[NDArray, str]:
    gone = tuple(i for i, c in enumerate(letters) if c not in needed)
    if not gone:
        return x, letters
    return x.sum(gone).astype(x.dtype, copy=False), "".join(c for c in letters if c in needed)


def _ordered(x: NDArray, letters: str, order: str, sizes: dict[str, int]) -> NDArray:
    moved = x.permute(tuple(letters.index(c) for c in order))
    return moved.broadcast_to(tuple(sizes[c] for c in order))
