"""Files with bytes changed, cut and added: they parse, or there is one line that says why not, and memory stays small."""

import tracemalloc

import data_goldens as golden
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle_nn.data.cifar10 import _read
from needle_nn.data.mnist import read_idx
from needle_nn.data.pickles import load_arrays

MANY = settings(max_examples=300, deadline=None, derandomize=True, database=None)
LIMIT = 20 << 20  # bytes; the files are of a few thousand, and a packed one may truly hold a thousand times that


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@st.composite
def damaged(draw, content, head):
    """`content` with some bytes changed, most of them in its first `head`, perhaps cut or lengthened."""
    data = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, min(head, len(data)) - 1) | st.integers(0, len(data) - 1))
        data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    how = draw(st.sampled_from(["whole", "whole", "cut", "longer", "spliced"]))
    if how == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif how == "longer":
        data += draw(st.binary(min_size=1, max_size=40))
    elif how == "spliced":
        at = draw(st.integers(0, min(head, len(data))))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(data)


def check(read):
    """Whether it parses; anything but a ValueError of one line fails."""
    tracemalloc.start()
    try:
        read()
        return True
    except ValueError as error:
        assert "\n" not in str(error) and 0 < len(str(error)) < 500
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < LIMIT


@MANY
@given(content=damaged(golden.idx(golden.images(2)), head=16), packed=st.booleans())
def test_idx(place, content, packed):
    path = place / "images"
    golden.write(path, content, packed)
    check(lambda: read_idx(path, 3))


@MANY
@given(content=damaged(golden.gzip.compress(golden.idx(golden.images(2)), mtime=0), head=40))
def test_packed_idx(place, content):
    path = place / "packed"
    path.write_bytes(content)
    check(lambda: read_idx(path, 3))


@MANY
@given(content=st.data(), protocol=st.integers(0, 6))
def test_cifar_pickles(place, content, protocol):
    whole = golden.cifar_python2(2) if protocol == 6 else golden.cifar_pickle(2, protocol=protocol)
    path = place / "test_batch"
    path.write_bytes(content.draw(damaged(whole, head=300)))
    check(lambda: _read(path))


@MANY
@given(content=damaged(golden.cifar_records(2), head=4))
def test_cifar_records(place, content):
    path = place / "test_batch.bin"
    path.write_bytes(content)
    check(lambda: _read(path))


@MANY
@given(st.binary(max_size=60))
def test_pickles_of_noise(content):
    check(lambda: load_arrays(content, "noise"))


OPCODES = b"()]}.0123NKMJIUVTXCBGFRbatueqrjhp\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8e\x93\x94\x95\x96q"
PIECES = st.sampled_from(
    [bytes([code]) for code in OPCODES] + [b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"U\x02u1", b"K\x00"]
)


@MANY
@given(st.lists(PIECES | st.binary(max_size=3), max_size=25))
def test_pickles_of_opcodes(pieces):
    check(lambda: load_arrays(b"".join(pieces) + b".", "opcodes"))


def test_undamaged_files_parse(place):
    """The checks above would pass for a parser that refuses everything."""
    (place / "good").write_bytes(golden.idx(golden.images(2)))
    (place / "good_batch").write_bytes(golden.cifar_pickle(2))
    assert check(lambda: read_idx(place / "good", 3)) and check(lambda: _read(place / "good_batch"))
