"""Texts: tokenizers, characters of several tokens, strings that stop, and what needle generate makes of a folder."""

import json
from itertools import pairwise

import numpy as np
import pytest

from needle_nn.checkpoint import save
from needle_nn.command.main import main
from needle_nn.command.writers import FORMS, open_writer
from needle_nn.generation import BPETokenizer, ByteTokenizer, TokenText, UpToStop, Writer
from needle_nn.interop import to_torch
from needle_nn.models import GPT2, Llama

TEXTS = ["", "plain", "é", "日本語 and 🧵🧵", "a\nb\tc", "x\u0301y", "\ufffd"]


# ---- Tokenizers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    """A tokenizer.json of a small byte-level BPE, as GPT-2's is."""
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the cat sat on the mat and the dog ran"] * 9, trainer)
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    made.save(str(path))
    return path


def test_bytes():
    tokenizer = ByteTokenizer()
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == list(text.encode()) and tokenizer.decode(ids) == text
    assert tokenizer.decode(np.array([255, 65])) == "\ufffdA"
    with pytest.raises(ValueError, match="ids from 1 to 256, expected 0 to 255"):
        tokenizer.decode([1, 256])


def test_byte_pairs(bpe):
    tokenizer = BPETokenizer(bpe)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("the cat")) < 7 and tokenizer.vocab_size <= 300
    assert all(type(i) is int for i in tokenizer.encode("the cat"))


@pytest.mark.parametrize(("content", "error"), [(None, FileNotFoundError), ("{", ValueError), ("[]", ValueError)])
def test_what_is_no_tokenizer(tmp_path, content, error):
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=r"tokenizer\.json: no ") as caught:
        BPETokenizer(path)
    assert "\n" not in str(caught.value)


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"needs the library tokenizers: pip install 'needle-nn\[tokenizers\]'"):
        BPETokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["bytes", "byte pairs"])
def test_tokens_one_by_one(text, kind, bpe):
    """Whole characters, as soon as they are certain."""
    tokenizer = ByteTokenizer() if kind == "bytes" else BPETokenizer(bpe)
    told = TokenText(tokenizer)
    pieces = [told.add(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) + told.end() == text
    if kind == "bytes" and "\ufffd" not in text:
        assert [piece for piece in pieces if piece] == list(text)


def test_bytes_that_make_no_character():
    told = TokenText(ByteTokenizer())
    pieces = [told.add(byte) for byte in b"a\xff\xff\xff\xff\xffb"]
    assert "".join(pieces) + told.end() == "a" + "\ufffd" * 5 + "b"


class Cuts:
    """Tokens are stretches of bytes, wherever they were cut."""

    def __init__(self, parts):
        self.parts = parts

    def decode(self, ids):
        return b"".join([self.parts[i] for i in ids]).decode(errors="replace")


class RunOfBytes(Cuts):
    """As sentencepiece reads bytes: each is U+FFFD where not all of those side by side are characters."""

    def decode(self, ids):
        content = b"".join([self.parts[i] for i in ids])
        try:
            return content.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(content)


@pytest.mark.parametrize("text", ["日本語" * 9, "a😀😀é👍🏽 ελληνικά日x" * 4, "é" * 30])
def test_tokens_that_end_within_characters(text):
    """Every piece is right, comes as soon as it can, and the pieces are the text."""
    draws, content = np.random.default_rng(0), text.encode()
    for _ in range(40):
        places = sorted({0, len(content), *draws.integers(0, len(content), len(content) // 2).tolist()})
        told = TokenText(Cuts([content[a:b] for a, b in pairwise(places)]))
        found = ""
        for i, end in enumerate(places[1:]):
            found += told.add(i)
            assert found == content[:end].decode(errors="ignore")
        assert found + told.end() == text


def test_bytes_that_are_read_together():
    text = "日本語é😀"
    told = TokenText(RunOfBytes([bytes([b]) for b in text.encode()]))
    pieces = [told.add(i) for i in range(len(text.encode()))]
    assert "".join(pieces) + told.end() == text and pieces[2] == "日"


def test_bytes_of_no_character_are_told_in_the_end():
    draws = np.random.default_rng(1)
    for size in (1, 2, 9, 200):
        content = draws.integers(128, 256, size).astype(np.uint8).tobytes()
        told = TokenText(Cuts([bytes([b]) for b in content]))
        pieces = [told.add(i) for i in range(size)]
        assert "".join(pieces) + told.end() == content.decode(errors="replace")
        assert size < 200 or sum(map(len, pieces)) > 100  # not all of it at the end


class SpaceBefore:
    """As sentencepiece's: a word's token reads with a space before it, except at the beginning."""

    def decode(self, ids):
        return " ".join("one two three".split()[i] for i in ids)


def test_tokens_that_read_differently_at_the_beginning():
    told = TokenText(SpaceBefore())
    assert [told.add(i) for i in (0, 1, 2, 0)] == ["one", " two", " three", " one"]


# ---- Strings that stop ----------------------------------------------------------------------------------------------

STOPS = {
    "none": ([], ["a", "b"], ["a", "b"], ""),
    "at once": (["b"], ["a", "b", "c"], ["a", "", ""], ""),
    "inside a piece": (["lo w"], ["hello world", "!"], ["hel", ""], ""),
    "over pieces": (["END"], ["xE", "N", "D", "y"], ["x", "", "", ""], ""),
    "nearly": (["END"], ["xE", "N", "x", "y"], ["x", "", "ENx", "y"], ""),
    "held at the end": (["END"], ["xEN"], ["x"], "EN"),
    "again and again": (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], ""),
    "the first of two": (["two", "one"], ["a one two"], ["a "], ""),
    "one within another": (["xyz", "y"], ["x", "y", "z"], ["", "x", ""], ""),
}


@pytest.mark.parametrize("case", STOPS)
def test_up_to_a_string(case):
    stop, pieces, told, rest = STOPS[case]
    text = UpToStop(stop)
    assert [text.add(piece) for piece in pieces] == told and text.end() == rest


@pytest.mark.parametrize("stop", ["END", [""], [3]])
def test_what_is_no_list_of_strings(stop):
    with pytest.raises(ValueError, match="expected a list of texts that are not empty"):
        UpToStop(stop)


# ---- Writing --------------------------------------------------------------------------------------------------------


def tiny(**settings):
    np.random.seed(0)  # noqa: NPY002
    return GPT2(256, 16, 16, 1, 2, **settings)


@pytest.fixture(scope="module")
def writer():
    return Writer(tiny(), ByteTokenizer(), begin=[10])


def test_streams_and_batches_are_the_same_text(writer):
    for seed in range(3):
        whole = "".join(writer.stream("Once upon", 40, seed=seed))
        assert writer.write(["Once upon"], 40, seed=seed) == [whole]
    both = writer.write(["Once upon", "a"], 40, temperature=0)
    assert both[1] == "".join(writer.stream("a", 40, temperature=0)) or len(both[1]) > 0
    assert len(both) == 2


def test_texts_stop_before_a_string(writer):
    whole = writer.write(["Once upon"], 60, seed=1)[0]
    stop = whole[20:22]
    cut = whole[: whole.index(stop)]
    assert writer.write(["Once upon"], 60, seed=1, stop=[stop]) == [cut]
    assert "".join(writer.stream("Once upon", 60, seed=1, stop=[stop])) == cut


def test_texts_stop_at_a_token(writer):
    whole = ByteTokenizer().encode(writer.write(["ab"], 60, seed=1)[0])
    ending = next(i for i in whole if i < 128)
    text = Writer(writer.model, ByteTokenizer(), stop_ids=[ending]).write(["ab"], 60, seed=1)[0]
    assert chr(ending) not in text and len(text) < 60


def test_an_empty_prompt(writer):
    assert writer.write([""], 5, seed=0) == writer.write(["\n"], 5, seed=0)
    with pytest.raises(ValueError, match="the prompt is empty: expected a token or more"):
        Writer(writer.model, ByteTokenizer()).write([""], 5)


def test_one_prompt_is_no_list(writer):
    with pytest.raises(TypeError, match="expected a list of prompts, got one; stream takes one"):
        writer.write("Once")


# ---- Folders of published models ------------------------------------------------------------------------------------

CONFIGS = {
    "gpt2": (
        lambda n: GPT2(n, 16, 16, 1, 2),
        {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "eos_token_id": 0, "bos_token_id": 0},
    ),
    "llama": (
        lambda n: Llama(n, 16, 16, 24, 1, 2, 1),
        {"model_type": "llama", "max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 24, "eos_token_id": [0, 1],
         "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1},
    ),
}  # fmt: skip


def folder(tmp_path, kind, vocab_size):
    make, config = CONFIGS[kind]
    np.random.seed(0)  # noqa: NPY002
    save(tmp_path / "model.safetensors", to_torch(make(vocab_size)))
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": vocab_size}))
    return str(tmp_path)


def test_generate_from_a_folder(tmp_path, bpe, capsys):
    for kind in CONFIGS:
        place = tmp_path / kind
        place.mkdir()
        folder(place, kind, 300)
        (place / "tokenizer.json").write_bytes(bpe.read_bytes())
        args = ["generate", str(place), "--prompt", "the cat", "--length", "30", "--top-p", "0.9"]
        assert main([*args, "--repetition-penalty", "1.2", "--stop", "zzz"]) == 0
        assert capsys.readouterr().out.startswith("the cat")


@pytest.mark.parametrize("kind", CONFIGS)
def test_weights_in_any_form(tmp_path, capsys, kind):
    place = folder(tmp_path, kind, 256)
    for form in FORMS:
        args = ["generate", place, "--prompt", "the cat", "--length", "3", "--temperature", "0", "--weights", form]
        assert main(args) == 0
        text = capsys.readouterr().out
        writer, _ = open_writer(place, weights=form)
        state = writer.model.state_dict().values()
        large = {p.dtype for p in state if p.ndim == 2 and p.shape[0] > 1}
        assert large == {"uint8" if form == "int8" else form}
        assert "".join(writer.stream("the cat", 3, temperature=0)) == text.removeprefix("the cat")[:-1]
    assert main(["generate", place, "--weights", "int4"]) == 2


def test_generate_by_bytes(tmp_path, capsys):
    place = folder(tmp_path, "gpt2", 256)
    assert main(["generate", place, "--prompt", "the cat", "--length", "20", "--temperature", "0"]) == 0
    first = capsys.readouterr().out
    assert main(["generate", place, "--prompt", "the cat", "--length", "20", "--top-k", "1"]) == 0
    assert capsys.readouterr().out == first


WRONG = {
    "no tokenizer": (77, [], 2, "holds no tokenizer.json, and its vocabulary is not that of bytes"),
    "empty prompt": (256, ["--prompt", ""], 0, ""),
    "stop": (256, ["--stop", ""], 2, "--stop: expected a text that is not empty"),
    "top-p": (256, ["--top-p", "1.5"], 2, "--top-p 1.5: "),
    "penalty": (256, ["--repetition-penalty", "0"], 2, "--repetition-penalty 0.0: "),
    "device": (256, ["--device", "tpu"], 1, "no such backend here"),
}


@pytest.mark.parametrize("case", WRONG)
def test_generate_is_told_wrong_things(tmp_path, capsys, case):
    vocab_size, more, code, message = WRONG[case]
    place = folder(tmp_path, "gpt2", vocab_size)
    assert main(["generate", place, "--length", "3", *more]) == code
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == bool(message)
