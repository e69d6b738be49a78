"""Words as numbers: a dictionary, a corpus of two files, and the course's way to cut it into batches."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from needle import Tensor
from needle_nn.data.files import open_data


class Dictionary:
    """Words and their ids, in order of first appearance.

    >>> d = Dictionary()
    >>> d.add_word("to"), d.add_word("be"), d.add_word("to"), len(d), d.idx2word
    (0, 1, 0, 2, ['to', 'be'])
    """

    def __init__(self) -> None:
        self.word2idx: dict[str, int] = {}
        self.idx2word: list[str] = []

    def add_word(self, word: str) -> int:
        """The id of a word, a new one if it has none yet."""
        if word not in self.word2idx:
            self.word2idx[word] = len(self.idx2word)
            self.idx2word.append(word)
        return self.word2idx[word]

    def __len__(self) -> int:
        return len(self.idx2word)


class Corpus:
    """The ids of the words of `base_dir`/train.txt and test.txt, as lists `train` and `test`; `<eos>` ends each line.

    Parameters
    ----------
    base_dir : the folder of the two files (UTF-8)
    max_lines : how many lines of each are read, None for all
    """

    def __init__(self, base_dir: Any, max_lines: int | None = None) -> None:
        self.dictionary = Dictionary()
        self.train = self.tokenize(Path(base_dir) / "train.txt", max_lines)
        self.test = self.tokenize(Path(base_dir) / "test.txt", max_lines)

    def tokenize(self, path: Any, max_lines: int | None = None) -> list[int]:
        """The ids of a file's words; words not seen before enter the dictionary."""
        ids: list[int] = []
        with open_data(path) as (file, _), io.TextIOWrapper(file, encoding="utf-8") as lines:
            try:
                for number, line in enumerate(lines):
                    if number == max_lines:
                        break
                    ids += [self.dictionary.add_word(word) for word in line.split() + ["<eos>"]]
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: not UTF-8: byte {error.object[error.start]:#04x}, {error.reason}") from error
        return ids


def batchify(data: Sequence[int] | np.ndarray, batch_size: int, device: Any = None, dtype: Any = None) -> np.ndarray:
    """`data` in `batch_size` columns, each a stretch of it; what does not fill a row is left out.

    The result is a NumPy array (nbatch, batch_size); `device` is taken for the course's sake, `get_batch` moves what is used.

    >>> batchify(range(10), 3, device=None, dtype="float32")
    array([[0., 3., 6.],
           [1., 4., 7.],
           [2., 5., 8.]], dtype=float32)
    """
    if batch_size < 1:
        raise ValueError(f"batchify: batch_size must be positive, got {batch_size}")
    ids = np.asarray(data, dtype=dtype)
    nbatch = len(ids) // batch_size
    return np.ascontiguousarray(ids[: nbatch * batch_size].reshape(batch_size, nbatch).T)


def get_batch(batches: np.ndarray, i: int, bptt: int, device: Any = None, dtype: Any = None) -> tuple[Tensor, Tensor]:
    """Rows i to i + n as input (n, batch_size), and the row after each as target (n · batch_size,); n = min(bptt, len - 1 - i).

    Parameters
    ----------
    batches : what `batchify` made, (nbatch, batch_size)
    i : the first row
    bptt : how many rows, "back-propagation through time"
    device, dtype : of the Tensors; None keeps the dtype of `batches`

    >>> X, y = get_batch(batchify(range(10), 3, None, "int64"), 0, 2)
    >>> X.numpy().tolist(), y.numpy().tolist()
    ([[0, 3, 6], [1, 4, 7]], [1, 4, 7, 2, 5, 8])
    """
    if not 0 <= i < len(batches) - 1 or bptt < 1:
        raise ValueError(f"get_batch: i={i}, bptt={bptt}: expected 0 <= i < {len(batches) - 1} and bptt of at least 1")
    n = min(bptt, len(batches) - 1 - i)
    parts = batches[i : i + n], batches[i + 1 : i + 1 + n].reshape(-1)
    X, y = (Tensor(part, device=device, dtype=dtype, requires_grad=False) for part in parts)
    return X, y
