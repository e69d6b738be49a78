"""Text by characters, for small language models: a corpus of its own vocabulary, and an offline text to train on."""

import ast
import inspect
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from needle import Tensor
from needle.typing import DeviceLike
from needle_nn.data.sources import check_seed, generator

# Tests, and what is not Python's own: few docstrings, long to parse, or different between installations.
_LEFT_OUT = set(
    """
    site-packages dist-packages sitecustomize.py usercustomize.py test tests idlelib lib2to3 pydoc_data __pycache__
""".split()
)


class CharCorpus:
    """A text as ids of its characters, the last part of it kept for validation.

    `vocabulary` is the sorted string of characters; `train` and `validation` are int32 arrays.

    >>> corpus = CharCorpus("hello world", validation=0.2)
    >>> corpus.vocabulary, corpus.decode(corpus.train), corpus.decode(corpus.encode("low"))
    (' dehlorw', 'hello wor', 'low')
    """

    def __init__(self, text: str, validation: float = 0.1) -> None:
        if not text:
            raise ValueError("CharCorpus: the text is empty")
        if not 0 <= validation < 1:
            raise ValueError(f"CharCorpus: validation must be in [0, 1), got {validation}")
        self.vocabulary = "".join(sorted(set(text)))
        self._ids = {character: i for i, character in enumerate(self.vocabulary)}
        cut = len(text) - int(len(text) * validation)
        ids = self.encode(text)
        self.train, self.validation = ids[:cut], ids[cut:]

    def __len__(self) -> int:
        """The size of the vocabulary."""
        return len(self.vocabulary)

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text's characters."""
        try:
            return np.array([self._ids[character] for character in text], dtype=np.int32)
        except KeyError as error:
            raise ValueError(f"CharCorpus: {error.args[0]!r} is not in the vocabulary") from None

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        """The text of ids."""
        return "".join(self.vocabulary[int(i)] for i in np.asarray(ids).reshape(-1))

    def batches(
        self, block: int, batch: int, seed: int = 0, *, split: str = "train", start: int = 0, device: DeviceLike = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stretches of the text at random places, without end: X (batch, block) and the characters that follow, y (batch, block).

        Parameters
        ----------
        block : characters in a stretch
        batch : stretches in a batch
        seed : the k-th batch is a function of seed and k
        split : "train" or "validation"
        start : the number of the first batch, to go on where another run stopped
        device : of the Tensors

        >>> X, y = next(CharCorpus("abcdefgh", validation=0).batches(block=3, batch=2))
        >>> X.shape, bool((y.numpy() == X.numpy() + 1).all())
        ((2, 3), True)
        """
        if split not in ("train", "validation"):
            raise ValueError(f"CharCorpus: split must be 'train' or 'validation', got {split!r}")
        ids = self.train if split == "train" else self.validation
        if block < 1 or batch < 1 or len(ids) <= block:
            raise ValueError(f"CharCorpus: block={block}, batch={batch}, but {split} has {len(ids)} characters")
        return self._draw(ids, block, batch, check_seed(seed, "CharCorpus"), start, device)

    @staticmethod
    def _draw(ids, block, batch, seed, start, device) -> Iterator[tuple[Tensor, Tensor]]:
        k = start
        while True:
            first = generator(seed, k).randint(len(ids) - block, size=(batch, 1))
            where = first + np.arange(block)  # (batch, block)
            yield Tensor(ids[where], device=device), Tensor(ids[where + 1], device=device)
            k += 1


@lru_cache(maxsize=4)
def stdlib_docstrings(max_bytes: int = 1 << 20) -> str:
    """English text that is always there: the docstrings of Python's standard library, at most `max_bytes` characters of ASCII.

    Source files are parsed in order of their names and never imported; each docstring is taken once, a blank line between two.
    The text is the same for one version of Python, and kept in memory only.

    >>> text = stdlib_docstrings(max_bytes=2000)
    >>> len(text) <= 2000 and text.isascii()
    True
    """
    if max_bytes < 1:
        raise ValueError(f"stdlib_docstrings: max_bytes must be positive, got {max_bytes}")
    parts: list[str] = []
    seen: set[str] = set()
    total = 0
    for path in _sources(Path(sysconfig.get_path("stdlib"))):
        for text in _docstrings(path):
            if text in seen:
                continue
            seen.add(text)
            parts.append(text + "\n\n")
            total += len(parts[-1])
        if total >= max_bytes:
            break
    if not parts:
        raise RuntimeError("stdlib_docstrings: this Python comes without the sources of its standard library")
    return "".join(parts)[:max_bytes]


def _sources(folder: Path) -> Iterator[Path]:
    """Python's own source files, by name, those of a folder at its place among them."""
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("config-"):
            continue
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _docstrings(path: Path) -> list[str]:
    """A file's docstrings in ASCII, in order of their lines; none where it cannot be parsed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return []
    texts = [inspect.cleandoc(text) for node in _definitions(tree) if (text := ast.get_docstring(node, clean=False))]
    printable = [text for text in texts if text.isascii() and text.replace("\n", " ").isprintable()]
    return [text for text in printable if text]


def _definitions(node: Any) -> Iterator[Any]:
    """The module, and the classes and functions in it, in order; ast.walk would look at expressions too."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node
    for part in ("body", "handlers", "orelse", "finalbody"):
        for child in getattr(node, part, ()):
            yield from _definitions(child)
