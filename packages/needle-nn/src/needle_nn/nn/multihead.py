"""Attention and transformer layers with PyTorch's arguments; the course's are in `attention`.

Masks of bools are True where nothing may be looked at, as in PyTorch's layers, and the opposite of
`needle.scaled_dot_product_attention`; masks of floats are added to the scores.

>>> import needle as ndl
>>> x = ndl.init.randn(2, 5, 16)  # (batch, time, features)
>>> layer = TransformerEncoderLayer(16, 4, 32, batch_first=True)
>>> TransformerEncoder(layer, 2)(x, is_causal=True, mask=causal_mask(5)).shape
(2, 5, 16)
"""

import math
from typing import Any

import numpy as np

from needle import Tensor, init, ops
from needle.ops.helpers import no_bool
from needle.typing import DeviceLike, DTypeLike
from needle_nn.nn import axes
from needle_nn.nn.basic import Dropout, Linear
from needle_nn.nn.containers import ModuleList
from needle_nn.nn.init import xavier_uniform_
from needle_nn.nn.module import Module, Parameter, check_sizes, expect
from needle_nn.nn.norms import LayerNorm


def causal_mask(size: int, device: DeviceLike = None, dtype: DTypeLike = "float32") -> Tensor:
    """0 on and below the diagonal, -inf above: what a mask of floats is where queries look at earlier keys only."""
    return Tensor(np.triu(np.full((size, size), -np.inf), 1), device=device, dtype=dtype, requires_grad=False)


def _scores(mask):
    """A mask as the op takes it: bools True where a query may look, floats as they are."""
    return mask if mask is None or mask.dtype.is_float else ops.logical_not(mask.astype("bool"))


class MultiheadAttention(Module):
    """Heads of q W_q, k W_k, v W_v attend; their results, side by side, times W_out: (T, B, embed_dim) -> y, probabilities.

    Parameters
    ----------
    embed_dim, num_heads : width, and the number of heads it is shared among
    dropout : of the probabilities, in training
    kdim, vdim : widths of keys and values, embed_dim by default
    batch_first : (B, T, embed_dim) instead

    `in_proj_weight` is (embed_dim, 3 embed_dim), for q, k and v; where kdim or vdim differ there are `q_proj_weight` and so on.

    >>> import needle as ndl
    >>> y, p = MultiheadAttention(8, 2)(*[ndl.ones(5, 3, 8)] * 3)
    >>> y.shape, p.shape
    ((5, 3, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        check_sizes(self, embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        made: dict[str, Any] = {"device": device, "dtype": dtype}

        def drawn(n, width):
            return Parameter(axes.kept(self, init.xavier_uniform(n, width, **made), axes.LINEAR))

        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = drawn(embed_dim, 3 * embed_dim)
        else:
            self.q_proj_weight = drawn(embed_dim, embed_dim)
            self.k_proj_weight, self.v_proj_weight = drawn(self.kdim, embed_dim), drawn(self.vdim, embed_dim)
        self.in_proj_bias = Parameter(init.zeros(3 * embed_dim, **made)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, **made)
        if bias:
            assert self.out_proj.bias is not None
            self.out_proj.bias = Parameter(init.zeros(*self.out_proj.bias.shape, **made))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, and return the result and, with need_weights, the probabilities, (B, Tq, Tk) or (B, H, Tq, Tk), else None.

        Parameters
        ----------
        query, key, value : (T, B, width) each, or (B, T, width) with batch_first
        key_padding_mask : (B, Tk), True, or -inf, where a key is padding
        attn_mask : (Tq, Tk) or (B num_heads, Tq, Tk), True, or a number that is added, where a query may not look at a key
        average_attn_weights : probabilities are the mean over the heads
        is_causal : query i looks at keys up to i; attn_mask then says nothing else
        """
        if self.batch_first:
            q, k, v = query, key, value
        else:
            q, k, v = (x.swapaxes(0, 1) if x.ndim == 3 else x for x in (query, key, value))
        for x, width, name in ((q, self.embed_dim, "query"), (k, self.kdim, "key"), (v, self.vdim, "value")):
            expect(self, x, "B", "T", width, name=name)
        q_heads, k_heads, v_heads = self._project(q, k, v, query is key is value)
        square = q.shape[1] == k.shape[1]
        causal = bool(is_causal and square and key_padding_mask is None)
        mask = self._mask(None if causal else attn_mask, key_padding_mask, q, k, is_causal and not causal)
        dropped = self.dropout.p and self.training
        if need_weights or dropped:
            probabilities = self.dropout(ops.attention_probabilities(q_heads, k_heads, mask, causal))
            y = probabilities @ v_heads
        else:
            y, probabilities = ops.scaled_dot_product_attention(q_heads, k_heads, v_heads, mask, causal), None
        y = y.swapaxes(1, 2)  # (B, H, T, D) -> (B, T, H, D)
        y = self.out_proj(y.reshape((*y.shape[:2], self.embed_dim)))
        y = y if self.batch_first else y.swapaxes(0, 1)
        if not need_weights:
            return y, None
        return y, probabilities.mean(1) if average_attn_weights else probabilities

    def _project(self, q, k, v, same):
        """Queries, keys and values of every head: (B, T, width) -> (B, H, T, D)"""
        n, bias = self.embed_dim, self.in_proj_bias
        parts = [None if bias is None else bias[i * n : (i + 1) * n] for i in range(3)]

        def matrix(weight):
            return axes.used(self, weight, axes.LINEAR)

        if hasattr(self, "q_proj_weight"):
            weights = [matrix(w) for w in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)]
        elif same:  # one product instead of three
            y = ops.linear(q, matrix(self.in_proj_weight), bias)
            y = y.reshape((*y.shape[:2], 3, self.num_heads, n // self.num_heads)).permute((2, 0, 3, 1, 4))
            return list(ops.Split(0)(y).tuple())
        else:
            weight = matrix(self.in_proj_weight)
            weights = [weight[:, i * n : (i + 1) * n] for i in range(3)]
        found = [ops.linear(x, w, b) for x, w, b in zip((q, k, v), weights, parts, strict=True)]
        return [x.reshape((*x.shape[:2], self.num_heads, n // self.num_heads)).swapaxes(1, 2) for x in found]

    def _mask(self, attn_mask, padding, q, k, causal):
        """One mask for both: (Tq, Tk), or (B, H or 1, Tq, Tk); None where nothing is masked."""
        b, t, s = q.shape[0], q.shape[1], k.shape[1]
        if causal and attn_mask is None:
            attn_mask = Tensor(np.triu(np.ones((t, s), bool), 1), device=q.device, requires_grad=False)
        mask, keys = (_scores(no_bool("MultiheadAttention: a mask", m)) for m in (attn_mask, padding))
        if mask is not None and mask.ndim == 3:
            expect(self, mask, b * self.num_heads, t, s, name="attn_mask")
            mask = mask.reshape((b, self.num_heads, t, s))
        elif mask is not None:
            expect(self, mask, t, s, name="attn_mask")
        if keys is not None:
            expect(self, keys, b, s, name="key_padding_mask")
            keys = keys.reshape((b, 1, 1, s))
        if mask is None or keys is None:
            return keys if mask is None else mask
        if not (mask.dtype.is_float or keys.dtype.is_float):
            return ops.logical_and(mask, keys)
        return _as_floats(mask, q.dtype) + _as_floats(keys, q.dtype)


def _as_floats(mask, dtype):
    return mask if mask.dtype.is_float else ops.where(mask, 0.0, -math.inf).astype(dtype)


_ACTIVATIONS = {"relu": ops.relu, "gelu": ops.gelu}


class _Block(Module):
    """What encoder and decoder layers share: x = x + f(norm(x)), or x = norm(x + f(x)), and a perceptron."""

    def _make(self, d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first, bias, made):
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ValueError(f"{type(self).__name__}: activation {activation!r}: expected 'relu', 'gelu' or a function")
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.norm_first = norm_first

    def _attend(self, attention, dropout, x, memory, mask, padding, causal):
        memory = x if memory is None else memory
        y, _ = attention(x, memory, memory, padding, False, mask, is_causal=causal)
        return dropout(y)

    def _feed_forward(self, dropout, x):
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _add(self, x, norm, f):
        return x + f(norm(x)) if self.norm_first else norm(x + f(x))


class TransformerEncoderLayer(_Block):
    """x = norm(x + attention(x));  y = norm(x + W2 f(W1 x)), or with norm_first x + attention(norm(x)) and so on: (T, B, d_model)

    Parameters
    ----------
    d_model, nhead, dim_feedforward : widths of the layer and of its perceptron, and the number of heads
    dropout : of probabilities, of the perceptron and of what is added to x
    activation : "relu", "gelu", or a function
    batch_first : (B, T, d_model) instead
    norm_first : normalise what goes into attention and perceptron, instead of the sums
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-05,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self._make(d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first, bias, made)
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps, bias=bias, **made) for _ in range(2))
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x):
            return self._attend(self.self_attn, self.dropout1, x, None, src_mask, src_key_padding_mask, is_causal)

        x = self._add(src, self.norm1, attend)
        return self._add(x, self.norm2, lambda x: self._feed_forward(self.dropout2, x))


class TransformerDecoderLayer(_Block):
    """An encoder layer with attention to a memory, what an encoder returned, between its two parts: (T, B, d_model)

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first : as for `TransformerEncoderLayer`
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-05,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self._make(d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first, bias, made)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model, layer_norm_eps, bias=bias, **made) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x):
            return self._attend(self.self_attn, self.dropout1, x, None, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def look(x):
            masks = memory_mask, memory_key_padding_mask, memory_is_causal
            return self._attend(self.multihead_attn, self.dropout2, x, memory, *masks)

        x = self._add(tgt, self.norm1, attend)
        x = self._add(x, self.norm2, look)
        return self._add(x, self.norm3, lambda x: self._feed_forward(self.dropout3, x))


def _copies(layer, n):
    from copy import deepcopy  # only here: importing needle.nn is to stay cheap

    return ModuleList([deepcopy(layer) for _ in range(n)])


class TransformerEncoder(Module):
    """num_layers copies of a layer, one after the other, then norm if there is one"""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Any = None, enable_nested_tensor: bool = True
    ) -> None:
        super().__init__()
        check_sizes(self, num_layers=num_layers)
        self.layers = _copies(encoder_layer, num_layers)
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """num_layers copies of a decoder layer, one after the other, each with attention to the memory, then norm if there is one"""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        check_sizes(self, num_layers=num_layers)
        self.layers = _copies(decoder_layer, num_layers)
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **named: Any) -> Any:
        """`masks` are those of `TransformerDecoderLayer.forward`."""
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, *masks, **named)
        return x if self.norm is None else self.norm(x)


# ---- Both of them: PyTorch's Transformer ----------------------------------------------------------------------------------


def make_encoder_decoder(
    self: Any,
    d_model: int = 512,
    nhead: int = 8,
    num_encoder_layers: int = 6,
    num_decoder_layers: int = 6,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: str = "relu",
    custom_encoder: Any = None,
    custom_decoder: Any = None,
    layer_norm_eps: float = 1e-05,
    batch_first: bool = False,
    norm_first: bool = False,
    bias: bool = True,
    device: DeviceLike = None,
    dtype: DTypeLike = "float32",
) -> None:
    """Give a module an encoder and a decoder of `TransformerEncoderLayer`s and `TransformerDecoderLayer`s, a norm after each.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, batch_first, norm_first : as for `TransformerEncoderLayer`
    num_encoder_layers, num_decoder_layers : how many of each
    custom_encoder, custom_decoder : modules in their places
    """
    self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
    made: dict[str, Any] = {"device": device, "dtype": dtype}
    settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

    def stack(kind, layer, n):
        return kind(layer(*settings, **made), n, LayerNorm(d_model, layer_norm_eps, bias=bias, **made))

    self.encoder = custom_encoder or stack(TransformerEncoder, TransformerEncoderLayer, num_encoder_layers)
    self.decoder = custom_decoder or stack(TransformerDecoder, TransformerDecoderLayer, num_decoder_layers)
    for p in self.parameters():
        if p.ndim > 1:
            xavier_uniform_(p)


def encode_and_decode(
    self: Any,
    src: Tensor,
    tgt: Tensor,
    src_mask: Tensor | None = None,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    src_is_causal: bool = False,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:
    """decoder(tgt, encoder(src)): (T, B, d_model) each -> as tgt; masks are those of the layers."""
    memory = self.encoder(src, src_mask, src_key_padding_mask, bool(src_is_causal))
    masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
    return self.decoder(tgt, memory, *masks, bool(tgt_is_causal), bool(memory_is_causal))
