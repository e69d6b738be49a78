"""Keys and values of the tokens so far, so that a new token is computed alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from needle import Tensor
from needle_ndarray import empty


class KVCache:
    """Keys and values (B, heads, tokens, width) of every layer, for `capacity` tokens at most.

    Parameters
    ----------
    layers : how many there are
    capacity : tokens that there is memory for; it is taken when the first keys come
    padding : for each sequence, how many tokens at its beginning stand for nothing: prompts of different lengths end together

    A model asks for `positions`, hands the keys and values of each layer to `extend`, and tells how many tokens it has seen:

    >>> import needle as ndl
    >>> cache = KVCache(layers=1, capacity=8)
    >>> for t in (3, 1):
    ...     with ndl.no_grad():
    ...         k, v, mask = cache.extend(0, ndl.ones(1, 2, t, 4), ndl.ones(1, 2, t, 4))
    ...     cache.advance(t)
    ...     k.shape, cache.length, mask
    ((1, 2, 3, 4), 3, None)
    ((1, 2, 4, 4), 4, None)
    """

    def __init__(self, layers: int, capacity: int, padding: Sequence[int] | None = None) -> None:
        if layers < 1 or capacity < 1:
            raise ValueError(f"KVCache: {layers} layers, capacity {capacity}: expected 1 or more")
        self.capacity, self.length = capacity, 0
        self.padding = None if padding is None or not np.any(padding) else np.asarray(padding, np.int64)
        self._held: list[Any] = [None] * layers  # of (keys, values), with room for `capacity`
        self._mask: Tensor | None = None

    def positions(self, t: int) -> Any:
        """Positions of the next t tokens: a slice, or (B, t) where sequences have padding, whose positions are 0."""
        if self.padding is None:
            return slice(self.length, self.length + t)
        columns = np.arange(self.length, self.length + t)
        return np.maximum(columns - self.padding[:, None], 0)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values of a layer with those of new tokens at their end, and a mask of what is no padding, or None."""
        b, h, t, d = k.shape
        if k.requires_grad or v.requires_grad:
            raise ValueError("KVCache: keys and values require gradients; compute under needle.no_grad()")
        if self.length + t > self.capacity:
            raise ValueError(f"KVCache: {self.length} + {t} tokens, but its capacity is {self.capacity}")
        if self._held[layer] is None:
            shapes = (b, h, self.capacity, d), (b, h, self.capacity, v.shape[-1])
            self._held[layer] = tuple([empty(shape, str(k.dtype), k.device) for shape in shapes])
        keys, values = self._held[layer]
        if keys.shape[:2] != (b, h):
            raise ValueError(f"KVCache: keys of {b} sequences and {h} heads, layer {layer} has {keys.shape[:2]}")
        end = self.length + t
        for held, new in ((keys, k), (values, v)):
            held[:, :, self.length : end] = new.realize_cached_data()
        seen = [Tensor.make_const(held[:, :, :end]) for held in (keys, values)]
        return seen[0], seen[1], self._seen(end, k.device)

    def _seen(self, end: int, device: Any) -> Tensor | None:
        """True where a column is no padding: (B, 1, 1, end). All layers share it."""
        if self.padding is None:
            return None
        if self._mask is None or self._mask.shape[-1] != end:
            seen = np.arange(end) >= self.padding[:, None]
            self._mask = Tensor(seen[:, None, None], device=device, dtype="bool", requires_grad=False)
        return self._mask

    def advance(self, t: int) -> None:
        """All layers have seen t more tokens."""
        self.length += t
