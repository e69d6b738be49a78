"""Strategies of test_fuzz.py: view chains on an NDArray and a NumPy array alike, and indices."""

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import needle_ndarray as nd

DEVICES = st.sampled_from(["cpu", "cpu", "cpu_numpy"] + ["cuda"] * nd.cuda().enabled())
DTYPES = st.sampled_from(["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 7])
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


def base(shape, dtype, device):
    """Distinct values where the dtype has them, as NDArray and as NumPy array."""
    x = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 37 % 101 - 30).astype(dtype)
    return nd.array(x, dtype, device), x


# ---- Steps: each draws an operation that suits the shape, and gives it for both sides -------------------------------------


@st.composite
def slices(draw, n):
    """Any slice of an axis of size n, in bounds or not."""
    bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    step = draw(st.sampled_from([None, 1, 1, 2, 3, -1, -1, -2, -3, 7, -7]))
    return slice(draw(bound), draw(bound), step)


@st.composite
def basic_keys(draw, shape):
    """Ints, slices, None and at most one ellipsis."""
    key = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        while draw(st.integers(0, 5)) == 0 and len(key) < 8:
            key.append(None)
        key.append(draw(st.integers(-n, n - 1)) if n and draw(st.booleans()) else draw(slices(n)))
    if draw(st.booleans()):
        used = sum(k is not None for k in key)
        at = draw(st.integers(0, len(key)))
        skipped = shape[len(shape) - used + sum(k is not None for k in key[:at]) :]
        after = [k for k in key[at:] if k is None or isinstance(k, slice)]  # ints may not fit the axes they now meet
        assume(all(isinstance(k, slice) or k is None for k in key[at:]) or len(skipped) == 0)
        key = [*key[:at], Ellipsis, *after]
    return tuple(key)


@st.composite
def steps(draw, x):
    """(what to do to an NDArray, what to do to a NumPy array), a view or a copy of it."""
    kind = draw(
        st.sampled_from(
            ["index", "index", "permute", "reshape", "broadcast", "flip", "swap", "expand", "squeeze", "none"]
        )
    )
    if kind == "index":
        key = draw(basic_keys(x.shape))
        return lambda a: a[key]
    if kind == "permute":
        order = tuple(draw(st.permutations(range(x.ndim))))
        return lambda a: a.permute(order) if isinstance(a, nd.NDArray) else a.transpose(order)
    if kind == "reshape":
        shape = draw(reshapes(x.size))
        return lambda a: a.reshape(shape)
    if kind == "broadcast":
        shape = (
            *draw(st.lists(st.integers(0, 3), max_size=2)),
            *[draw(st.integers(0, 3)) if n == 1 else n for n in x.shape],
        )
        return lambda a: a.broadcast_to(shape) if isinstance(a, nd.NDArray) else np.broadcast_to(a, shape)
    if kind == "flip":
        axes = tuple(i for i in range(x.ndim) if draw(st.booleans()))
        return lambda a: a.flip(axes) if isinstance(a, nd.NDArray) else np.flip(a, axes)
    if kind == "swap" and x.ndim:
        i, j = draw(st.integers(-x.ndim, x.ndim - 1)), draw(st.integers(-x.ndim, x.ndim - 1))
        return lambda a: a.swapaxes(i, j)
    if kind == "expand":
        axis = draw(st.integers(-x.ndim - 1, x.ndim))
        return lambda a: a.expand_dims(axis) if isinstance(a, nd.NDArray) else np.expand_dims(a, axis)
    if kind == "squeeze":
        return lambda a: a.squeeze()
    return lambda a: a[...]


@st.composite
def reshapes(draw, size):
    """A shape of that many elements, perhaps with -1."""
    shape, rest = [], size
    for _ in range(draw(st.integers(0, 3))):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0] or [0, 2]
        shape.append(draw(st.sampled_from(divisors)))
        rest = rest // shape[-1] if shape[-1] else 0
    shape.append(rest)
    shape = draw(st.permutations(shape))
    if draw(st.booleans()) and 0 not in shape:
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    return tuple(shape)


@st.composite
def chains(draw, device=None, dtype=None, shape=None, length=5):
    """A view chain: (base NDArray, base NumPy array, the view of each)."""
    device = draw(DEVICES) if device is None else device
    a, x = base(draw(SHAPES) if shape is None else shape, draw(DTYPES) if dtype is None else dtype, device)
    view, expected = a, x
    for _ in range(draw(st.integers(0, length))):
        step = draw(steps(expected))
        after = np.asarray(step(expected))
        if after.ndim > 8 or after.size > 3000:
            break
        view, expected = step(view), after
    return a, x, view, expected


def same_memory(x, expected):
    return expected.size and np.shares_memory(x, expected)


@st.composite
def advanced_keys(draw, shape):
    """Arrays of ints and of bools among ints, slices, None and an ellipsis."""
    common = draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    key, i = [], 0
    while i < len(shape):
        kind = draw(st.sampled_from(["array", "array", "mask", "slice", "int", "none", "stop"]))
        n = shape[i]
        if kind == "stop":
            break
        if kind == "none":
            key.append(None)
            if len(key) > 8:
                break
            continue
        if kind == "mask":
            k = draw(st.integers(1, min(2, len(shape) - i)))
            bits = draw(st.integers(0, 2**16))
            mask = (np.arange(np.prod(shape[i : i + k], dtype=int)) * 7 + bits) % 3 == 0
            key.append(mask.reshape(shape[i : i + k]))
            i += k
            continue
        if kind == "array" and (n or 0 in common):
            own = tuple(1 if draw(st.integers(0, 3)) == 0 else m for m in common)
            flat = draw(
                st.lists(
                    st.integers(-n, n - 1) if n else st.just(0), min_size=int(np.prod(own)), max_size=int(np.prod(own))
                )
            )
            key.append(np.array(flat, np.int64).reshape(own))
        elif kind == "int" and n:
            key.append(draw(st.integers(-n, n - 1)))
        else:
            key.append(draw(slices(n)))
        i += 1
    if draw(st.booleans()) and i == len(shape):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
    return tuple(key)


def as_ours(key, device, wrap):
    """NumPy arrays in the key as NDArrays, where wanted."""
    return tuple(nd.array(k, k.dtype, device) if wrap and isinstance(k, np.ndarray) else k for k in key)
