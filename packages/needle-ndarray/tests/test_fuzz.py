"""Random view chains, indices, writes and operations, against NumPy: the same values, or an error on both sides."""

import numpy as np
import pytest
from fuzz_strategies import (
    DEVICES,
    DTYPES,
    SHAPES,
    advanced_keys,
    as_ours,
    base,
    basic_keys,
    chains,
    same_memory,
    steps,
)
from hypothesis import assume, given
from hypothesis import strategies as st

import needle_ndarray as nd
from needle_ndarray.testing.oracle import assert_same, assert_within, product_bound, sum_bound


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
    before, shape_of_target = x.copy(), np.shape(expected[key])
    with np.errstate(all="ignore"):
        try:
            expected[key] = theirs
        except TypeError:
            return  # NumPy refuses several axes for a mask alone, and for nothing else
        except ValueError:
            x[...] = before
            if [n for n in np.shape(theirs) if n != 1] == [n for n in shape_of_target if n != 1]:
                return  # the course lets axes of size 1 differ
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
    wide = {}
    if name == "cumsum":
        wide = {
            "dtype": {"float16": np.float32, "float32": np.float32, "float64": np.float64}.get(x.dtype.name, np.int64)
        }
    try:
        expected = np.asarray(getattr(np, name)(x, axis=axis, **wide))
    except ValueError as error:
        with pytest.raises(type(error)):
            getattr(view, name)(axis)
        return
    if name == "cumsum" and x.dtype == np.float16:
        expected = expected.astype(
            np.float16
        )  # a sum of halves is rounded when it is stored, not at every step as NumPy's
    assert_same(getattr(view, name)(axis).numpy(), expected)


@given(chains(), st.sampled_from(["int32", "uint8", "float64", "bool"]), st.data())
def test_unary_and_casts(case, dtype, data):
    _, _, view, x = case
    assert_same(view.astype(dtype).numpy(), x.astype(dtype))
    assert_same(abs(view).numpy(), np.abs(x))
    where = nd.where(view > 5, view, 3)
    assert_same(where.numpy(), np.where(x > 5, x, np.asarray(3, where.dtype.numpy)).astype(where.dtype.numpy))


@given(st.data())
def test_matmul(data):
    """Any shapes: 1-d operands, broadcast batches, mismatches; any strides."""
    device, dtype = (
        data.draw(DEVICES),
        data.draw(st.sampled_from(["int64", "int32", "uint8", "float32", "float64", "bool"])),
    )
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


SCALAR_TYPES = [np.bool_, *np.sctypeDict.values()]
SCALAR_TYPES = sorted({t for t in SCALAR_TYPES if np.dtype(t).kind in "biuf"}, key=lambda t: np.dtype(t).char)


@given(st.data(), st.sampled_from(SCALAR_TYPES), st.integers(0, 7))
def test_numpy_scalars(data, kind, value):
    """A NumPy scalar of any type is the Python number it stands for."""
    _, _, p, _ = data.draw(chains(data.draw(DEVICES)))
    scalar = kind(value)
    number = bool(value) if kind is np.bool_ else float(value) if np.dtype(kind).kind == "f" else value
    op = data.draw(st.sampled_from(["add", "subtract", "multiply", "divide", "maximum", "equal", "less", "power"]))
    for order in (lambda s: getattr(nd, op)(p, s), lambda s: getattr(nd, op)(s, p), lambda s: nd.where(p > 0, p, s)):
        try:
            expected = order(number)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                order(scalar)
            continue
        got = order(scalar)
        assert got.dtype is expected.dtype
        assert_same(got.numpy(), expected.numpy())
