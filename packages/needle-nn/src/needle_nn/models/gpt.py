"""A small GPT: predict the next token from all before it."""

import numpy as np

from needle import ops
from needle.autograd import Tensor
from needle.modes import no_grad
from needle_nn import nn


class Block(nn.Module):
    """x = x + W_out attention(norm(x) W_qkv);  y = x + W2 gelu(W1 norm(x)): (B, T, C)"""

    def __init__(self, embedding_size, num_head, dropout=0.0, device=None, dtype="float32"):
        super().__init__()
        if embedding_size % num_head:
            raise ValueError(f"GPT: embedding_size {embedding_size} does not make {num_head} heads")
        made = {"device": device, "dtype": dtype}
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

    def forward(self, x):
        b, t, c = x.shape
        heads = self.qkv(self.norm(x)).reshape((b, t, 3, self.num_head, c // self.num_head))
        q, k, v = ops.split(heads.permute((2, 0, 3, 1, 4)), 0).tuple()  # (3, B, H, T, D) -> 3 (B, H, T, D)
        y, _ = self.attention(q, k, v, need_probabilities=False)
        x = x + self.dropout(self.out(y.swapaxes(1, 2).reshape((b, t, c))))
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
        vocab_size,
        context=64,
        embedding_size=64,
        num_layers=4,
        num_head=4,
        dropout=0.0,
        tied=True,
        device=None,
        dtype="float32",
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.vocab_size, self.context = vocab_size, context
        self.tokens = nn.Embedding(vocab_size, embedding_size, **made)
        self.positions = nn.Embedding(context, embedding_size, **made)
        for table in (self.tokens, self.positions):  # small, so that tied logits start near zero
            table.weight = nn.Parameter(table.weight.data * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = [Block(embedding_size, num_head, dropout, **made) for _ in range(num_layers)]
        self.norm = nn.LayerNorm1d(embedding_size, **made)
        self.head = None if tied else nn.Linear(embedding_size, vocab_size, bias=False, **made)

    def forward(self, ids):
        x = self.tokens(ids)
        if x.ndim != 3 or x.shape[1] > self.context:
            raise ValueError(f"GPT: ids have shape {x.shape[:-1]}, expected (B, T), T up to {self.context}")
        x = self.dropout(x + self.positions.weight[: x.shape[1]])
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x @ self.tokens.weight.transpose() if self.head is None else self.head(x)

    def generate(self, prompt_ids, n, temperature=1.0, top_k=None, seed=None) -> np.ndarray:
        """The prompt, (T,) or (B, T), and n tokens drawn after it; the model sees the last `context` of them.

        Parameters
        ----------
        temperature : below 1 likelier tokens, above 1 more variety; 0 always takes the likeliest
        top_k : draw among the k likeliest only
        seed : of the draws
        """
        given = np.asarray(prompt_ids.numpy() if isinstance(prompt_ids, Tensor) else prompt_ids).astype("int64")
        ids, rng, mode = np.atleast_2d(given), np.random.default_rng(seed), self.training
        if not ids.size or temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                f"GPT.generate: prompt of shape {given.shape}, temperature {temperature}, top_k {top_k}:"
                " expected a token or more, 0 or more, 1 or more"
            )
        self.eval()
        try:
            with no_grad():
                for _ in range(n):
                    logits = self(ids[:, -self.context :])[:, -1].numpy().astype("float64")
                    ids = np.concatenate([ids, _draw(logits, temperature, top_k, rng)], axis=1)
        finally:
            self.train(mode)
        return ids.reshape(*given.shape[:-1], -1)


def _draw(logits, temperature, top_k, rng):
    """One token for each row of logits: (B, V) -> (B, 1)."""
    if temperature == 0:
        return logits.argmax(axis=1, keepdims=True)
    if top_k is not None and top_k < logits.shape[1]:
        least = np.partition(logits, -top_k, axis=1)[:, -top_k, None]
        logits = np.where(logits < least, -np.inf, logits)
    noise = rng.gumbel(size=logits.shape)  # the largest of logits / T + Gumbel noise is a draw from softmax(logits / T)
    return (logits / temperature + noise).argmax(axis=1)[:, None]
