"""Texts that a model writes on, piece by piece, up to a string that stops it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from needle_nn.generation.decoding import stream
from needle_nn.generation.sampling import Sampling
from needle_nn.generation.tokenizers import Tokenizer, TokenText


class UpToStop:
    """Text that comes in pieces, up to the first of some strings; what may be the beginning of one is held back.

    >>> text = UpToStop(["END"])
    >>> [text.add(piece) for piece in ("one E", "N two EN", "D three")], text.stopped
    (['one ', 'EN two ', ''], True)
    """

    def __init__(self, stop: Iterable[str] = ()) -> None:
        self.stop = list(stop)
        if isinstance(stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop strings: expected a list of texts that are not empty, got {stop!r:.60}")
        self.held, self.stopped = "", False

    def add(self, piece: str) -> str:
        if self.stopped:
            return ""
        self.held += piece
        places = [at for text in self.stop if (at := self.held.find(text)) >= 0]
        if places:
            self.stopped = True
            told, self.held = self.held[: min(places)], ""
            return told
        kept = max((_overlap(self.held, text) for text in self.stop), default=0)
        told, self.held = self.held[: len(self.held) - kept], self.held[len(self.held) - kept :]
        return told

    def end(self) -> str:
        """What was held back, since nothing more comes."""
        told, self.held = self.held, ""
        return told


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a string that stops it."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


class Writer:
    """A model and its tokenizer, which write texts on.

    Parameters
    ----------
    begin : ids that stand before an empty prompt; without them an empty prompt is an error
    stop_ids : a text ends where one of these tokens would come

    >>> from needle_nn.generation import ByteTokenizer
    >>> from needle_nn.models import GPT2
    >>> writer = Writer(GPT2(vocab_size=256, context=16, embedding_size=8, num_layers=1, num_head=2), ByteTokenizer())
    >>> text = "".join(writer.stream("Once", max_new_tokens=5, seed=0))
    >>> text == writer.write(["Once"], max_new_tokens=5, seed=0)[0]
    True
    """

    def __init__(
        self, model: Any, tokenizer: Tokenizer, begin: Sequence[int] = (), stop_ids: Iterable[int] = ()
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.begin, self.stop_ids = list(begin), frozenset(map(int, stop_ids))

    def stream(self, prompt: str, max_new_tokens: int = 200, **how: Any) -> Iterator[str]:
        """What comes after a prompt, a piece for each token, "" where nothing is certain yet; arguments as for `write`."""
        for pieces in self._pieces([prompt], max_new_tokens, **how):
            yield pieces[0]

    def write(self, prompts: Sequence[str], max_new_tokens: int = 200, **how: Any) -> list[str]:
        """What comes after each of several prompts, which are computed together.

        Parameters
        ----------
        stop : texts end before any of these strings
        seed : of the draws
        slide : how many of the oldest tokens are forgotten at once beyond the context, a quarter of it by default
        temperature, top_k, top_p, repetition_penalty : see `Sampling`
        """
        if isinstance(prompts, str):
            raise TypeError("Writer.write: expected a list of prompts, got one; stream takes one")
        texts = [""] * len(prompts)
        for pieces in self._pieces(prompts, max_new_tokens, **how):
            texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
        return texts

    def _pieces(
        self,
        prompts: Sequence[str],
        max_new_tokens: int,
        stop: Iterable[str] = (),
        seed: int | None = None,
        slide: int | None = None,
        **sampling: Any,
    ) -> Iterator[list[str]]:
        ids = [self._ids(prompt) for prompt in prompts]
        texts, ends = [TokenText(self.tokenizer) for _ in ids], [UpToStop(stop) for _ in ids]
        over = [False] * len(ids)
        slide = max(1, self.model.context // 4) if slide is None else slide
        steps = stream(self.model, ids, max_new_tokens, Sampling(**sampling), self.stop_ids, seed, slide)
        for tokens in steps:
            pieces = [""] * len(ids)
            for i, token in enumerate(map(int, tokens)):
                if over[i]:
                    continue
                if token < 0 or token in self.stop_ids:
                    pieces[i], over[i] = ends[i].add(texts[i].end()) + ends[i].end(), True
                else:
                    pieces[i] = ends[i].add(texts[i].add(token))
                    over[i] = ends[i].stopped
            yield pieces
            if all(over):
                steps.close()  # type: ignore[attr-defined]
                return
        yield ["" if over[i] else ends[i].add(texts[i].end()) + ends[i].end() for i in range(len(ids))]

    def _ids(self, prompt: str) -> list[int]:
        ids = [int(i) for i in self.tokenizer.encode(prompt)] or self.begin
        if not ids:
            raise ValueError("the prompt is empty: expected a token or more")
        return ids
