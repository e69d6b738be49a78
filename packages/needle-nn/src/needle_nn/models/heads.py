"""Attention of many heads with or without a cache, as the transformers here share it.

>>> import needle as ndl
>>> q = split_heads(ndl.ones(1, 3, 8), num_head=4)
>>> q.shape, merge_heads(attend(q, q, q)).shape
((1, 4, 3, 2), (1, 3, 8))
"""

from typing import Any

import numpy as np

from needle import ops


def split_heads(x: Any, num_head: int) -> Any:
    """(B, T, H D) -> (B, H, T, D)"""
    b, t, c = x.shape
    return x.reshape((b, t, num_head, c // num_head)).swapaxes(1, 2)


def merge_heads(x: Any) -> Any:
    """(B, H, T, D) -> (B, T, H D)"""
    b, h, t, d = x.shape
    return x.swapaxes(1, 2).reshape((b, t, h * d))


def attend(q: Any, k: Any, v: Any, cache: Any = None, layer: int = 0, dropout: Any = None) -> Any:
    """Causal attention of queries (B, H, T, D) over keys and values (B, G, T, D); H / G heads share a head of keys.

    Parameters
    ----------
    cache, layer : where keys and values of earlier tokens are, to which these are added
    dropout : a Dropout of the probabilities
    """
    mask = None
    if cache is not None:
        k, v, mask = cache.extend(layer, k, v)
    (b, h, t, d), groups = q.shape, k.shape[1]
    if groups == h:
        return _weighted(q, k, v, mask, t > 1, dropout)
    if t == 1:  # the heads of a group are rows of one matrix
        return _weighted(q.reshape((b, groups, h // groups, d)), k, v, mask, False, dropout).reshape((b, h, 1, d))
    k, v = (x.reshape((b, groups, 1, *x.shape[2:])) for x in (k, v))
    mask = None if mask is None else mask.reshape((b, 1, 1, 1, -1))
    return _weighted(q.reshape((b, groups, h // groups, t, d)), k, v, mask, True, dropout).reshape((b, h, t, d))


def _weighted(q: Any, k: Any, v: Any, mask: Any, causal: bool, dropout: Any) -> Any:
    if dropout is None or not (dropout.training and dropout.p):
        return ops.scaled_dot_product_attention(q, k, v, mask, causal)
    return dropout(ops.attention_probabilities(q, k, mask, causal)) @ v


def last_only(x: Any) -> Any:
    """The last time alone: (B, T, C) -> (B, 1, C)"""
    return x[:, x.shape[1] - 1 :]


def ids_of(model: Any, ids: Any, context: int, cache: Any = None) -> Any:
    """ids as something with a shape, (B, T), which must end within the context."""
    ids = ids if hasattr(ids, "shape") else np.asarray(ids)
    before = 0 if cache is None else cache.length
    if len(ids.shape) != 2 or not ids.shape[1] or before + ids.shape[1] > context:
        after = f" after {before} others" if before else ""
        expected = f"(B, T), T from 1 to {context - before}"
        raise ValueError(f"{type(model).__name__}: ids have shape {tuple(ids.shape)}{after}, expected {expected}")
    return ids
