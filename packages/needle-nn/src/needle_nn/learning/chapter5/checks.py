"""The student's kernels in the emulation: results against NumPy, every access watched, three orders of threads."""

import re

import numpy as np

from needle_nn.learning.expect import Checks, Wrong, close

checks = Checks()
RNG = np.random.default_rng(0)
ORDERS = ("forward", "reverse", "random")
TILE = 16
OURS = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


def emulation():
    try:
        from needle_cuda.testing import settings, standin
        from needle_cuda.testing.cupy_standin.arrays import asarray
    except ImportError:
        raise Wrong("this chapter needs needle-cuda: pip install ./packages/needle-cuda in a clone of Needle") from None
    return settings, standin(), asarray


def module_of(student):
    """The compiled file, with every access checked."""
    settings, cupy, _ = emulation()
    from needle_cuda.launch import _expanded

    text, name = student.text, student.path.name
    parts, line = [], 1
    for found in OURS.finditer(text):
        before = text[: found.start()].count("\n") + 1
        parts += [f'#line {line} "{name}"\n' + "\n".join(text.split("\n")[line - 1 : before - 1]), _expanded(found[1])]
        line = before + 1
    parts.append(f'#line {line} "{name}"\n' + "\n".join(text.split("\n")[line - 1 :]))
    with settings.changed(checks="accesses"):
        module = cupy.RawModule(code="\n".join(parts), options=("-std=c++17",))
        try:
            module.compile()
        except Exception as error:
            lines = [each for each in str(error).splitlines() if "error" in each] or str(error).splitlines()
            raise Wrong(f"{name} does not compile: {lines[0] if lines else 'no message'}") from None
        return module


def launch(student, name, grid, block, arguments, out_shape, order="forward"):
    """What the kernel stores in an array of NaN."""
    settings, _, asarray = emulation()
    body_of(student, name)
    module = module_of(student)
    with settings.changed(checks="accesses", order=order):
        try:
            kernel = module.get_function(name)
        except Exception:
            raise Wrong(f'{student.path.name}: `{name}` is not declared `extern "C" __global__ void`') from None
        out = asarray(np.full(out_shape, np.nan, np.float32))
        given = [asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
        at = next(i for i, a in enumerate(given) if a is Ellipsis)
        given[at] = out
        try:
            kernel(grid, block, tuple(given))
            return out.get()
        except (RuntimeError, TypeError) as error:
            raise Wrong(f"{error} (threads in {order} order, grid {grid}, block {block})") from None


def one_row(student, name, arguments, out_shape):
    """What the first row of threads of one block stores, while all others are missing."""
    return launch(student, name, (1, 1), (TILE, 1), arguments, out_shape)


def through_shared(student, name, arguments, expected):
    """Whether one row of threads does the work of a block; else it has to miss what the others put into shared memory."""
    try:
        given = one_row(student, name, arguments, (TILE, TILE))
    except Wrong as error:
        if "shared memory that was not written" not in str(error):
            raise
        return False
    if np.allclose(given, expected, atol=1e-4):
        return True
    raise Wrong(f"{name}: no thread reads what another one put into shared memory: expected TILE x TILE floats there")


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def tiles(rows, columns):
    return -(-columns // TILE), -(-rows // TILE)


def saxpy(student, n, grid, block, order="forward"):
    a, b = floats(n), floats(n)
    arguments = (np.float32(2.5), a, b, ..., np.int64(n))
    close(f"out for n={n}, {order} order", launch(student, "saxpy", grid, block, arguments, (n,), order), 2.5 * a + b)


@checks("saxpy: as many threads as elements", "i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = c * a[i] + b[i]")
def saxpy_exact(student):
    saxpy(student, 64, (2,), (32,))


@checks("saxpy: more threads than elements", "only for i < n")
def saxpy_bounds(student):
    saxpy(student, 100, (4,), (32,))


@checks("saxpy: fewer threads than elements", "a loop: i += gridDim.x * blockDim.x")
def saxpy_stride(student):
    saxpy(student, 1000, (3,), (64,))


def transpose(student, rows, columns, order="forward"):
    a = floats(rows, columns)
    given = launch(student, "transpose", tiles(rows, columns), (TILE, TILE), (a, ..., np.int64(rows), np.int64(columns)),
                   (columns, rows), order)  # fmt: skip
    close(f"out for ({rows}, {columns}), {order} order", given, a.T)


@checks(
    "transpose: whole tiles",
    "tile[threadIdx.y][threadIdx.x] = a[...]; barrier; out[...] = tile[threadIdx.x][threadIdx.y]",
)
def transpose_tiles(student):
    for order in ORDERS:
        transpose(student, 32, 48, order)


@checks(
    "transpose: sizes that no tile divides",
    "bounds of a before the barrier, bounds of out behind it: swapped",
)
def transpose_odd(student):
    for order in ORDERS:
        transpose(student, 19, 37, order)
        transpose(student, 1, 20, order)


@checks(
    "transpose: goes through shared memory, along rows",
    "neighbours in threadIdx.x load neighbouring addresses, and store to neighbouring addresses",
)
def transpose_shared(student):
    whole = floats(TILE, TILE)
    if through_shared(student, "transpose", (whole, ..., np.int64(TILE), np.int64(TILE)), whole.T):
        return
    try:  # one row of threads may load one row of a, which is all there is
        one_row(student, "transpose", (whole[0], ..., np.int64(TILE), np.int64(TILE)), (TILE, TILE))
    except Wrong as error:
        if "out of bounds" in str(error):
            raise Wrong("transpose: the threads of a row of the block load a column of a: expected a row") from None
    out = one_row(student, "transpose", (whole[0], ..., np.int64(1), np.int64(TILE)), (TILE, 1))
    if np.isfinite(out[1:]).any():
        raise Wrong("transpose: the threads of a row of the block store a column of out: expected a row")


@checks("row_sums: a row as long as the block", "sums[threadIdx.x] = ...; then halve with a barrier in each step")
def row_sums_short(student):
    sums(student, 3, 32, 32)


@checks(
    "row_sums: longer rows, shorter rows",
    "each thread adds a[row * columns + j] for j = threadIdx.x, + blockDim.x, ...",
)
def row_sums_long(student):
    for columns in (1, 31, 100, 1000):
        sums(student, 4, columns, 64)


@checks("row_sums: every order of threads, every block", "the barrier is for all: not within `if (threadIdx.x < half)`")
def row_sums_orders(student):
    for order in ORDERS:
        for block in (1, 2, 128, 256):
            sums(student, 2, 300, block, order)


def sums(student, rows, columns, block, order="forward"):
    a = floats(rows, columns)
    given = launch(student, "row_sums", (rows,), (block,), (a, ..., np.int64(rows), np.int64(columns)), (rows,), order)
    close(f"out for ({rows}, {columns}), blocks of {block}, {order} order", given, a.astype(float).sum(1))


@checks("matmul: one tile", "sum += left[y][p] * right[p][x] over p, between two barriers")
def matmul_tile(student):
    product(student, 16, 16, 16)


@checks("matmul: several tiles", "a loop over tiles of k; the second barrier keeps tiles until all have read them")
def matmul_tiles(student):
    for order in ORDERS:
        product(student, 32, 48, 16, order)


@checks("matmul: sizes that no tile divides", "load 0 where the tile goes beyond the matrix; no early return")
def matmul_odd(student):
    for order in ORDERS:
        product(student, 17, 19, 21, order)
        product(student, 1, 5, 33, order)


@checks("matmul: goes through shared memory", "two tiles of TILE x TILE floats")
def matmul_shared(student):
    a, b = floats(TILE, TILE), floats(TILE, TILE)
    through_shared(student, "matmul", (a, b, ..., *[np.int64(TILE)] * 3), a @ b)


def product(student, m, k, n, order="forward"):
    a, b = floats(m, k), floats(k, n)
    arguments = (a, b, ..., np.int64(m), np.int64(k), np.int64(n))
    given = launch(student, "matmul", tiles(m, n), (TILE, TILE), arguments, (m, n), order)
    close(f"out for ({m}, {k}) @ ({k}, {n}), {order} order", given, a.astype(float) @ b)


def body_of(student, name):
    """The text of a kernel between its braces; comments may hold anything but braces that do not match."""
    found = re.search(rf"(?:void|KERNEL)\s+{name}\s*\([^)]*\)\s*\{{", student.text)
    if found is None:
        raise Wrong(f'{student.path.name} has no kernel `extern "C" __global__ void {name}(...)`')
    depth, end = 1, found.end()
    while depth and end < len(student.text):
        depth += {"{": 1, "}": -1}.get(student.text[end], 0)
        end += 1
    body = student.text[found.end() : end]
    if re.search(r"^\s*TODO;", body, re.MULTILINE):
        raise NotImplementedError
    return body
