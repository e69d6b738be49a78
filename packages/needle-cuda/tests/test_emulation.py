"""The emulation itself: it runs right kernels rightly in every order of threads, and finds each kind of mistake."""

import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from needle_cuda.testing import settings, standin
from needle_cuda.testing.cupy_standin.arrays import asarray
from needle_cuda.testing.emulator import LaunchError

cupy = standin()
TEXT = (Path(__file__).parent / "emulation_mistakes.cu").read_text()
ORDERS = ("forward", "reverse", "random")
CHECKS = ("guards", "accesses")
A = np.arange(1, 65, dtype=np.float32)
PAIR = np.dtype([("first", "i8"), ("second", "f4")], align=True)


@pytest.fixture(scope="session")
def modules():
    found = {}
    for checks in CHECKS:
        with settings.changed(checks=checks):
            found[checks] = cupy.RawModule(code=TEXT, options=("-std=c++17",))
            found[checks].compile()
    return found


@pytest.fixture(params=ORDERS)
def order(request):
    seed = zlib.crc32(request.node.name.encode())  # each test's own: the same random order whatever ran before
    with settings.changed(order=request.param, seed=seed):
        yield request.param


def run(kernel, size=64, grid=(1,), block=(64,), shared=0, start=0.0):
    """What the kernel makes of 1, 2, ... 64."""
    a, out = asarray(A), asarray(np.full(size, start, np.float32))
    kernel(grid, block, (a, out, np.int64(64)), shared_mem=shared)
    return out.get()


# ---- Right kernels ------------------------------------------------------------------------------------------------

SUMS = np.repeat(A.reshape(2, 32).sum(1), 32)
VOTES = np.repeat(np.float32([0xAAAAAAAA + 3, 0xAAAAAAAA]), 32)
RIGHT = {
    "reversed": A[::-1],
    "passed_on": np.roll(A, -63),
    "warp_sums": SUMS,
    "halves": A.reshape(-1, 2)[:, ::-1].ravel(),
    "votes": VOTES,
    "neighbours": A.reshape(-1, 2)[:, ::-1].ravel(),
    "loaded_before_a_shuffle": np.repeat(A[::32], 32),
    "same": A,
    "fours": A,
    "structs_with_gaps": A[::-1],
    "counts": np.r_[A.sum(), np.zeros(63)],
    "in_place": A,
    "bounded": A,
}


@pytest.mark.parametrize("checks", CHECKS)
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernel(name, checks, order, modules):
    np.testing.assert_array_equal(run(modules[checks].get_function(name)), RIGHT[name])


# ---- Wrong kernels ------------------------------------------------------------------------------------------------
# (message when accesses are checked, message when they are not), the same in every order of threads. None stands for a
# wrong result, ANY for a mistake that may then go unnoticed; {0}, {1} for the kernel's lines marked "here".

ANY = "any"
WRONG = {
    "missing_barrier": ("race: tile .* line {0}|not written: .* `tile`, line {0}", None),
    "missing_second_barrier": ("race: tile (stored|loaded) by thread", ANY),
    "barrier_for_some": ("divergent barrier: of 64 threads 8 wait in __syncthreads.. of line {0}, 56 have returned",)
    * 2,
    "two_barriers": ("divergent barrier: threads of one block wait in __syncthreads.. of lines {0} and {1}",) * 2,
    "early_return": ("divergent barrier: of 64 threads 60 wait in .*, 4 have returned",) * 2,
    "barriers_of_different_number": ("divergent barrier: .* 32 wait in .*, 32 have returned",) * 2,
    "wrong_step": (None, None),
    "outside_its_mask": (r"lane \d+ calls a warp primitive with mask 0000ffff, which leaves it out",) * 2,
    "lanes_that_do_not_come": ("32 in a warp primitive of line {0} for lanes of its mask that do not come",) * 2,
    "lanes_that_returned": ("31 in a warp primitive of line {0} for lanes of its mask that do not come",) * 2,
    "from_outside_the_mask": (None, None),
    "missing_syncwarp": ("race: tile", ANY),
    "a_shuffle_is_no_barrier": ("race: tile", ANY),
    "syncwarp_across_warps": ("race: tile|not written: byte", ANY),
    "stores_right": (
        "out: stored out of bounds, 4 bytes beyond the end of 256, line {0}",
        "out: stored .* 0 bytes after",
    ),
    "stores_left": (
        "out: stored out of bounds, 4 bytes before the start of 256, line {0}",
        "out: stored .* 4 bytes before",
    ),
    "stores_far": ("parameter (a|out): stored out of bounds, [0-9]+ bytes (beyond the end|before the start)", ANY),
    "loads_right": ("parameter a: loaded out of bounds, 4 bytes beyond the end of 256, line {0}", None),
    "loads_left": ("parameter a: loaded out of bounds, 4 bytes before the start of 256, line {0}", None),
    "nowhere": ("access to address 0x8, which is no memory",) * 2,
    "misaligned": (
        "misaligned: stores 16 bytes at an address that is no multiple of 16, line",
        "misaligned: 16 bytes at",
    ),
    "shared_right": (  # beyond `tile` lies `other`: where its own thread was there first, the two are a race
        "stores 4 bytes out of bounds of shared memory, at byte [0-9]+ of `tile`, which has 128|race: other stored by thread",
        ANY,
    ),
    "uninitialised": ("loads shared memory that was not written: byte 0 of `tile`, line {0}", None),
    "counts_without_atomics": ("race: device memory", ANY),
    "atomic_beside_plain": ("race: device memory", ANY),
    "in_place_of_the_neighbour": ("race: device memory", ANY),
    "deep": (r"stack overflow \(block \(0, 0, 0\)",) * 2,
    "divides": ("integer division by zero",) * 2,
}
CASES = [
    pytest.param(name, checks, message, id=f"{name}-{checks}")
    for name, messages in WRONG.items()
    for checks, message in zip(("accesses", "guards"), messages, strict=True)
    if message is not ANY
]


def marked_lines(name):
    """Numbers of the lines of a kernel that end with "here"."""
    lines = TEXT.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith(f"KERNEL({name})"))
    end = next(i for i in range(start, len(lines)) if lines[i].startswith("}") or ("{" in lines[i] and "}" in lines[i]))
    return [str(i + 1) for i in range(start, end + 1) if lines[i].endswith("// here")]


@pytest.mark.parametrize("name, checks, message", CASES)
def test_wrong_kernel(name, checks, message, order, modules):
    kernel = modules[checks].get_function(name)
    if message is None:
        right = {"missing_barrier": A[::-1], "wrong_step": SUMS, "from_outside_the_mask": np.roll(A, -16)}.get(name, A)
        assert not np.array_equal(run(kernel), right)
    else:
        for i, line in enumerate(marked_lines(name)):
            message = message.replace(f"{{{i}}}", line)
        with pytest.raises(LaunchError, match=f"^{name}: .*({message})"):
            run(kernel)
    # and the emulator is as good as new
    np.testing.assert_array_equal(run(modules[checks].get_function("reversed")), A[::-1])


def test_poison_tells_of_loads_out_of_bounds(modules):
    """With guard zones only, a load beside a buffer gives NaN, which no test takes for a result."""
    assert np.isnan(run(modules["guards"].get_function("loads_right"))[-1])
    assert np.isnan(run(modules["guards"].get_function("loads_left"))[0])
    assert np.isnan(run(modules["guards"].get_function("uninitialised"))[0])
    assert np.isnan(run(modules["guards"].get_function("from_outside_the_mask"))[:16]).all()


def test_an_order_of_threads_tells_of_a_missing_barrier(modules):
    """Without the check of accesses it is the order that shows a race: one of the three gives a wrong result."""
    for name, right in [("missing_second_barrier", np.roll(A, -63)), ("missing_syncwarp", RIGHT["neighbours"])]:
        wrong = []
        for each in ORDERS:
            with settings.changed(order=each):
                wrong.append(not np.array_equal(run(modules["guards"].get_function(name)), right))
        assert any(wrong), name


@pytest.mark.parametrize(
    "name, message",
    [("left_by_another_block", "not written: byte [0-9]+ of `tile`"), ("blocks_overlap", "race: device memory")],
)
def test_blocks(name, message, order, modules):
    with pytest.raises(LaunchError, match=message):
        run(modules["accesses"].get_function(name), 128, (2,))
    if name == "left_by_another_block":
        result = run(modules["guards"].get_function(name), 128, (2,))
        assert np.isnan(result[64:]).all() and not np.isnan(result[:64]).any()


# ---- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"block": (1025,)}, "block (1025, 1, 1) exceeds 1024 threads"),
        ({"block": (32, 32, 2)}, "block (32, 32, 2) exceeds 1024 threads"),
        ({"block": (1, 1, 65)}, "block (1, 1, 65) exceeds 1024 threads or 64 in z"),
        ({"grid": (1, 65536)}, "grid (1, 65536, 1) exceeds (2147483647, 65535, 65535)"),
        ({"grid": (1, 1, 65536)}, "grid (1, 1, 65536) exceeds"),
        ({"grid": (2**31,)}, "grid (2147483648, 1, 1) exceeds"),
        ({"grid": (2**32,)}, "is out of range"),
        ({"grid": (-1,)}, "is out of range"),
        ({"grid": (0,)}, "is empty"),
        ({"block": (0,)}, "is empty"),
        ({"shared": 48 * 1024 + 1}, "49153 bytes of dynamic shared memory exceed 49152"),
    ],
)
def test_limits(options, message, modules):
    with pytest.raises(LaunchError, match=re.escape(message)):
        run(modules["guards"].get_function("same"), **options)


def test_launch_bounds_and_static_shared_memory(modules):
    bounded, much = (modules["guards"].get_function(name) for name in ("bounded", "much_static"))
    assert bounded.max_threads_per_block == 128
    with pytest.raises(LaunchError, match=re.escape("block (129, 1, 1) exceeds __launch_bounds__(128)")):
        run(bounded, 129, block=(129,))
    np.testing.assert_array_equal(run(much, shared=1152), A)
    assert much.shared_size_bytes == 49152
    with pytest.raises(LaunchError, match="49153 bytes of shared memory, with `big`, exceed 49152"):
        run(much, shared=1153)


# ---- Arguments ----------------------------------------------------------------------------------------------------------

GOOD = (np.int32(1), np.int64(2), np.float32(3), np.float64(4), np.bool_(True), np.array((5, 6), PAIR))


def call(modules, *args, device=0):
    kernel = modules["guards"].get_function("many_kinds")
    with cupy.cuda.Device(device):
        kernel((1,), (64,), args)


def test_arguments_of_every_kind(modules):
    out = asarray(np.zeros(64, np.float32))
    a = asarray(A)
    call(modules, a, out, *GOOD)
    np.testing.assert_array_equal(out.get(), A + 22)
    call(
        modules, a.data, np.uint64(out.data.ptr), np.uint32(2**32 - 1), 2, np.float32(3), 4.0, True, GOOD[5].reshape(1)
    )
    np.testing.assert_array_equal(out.get(), A + 20)


@pytest.mark.parametrize(
    "position, value, message",
    [
        (2, np.int64(1), "parameter i is an integer of 4 bytes, the argument has 8 bytes (int64)"),
        (2, 1, "parameter i is an integer of 4 bytes, the argument has 8 bytes (int)"),
        (2, np.float32(1), "parameter i is an integer of 4 bytes, the argument has 4 bytes (float32)"),
        (3, np.int32(1), "parameter l is an integer of 8 bytes, the argument has 4 bytes (int32)"),
        (3, np.float64(1), "parameter l is an integer of 8 bytes, the argument has 8 bytes (float64)"),
        (4, 1.0, "parameter f is a float of 4 bytes, the argument has 8 bytes (float)"),
        (4, np.int32(1), "parameter f is a float of 4 bytes, the argument has 4 bytes (int32)"),
        (5, np.float32(1), "parameter d is a float of 8 bytes, the argument has 4 bytes (float32)"),
        (6, np.int32(1), "parameter b is an integer of 1 bytes"),
        (7, np.int64(1), "parameter pair is a struct of 16 bytes, the argument has 8 bytes (int64)"),
        (7, np.zeros((), "i8"), "parameter pair is a struct of 16 bytes, the argument has 8 bytes (int64)"),
        (7, np.zeros(2, PAIR), "parameter pair is a struct of 16 bytes, the argument is a NumPy array of shape (2,)"),
        (7, np.zeros(1, PAIR)[0], "has a type that cupy does not pass to a kernel (void)"),
        (0, np.zeros(64, "f4"), "parameter a is a pointer of 8 bytes, the argument is a NumPy array of shape (64,)"),
        (0, np.float64(0), "parameter a is a pointer of 8 bytes"),
        (3, None, "parameter l is an integer of 8 bytes, the argument is a pointer (NoneType)"),
        (3, "text", "has a type that cupy does not pass to a kernel (str)"),
    ],
)
def test_wrong_argument(position, value, message, modules):
    args = [asarray(A), asarray(A), *GOOD]
    args[position] = value
    with pytest.raises(
        TypeError, match="many_kinds: " + re.escape(message) if "has a type" not in message else re.escape(message)
    ):
        call(modules, *args)


def test_wrong_number_of_arguments(modules):
    a = asarray(A)
    with pytest.raises(
        TypeError, match="many_kinds: 7 arguments given, the kernel takes 8: a, out, i, l, f, d, b, pair"
    ):
        call(modules, a, a, *GOOD[:-1])
    with pytest.raises(TypeError, match="many_kinds: 9 arguments given"):
        call(modules, a, a, *GOOD, np.int64(1))


def test_pointers_that_a_launch_may_not_have(modules):
    a, out = asarray(A), asarray(A)
    with pytest.raises(LaunchError, match="many_kinds: parameter out: the pointer belongs to device 0, not 1"):
        call(modules, a, out, *GOOD, device=1)
    with pytest.raises(LaunchError, match="parameter a: the pointer is no device memory"):
        call(modules, np.uint64(A.ctypes.data), out, *GOOD)
    freed = np.uint64(asarray(A).data.ptr)
    with pytest.raises(LaunchError, match="parameter a: the pointer is in no live allocation"):
        call(modules, freed, out, *GOOD)
    with pytest.raises(LaunchError, match="parameter a: the pointer is in no live allocation"):
        call(modules, a.data + 260, out, *GOOD)
    call(modules, a.data + 0, out, *GOOD)
