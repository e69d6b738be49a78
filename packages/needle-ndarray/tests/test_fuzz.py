"""Random view chains, indices, writes and operations, against NumPy: the same values, or an error on both sides."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import needle_ndarray as nd
from needle_ndarray.testing.oracle import assert_same, assert_within, product_bound, sum_bound

DEVICES = st.sampled_from(["cpu", "cpu", "cpu_numpy"])
DTYPES = st.sampled_from(["bool", "int32", "int64", "float32", "float64"])
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


@given(chains(length=8))
def test_chains(case):
    """Values, shape, memory and meaningful strides of any chain of views."""
    a, x, view, expected = case
    assert view.shape == expected.shape and view.size == expected.size and view.ndim == expected.ndim
    assert_same(view.numpy(), expected)
    assert_same(np.asarray(view), expected)
    if same_memory(x, expected):
        assert view._handle.ptr() == a._handle.ptr()
        strides = [s // x.itemsize for s in expected.strides]
        assert [s for s, n in zip(view.strides, view.shape, strict=True) if n > 1] == [
            s for s, n in zip(strides, expected.shape, strict=True) if n > 1
        ]
        first = expected.__array_interface__["data"][0] - x.__array_interface__["data"][0]
        assert view.offset * x.itemsize == first
    assert view.tolist() == expected.tolist()
    assert_same(view.compact().numpy(), expected)
    assert (
        view.compact().size == 0
        or view.compact().strides == nd.NDArray.compact_strides(expected.shape)
        or expected.size <= 1
        or 1 in expected.shape
    )


@given(chains(), st.data())
def test_writes_through_chains(case, data):
    """view[key] = value reaches exactly the elements of the base that NumPy's reaches."""
    a, x, view, expected = case
    assume(same_memory(x, expected) and 0 not in expected.strides)
    key = data.draw(basic_keys(expected.shape))
    target = expected[key]
    kind = data.draw(st.sampled_from(["scalar", "array", "broadcast", "itself", "bad"]))
    shape = np.shape(target)
    if kind == "scalar":
        ours = theirs = data.draw(st.sampled_from([0, 1, True]))
    elif kind == "itself":
        other = data.draw(steps(expected))
        source, theirs = other(view), np.asarray(other(expected)).copy()
        ours = source
    else:
        if kind == "broadcast" and shape:
            shape = tuple(1 if data.draw(st.booleans()) else n for n in shape)[data.draw(st.integers(0, len(shape))) :]
        if kind == "bad":
            shape = data.draw(SHAPES)
        ours, theirs = base(shape, data.draw(DTYPES), a.device)
    with np.errstate(all="ignore"):
        try:
            expected.flags.writeable = True
            expected[key] = theirs
        except ValueError:
            before = a.numpy()
            if [n for n in np.shape(theirs) if n != 1] == [n for n in np.shape(target) if n != 1]:
                return  # the course lets axes of size 1 differ
            with pytest.raises((ValueError, IndexError)):
                view[key] = ours
            assert_same(a.numpy(), before)
            return
    view[key] = ours
    assert_same(a.numpy(), x)


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


@given(chains(), st.booleans(), st.data())
def test_advanced_get(case, wrap, data):
    a, _, view, expected = case
    key = data.draw(advanced_keys(expected.shape))
    try:
        want = np.asarray(expected[key])
    except IndexError:
        with pytest.raises((IndexError, ValueError)):
            view[as_ours(key, a.device, wrap)]
        return
    try:
        got = view[as_ours(key, a.device, wrap)]
    except IndexError:
        assert want.size == 0  # NumPy does not check indices when it has nothing to fetch
        return
    assert_same(got.numpy(), want)


@given(chains(), st.booleans(), st.data())
def test_advanced_set(case, wrap, data):
    a, x, view, expected = case
    assume(same_memory(x, expected) and 0 not in expected.strides)
    key = data.draw(advanced_keys(expected.shape))
    try:
        shape = np.shape(expected[key])
    except IndexError:
        with pytest.raises((IndexError, ValueError)):
            view[as_ours(key, a.device, wrap)] = 1
        return
    kind = data.draw(st.sampled_from(["scalar", "array", "broadcast", "bad", "itself"]))
    if shape == ():
        kind = "scalar"  # NumPy wants a number here, and no array of one
    if kind == "scalar":
        ours = theirs = data.draw(st.sampled_from([0, 1, True]))
    elif kind == "itself":
        ours, theirs = (
            view[..., ::-1] if view.ndim else view,
            (expected[..., ::-1] if expected.ndim else expected).copy(),
        )
    else:
        if kind == "broadcast":
            shape = tuple(1 if data.draw(st.booleans()) else n for n in shape)[data.draw(st.integers(0, len(shape))) :]
        if kind == "bad":
            shape = data.draw(SHAPES)
        ours, theirs = base(shape, data.draw(DTYPES), a.device)
    expected.flags.writeable = True
    before = x.copy()
    with np.errstate(all="ignore"):
        try:
            expected[key] = theirs
        except TypeError:
            return  # NumPy refuses several axes for a mask alone, and for nothing else
        except ValueError:
            x[...] = before
            with pytest.raises(ValueError):
                view[as_ours(key, a.device, wrap)] = ours
            assert_same(a.numpy(), before)
            return
    try:
        view[as_ours(key, a.device, wrap)] = ours
    except (IndexError, ValueError):
        assert expected[key].size == 0  # NumPy checks neither indices nor shapes when it has nothing to store
    assert_same(a.numpy(), x)


# ---- Arithmetic -----------------------------------------------------------------------------------------------------------

BINARY = """add subtract multiply divide floor_divide remainder maximum minimum equal less logical_xor
    bitwise_and""".split()


@given(st.data(), st.sampled_from(BINARY))
def test_binary_on_view_pairs(data, name):
    device = data.draw(DEVICES)
    _, _, p, x = data.draw(chains(device))
    _, _, q, y = data.draw(chains(device, shape=x.shape if data.draw(st.booleans()) else None))
    with np.errstate(all="ignore"):
        try:
            expected = np.asarray(getattr(np, name)(x, y))
        except (ValueError, TypeError) as error:
            with pytest.raises(type(error)):
                getattr(nd, name)(p, q)
            return
    got = getattr(nd, name)(p, q)
    if expected.dtype == np.int8:
        expected = expected.astype(np.int32)
    assert_same(got.numpy(), expected, signs=name not in ("maximum", "minimum"))


@given(st.data(), st.sampled_from(["add", "multiply", "maximum"]))
def test_out_that_overlaps(data, name):
    """The operands and out are views of one array: as if the operands were copied first."""
    device = data.draw(DEVICES)
    a, x = base((6, 7), "int64", device)
    shape = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))

    def window():
        row, column = data.draw(st.integers(0, 6 - shape[0])), data.draw(st.integers(0, 7 - shape[1]))
        rows, columns = data.draw(st.sampled_from([1, -1])), data.draw(st.sampled_from([1, -1]))
        return lambda v: v[row : row + shape[0], column : column + shape[1]][::rows, ::columns]

    left, right, out = window(), window(), window()
    expected = x.copy()
    out(expected)[...] = getattr(np, name)(left(x).copy(), right(x).copy())
    getattr(nd, name)(left(a), right(a), out=out(a))
    assert_same(a.numpy(), expected)


@given(chains(), st.data(), st.sampled_from(["sum", "prod", "max", "min", "any", "all"]))
def test_reductions(case, data, name):
    _, _, view, x = case
    if x.dtype.kind == "f":
        x = x.copy()
    axis = data.draw(
        st.one_of(st.none(), st.lists(st.integers(-x.ndim - 1, x.ndim), max_size=3).map(tuple), st.integers(-3, 2))
    )
    keepdims = data.draw(st.booleans())
    if x.ndim == 0 and axis not in (None, ()):
        return  # NumPy lets axis 0 of a 0-d array pass
    wide = {"dtype": np.int64} if name in ("sum", "prod") and x.dtype.kind != "f" else {}
    exact = x.astype(np.longdouble) if name in ("sum", "prod") and x.dtype.kind == "f" else x
    try:
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(exact, axis=axis, keepdims=keepdims, **wide))
    except ValueError as error:
        with pytest.raises(type(error)):
            getattr(view, name)(axis, keepdims)
        return
    if name in ("max", "min") and expected.size == 0:
        return  # over no elements, but for no outputs: NumPy lets some of these pass
    got = getattr(view, name)(axis=axis, keepdims=keepdims)
    if x.dtype.kind != "f" or name not in ("sum", "prod"):
        return assert_same(got.numpy(), expected, signs=False)
    assert got.dtype == x.dtype
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    bound = (
        sum_bound(x, axes, x.dtype.name) if name == "sum" else np.finfo(x.dtype).eps * max(x.size, 1) * np.abs(expected)
    )
    assert_within(got.numpy(), expected, bound.reshape(expected.shape))


@given(chains(), st.data(), st.sampled_from(["argmax", "argmin", "cumsum"]))
def test_along_an_axis(case, data, name):
    _, _, view, x = case
    assume(x.ndim > 0)
    axis = data.draw(st.one_of(st.none(), st.integers(-x.ndim - 1, x.ndim)))
    wide = {"dtype": np.int64} if name == "cumsum" and x.dtype.kind != "f" else {}
    try:
        expected = np.asarray(getattr(np, name)(x, axis=axis, **wide))
    except ValueError as error:
        with pytest.raises(type(error)):
            getattr(view, name)(axis)
        return
    assert_same(getattr(view, name)(axis).numpy(), expected)


@given(chains(), st.sampled_from(["int32", "float64", "bool"]), st.data())
def test_unary_and_casts(case, dtype, data):
    _, _, view, x = case
    assert_same(view.astype(dtype).numpy(), x.astype(dtype))
    assert_same(abs(view).numpy(), np.abs(x))
    where = nd.where(view > 5, view, 3)
    assert_same(where.numpy(), np.where(x > 5, x, np.asarray(3, where.dtype.numpy)).astype(where.dtype.numpy))


@given(st.data())
def test_matmul(data):
    """Any shapes: 1-d operands, broadcast batches, mismatches; any strides."""
    device, dtype = data.draw(DEVICES), data.draw(st.sampled_from(["int64", "int32", "float32", "float64", "bool"]))
    m, k, n = (data.draw(st.integers(0, 9)) for _ in range(3))
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    right_lead = tuple(1 if data.draw(st.booleans()) else d for d in lead)[data.draw(st.integers(0, len(lead))) :]
    wrong = data.draw(st.integers(0, 9)) == 0
    left = data.draw(st.sampled_from([(*lead, m, k), (k,)]))
    right = data.draw(st.sampled_from([(*right_lead, k + wrong, n), (k + wrong,)]))

    def operand(shape):
        a, x = base(tuple(2 * d for d in shape), dtype, device)
        key = tuple(data.draw(st.sampled_from([np.s_[:d], np.s_[::2], np.s_[::-2], np.s_[d:]])) for d in shape)
        a, x = a[key], x[key]
        return (a.copy(), x.copy()) if data.draw(st.booleans()) else (a, x)

    (p, x), (q, y) = operand(left), operand(right)
    if len(left) > 1 and len(right) > 1 and data.draw(st.booleans()) and m == k == n:
        q, y = q.swapaxes(-1, -2), y.swapaxes(-1, -2)
    try:
        expected = np.asarray(np.matmul(x, y))
    except ValueError:
        with pytest.raises(ValueError, match="matmul"):
            p @ q
        return
    got = (p @ q).numpy()
    if x.dtype.kind != "f":
        return assert_same(got, expected)
    exact = np.asarray(np.matmul(x.astype(np.longdouble), y.astype(np.longdouble)))
    assert got.dtype == dtype and got.shape == exact.shape
    assert_within(got, exact, product_bound(x, y))


EINSUMS = """
    ij,jk->ik ij,kj->ik bij,bjk->bik i,i-> i,j->ij ij->ji ij-> ij->j ii->i ii-> iij->j ij,ij->i
    ...ij,...jk->...ik ...i->... i...->...i ij,jk ba ij,jk,kl->il ijk,kj->i bij,j->bi i,ij,j-> abc,cd,bd->a
    ij,...j->...i ...,...->... ijij->ij
""".split()


@given(st.data(), st.sampled_from(EINSUMS))
def test_einsum(data, subscripts):
    device = data.draw(DEVICES)
    sizes = {letter: data.draw(st.integers(0, 4)) for letter in "abcdijkl"}
    dots = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    pairs = []
    for term in subscripts.split("->")[0].split(","):
        before, _, after = term.partition("...")
        shape = (*[sizes[c] for c in before], *(dots if "..." in term else ()), *[sizes[c] for c in after])
        a, x = base(shape[::-1], "int64", device)
        pairs.append((a.T, x.T) if data.draw(st.booleans()) else (a.reshape(shape), x.reshape(shape)))
    if data.draw(st.integers(0, 12)) == 0 and pairs[0][0].ndim:
        pairs[0] = (pairs[0][0][None], pairs[0][1][None])
    try:
        expected = np.einsum(subscripts, *[x for _, x in pairs])
    except ValueError:
        with pytest.raises(ValueError, match="einsum"):
            nd.einsum(subscripts, *[a for a, _ in pairs])
        return
    assert_same(nd.einsum(subscripts, *[a for a, _ in pairs]).numpy(), np.asarray(expected))


@given(st.data())
def test_joining(data):
    """concatenate, stack, split, tile, repeat, pad, roll on views."""
    device = data.draw(DEVICES)
    _, _, p, x = data.draw(chains(device))
    assume(x.ndim > 0)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    times = data.draw(st.integers(0, 3))
    pads = tuple((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in x.shape)
    shift = data.draw(st.integers(-9, 9))
    counts = tuple(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=x.ndim + 1)))
    assert_same(nd.concatenate([p, p], axis).numpy(), np.concatenate([x, x], axis))
    assert_same(nd.stack([p, p], axis).numpy(), np.stack([x, x], axis))
    assert_same(nd.repeat(p, times, axis=axis).numpy(), np.repeat(x, times, axis=axis))
    assert_same(nd.tile(p, counts).numpy(), np.tile(x, counts))
    assert_same(nd.roll(p, shift, axis).numpy(), np.roll(x, shift, axis))
    assert_same(p.pad(pads).numpy(), np.pad(x, pads))
    parts = data.draw(st.integers(1, 4))
    if x.shape[axis] % parts == 0:
        for got, expected in zip(nd.split(p, parts, axis), np.split(x, parts, axis), strict=True):
            assert_same(got.numpy(), expected)
