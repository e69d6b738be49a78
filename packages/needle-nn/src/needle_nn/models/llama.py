"""Llama and its relatives, in the names and layouts of Hugging Face's files."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from needle import Tensor, init, ops
from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn
from needle_nn.interop import Pair, register
from needle_nn.models.configuration import expect_settings, number
from needle_nn.models.heads import attend, ids_of, last_only, merge_heads, split_heads


class Rotation:
    """Rotary positions: pairs (x_i, x_{i + D/2}) turned by the angle position / theta^(2 i / D).

    Parameters
    ----------
    width : D, of a head
    scaling : Llama 3's rope_scaling: slow turns are made slower by `factor`, fast ones stay, and those between are mixed
    """

    def __init__(self, width: int, theta: float, scaling: Mapping[str, Any] | None = None) -> None:
        # In float32 as the models were trained: at position 1000 an angle in float64 differs by 1e-5.
        self.frequencies = 1 / np.float32(theta) ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
        if scaling is not None:
            self.frequencies = self._scaled(scaling)

    def _scaled(self, s: Mapping[str, Any]) -> np.ndarray:
        low, high, first = s["low_freq_factor"], s["high_freq_factor"], s["original_max_position_embeddings"]
        turns = first * self.frequencies / (2 * math.pi)  # within the context the model was first trained with
        kept = np.clip((turns - low) / (high - low), 0, 1)
        return (self.frequencies * (kept + (1 - kept) / s["factor"])).astype(np.float32)

    def at(self, positions: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of the angles at positions (T,) or (B, T): (T, D/2) or (B, 1, T, D/2)."""
        angles = np.asarray(positions, np.float32)[..., None] * self.frequencies
        angles = angles if angles.ndim == 2 else angles[:, None]
        made: dict[str, Any] = {"device": like.device, "dtype": str(like.dtype), "requires_grad": False}
        return Tensor(np.cos(angles), **made), Tensor(np.sin(angles), **made)


def rotate(x: Any, rotation: tuple[Any, Any]) -> Any:
    """(a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of the last axis"""
    cos, sin = rotation
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return ops.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    """Heads of rotated queries attend to fewer heads of keys and values, each for a group: (B, T, C) -> (B, T, C)"""

    def __init__(
        self,
        features: int,
        num_head: int,
        num_groups: int,
        dim_head: int,
        bias: bool,
        device: DeviceLike,
        dtype: DTypeLike,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.num_head, self.num_groups = num_head, num_groups
        self.q_proj = nn.Linear(features, num_head * dim_head, **made)
        self.k_proj = nn.Linear(features, num_groups * dim_head, **made)
        self.v_proj = nn.Linear(features, num_groups * dim_head, **made)
        self.o_proj = nn.Linear(num_head * dim_head, features, **made)

    def forward(self, x: Tensor, rotation: Any, cache: Any = None, layer: int = 0) -> Tensor:
        q = rotate(split_heads(self.q_proj(x), self.num_head), rotation)
        k = rotate(split_heads(self.k_proj(x), self.num_groups), rotation)
        v = split_heads(self.v_proj(x), self.num_groups)
        return self.o_proj(merge_heads(attend(q, k, v, cache, layer)))


class MLP(nn.Module):
    """y = (silu(x G) * (x U)) D: (B, T, C) -> (B, T, C)"""

    def __init__(self, features: int, hidden: int, bias: bool, device: DeviceLike, dtype: DTypeLike) -> None:
        super().__init__()
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(features, hidden, **made)
        self.up_proj = nn.Linear(features, hidden, **made)
        self.down_proj = nn.Linear(hidden, features, **made)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(ops.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """x = x + attention(norm(x));  y = x + mlp(norm(x))"""

    def __init__(
        self, features: int, hidden: int, heads: Any, biases: Any, eps: float, device: DeviceLike, dtype: DTypeLike
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input_layernorm = nn.RMSNorm(features, eps, **made)
        self.self_attn = Attention(features, **heads, bias=biases[0], **made)
        self.post_attention_layernorm = nn.RMSNorm(features, eps, **made)
        self.mlp = MLP(features, hidden, biases[1], **made)

    def forward(self, x: Tensor, rotation: Any, cache: Any = None, layer: int = 0) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Tokens through the blocks: ids (B, T) -> (B, T, C)"""

    def __init__(
        self,
        vocab_size: int,
        features: int,
        num_layers: int,
        rotation: Any,
        eps: float,
        block: Any,
        device: DeviceLike,
        dtype: DTypeLike,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embed_tokens = nn.Embedding(vocab_size, features, **made)
        self.layers = [Block(features, **block, eps=eps, **made) for _ in range(num_layers)]
        self.norm = nn.RMSNorm(features, eps, **made)
        self._rotation = rotation

    def forward(self, ids: Any, cache: Any = None) -> Tensor:
        x = self.embed_tokens(ids)
        t = ids.shape[1]
        at = slice(0, t) if cache is None else cache.positions(t)
        rotation = self._rotation.at(np.arange(at.start, at.stop) if isinstance(at, slice) else at, x)
        for i, block in enumerate(self.layers):
            x = block(x, rotation, cache, i)
        return x


class Llama(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab_size).

    Parameters
    ----------
    context : the longest T
    hidden_size : width inside the perceptrons
    num_head, num_groups, dim_head : heads of queries, heads of keys and values (as many by default), width of each
    theta, scaling : of the rotary positions, see `Rotation`
    attention_bias, mlp_bias : whether these linear maps have one
    tied : the map to the vocabulary is the embedding, transposed

    With a `KVCache`, ids are those that come after the tokens in it; `last` gives the logits of the last one alone.

    >>> model = Llama(65, context=16, embedding_size=32, hidden_size=48, num_layers=2, num_head=4, num_groups=2)
    >>> model([[1, 2, 3]]).shape
    (1, 3, 65)
    """

    def __init__(
        self,
        vocab_size: int = 32000,
        context: int = 2048,
        embedding_size: int = 4096,
        hidden_size: int = 11008,
        num_layers: int = 32,
        num_head: int = 32,
        num_groups: int | None = None,
        dim_head: int | None = None,
        theta: float = 10000.0,
        scaling: Any = None,
        eps: float = 1e-06,
        attention_bias: bool = False,
        mlp_bias: bool = False,
        tied: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        num_groups = num_head if num_groups is None else num_groups
        if num_groups < 1 or num_head % num_groups or (dim_head is None and embedding_size % num_head):
            raise ValueError(
                f"Llama: embedding_size {embedding_size}, {num_head} heads, {num_groups} groups do not divide"
            )
        dim_head = embedding_size // num_head if dim_head is None else dim_head
        if dim_head % 2:
            raise ValueError(f"Llama: dim_head {dim_head}: expected an even number, pairs are rotated")
        self.vocab_size, self.context, self.num_layers = vocab_size, context, num_layers
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        heads = {"num_head": num_head, "num_groups": num_groups, "dim_head": dim_head}
        block = {"hidden": hidden_size, "heads": heads, "biases": (attention_bias, mlp_bias)}
        with init.without_draws():
            rotation = Rotation(dim_head, theta, scaling)
            self.model = Body(vocab_size, embedding_size, num_layers, rotation, eps, block, **made)
            self.lm_head = None if tied else nn.Linear(embedding_size, vocab_size, bias=False, **made)
        if init.draws():
            for p in self.parameters():
                if p.ndim == 2 and p.shape[0] > 1:
                    p.data = init.randn(*p.shape, std=0.02, **made)

    def forward(self, ids: Any, cache: Any = None, last: bool = False) -> Tensor:
        ids = ids_of(self, ids, self.context, cache)
        x = self.model(ids, cache)
        if cache is not None:
            cache.advance(ids.shape[1])
        x = self.model.norm(last_only(x) if last else x)
        return self.model.embed_tokens.as_linear(x) if self.lm_head is None else self.lm_head(x)

    def torch_name(self, name: str) -> str | None:
        """Older files have the frequencies of the rotary positions among the weights."""
        return None if name.endswith("rotary_emb.inv_freq") else name

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **made: Any) -> "Llama":
        """A model of the sizes in Hugging Face's config.json; `made` are arguments that come before these."""
        expect_settings("Llama", config, hidden_act=("silu",), pretraining_tp=(1,), partial_rotary_factor=(1, None))
        heads = number("Llama", config, "num_attention_heads", 32)
        theta, scaling = _rotary(config)
        settings = {
            "vocab_size": number("Llama", config, "vocab_size", 32000),
            "context": number("Llama", config, "max_position_embeddings", 2048),
            "embedding_size": number("Llama", config, "hidden_size", 4096),
            "hidden_size": number("Llama", config, "intermediate_size", 11008),
            "num_layers": number("Llama", config, "num_hidden_layers", 32),
            "num_head": heads,
            "num_groups": heads
            if config.get("num_key_value_heads") is None
            else number("Llama", config, "num_key_value_heads"),
            "dim_head": None if config.get("head_dim") is None else number("Llama", config, "head_dim"),
            "theta": theta,
            "scaling": scaling,
            "eps": number("Llama", config, "rms_norm_eps", 1e-6),
            "attention_bias": bool(config.get("attention_bias", False)),
            "mlp_bias": bool(config.get("mlp_bias", False)),
            "tied": bool(config.get("tie_word_embeddings", False)),
        }
        settings.update(made)
        window = config.get("sliding_window")
        if window is not None and number("Llama", config, "sliding_window") < settings["context"]:
            raise ValueError(
                f"Llama: config.json has sliding_window = {window}, expected None or a context of at most that,"
                f" and context is {settings['context']}"
            )
        return cls(**settings)


def _rotary(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any] | None]:
    """theta and scaling: in rope_parameters, as transformers 5 writes them, or in rope_theta and rope_scaling before."""
    given = config.get("rope_parameters")
    if given is None:
        return number("Llama", config, "rope_theta", 10000.0), _scaling(config.get("rope_scaling"))
    if not isinstance(given, Mapping):
        raise ValueError(f"Llama: config.json has rope_parameters = {given!r:.40}, expected an object")
    expect_settings("Llama: rope_parameters", given, partial_rotary_factor=(1, None))
    theta = number("Llama", config, "rope_theta", 10000.0)
    return number("Llama: rope_parameters", given, "rope_theta", theta), _scaling(given)


def _scaling(given: Any) -> Mapping[str, Any] | None:
    """rope_scaling of config.json: none, or Llama 3's."""
    kind = given.get("rope_type", given.get("type")) if isinstance(given, Mapping) else given
    if kind in (None, "default"):
        return None
    if kind != "llama3":
        raise ValueError(f"Llama: config.json has rope_scaling of type {kind!r:.40}, expected 'default' or 'llama3'")
    names = "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"
    return {name: number("Llama: rope_scaling", given, name) for name in names}


@register(Llama)
def _llama(model: Llama) -> Iterator[Pair]:
    if model.lm_head is None:
        yield Pair("lm_head.weight", model.model.embed_tokens.weight)
