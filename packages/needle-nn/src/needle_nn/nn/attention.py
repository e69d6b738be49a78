"""Attention and the transformer.

>>> import needle as ndl
>>> x = ndl.init.randn(2, 5, 16)  # (batch, time, features)
>>> AttentionLayer(16, num_head=4, dim_head=8)(x).shape
(2, 5, 16)
>>> y, _ = Transformer(16, 32, num_layers=2, num_head=4, dim_head=8, batch_first=True, sequence_len=10)(x)
>>> y.shape
(2, 5, 16)
"""

from typing import Any

from needle import init, ops
from needle.autograd import Tensor, follows_torch
from needle.typing import DeviceLike, DTypeLike
from needle_nn.nn.activations import ReLU
from needle_nn.nn.basic import Dropout, Embedding, Linear
from needle_nn.nn.containers import Sequential
from needle_nn.nn.module import Module, expect
from needle_nn.nn.multihead import causal_mask, encode_and_decode, make_encoder_decoder
from needle_nn.nn.norms import LayerNorm1d


class MultiHeadAttention(Module):
    """P = dropout(softmax(q k^T / sqrt D)), y = P v: (B, H, Tq, D), (B, H, Tk, D), (B, H, Tk, D) -> y (B, H, Tq, D), P.

    Causal: query i sees keys up to i + Tk - Tq only. With `need_probabilities=False`, P is None.
    """

    def __init__(
        self, *, dropout: float = 0.0, causal: bool = False, device: DeviceLike = None, dtype: DTypeLike = "float32"
    ) -> None:
        super().__init__()
        self.causal = causal
        self.dropout = Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, need_probabilities: bool = True) -> tuple[Tensor, Any]:
        if not need_probabilities and not (self.dropout.training and self.dropout.p):
            return ops.scaled_dot_product_attention(q, k, v, causal=self.causal), None  # never holds all of P
        probabilities = self.dropout(ops.attention_probabilities(q, k, causal=self.causal))
        return probabilities @ v, probabilities


class AttentionLayer(Module):
    """Heads of norm(q) W_q, norm(k) W_k and norm(v) W_v attend; their results, side by side, times W_out: (B, T, features) each.

    Parameters
    ----------
    q_features, k_features, v_features, out_features : sizes; by default all are q_features
    num_head, dim_head : number and width of the heads
    """

    def __init__(
        self,
        q_features: int,
        num_head: int,
        dim_head: int,
        *,
        k_features: int | None = None,
        v_features: int | None = None,
        out_features: int | None = None,
        dropout: float = 0.0,
        causal: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        self.q_features, self.num_head, self.dim_head = q_features, num_head, dim_head
        self.k_features = q_features if k_features is None else k_features
        self.v_features = q_features if v_features is None else v_features
        self.out_features = q_features if out_features is None else out_features
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        inner = num_head * dim_head
        self.prenorm_q = LayerNorm1d(self.q_features, **made)
        self.prenorm_k = LayerNorm1d(self.k_features, **made)
        self.prenorm_v = LayerNorm1d(self.v_features, **made)
        self.q_projection = Linear(self.q_features, inner, bias=False, **made)
        self.k_projection = Linear(self.k_features, inner, bias=False, **made)
        self.v_projection = Linear(self.v_features, inner, bias=False, **made)
        self.attn = MultiHeadAttention(dropout=dropout, causal=causal, **made)
        self.out_projection = Linear(inner, self.out_features, bias=False, **made)

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        k, v = (q if x is None else x for x in (k, v))
        expect(self, q, "B", "T", self.q_features)
        heads = [
            self._heads(self.q_projection(self.prenorm_q(q))),
            self._heads(self.k_projection(self.prenorm_k(k))),
            self._heads(self.v_projection(self.prenorm_v(v))),
        ]
        y = self.attn(*heads, need_probabilities=False)[0].swapaxes(1, 2)  # (B, H, T, D) -> (B, T, H, D)
        return self.out_projection(y.reshape((*y.shape[:2], self.num_head * self.dim_head)))

    def _heads(self, x):
        """(B, T, H D) -> (B, H, T, D)"""
        return x.reshape((*x.shape[:2], self.num_head, self.dim_head)).swapaxes(1, 2)


class TransformerLayer(Module):
    """x = x + dropout(attention(x));  y = x + dropout(W2 dropout(relu(W1 norm(x)))): (B, T, q_features)"""

    def __init__(
        self,
        q_features: int,
        num_head: int,
        dim_head: int,
        hidden_size: int,
        *,
        dropout: float = 0.0,
        causal: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.attention = AttentionLayer(q_features, num_head, dim_head, dropout=dropout, causal=causal, **made)
        self.dropout = Dropout(dropout)
        self.mlp = Sequential(
            LayerNorm1d(q_features, **made),
            Linear(q_features, hidden_size, **made),
            ReLU(),
            Dropout(dropout),
            Linear(hidden_size, q_features, **made),
            Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(x))
        return x + self.mlp(x)


class Transformer(Module):
    """x plus learned positions through `TransformerLayer`s: (T, B, embedding_size) -> the same shape, and zeros for a state.

    Parameters
    ----------
    embedding_size : width of input and output
    hidden_size : width inside the layers' perceptrons
    batch_first : (B, T, embedding_size) instead
    sequence_len : the longest T

    Within `needle.compat("torch")`, and where `d_model` or `nhead` is given, it is PyTorch's; see
    `make_encoder_decoder` in `multihead`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__()
        if follows_torch() or "d_model" in settings or "nhead" in settings:
            make_encoder_decoder(self, *args, **settings)
        else:
            self._make(*args, **settings)

    generate_square_subsequent_mask = staticmethod(causal_mask)

    def _make(
        self,
        embedding_size,
        hidden_size,
        num_layers,
        *,
        num_head=8,
        dim_head=32,
        dropout=0.0,
        causal=True,
        device=None,
        dtype="float32",
        batch_first=False,
        sequence_len=2048,
    ):
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.batch_first, self.sequence_len = batch_first, sequence_len
        self.embedding = Embedding(sequence_len, embedding_size, **made)
        self.layers = [
            TransformerLayer(embedding_size, num_head, dim_head, hidden_size, dropout=dropout, causal=causal, **made)
            for _ in range(num_layers)
        ]

    def forward(self, x: Tensor, h: Any = None, *masks: Any, **named: Any) -> Any:
        if hasattr(self, "decoder"):
            return encode_and_decode(self, x, named.pop("tgt") if h is None else h, *masks, **named)
        expect(self, x, *("BT" if self.batch_first else "TB"), self.embedding.embedding_dim)
        x = x if self.batch_first else x.swapaxes(0, 1)
        if x.shape[1] > self.sequence_len:
            raise ValueError(f"Transformer: {x.shape[1]} steps, but sequence_len is {self.sequence_len}")
        x = x + self.embedding.rows(slice(x.shape[1]))
        for layer in self.layers:
            x = layer(x)
        x = x if self.batch_first else x.swapaxes(0, 1)
        return x, init.zeros_like(x)
