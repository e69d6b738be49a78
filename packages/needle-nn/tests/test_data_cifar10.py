"""CIFAR-10 in both layouts, and pickles that are damaged or would do harm."""

import os
import pickle
import pickletools
import tracemalloc

import data_goldens as golden
import numpy as np
import pytest

import needle_nn.data as data
from needle_nn.data import pickles
from needle_nn.data.pickles import load_arrays

LAYOUTS = {
    **{f"protocol {p}": (lambda seed, p=p: golden.cifar_pickle(seed=seed, protocol=p), "") for p in range(6)},
    "python 2": (golden.cifar_python2, ""),
    "labels as an array": (lambda seed: golden.cifar_pickle(seed=seed, labels=golden.cifar_arrays(seed=seed)[1]), ""),
    "fortran order": (
        lambda seed: golden.cifar_pickle(data=np.asfortranarray(golden.cifar_arrays(4, seed)[0]), seed=seed),
        "",
    ),
    "records": (golden.cifar_records, ".bin"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("train", [True, False])
def test_what_a_folder_holds(tmp_path, layout, train):
    make, suffix = LAYOUTS[layout]
    dataset = data.CIFAR10Dataset(golden.cifar(tmp_path, lambda seed: make(seed=seed), suffix), train=train)
    parts = [golden.cifar_arrays(seed=seed) for seed in (range(5) if train else [5])]
    pixels = np.concatenate([p for p, _ in parts]).reshape(-1, 3, 32, 32)
    assert len(dataset) == (20 if train else 4)
    np.testing.assert_array_equal(dataset.X, pixels.astype(np.float32) / np.float32(255), strict=True)
    np.testing.assert_array_equal(dataset.y, np.concatenate([y for _, y in parts]), strict=True)


@pytest.mark.parametrize("index", [3, slice(0, 3), np.array([2, 0]), np.array([], dtype=int)], ids=repr)
def test_transforms_see_channels_last(tmp_path, index):
    """A horizontal flip turns the last axis of (n, 3, 32, 32) around."""
    dataset = data.CIFAR10Dataset(golden.cifar(tmp_path), False, transforms=[data.RandomFlipHorizontal(p=1)])
    x, y = dataset[index]
    np.testing.assert_array_equal(x, dataset.X[index][..., ::-1], strict=True)
    np.testing.assert_array_equal(y, dataset.y[index])


def test_loader_gives_what_the_course_expects(tmp_path):
    (X, y), *rest = data.DataLoader(data.CIFAR10Dataset(golden.cifar(tmp_path), True), batch_size=15)
    assert (X.shape, X.dtype, y.shape, y.dtype) == ((15, 3, 32, 32), "float32", (15,), "int64")
    assert [len(y.numpy()) for _, y in rest] == [5]


PIXELS, KINDS = golden.cifar_arrays()
BATCH = golden.cifar_pickle()
DAMAGE = {
    "empty": (b"", "", "the file is empty"),
    "text": (b"hello there", "", "damaged pickle"),
    "cut": (BATCH[:-100], "", "damaged pickle"),
    "a list": (pickle.dumps([1, 2]), "", "holds a list, expected a dict with data and labels"),
    "no data": (golden.cifar_pickle(data=None), "", "data is missing, expected uint8 (n, 3072)"),
    "no labels": (golden.cifar_pickle(labels=None), "", "labels are missing, expected 4 ints from 0 to 9"),
    "floats": (golden.cifar_pickle(data=PIXELS / 255), "", "refused: the pickle holds an array of dtype 'f8'"),
    "int16": (
        golden.cifar_pickle(data=PIXELS.astype("int16")),
        "",
        "data is int16 (4, 3072), expected uint8 (n, 3072)",
    ),
    "images": (golden.cifar_pickle(data=PIXELS.reshape(4, 3, 32, 32)), "", "data is uint8 (4, 3, 32, 32), expected"),
    "too few labels": (golden.cifar_pickle(labels=[1, 2, 3]), "", "labels are int64 (3,), expected 4 ints"),
    "label 10": (golden.cifar_pickle(labels=[1, 2, 3, 10]), "", "labels from 1 to 10, expected 0 to 9"),
    "label -1": (golden.cifar_pickle(labels=np.array([1, 2, 3, -1])), "", "labels from -1 to 3, expected 0 to 9"),
    "label text": (golden.cifar_pickle(labels=["cat"] * 4), "", "labels are a list of 4, expected 4 ints"),
    "label huge": (golden.cifar_pickle(labels=[10**30] * 4), "", "labels are a list of 4, expected 4 ints"),
    "data a list": (golden.cifar_pickle(data=PIXELS.tolist()), "", "data is a list of 4, expected"),
    "no images": (golden.cifar_pickle(data=PIXELS[:0], labels=[]), "", "holds no images"),
    "record cut": (golden.cifar_records()[:-1], ".bin", "12291 bytes, expected a multiple of 3073"),
    "record label": (b"\x0a" + golden.cifar_records()[1:], ".bin", "expected 0 to 9"),
    "no records": (b"", ".bin", "the file is empty"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage(tmp_path, case):
    content, suffix, message = DAMAGE[case]
    path = tmp_path / f"test_batch{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        data.CIFAR10Dataset(tmp_path, train=False)
    said = str(caught.value)
    assert message in said and str(path) in said and "\n" not in said


@pytest.mark.parametrize("missing", ["data_batch_1", "data_batch_4"])
def test_missing_files_are_named(tmp_path, missing):
    (golden.cifar(tmp_path) / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing):
        data.CIFAR10Dataset(tmp_path, train=True)


# ---- Pickles that would do harm ---------------------------------------------------------------------------


class Calls:
    """Pickled as a call of anything."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def shared(depth):
    """A tuple that looks 2^depth long and is pickled in a few bytes."""
    value = ()
    for _ in range(depth):
        value = (value, value)
    return value


def reconstructed(state):
    """The pickle of an array with a state of one's own."""
    head = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return head + pickle.dumps(state, protocol=2)[2:-1] + b"b."


DTYPE = np.dtype("u1")
HOSTILE = {
    "os.system": (pickle.dumps(Calls(os.system, "true")), "refused: the pickle asks for posix.system"),
    "eval": (pickle.dumps({"data": Calls(eval, "1 + 1")}), "refused: the pickle asks for builtins.eval"),
    "getattr": (pickle.dumps(Calls(getattr, "x", "upper")), "refused: the pickle asks for builtins.getattr"),
    "getattr, protocol 0": (
        pickle.dumps(Calls(getattr, "x", "upper"), 0),
        "refused: the pickle asks for __builtin__.getattr",
    ),
    "numpy.load": (pickle.dumps(Calls(np.load, "x")), "refused: the pickle asks for numpy.load"),
    "a class": (pickle.dumps(Calls(int, "1")), "refused: the pickle asks for builtins.int"),
    "dotted attribute": (
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        "refused: the pickle asks for numpy.ndarray.tofile",
    ),
    "bytes of a size": (b"c__builtin__\nbytes\n(J\xff\xff\xff\x7ftR.", "damaged pickle"),
    "a huge ndarray": (b"cnumpy\nndarray\n((J\xff\xff\xff\x7fttR.", "refused: the pickle calls numpy.ndarray"),
    "extension registry": (b"\x80\x02\x82\x01.", "refused: the pickle uses the opcode EXT1"),
    "persistent id": (b"Pabc\n.", "refused: the pickle uses the opcode PERSID"),
    "instance": (b"(ios\nsystem\n.", "refused: the pickle uses the opcode INST"),
    "object array": (pickle.dumps({"data": np.array([print, 1], dtype=object)}), "refused: the pickle"),
    "structured": (pickle.dumps(np.zeros(2, dtype=[("a", "u1")])), "refused: the pickle holds an array of dtype 'V1'"),
    "huge bytes": (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged pickle"),
    "4 GB of text": (b"\x80\x02T\xff\xff\xff\x7fabc.", "damaged pickle"),
    "shape too large": (reconstructed((1, (2**62, 4), DTYPE, False, b"1234")), "damaged pickle"),
    "shape overflows": (reconstructed((1, (2**32, 2**32), DTYPE, False, b"")), "damaged pickle"),
    "negative shape": (reconstructed((1, (-1, -4), DTYPE, False, b"1234")), "damaged pickle"),
    "nested shape": (reconstructed((1, shared(60), DTYPE, False, b"1234")), "damaged pickle"),
    "nested key": (b"\x80\x02}" + pickle.dumps(shared(60), 2)[2:-1] + b"Ns.", "damaged pickle"),
    "never filled": (reconstructed((1,))[:-3] + b".", "damaged pickle"),
    "state of a function": (b"c_codecs\nencode\n}b.", "damaged pickle"),
    "empty stack": (b"\x80\x02.", "damaged pickle"),
    "no mark": (b"\x80\x02K\x01e.", "damaged pickle"),
    "append to a number": (b"\x80\x02K\x01K\x02a.", "damaged pickle"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles(case):
    content, message = HOSTILE[case]
    with pytest.raises(ValueError) as caught:
        load_arrays(content, "file")
    said = str(caught.value)
    assert said.startswith("file: ") and message in said and "\n" not in said and len(said) < 400


# ---- Pickles that would take long ---------------------------------------------------------------------------

COLLIDING = [(2**61 - 1) * i for i in range(1, 50_000)]  # the hash of each is 0
LONG = b"X\x40\x42\x0f\x00" + b"a" * 1_000_000 + b"q\x00"  # a text of a million characters, number 0 of the memo
ENCODE = b"X\x06\0\0\0latin1q\x01c_codecs\nencode\nq\x02"
FROM_BUFFER = b"cnumpy\ndtype\nX\x02\0\0\0u1\x85Rq\x01cnumpy._core.numeric\n_frombuffer\nq\x02"
HUGE = b"\x8a\xff" + b"\x7f" * 255 + b"q\x03"  # an int of 255 bytes, number 3
SLOW = {
    "opcodes": (b"}" * 3_000_000 + b".", "more than 300000 opcodes"),
    "colliding keys": (pickle.dumps(dict.fromkeys(COLLIDING)), "a key of more than 32 bits"),
    "colliding keys, one by one": (
        b"}" + b"".join(b"L%dL\nNs" % key for key in COLLIDING) + b".",
        "a key of more than 32 bits",
    ),
    "colliding negative keys": (pickle.dumps(dict.fromkeys(-key for key in COLLIDING)), "a key of more than 32 bits"),
    "colliding numbers of the memo": (
        b"N" + b"".join(b"p%d\n" % key for key in COLLIDING) + b".",
        "a key of more than",
    ),
    "a text encoded again and again": (
        b"\x80\x02" + LONG + ENCODE + b"h\x02h\x00h\x01\x86R" * 20_000 + b".",
        "the arrays of a pickle of 1160041 bytes have more",
    ),
    "arrays of one text": (
        b"\x80\x02" + LONG + FROM_BUFFER + b"h\x02(h\x00h\x01J\x40\x42\x0f\x00\x85X\x01\0\0\0CtR" * 20_000 + b".",
        "bytes have more",
    ),
    "a product of huge sizes": (
        b"\x80\x03" + HUGE + FROM_BUFFER + b"(C\x01ah\x01(" + b"h\x03" * 100_000 + b"tX\x01\0\0\0CtR.",
        "an array of 100000 axes",
    ),
}


@pytest.mark.parametrize("case", SLOW)
def test_work_is_bounded(case):
    """By the opcodes and the bytes of the pickle: each of these took minutes, or all memory, or would have with more bytes."""
    content, message = SLOW[case]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            load_arrays(content, "file")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith("file: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_files_as_large_as_the_real_ones(protocol):
    """10,000 images with their names, in a protocol of each kind: far from every limit."""
    names = [b"leptodactylus_pentadactylus_s_%06d.png" % i for i in range(10_000)]
    content = golden.cifar_pickle(10_000, protocol=protocol, filenames=names)
    assert sum(1 for _ in pickletools.genops(content)) < pickles.MAX_OPCODES / 2
    held, (pixels, kinds) = load_arrays(content, "file"), golden.cifar_arrays(10_000)
    assert np.array_equal(held[b"data"], pixels) and held[b"labels"] == kinds.tolist() and held[b"filenames"] == names


def test_a_memo_number_costs_nothing():
    """Python's own unpickler makes a table of that length."""
    assert load_arrays(b"\x80\x02]r\xff\xff\xff\x7f.", "file") == []


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_makes_a_file_makes_none(tmp_path, protocol):
    """The same pickle does make it when Python's own unpickler runs it: the attack is a real one."""
    victim = tmp_path / "victim"
    attack = pickle.dumps({b"data": Calls(os.mkdir, str(victim)), b"labels": [0]}, protocol=protocol)
    (tmp_path / "test_batch").write_bytes(attack)
    with pytest.raises(ValueError, match=r"refused: the pickle asks for posix\.mkdir"):
        data.CIFAR10Dataset(tmp_path, train=False)
    assert not victim.exists()
    pickle.loads(attack)
    assert victim.exists()


PLAIN = [
    None,
    True,
    5,
    -7,
    2**70,
    1.5,
    "text",
    b"bytes",
    b"",
    [1, [2]],
    (1, 2, 3, 4),
    {"a": 1, b"b": [None]},
    {},
    [],
    (),
]


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values(protocol):
    """What the interpreter knows it reads as Python's does."""
    for value in PLAIN:
        assert load_arrays(pickle.dumps(value, protocol=protocol), "file") == value


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i4", "i8", ">u8"])
def test_arrays_of_integers(dtype):
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    for protocol in range(6):
        for case in (array, array.T, array[:0], np.array(7, dtype=dtype)):
            np.testing.assert_array_equal(load_arrays(pickle.dumps(case, protocol=protocol), "file"), case, strict=True)
