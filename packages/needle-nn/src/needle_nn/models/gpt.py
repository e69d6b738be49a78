"""A small GPT: predict the next token from all before it."""

from typing import Any

import numpy as np

from needle import ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn import nn
from needle_nn.generation import Sampling, stream
from needle_nn.models.heads import attend, last_only, merge_heads


class Block(nn.Module):
    """x = x + W_out attention(norm(x) W_qkv);  y = x + W2 gelu(W1 norm(x)): (B, T, C)"""

    def __init__(
        self,
        embedding_size: int,
        num_head: int,
        dropout: float = 0.0,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        if embedding_size % num_head:
            raise ValueError(f"GPT: embedding_size {embedding_size} does not make {num_head} heads")
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_head = num_head
        self.norm = nn.LayerNorm1d(embedding_size, **made)
        self.qkv = nn.Linear(embedding_size, 3 * embedding_size, **made)
        self.attention = nn.MultiHeadAttention(dropout=dropout, causal=True)
        self.out = nn.Linear(embedding_size, embedding_size, **made)
        self.dropout = nn.Dropout(dropout)
        self.mlp = nn.Sequential(
            nn.LayerNorm1d(embedding_size, **made),
            nn.Linear(embedding_size, 4 * embedding_size, **made),
            nn.GELU(),
            nn.Linear(4 * embedding_size, embedding_size, **made),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor, cache: Any = None, layer: int = 0) -> Tensor:
        b, t, c = x.shape
        heads = self.qkv(self.norm(x)).reshape((b, t, 3, self.num_head, c // self.num_head))
        q, k, v = ops.Split(0)(heads.permute((2, 0, 3, 1, 4))).tuple()  # (3, B, H, T, D) -> 3 (B, H, T, D)
        if cache is None:
            y, _ = self.attention(q, k, v, need_probabilities=False)
        else:
            y = attend(q, k, v, cache, layer)
        x = x + self.dropout(self.out(merge_heads(y)))
        return x + self.mlp(x)


class GPT(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab_size).

    Parameters
    ----------
    context : the longest T
    tied : the map to the vocabulary is the embedding, transposed; else it has weights of its own

    >>> model = GPT(vocab_size=65, context=16, embedding_size=32, num_layers=2, num_head=4)
    >>> model([[1, 2, 3]]).shape
    (1, 3, 65)
    >>> model.generate([1, 2, 3], 5, seed=0).shape
    (8,)
    """

    def __init__(
        self,
        vocab_size: int,
        context: int = 64,
        embedding_size: int = 64,
        num_layers: int = 4,
        num_head: int = 4,
        dropout: float = 0.0,
        tied: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.vocab_size, self.context, self.num_layers = vocab_size, context, num_layers
        self.tokens = nn.Embedding(vocab_size, embedding_size, **made)
        self.positions = nn.Embedding(context, embedding_size, **made)
        for table in (self.tokens, self.positions):  # small, so that tied logits start near zero
            table.weight = nn.Parameter(table.weight.data * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = [Block(embedding_size, num_head, dropout, **made) for _ in range(num_layers)]
        self.norm = nn.LayerNorm1d(embedding_size, **made)
        self.head = None if tied else nn.Linear(embedding_size, vocab_size, bias=False, **made)

    def forward(self, ids: Any, cache: Any = None, last: bool = False) -> Tensor:
        x = self.tokens(ids)
        before = 0 if cache is None else cache.length
        if x.ndim != 3 or before + x.shape[1] > self.context:
            raise ValueError(f"GPT: ids have shape {x.shape[:-1]}, expected (B, T), T up to {self.context - before}")
        at = slice(0, x.shape[1]) if cache is None else cache.positions(x.shape[1])
        x = self.dropout(x + (self.positions.rows(at) if isinstance(at, slice) else self.positions(at)))
        for i, block in enumerate(self.blocks):
            x = block(x) if cache is None else block(x, cache, i)
        if cache is not None:
            cache.advance(x.shape[1])
        x = self.norm(last_only(x) if last else x)
        return self.tokens.as_linear(x) if self.head is None else self.head(x)

    def generate(
        self,
        prompt_ids: Any,
        n: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
        **how: Any,
    ) -> np.ndarray:
        """The prompt, (T,) or (B, T), and n tokens drawn after it; the model sees the last `context` of them.

        Parameters
        ----------
        temperature, top_k : see `needle_nn.generation.Sampling`, whose other settings are taken, too
        seed : of the draws
        """
        given = np.asarray(prompt_ids.numpy() if isinstance(prompt_ids, Tensor) else prompt_ids).astype("int64")
        if not given.size or not 1 <= given.ndim <= 2:
            raise ValueError(f"GPT.generate: prompt of shape {given.shape}: expected (T,) or (B, T), a token or more")
        ids = np.atleast_2d(given)
        if n:
            steps = stream(self, ids, n, Sampling(temperature, top_k, **how), seed=seed)
            ids = np.concatenate([ids, np.stack(list(steps), 1)], axis=1)
        return ids.reshape(*given.shape[:-1], -1)
