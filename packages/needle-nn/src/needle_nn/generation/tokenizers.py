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

    def __init__(self, path: str | os.PathLike) -> None:
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

    A character may be several tokens, a token the end of one character and the beginning of the next, and what a token reads as may
    depend on the one before it.

    >>> text = TokenText(ByteTokenizer())
    >>> [text.add(token) for token in "aé".encode()]
    ['a', '', 'é']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.read = self.whole = 0  # ids from `read` on are decoded; those up to `whole` end with a whole character
        self.told = 0  # characters of these that have been given out

    def add(self, token: int) -> str:
        self.ids.append(int(token))
        text = self.tokenizer.decode(self.ids[self.read :])
        sure = len(text.rstrip("\ufffd"))
        if len(text) - sure > _UNFINISHED:
            sure = len(text) - 1
        piece, self.told = text[self.told : sure], max(self.told, sure)
        if sure == len(text):
            after = self.tokenizer.decode(self.ids[self.whole :])
            if after:  # enough for what comes next to read as after all the rest
                self.read, self.told = self.whole, len(after)
            self.whole = len(self.ids)
        return piece

    def end(self) -> str:
        """What was held back."""
        text = self.tokenizer.decode(self.ids[self.read :])
        piece, self.told = text[self.told :], len(text)
        return piece


#: Of so many U+FFFD at the end something may come yet: a character's first three bytes, and the four of the character before it,
#: which some decoders do not read either until both are whole.
_UNFINISHED = 7
