"""The same in PyTorch eager, as it is best written there: keys and values written into buffers, weights as nn.Linear has them."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.workloads import GPT2_BEFORE, GPT2_PROMPT, gpt2_ids, gpt2_weights

LAYERS, HEADS, WIDTH = 12, 12, 768


class Block(nn.Module):
    """Attention and a perceptron, each after a norm"""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x: Any, cache: Any, before: int) -> Any:
        b, t, c = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).chunk(3, -1)
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in parts)
        for held, new in zip(cache, (k, v), strict=True):
            held[:, :, before : before + t] = new
        keys, values = (held[:, :, : before + t] for held in cache)
        y = F.scaled_dot_product_attention(q, keys, values, is_causal=t > 1)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Ids (B, T) after those in the caches -> logits of the last"""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50257, WIDTH), nn.Embedding(1024, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, 50257, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Any, caches: Any, before: int) -> Any:
        x = self.wte(ids) + self.wpe.weight[before : before + ids.shape[1]]
        for block, cache in zip(self.h, caches, strict=True):
            x = block(x, cache, before)
        return self.lm_head(self.ln_f(x[:, -1:]))


def build(weights: str = "float32") -> GPT2:
    """Weights are float32, bfloat16 (and so is all else), or bytes (and so is what meets them, as its eager mode has it)."""
    model = GPT2().eval()
    there = {f"transformer.{name}": p for name, p in model.named_parameters()}
    maps = {name for name, p in there.items() if ".c_" in name and p.ndim == 2}  # (in, out) in files
    shapes = {name: tuple(p.shape[::-1] if name in maps else p.shape) for name, p in there.items()}
    with torch.no_grad():
        for name, values in gpt2_weights(shapes).items():
            there[name].copy_(torch.from_numpy(values.T if name in maps else values))
    if weights == "bytes":
        with warnings.catch_warnings():  # it has moved to a package of its own
            warnings.simplefilter("ignore")
            return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    return model.to(getattr(torch, weights))


def caches(length: int, dtype: Any = torch.float32) -> list[tuple[Any, Any]]:
    shape = (1, HEADS, length, WIDTH // HEADS)
    return [(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype)) for _ in range(LAYERS)]


def decode(weights: str = "float32") -> Callable[[], Any]:
    model, (first, last) = build(weights), GPT2_BEFORE
    held, token, length = caches(last + 1, model.ln_f.weight.dtype), torch.tensor([[7]]), first
    with torch.inference_mode():
        model(torch.from_numpy(gpt2_ids(first)), held, 0)

    def step() -> Any:
        nonlocal length
        with torch.inference_mode():
            logits = model(token, held, length)
        length = first if length >= last else length + 1
        return logits

    return step


def prefill() -> Callable[[], Any]:
    model, ids = build(), torch.from_numpy(gpt2_ids(GPT2_PROMPT))

    def step() -> Any:
        with torch.inference_mode():
            return model(ids, caches(GPT2_PROMPT), 0)

    return step
