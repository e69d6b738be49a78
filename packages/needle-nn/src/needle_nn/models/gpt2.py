"""GPT-2, in the names and layouts of Hugging Face's files."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from needle import compat, init, ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn
from needle_nn.interop import Pair, register
from needle_nn.models.configuration import expect_settings, number
from needle_nn.models.heads import attend, ids_of, last_only, merge_heads


def gelu_tanh(x: Any) -> Any:
    """x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)"""
    c = 2 * math.sqrt(2 / math.pi)
    return x * ops.sigmoid(x * (x * x * (0.044715 * c) + c))


ACTIVATIONS = {"gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "gelu": ops.gelu, "relu": ops.relu}


class Conv1D(nn.Linear):
    """y = x W + b, W of shape (in_features, out_features) in files, too, as the first GPT-2 had it"""

    def __init__(self, *args: Any, **made: Any) -> None:
        with compat("needle"):  # these axes within compat("torch"), too
            super().__init__(*args, **made)


@register(Conv1D)
def _conv1d(module: Conv1D) -> Iterator[Pair]:
    yield Pair("weight", module.weight)
    if module.bias is not None:
        yield Pair("bias", module.bias, flat=True)


class Attention(nn.Module):
    """q, k, v = x W + b; y = attention(q, k, v) W' + b', causal, in heads side by side: (B, T, C) -> (B, T, C)"""

    def __init__(self, features: int, num_head: int, dropout: float, device: DeviceLike, dtype: DTypeLike) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_head = num_head
        self.c_attn = Conv1D(features, 3 * features, **made)
        self.c_proj = Conv1D(features, features, **made)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor, cache: Any = None, layer: int = 0) -> Tensor:
        b, t, c = x.shape
        heads = self.c_attn(x).reshape((b, t, 3, self.num_head, c // self.num_head)).permute((2, 0, 3, 1, 4))
        q, k, v = ops.Split(0)(heads).tuple()  # (3, B, H, T, D) -> 3 (B, H, T, D)
        return self.resid_dropout(self.c_proj(merge_heads(attend(q, k, v, cache, layer, self.attn_dropout))))


class MLP(nn.Module):
    """y = gelu(x W + b) W' + b': (B, T, C) -> (B, T, C)"""

    def __init__(
        self, features: int, hidden: int, activation: str, dropout: float, device: DeviceLike, dtype: DTypeLike
    ) -> None:
        super().__init__()
        self.activation = activation
        self.c_fc = Conv1D(features, hidden, device=device, dtype=dtype)
        self.c_proj = Conv1D(hidden, features, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(ACTIVATIONS[self.activation](self.c_fc(x))))


class Block(nn.Module):
    """x = x + attention(norm(x));  y = x + mlp(norm(x))"""

    def __init__(
        self,
        features: int,
        num_head: int,
        hidden: int,
        activation: str,
        dropout: float,
        eps: float,
        device: DeviceLike,
        dtype: DTypeLike,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.ln_1 = nn.LayerNorm1d(features, eps, **made)
        self.attn = Attention(features, num_head, dropout, **made)
        self.ln_2 = nn.LayerNorm1d(features, eps, **made)
        self.mlp = MLP(features, hidden, activation, dropout, **made)

    def forward(self, x: Tensor, cache: Any = None, layer: int = 0) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache, layer)
        return x + self.mlp(self.ln_2(x))


class Body(nn.Module):
    """Tokens and learned positions through the blocks, and a norm: ids (B, T) -> (B, T, C)"""

    def __init__(
        self,
        vocab_size: int,
        context: int,
        features: int,
        num_layers: int,
        dropout: float,
        eps: float,
        block: Any,
        device: DeviceLike,
        dtype: DTypeLike,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.wte = nn.Embedding(vocab_size, features, **made)
        self.wpe = nn.Embedding(context, features, **made)
        self.drop = nn.Dropout(dropout)
        self.h = [Block(features, **block, dropout=dropout, eps=eps, **made) for _ in range(num_layers)]
        self.ln_f = nn.LayerNorm1d(features, eps, **made)

    def forward(self, ids: Any, cache: Any = None) -> Tensor:
        t = ids.shape[1]
        at = slice(0, t) if cache is None else cache.positions(t)
        x = self.wte(ids) + (self.wpe.rows(at) if isinstance(at, slice) else self.wpe(at))
        x = self.drop(x)
        for i, block in enumerate(self.h):
            x = block(x, cache, i)
        return x


class GPT2(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab_size).

    Parameters
    ----------
    context : the longest T
    hidden_size : width inside the perceptrons, 4 embedding_size by default
    activation : "gelu_new" (by tanh), "gelu" or "relu"
    tied : the map to the vocabulary is the embedding, transposed; else it has weights of its own

    With a `KVCache`, ids are those that come after the tokens in it; `last` gives the logits of the last one alone.
    The defaults are those of the smallest GPT-2, which has 124 million parameters.

    >>> model = GPT2(vocab_size=65, context=16, embedding_size=32, num_layers=2, num_head=4)
    >>> model([[1, 2, 3]]).shape
    (1, 3, 65)
    >>> list(model.state_dict())[:3]
    ['transformer.wte.weight', 'transformer.wpe.weight', 'transformer.h.0.ln_1.weight']
    """

    def __init__(
        self,
        vocab_size: int = 50257,
        context: int = 1024,
        embedding_size: int = 768,
        num_layers: int = 12,
        num_head: int = 12,
        hidden_size: int | None = None,
        activation: str = "gelu_new",
        dropout: float = 0.0,
        eps: float = 1e-05,
        tied: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        if num_head < 1 or embedding_size % num_head:
            raise ValueError(f"GPT2: embedding_size {embedding_size} does not make {num_head} heads")
        if activation not in ACTIVATIONS:
            raise ValueError(f"GPT2: activation {activation!r}: expected one of {', '.join(ACTIVATIONS)}")
        self.vocab_size, self.context, self.num_layers = vocab_size, context, num_layers
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        block = {"num_head": num_head, "hidden": hidden_size or 4 * embedding_size, "activation": activation}
        with init.without_draws():
            self.transformer = Body(vocab_size, context, embedding_size, num_layers, dropout, eps, block, **made)
            self.lm_head = None if tied else nn.Linear(embedding_size, vocab_size, bias=False, **made)
        if init.draws():
            self._start(made)

    def _start(self, made: dict[str, Any]) -> None:
        """GPT-2's initial weights: N(0, 0.02^2), less where a block adds to the sum of all before; biases stay 0."""
        for name, p in self.named_parameters():
            if p.ndim == 2 and name.endswith("weight"):
                std = 0.02 / math.sqrt(2 * self.num_layers) if "c_proj" in name else 0.02
                p.data = init.randn(*p.shape, std=std, **made)

    def forward(self, ids: Any, cache: Any = None, last: bool = False) -> Tensor:
        ids = ids_of(self, ids, self.context, cache)
        x = self.transformer(ids, cache)
        if cache is not None:
            cache.advance(ids.shape[1])
        x = self.transformer.ln_f(last_only(x) if last else x)
        return self.transformer.wte.as_linear(x) if self.lm_head is None else self.lm_head(x)

    def torch_name(self, name: str) -> str | None:
        """The first files have no "transformer." before their names, and masks among the weights."""
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            return None
        return f"transformer.{name}" if name.startswith(("wte.", "wpe.", "h.", "ln_f.")) else name

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **made: Any) -> "GPT2":
        """A model of the sizes in Hugging Face's config.json; `made` are arguments that come before these."""
        plain = {
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
        }
        expect_settings("GPT2", config, activation_function=tuple(ACTIVATIONS), **plain)
        settings = {
            "vocab_size": number("GPT2", config, "vocab_size", 50257),
            "context": number("GPT2", config, "n_positions", 1024),
            "embedding_size": number("GPT2", config, "n_embd", 768),
            "num_layers": number("GPT2", config, "n_layer", 12),
            "num_head": number("GPT2", config, "n_head", 12),
            "hidden_size": None if config.get("n_inner") is None else number("GPT2", config, "n_inner"),
            "activation": config.get("activation_function", "gelu_new"),
            "eps": number("GPT2", config, "layer_norm_epsilon", 1e-5),
            "tied": bool(config.get("tie_word_embeddings", True)),
        }
        return cls(**{**settings, **made})


@register(GPT2)
def _gpt2(model: GPT2) -> Iterator[Pair]:
    if model.lm_head is None:
        yield Pair("lm_head.weight", model.transformer.wte.weight)
