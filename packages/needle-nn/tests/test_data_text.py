"""Words, characters, the offline text and the bundled digits."""

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

import needle
from needle_nn.data import (
    CharCorpus,
    Corpus,
    DataLoader,
    Dictionary,
    DigitsDataset,
    batchify,
    get_batch,
    stdlib_docstrings,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(" the cat sat \n\n the dog\n", encoding="utf-8")
    (tmp_path / "test.txt").write_text("a cat é\x85x", encoding="utf-8")
    return tmp_path


def test_corpus(folder):
    """Ids in order of appearance, <eos> for each line, a last line without an end counts."""
    corpus = Corpus(folder)
    assert corpus.train == [0, 1, 2, 3, 3, 0, 4, 3]
    assert corpus.test == [5, 1, 6, 7, 3]
    assert corpus.dictionary.idx2word == ["the", "cat", "sat", "<eos>", "dog", "a", "é", "x"]
    assert len(corpus.dictionary) == 8 and corpus.dictionary.word2idx["dog"] == 4


@pytest.mark.parametrize(
    ("max_lines", "train"), [(0, []), (1, [0, 1, 2, 3]), (2, [0, 1, 2, 3, 3]), (9, [0, 1, 2, 3, 3, 0, 4, 3])]
)
def test_max_lines(folder, max_lines, train):
    assert Corpus(folder, max_lines).train == train


DAMAGE = {
    "not UTF-8": (b"ab\n\xff\xfe", "not UTF-8: byte 0xff, invalid start byte"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_text(folder, case):
    content, message = DAMAGE[case]
    (folder / "test.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        Corpus(folder)
    assert "test.txt" in str(caught.value)


def test_missing_text(folder):
    (folder / "test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"test\.txt"):
        Corpus(folder)


def test_dictionary_gives_a_word_one_id():
    words = Dictionary()
    assert [words.add_word(w) for w in "a b a c b".split()] == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("dtype", ["float32", "int64", None])
@pytest.mark.parametrize(("n", "size"), [(20, 4), (23, 4), (4, 4), (3, 4), (5, 1)])
def test_batchify(n, size, dtype):
    out = batchify(list(range(n)), size, needle.cpu(), dtype)
    rows = n // size
    expected = [[column * rows + row for column in range(size)] for row in range(rows)]
    np.testing.assert_array_equal(out, np.array(expected, dtype=dtype or "int64").reshape(rows, size), strict=True)


@pytest.mark.parametrize(("i", "n"), [(0, 3), (2, 3), (6, 3), (7, 2), (8, 1)])
def test_get_batch(i, n):
    batches = batchify(list(range(40)), 4, needle.cpu(), "float32")  # 10 rows
    X, y = get_batch(batches, i, bptt=3, device=needle.cpu())
    assert (X.shape, y.shape, X.dtype, y.dtype) == ((n, 4), (n * 4,), "float32", "float32")
    assert isinstance(X, needle.Tensor) and X.device == needle.cpu() and not X.requires_grad
    np.testing.assert_array_equal(X.numpy(), batches[i : i + n])
    np.testing.assert_array_equal(y.numpy(), X.numpy().reshape(-1) + 1)


def test_get_batch_of_another_dtype_and_device():
    X, y = get_batch(batchify(range(8), 2, None, "int64"), 0, 2, device=needle.cpu_numpy(), dtype="float64")
    assert (X.dtype, y.dtype, X.device) == ("float64", "float64", needle.cpu_numpy())


TEXT = "to be, or not to be: that is the question. " * 5
ERRORS = {
    "batch_size": (lambda: batchify([1, 2], 0), "batch_size must be positive, got 0"),
    "last row": (lambda: get_batch(batchify(range(8), 2), 3, 2), "i=3, bptt=2: expected 0 <= i < 3"),
    "row -1": (lambda: get_batch(batchify(range(8), 2), -1, 2), "i=-1"),
    "bptt": (lambda: get_batch(batchify(range(8), 2), 0, 0), "bptt=0"),
    "empty": (lambda: CharCorpus(""), "the text is empty"),
    "validation": (lambda: CharCorpus("a", validation=1), r"validation must be in \[0, 1\), got 1"),
    "unknown": (lambda: CharCorpus("abc").encode("abd"), "'d' is not in the vocabulary"),
    "split": (lambda: CharCorpus(TEXT).batches(2, 2, split="test"), "'train' or 'validation', got 'test'"),
    "block": (lambda: CharCorpus("abcd", 0).batches(4, 2), "block=4, batch=2, but train has 4 characters"),
    "no validation": (lambda: CharCorpus(TEXT, 0).batches(4, 2, split="validation"), "but validation has 0 characters"),
    "max_bytes": (lambda: stdlib_docstrings(0), "max_bytes must be positive, got 0"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    make, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_characters_go_there_and_back():
    corpus = CharCorpus(TEXT, validation=0.25)
    assert corpus.vocabulary == "".join(sorted(set(TEXT))) and len(corpus) == len(set(TEXT))
    assert corpus.decode(corpus.train) + corpus.decode(corpus.validation) == TEXT
    assert len(corpus.validation) == len(TEXT) // 4 and corpus.train.dtype == np.int32


@pytest.mark.parametrize("split", ["train", "validation"])
def test_character_batches(split):
    """Each row is a stretch of its part of the text, its target the same one character further."""
    corpus = CharCorpus(TEXT, validation=0.3)
    part = corpus.decode(getattr(corpus, split))
    for X, y in islice(corpus.batches(8, 4, seed=1, split=split), 20):
        assert X.shape == y.shape == (4, 8) and X.dtype == y.dtype == "int32"
        for x_row, y_row in zip(X.numpy(), y.numpy(), strict=True):
            assert corpus.decode(x_row) + corpus.decode(y_row[-1:]) in part
            assert corpus.decode(x_row[1:]) == corpus.decode(y_row[:-1])


def test_character_batches_reach_both_ends():
    corpus = CharCorpus("abcdefgh", validation=0)
    firsts = {int(X.numpy()[0, 0]) for X, _ in islice(corpus.batches(3, 1), 200)}
    assert firsts == {0, 1, 2, 3, 4}


def test_character_batches_go_on_where_they_stopped():
    corpus = CharCorpus(TEXT)
    whole = [X.numpy().tolist() for X, _ in islice(corpus.batches(8, 4, seed=1), 6)]
    rest = [X.numpy().tolist() for X, _ in islice(corpus.batches(8, 4, seed=1, start=4), 2)]
    other = [X.numpy().tolist() for X, _ in islice(corpus.batches(8, 4, seed=2), 6)]
    assert rest == whole[4:] and other != whole and len({str(batch) for batch in whole}) == 6


def test_offline_text():
    """Long enough, printable, and a prefix of what more bytes would give; the same in another process."""
    text = stdlib_docstrings(200_000)
    assert len(text) == 200_000 and len(set(text)) <= 96
    assert all(c == "\n" or 32 <= ord(c) < 127 for c in text)
    assert stdlib_docstrings(50_000) == text[:50_000]
    assert text.count(" the ") > 500
    code = "import sys, hashlib; from needle_nn.data import stdlib_docstrings as s; before = set(sys.modules); text = s(50_000); "
    code += "print(hashlib.sha256(text.encode()).hexdigest(), sorted(set(sys.modules) - before))"
    import hashlib

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split()[0] == hashlib.sha256(text[:50_000].encode()).hexdigest()
    assert not {"this", "antigravity", "asyncio", "bdb"} & set(said.replace("'", " ").replace(",", " ").split())


STDLIB = {
    "b.py": '"""B."""\n"""Not one."""\nif 1:\n    def f():\n        """In if."""\nelse:\n    class C:\n        """In else."""\n',
    "a/inner.py": 'class C:\n    """Class.\n\n        Indented.\n    """\n    async def m(self):\n        "Method."\n',
    "a.py": '"""First."""\ntry:\n    pass\nexcept E:\n    def f(): "In except."\nfinally:\n    def g(): "In finally."\n',
    "c.py": '"""B."""\ndef f():\n    """Only here."""\n    def g(): "Nested."\n',
    "d.py": '"""é"""\ndef f(): "bell \\a"\ndef g(): "   "\ndef h(): pass\n',
    "e.py": "def broken(:\n",
    "f.txt": '"""Not Python."""',
    "test/g.py": '"""Left out."""',
    "site-packages/h.py": '"""Left out."""',
    "z.py": '"""Last."""',
}
DOCSTRINGS = [
    "Class.\n\nIndented.",
    "Method.",
    "First.",
    "In except.",
    "In finally.",
    "B.",
    "In if.",
    "In else.",
    "Only here.",
]
DOCSTRINGS += ["Nested.", "Last."]


def test_what_is_taken_of_the_standard_library(tmp_path, monkeypatch):
    """In order of names and lines, each docstring once, only printable ASCII, nothing of what is left out."""
    for name, source in STDLIB.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    text = stdlib_docstrings.__wrapped__(10_000)
    assert text == "".join(part + "\n\n" for part in DOCSTRINGS)
    assert stdlib_docstrings.__wrapped__(30) == text[:30]


def test_a_python_without_sources(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(RuntimeError, match="without the sources"):
        stdlib_docstrings.__wrapped__(10)


# ---- Digits -----------------------------------------------------------------------------------------------


def test_digits():
    train, test = DigitsDataset(), DigitsDataset(train=False)
    assert (train.X.shape, test.X.shape) == ((1437, 64), (360, 64))
    for part, least in ((train, 140), (test, 33)):
        assert part.X.dtype == np.float32 and part.X.min() == 0 and part.X.max() == 1
        assert np.bincount(part.y).min() >= least and len(np.bincount(part.y)) == 10
    assert train.y[:10].tolist() == list(range(10))


def test_digits_are_digits():
    """The nearest training image tells what a test image is."""
    train, test = DigitsDataset(), DigitsDataset(train=False)
    distances = (test.X**2).sum(1)[:, None] - 2 * test.X @ train.X.T + (train.X**2).sum(1)
    assert (train.y[distances.argmin(1)] == test.y).mean() > 0.95


def test_digits_do_not_share_memory():
    DigitsDataset().X[:] = 7
    DigitsDataset().y[:] = 7
    assert DigitsDataset().X.max() == 1 and len(set(DigitsDataset().y)) == 10


def test_digits_transforms_see_images():
    data = DigitsDataset(transforms=[lambda image: image[::-1]])
    (x, y), *_ = DataLoader(data, 5)
    assert x.shape == (5, 64) and y.dtype == "uint8"
    np.testing.assert_array_equal(x.numpy(), data.X[:5].reshape(5, 8, 8)[:, ::-1].reshape(5, 64))
