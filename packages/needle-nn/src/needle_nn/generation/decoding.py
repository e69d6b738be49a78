"""Token sequences that grow at their ends: all of a prompt at once, then one token at a time beside a cache.

A model for this takes ids (B, T), `cache`, a `KVCache`, and `last`, and has attributes `context` and `num_layers`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from needle import Tensor, no_grad
from needle_nn.checks import check_count
from needle_nn.generation.cache import KVCache
from needle_nn.generation.sampling import Sampling


class Decoding:
    """A batch of sequences of any lengths, and the logits of the token after each: (B, V).

    Parameters
    ----------
    prompts : lists or arrays of ids, each of one or more
    room : how many tokens are expected to follow: memory of the cache
    slide : how many of the oldest tokens are forgotten at once where a sequence is longer than the model's context. By default
        always the last `context` tokens are seen; these are computed anew for each token then, with more for every `slide`-th only.
    """

    def __init__(self, model: Any, prompts: Iterable[Any], room: int = 256, slide: int = 1) -> None:
        self.model, self.room = model, check_count("Decoding", "room", room, 0)
        self.slide = check_count("Decoding", "slide", slide, 1)
        if self.slide > model.context:
            raise ValueError(f"Decoding: slide {slide}: expected at most the context, {model.context}")
        self.rows = [_ids(prompt, model) for prompt in prompts]
        if not self.rows:
            raise ValueError("Decoding: expected a prompt or more, got none")
        self.logits = self._anew()

    def append(self, tokens: Any) -> None:
        """One token for each sequence."""
        for row, token in zip(self.rows, tokens, strict=True):
            row.append(int(token))
        if self.cache.length == self.cache.capacity:
            self.logits = self._anew()
        else:
            self.logits = self._logits(np.asarray(tokens, np.int64)[:, None])

    def _anew(self) -> np.ndarray:
        """All tokens within the context at once; shorter sequences begin with padding, so that all end together."""
        context = self.model.context
        longest = max(map(len, self.rows))
        kept = context if longest <= context else context - self.slide + 1
        rows = [row[-kept:] for row in self.rows]
        longest = max(map(len, rows))
        ids = np.zeros((len(rows), longest), np.int64)
        for line, row in zip(ids, rows, strict=True):
            line[longest - len(row) :] = row
        padding = [longest - len(row) for row in rows]
        self.cache = KVCache(self.model.num_layers, min(context, longest + max(self.room, 1)), padding)
        return self._logits(ids)

    def _logits(self, ids: np.ndarray) -> np.ndarray:
        with no_grad():
            return self.model(ids, cache=self.cache, last=True)[:, 0].numpy()


def _ids(prompt: Any, model: Any) -> list[int]:
    given = np.asarray(prompt.numpy() if isinstance(prompt, Tensor) else prompt)
    whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and (given == np.floor(given)).all())
    if given.ndim != 1 or not given.size or not whole:
        raise ValueError(f"a prompt has shape {given.shape} and dtype {given.dtype}: expected one id or more in a row")
    least, most = int(given.min()), int(given.max())
    if least < 0 or most >= model.vocab_size:
        raise ValueError(f"a prompt has ids from {least} to {most}, expected 0 to {model.vocab_size - 1}")
    return [int(i) for i in given]


def stream(
    model: Any,
    prompts: Iterable[Any],
    max_new_tokens: int,
    sampling: Sampling | None = None,
    stop_ids: Iterable[int] = (),
    seed: int | None = None,
    slide: int = 1,
) -> Iterator[np.ndarray]:
    """The next token of each sequence, (B,), time after time; -1 where a sequence has ended. The model is in evaluation meanwhile.

    Parameters
    ----------
    prompts : lists or arrays of ids, of any lengths
    max_new_tokens : the stream ends after so many, or when all sequences have
    stop_ids : a sequence ends with any of these
    seed : of the draws
    slide : see `Decoding`
    """
    check_count("stream", "max_new_tokens", max_new_tokens, 1)
    how, rng, ending = sampling or Sampling(), np.random.default_rng(seed), np.array(list(stop_ids), np.int64)
    mode = model.training
    model.eval()
    try:
        decoding = Decoding(model, prompts, max_new_tokens, slide)
        ended = np.zeros(len(decoding.rows), bool)
        for i in range(max_new_tokens):
            tokens = how.draw(decoding.logits, rng, decoding.rows)
            yield np.where(ended, -1, tokens)
            ended |= np.isin(tokens, ending)
            if ended.all() or i + 1 == max_new_tokens:
                return
            decoding.append(tokens)
    finally:
        model.train(mode)


def generate(model: Any, prompts: Iterable[Any], max_new_tokens: int, **how: Any) -> list[np.ndarray]:
    """What comes after each prompt, as ids; arguments as for `stream`.

    >>> from needle_nn.models import GPT2
    >>> model = GPT2(vocab_size=50, context=16, embedding_size=8, num_layers=1, num_head=2)
    >>> [ids.shape for ids in generate(model, [[1, 2, 3], [4]], 5, seed=0)]
    [(5,), (5,)]
    """
    steps = np.stack(list(stream(model, prompts, max_new_tokens, **how)), 1)
    return [row[row >= 0] for row in steps]
