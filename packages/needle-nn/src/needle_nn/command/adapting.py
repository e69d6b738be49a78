"""The recipe `lora`: a model in a folder learns a text, by small matrices beside its weights, which stay as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from needle import Tensor
from needle_nn import nn, optim
from needle_nn.command.arguments import UsageError
from needle_nn.command.loaders import Stretches, read_text
from needle_nn.data import CharCorpus
from needle_nn.generation import BPETokenizer, ByteTokenizer
from needle_nn.lora import add_lora, load_lora_state, lora_state
from needle_nn.models.pretrained import load_pretrained, read_config
from needle_nn.nn.module import IncompatibleKeys

#: The linear maps beside which matrices are put where nobody says which, by model_type of config.json.
MAPS = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"], "mistral": ["q_proj", "v_proj"]}


class Adapted(nn.Module):
    """A language model whose state is what it learnt: the matrices of LoRA, without the weights beside them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any) -> Tensor:
        return self.model(ids)

    def state_dict(self) -> dict[str, Tensor]:
        return lora_state(self.model)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        load_lora_state(self.model, state)
        return IncompatibleKeys([], [])


class TokenCorpus(CharCorpus):
    """A text as ids of a tokenizer, the last tenth of it kept for validation."""

    def __init__(self, ids: Any) -> None:
        ids = np.asarray(ids, np.int32)
        cut = len(ids) - len(ids) // 10
        self.train, self.validation = ids[:cut], ids[cut:]


def base_of(o: Any) -> Path:
    if not o.base:
        raise UsageError("lora: give --base, a folder with config.json, safetensors files and tokenizer.json")
    return Path(o.base)


def tokenizer_of(folder: Path) -> Any:
    """The tokenizer of a folder, or bytes where it has none and its vocabulary is these."""
    if (folder / "tokenizer.json").exists():
        return BPETokenizer(folder / "tokenizer.json")
    if read_config(folder).get("vocab_size") == ByteTokenizer.vocab_size:
        return ByteTokenizer()
    raise UsageError(f"{folder}: holds no tokenizer.json, and its vocabulary is not that of bytes")


def adapting_data(o: Any) -> Any:
    """The next token of any text file, for a published model that learns by LoRA."""
    from needle_nn.command.recipes import Data  # which imports this module

    base = base_of(o)
    config = read_config(base)
    text = read_text(o.data)
    corpus = TokenCorpus(tokenizer_of(base).encode(text))
    ids = np.concatenate([corpus.train, corpus.validation])
    if (most := int(ids.max(initial=0))) >= config.get("vocab_size", 0):
        raise ValueError(f"{base}: its tokenizer gives token {most}, its vocab_size is {config.get('vocab_size')}")
    batches = max(1, min(len(corpus.train) // (o.context * o.batch_size), 250))
    train = Stretches(corpus, o.context, o.batch_size, batches, o.seed, device=o.device)
    test = Stretches(corpus, o.context, o.batch_size, 10, o.seed, split="validation", device=o.device)
    about = f"{len(text)} characters, {len(ids)} tokens, the last tenth for validation"
    return Data(train, test, {"tokens": len(ids), "begin": text[:20]}, about)


def adapting_model(o: Any, facts: Mapping[str, Any]) -> nn.Module:
    base = base_of(o)
    maps = o.maps.split(",") if o.maps else MAPS[read_config(base)["model_type"]]
    model = load_pretrained(base, o.device)
    if o.context > model.context:
        raise UsageError(f"--context {o.context}: the model in {base} looks back {model.context} tokens at most")
    add_lora(model, maps, o.rank, o.alpha, o.dropout)
    return Adapted(model)


def adam_of_trained(o: Any, model: nn.Module) -> Any:
    return optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=o.lr, weight_decay=o.weight_decay)
