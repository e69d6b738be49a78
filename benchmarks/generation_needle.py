"""GPT-2 of 124 million parameters in Needle: a token beside a cache, and a prompt at once."""

from collections.abc import Callable
from typing import Any

import numpy as np

import needle as ndl
from benchmarks.workloads import GPT2_BEFORE, GPT2_PROMPT, gpt2_ids, gpt2_weights
from needle_nn import nn
from needle_nn.generation import KVCache
from needle_nn.interop import from_torch, pairs
from needle_nn.models import GPT2


def build(weights: str = "float32") -> GPT2:
    """Weights are float32, bfloat16, or bytes with scales."""
    with ndl.init.without_draws():
        model = GPT2()
    shapes = {pair.name: pair.shape for pair in pairs(model)}
    from_torch(model, gpt2_weights(shapes)).eval()
    return nn.quantize(model, embeddings=True) if weights == "bytes" else model.to(weights)


def decode(weights: str = "float32") -> Callable[[], Any]:
    """A function that computes the logits after one more token; at the end of the range it goes back to its beginning."""
    model, (first, last) = build(weights), GPT2_BEFORE
    cache, token = KVCache(model.num_layers, last + 1), np.array([[7]])
    with ndl.no_grad():
        model(gpt2_ids(first), cache=cache, last=True)

    def step() -> Any:
        with ndl.no_grad():
            logits = model(token, cache=cache, last=True)
        cache.length = first if cache.length > last else cache.length
        return logits

    return step


def prefill() -> Callable[[], Any]:
    """A function that computes the logits after a prompt, and fills a cache."""
    model, ids = build(), gpt2_ids(GPT2_PROMPT)

    def step() -> Any:
        with ndl.no_grad():
            return model(ids, cache=KVCache(model.num_layers, GPT2_PROMPT), last=True)

    return step
