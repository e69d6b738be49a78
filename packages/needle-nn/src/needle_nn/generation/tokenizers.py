"""Text as ids and back. A tokenizer has `encode(text)`, a list of ids, and `decode(ids)`.

>>> ByteTokenizer().encode("é"), ByteTokenizer().decode([104, 105])
([195, 169], 'hi')
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Tokenizer(Protocol):
    """What text generation asks of a tokenizer."""

    def encode(self, text: str) -> Any: ...

    def decode(self, ids: Any) -> str: ...


class ByteTokenizer:
    """A token for each of the 256 bytes of UTF-8."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="surrogateescape"))

    def decode(self, ids: Iterable[int]) -> str:
        """The text; bytes that make no character become U+FFFD."""
        given = np.asarray(list(ids), np.int64)
        if given.size and not 0 <= given.min() <= given.max() < 256:
            raise ValueError(f"ByteTokenizer: ids from {given.min()} to {given.max()}, expected 0 to 255")
        return bytes(given.astype(np.uint8)).decode(errors="replace")


class BPETokenizer:
    """Byte-pair encoding as a tokenizer.json says, by the library of the extra `tokenizers`."""

    def __init__(self, path: str | os.PathLike):
        try:
            from tokenizers import Tokenizer as Library
        except ImportError:
            raise ImportError(f"{path}: needs the library tokenizers: pip install 'needle-nn[tokenizers]'") from None
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such file")
        try:
            self._library = Library.from_file(os.fspath(path))
        except Exception as error:  # the library raises Exception itself
            raise ValueError(f"{path}: no tokenizer: {' '.join(str(error).split())[:200]}") from None
        self.vocab_size = self._library.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return list(self._library.encode(text).ids)

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._library.decode([int(i) for i in ids]))


class TokenText:
    """The text of tokens that come one by one: what is certain, as soon as it is.

    A character may be several tokens, and what a token reads as may depend on the one before it.

    >>> text = TokenText(ByteTokenizer())
    >>> [text.add(token) for token in "aé".encode()]
    ['a', '', 'é']
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.read = self.told = (
            0  # ids up to `told` have been given out; those from `read` on are decoded with the next
        )

    def add(self, token: int) -> str:
        self.ids.append(int(token))
        before = self.tokenizer.decode(self.ids[self.read : self.told])
        text = self.tokenizer.decode(self.ids[self.read :])
        unfinished = text.endswith("\ufffd") and len(self.ids) - self.told < 4  # characters have four bytes at most
        if unfinished:
            return ""
        self.read, self.told = self.told, len(self.ids)
        return text[len(before) :]

    def end(self) -> str:
        """What was held back."""
        before = self.tokenizer.decode(self.ids[self.read : self.told])
        text = self.tokenizer.decode(self.ids[self.read :])
        self.read = self.told = len(self.ids)
        return text[len(before) :]
