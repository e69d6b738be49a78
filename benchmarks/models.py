"""Train steps of whole models, the same in every framework: `build(framework, name)` returns a function that does one step.

Weights are the same numbers everywhere, and so are the losses: `python benchmarks/models.py` prints them side by side.
"""

import sys
from collections.abc import Callable
from typing import Any

import networks
import numpy as np

LR = 0.01


def weights(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=s) * (1.4 / s[0] ** 0.5 if len(s) > 1 else 0)).astype(np.float32) for s in shapes]


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


# ---- 2-16-16-1, batch 32, squared error, SGD: all overhead ---------------------------------------------------

MLP = [(2, 16), (16,), (16, 16), (16,), (16, 1), (1,)]


def mlp_needle() -> Callable[[], Any]:
    import needle as ndl

    params = [ndl.Tensor(w) for w in weights(*MLP)]
    x, y = (ndl.Tensor(data(32, n), requires_grad=False) for n in (2, 1))

    def step():
        w1, b1, w2, b2, w3, b3 = params
        h = ndl.tanh(x @ w1 + b1)
        h = ndl.tanh(h @ w2 + b2)
        apart = h @ w3 + b3 - y
        loss = (apart * apart).mean()
        loss.backward()
        for p in params:  # in place, on the arrays: nothing to record
            weight = p.realize_cached_data()
            weight -= p.grad.realize_cached_data() * LR
        return loss

    return step


def mlp_torch() -> Callable[[], Any]:
    import torch

    params = [torch.from_numpy(w).requires_grad_() for w in weights(*MLP)]
    x, y = (torch.from_numpy(data(32, n)) for n in (2, 1))
    sgd = torch.optim.SGD(params, lr=LR)

    def step():
        w1, b1, w2, b2, w3, b3 = params
        h = torch.tanh(x @ w1 + b1)
        h = torch.tanh(h @ w2 + b2)
        loss = ((h @ w3 + b3 - y) ** 2).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        return loss

    return step


def mlp_jax() -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(data(32, n)) for n in (2, 1))
    params = [jnp.asarray(w) for w in weights(*MLP)]

    def loss_of(params):
        w1, b1, w2, b2, w3, b3 = params
        h = jnp.tanh(x @ w1 + b1)
        h = jnp.tanh(h @ w2 + b2)
        return ((h @ w3 + b3 - y) ** 2).mean()

    @jax.jit
    def update(params):
        loss, grads = jax.value_and_grad(loss_of)(params)
        return loss, [p - LR * g for p, g in zip(params, grads, strict=True)]

    def step():
        nonlocal params
        loss, params = update(params)
        return loss.block_until_ready()

    return step


# ---- 20 layers of 512, batch 2048: forward and backward, for memory ------------------------------------------

DEEP = [(512, 512), (512,)] * 20


def deep_needle() -> Callable[[], Any]:
    import needle as ndl

    params = [ndl.Tensor(w) for w in weights(*DEEP)]
    x = ndl.Tensor(data(2048, 512), requires_grad=False)

    def step():
        h = x
        for w, b in zip(params[::2], params[1::2], strict=True):
            h = ndl.relu(h @ w + b)
        loss = (h * h).mean()
        del h
        loss.backward()
        return loss

    return step


def deep_torch() -> Callable[[], Any]:
    import torch

    params = [torch.from_numpy(w).requires_grad_() for w in weights(*DEEP)]
    x = torch.from_numpy(data(2048, 512))

    def step():
        for p in params:
            p.grad = None
        h = x
        for w, b in zip(params[::2], params[1::2], strict=True):
            h = torch.relu(h @ w + b)
        loss = (h * h).mean()
        del h
        loss.backward()
        return loss

    return step


# ---- 4 transformer blocks of width 256, 8 heads, batch 8 of 256 tokens, 1000 classes ------------------------------------------

WIDTH, HEADS, TOKENS, BATCH, CLASSES = 256, 8, 256, 8, 1000
BLOCK = [
    (WIDTH,),
    (WIDTH,),
    (WIDTH, 3 * WIDTH),
    (WIDTH, WIDTH),
    (WIDTH,),
    (WIDTH,),
    (WIDTH, 4 * WIDTH),
    (4 * WIDTH, WIDTH),
]
TRANSFORMER = BLOCK * 4 + [(WIDTH, CLASSES)]


def transformer_weights() -> list[np.ndarray]:
    return [w + (1 if w.ndim == 1 and i % 8 in (0, 4) else 0) for i, w in enumerate(weights(*TRANSFORMER))]


def transformer_labels() -> np.ndarray:
    return np.random.default_rng(2).integers(0, CLASSES, BATCH * TOKENS)


def transformer_needle() -> Callable[[], Any]:
    import needle as ndl
    from needle import ops

    params = [ndl.Tensor(w) for w in transformer_weights()]
    x = ndl.Tensor(data(BATCH, TOKENS, WIDTH), requires_grad=False)
    labels = ndl.Tensor(transformer_labels(), requires_grad=False)

    def heads(h):  # (B, T, 3C) -> three of (B, H, T, C/H)
        parts = h.reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        return parts[0], parts[1], parts[2]

    def step():
        h = x
        for i in range(0, len(params) - 1, 8):
            g1, b1, qkv, out, g2, b2, up, down = params[i : i + 8]
            mixed = ops.scaled_dot_product_attention(*heads(ops.layer_norm(h, g1, b1) @ qkv), causal=True)
            h = h + mixed.permute(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH) @ out
            h = h + ops.relu(ops.layer_norm(h, g2, b2) @ up) @ down
        loss = ops.cross_entropy((h @ params[-1]).reshape(-1, CLASSES), labels)
        del h
        loss.backward()
        return loss

    return step


def transformer_torch() -> Callable[[], Any]:
    import torch
    import torch.nn.functional as F

    params = [torch.from_numpy(w).requires_grad_() for w in transformer_weights()]
    x = torch.from_numpy(data(BATCH, TOKENS, WIDTH))
    labels = torch.from_numpy(transformer_labels())

    def step():
        for p in params:
            p.grad = None
        h = x
        for i in range(0, len(params) - 1, 8):
            g1, b1, qkv, out, g2, b2, up, down = params[i : i + 8]
            parts = (F.layer_norm(h, (WIDTH,), g1, b1) @ qkv).reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
            mixed = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
            h = h + mixed.permute(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH) @ out
            h = h + torch.relu(F.layer_norm(h, (WIDTH,), g2, b2) @ up) @ down
        loss = F.cross_entropy((h @ params[-1]).reshape(-1, CLASSES), labels)
        del h
        loss.backward()
        return loss

    return step


def build(framework: str, name: str) -> Callable[[], Any]:
    made = globals().get(f"{name}_{framework}")
    return made() if made else getattr(networks, framework)(name)


if __name__ == "__main__":
    for name in ("mlp", "deep", "transformer"):
        for framework in sys.argv[1:] or ("needle",):
            if f"{name}_{framework}" in globals():
                step = build(framework, name)
                print(name, framework, [round(float(step()), 5) for _ in range(3)])
