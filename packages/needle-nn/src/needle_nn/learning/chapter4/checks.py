"""Views against NumPy's strides; C functions against NumPy, with guard zones around their arrays."""

import ctypes

import numpy as np

from needle_nn.learning.compiling import call
from needle_nn.learning.expect import Checks, Wrong, close, same

checks = Checks()
RNG = np.random.default_rng(0)
MEMORY = np.arange(1000, dtype=np.float32)


def seen(view):
    """A view of MEMORY as NumPy sees it."""
    strides = [4 * s for s in view.strides]
    return np.lib.stride_tricks.as_strided(MEMORY[view.offset :], view.shape, strides)


def view(student, shape, strides=None, offset=0):
    if strides is None:
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return student.View(tuple(shape), tuple(strides), offset)


def looks_like(what, given, expected):
    """The view shows the elements of `expected`, a view of MEMORY in NumPy."""
    for field in ("shape", "strides", "offset"):
        if not hasattr(given, field):
            raise Wrong(f"{what}: expected a View, given {type(given).__name__}")
    same(f"{what}: shape", tuple(given.shape), expected.shape)
    same(f"{what}: strides", tuple(given.strides), tuple(s // 4 for s in expected.strides))
    same(f"{what}: offset", given.offset, (expected.ctypes.data - MEMORY.ctypes.data) // 4)


@checks("compact_strides", "from the last axis to the first: 1, then times the size of the axis behind")
def compact_strides(student):
    for shape, strides in [((2, 3, 4), (12, 4, 1)), ((5,), (1,)), ((), ()), ((3, 1, 2), (2, 2, 1))]:
        same(f"compact_strides({shape})", student.compact_strides(shape), strides)


@checks(
    "is_compact",
    "compare strides with compact_strides(shape), and offset with 0; the stride of an axis of size 1 does not matter",
)
def is_compact(student):
    cases = [
        ((2, 3), (3, 1), 0, True),
        ((2, 3), (1, 2), 0, False),
        ((2, 3), (3, 1), 1, False),
        ((2, 3), (4, 1), 0, False),
    ]
    for shape, strides, offset, expected in [*cases, ((), (), 0, True), ((2, 1), (1, 7), 0, True)]:
        given = student.is_compact(view(student, shape, strides, offset))
        same(f"is_compact(View({shape}, {strides}, {offset}))", bool(given), expected)


@checks("permute", "new shape[i] = shape[axes[i]], likewise strides")
def permute(student):
    v = view(student, (2, 3, 4), offset=5)
    looks_like("permute(v, (2, 0, 1))", student.permute(v, (2, 0, 1)), seen(v).transpose(2, 0, 1))


@checks(
    "broadcast_to", "align shapes at the right; where a size of 1 becomes larger, and for new axes, the stride is 0"
)
def broadcast_to(student):
    for shape, to in [((2, 1), (2, 3)), ((3,), (4, 2, 3)), ((2, 3), (2, 3))]:
        v = view(student, shape, offset=7)
        given = student.broadcast_to(v, to)
        same(f"broadcast_to({shape}, {to}): shape", tuple(given.shape), to)
        expected = np.broadcast_to(seen(v), to)
        kept = [i for i, n in enumerate(to) if n > 1]
        same("its strides", [given.strides[i] for i in kept], [expected.strides[i] // 4 for i in kept])
        same("its offset", given.offset, 7)


@checks(
    "broadcast_to: what is impossible", "raise ValueError where sizes differ and the old one is not 1, or axes are lost"
)
def broadcast_wrong(student):
    for shape, to in [((2,), (3,)), ((3, 1), (2, 4)), ((2, 3), (3,))]:
        try:
            student.broadcast_to(view(student, shape), to)
        except ValueError:
            continue
        raise Wrong(f"broadcast_to({shape}, {to}): expected ValueError, given a view")


@checks("slice_axis", "offset + start * stride; stride * step; (stop - start + step - 1) // step elements")
def slice_axis(student):
    v = view(student, (4, 10), offset=3)
    looks_like("slice_axis(v, 1, 2, 9, 3)", student.slice_axis(v, 1, 2, 9, 3), seen(v)[:, 2:9:3])
    looks_like("slice_axis(v, 0, 1, 3, 1)", student.slice_axis(v, 0, 1, 3, 1), seen(v)[1:3])
    same("elements of slice_axis(v, 1, 4, 4, 1)", student.slice_axis(v, 1, 4, 4, 1).shape[1], 0)


@checks("flip", "offset + (size - 1) * stride, and the stride negative")
def flip(student):
    v = view(student, (3, 4), offset=2)
    looks_like("flip(v, 1)", student.flip(v, 1), seen(v)[:, ::-1])
    looks_like(
        "flip(permuted, 0)", student.flip(view(student, (4, 3), (1, 4)), 0), seen(view(student, (4, 3), (1, 4)))[::-1]
    )


# ---- Kernels in C ----


def kernels(student):
    return student.path.with_suffix(".c")


@checks("compact in C: a compact array", "for an array of any rank: n = product of shape, an index per axis")
def compact_same(student):
    a = RNG.normal(size=(3, 5))
    given = call(kernels(student), "compact", {"a": a}, (3, 5), 2, (3, 5), (5, 1), ctypes.c_int64(0))
    close("out", given, a)


@checks(
    "compact in C: transposed, sliced, flipped, broadcast",
    "start at a + offset; add strides[axis] when index[axis] grows; carry",
)
def compact_views(student):
    a = RNG.normal(size=(4, 6))
    for what, shape, strides, offset, expected in [
        ("transposed", (6, 4), (1, 6), 0, a.T),
        ("sliced", (2, 3), (6, 2), 7, a[1:3, 1::2]),
        ("flipped", (4, 6), (6, -1), 5, a[:, ::-1]),
        ("broadcast", (3, 6), (0, 1), 0, np.broadcast_to(a[0], (3, 6))),
        ("three axes", (2, 6, 2), (12, 1, 6), 0, a.reshape(2, 2, 6).transpose(0, 2, 1)),
        ("no axes", (), (), 9, a.ravel()[9]),
        ("no elements", (0, 3), (3, 1), 0, a[:0, :3]),
    ]:
        given = call(
            kernels(student), "compact", {"a": a}, shape, len(shape), list(shape), list(strides), ctypes.c_int64(offset)
        )
        close(f"out, {what}", given, expected)


@checks("add in C", "one loop over n elements")
def add(student):
    for n in (1, 7, 1000, 0):
        a, b = RNG.normal(size=n), RNG.normal(size=n)
        close(f"out for n={n}", call(kernels(student), "add", {"a": a, "b": b}, (n,), ctypes.c_int64(n)), a + b)


@checks("row_sums in C", "element (i, j) is a[i * columns + j]; a double for the sum, set to 0 for each row")
def row_sums(student):
    for shape in ((3, 5), (5, 3), (1, 1), (2, 0)):
        a = RNG.normal(size=shape)
        given = call(kernels(student), "row_sums", {"a": a}, shape[:1], *map(ctypes.c_int64, shape))
        close(f"out for {shape}", given, a.sum(1))


@checks("row_sums in C: a million small numbers", "add up in double and cast once, at the end")
def row_sums_exact(student):
    a = np.full((1, 1 << 20), 0.1, np.float32)
    given = call(kernels(student), "row_sums", {"a": a}, (1,), *map(ctypes.c_int64, a.shape))
    close("the sum of a million times 0.1", given, a.astype(float).sum(1), 1e-6)


@checks("matmul in C", "set out to 0 first; then out[i * n + j] += a[i * k + p] * b[p * n + j]")
def matmul(student):
    for m, k, n in ((2, 3, 4), (5, 1, 2), (1, 6, 1), (17, 19, 23)):
        a, b = RNG.normal(size=(m, k)), RNG.normal(size=(k, n))
        given = call(kernels(student), "matmul", {"a": a, "b": b}, (m, n), *map(ctypes.c_int64, (m, k, n)))
        close(f"out for ({m}, {k}) @ ({k}, {n})", given, a @ b)
