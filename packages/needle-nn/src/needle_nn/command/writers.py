"""What `needle generate` and `needle serve` write with: a run of `needle train`, or a folder as Hugging Face keeps models."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from needle import Tensor, no_grad
from needle_ndarray import device as find_device
from needle_nn import nn
from needle_nn.command.adapting import tokenizer_of
from needle_nn.command.arguments import UsageError
from needle_nn.command.runs import open_run, options, rebuild
from needle_nn.data import CharCorpus
from needle_nn.generation import Sampling, UpToStop, Writer
from needle_nn.models.pretrained import load_pretrained, read_config


class WordWriter:
    """Writes words on with a model of `needle train ptb`, in the form of `Writer`."""

    def __init__(self, model: Any, words: Sequence[str]) -> None:
        self.model, self.words = model.eval(), list(words)
        self.numbers = {word: i for i, word in enumerate(words)}

    def stream(
        self, prompt: str, max_new_tokens: int = 200, stop: Iterable[str] = (), seed: int | None = None, **sampling: Any
    ) -> Iterator[str]:
        """Words after a prompt, one by one; <eos> ends a line."""
        given = (prompt or "<eos>").split()
        if absent := [word for word in given if word not in self.numbers]:
            raise ValueError(f"the model has never seen {', '.join(map(repr, absent[:5]))}")
        end, between = UpToStop(stop), " " if prompt else ""
        ids = [self.numbers[word] for word in given]
        for i in self._words_after(ids, max_new_tokens, Sampling(**sampling), np.random.default_rng(seed)):
            word = self.words[i]
            yield end.add("\n" if word == "<eos>" else between + word)
            between = "" if word == "<eos>" else " "
            if end.stopped:
                return
        yield end.end()

    def _words_after(self, ids: list[int], n: int, how: Sampling, rng: np.random.Generator) -> Iterator[int]:
        """Words drawn one by one; a recurrent model keeps its state, a transformer sees the last ones again."""
        made, state = list(ids), None
        context = getattr(self.model.seq_model, "sequence_len", None)
        for step in range(n):
            fresh = made[-context:] if context else made if step == 0 else made[-1:]
            x = Tensor(np.array(fresh, "int32")[:, None], requires_grad=False)
            with no_grad():
                logits, state = self.model(x, None if context else state)
            made.append(int(how.draw(logits.numpy()[-1:], rng, [made])[0]))
            yield made[-1]


#: How weights are kept while a model writes.
FORMS = "float32", "float16", "bfloat16", "int8"


def open_writer(
    place: str, which: str = "latest", device: str | None = None, weights: str = "float32"
) -> tuple[Any, str]:
    """What writes texts with the model at a place, and how a text begins where nobody says so; `weights` is one of FORMS."""
    path = Path(place)
    if path.is_dir() and (path / "config.json").exists():
        return _pretrained(path, device, weights), ""
    found = open_run(place, which)
    if "image" in found.facts:
        raise UsageError(f"{place}: a run of {found.recipe}, which writes nothing; needle eval measures it")
    model = _in_form(rebuild(found, options(found.settings, device)), weights)
    return writer_of(model, found.facts, found.settings)


def _in_form(model: Any, weights: str) -> Any:
    return nn.quantize(model, embeddings=True) if weights == "int8" else model.to(weights)


def writer_of(model: Any, facts: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, str]:
    """The same for a model of a run, what is known of its data, and the run's settings."""
    if "words" in facts:
        return WordWriter(model.model, facts["words"]), ""
    if "tokens" in facts:
        return _with_tokenizer(model.model, Path(settings["base"])), facts["begin"]
    corpus = CharCorpus(facts["characters"], validation=0)
    begin = corpus.encode("\n") if "\n" in corpus.vocabulary else np.zeros(1, int)
    return Writer(model, corpus, begin.tolist()), facts["begin"]


def _pretrained(folder: Path, device: str | None, weights: str) -> Writer:
    tokenizer_of(folder)  # what is wrong with it is told before the weights are read
    kept = "float32" if weights == "int8" else weights
    model = load_pretrained(folder, None if device is None else find_device(device), kept)
    return _with_tokenizer(_in_form(model, weights), folder)


def _with_tokenizer(model: Any, folder: Path) -> Writer:
    config, tokenizer = read_config(folder), tokenizer_of(folder)
    begins, ends = (_ids(config.get(f"{name}_token_id"), model.vocab_size) for name in ("bos", "eos"))
    return Writer(model, tokenizer, begins[:1], ends)


def _ids(given: Any, vocab_size: int) -> list[int]:
    """Token ids in config.json: none, one or several; numbers that are none of the vocabulary's are left out."""
    several = given if isinstance(given, list) else [given]
    return [i for i in several if type(i) is int and 0 <= i < vocab_size]
