"""The same in PyTorch, as it is best written there: channels_last images, nn.LSTM, scaled_dot_product_attention, gradients set to
None, Adam with `fused=True` and SGD with `foreach=True`, which are their quickest forms on a CPU."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.workloads import DROP, LR, batch_of, draw, kind_of, sizes


class Residual(nn.Module):
    """y = x + f(x)"""

    def __init__(self, *parts: nn.Module):
        super().__init__()
        self.inner = nn.Sequential(*parts)

    def forward(self, x):
        return x + self.inner(x)


class Attention(nn.Module):
    """8 heads of 32, causal, of three norms of x: (B, T, C) -> (B, T, C)"""

    def __init__(self, features: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(features) for _ in range(3)])
        self.maps = nn.ModuleList([nn.Linear(features, 256, bias=False) for _ in range(3)])
        self.out = nn.Linear(256, features, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        heads = [m(n(x)).reshape(b, t, 8, 32).transpose(1, 2) for n, m in zip(self.norms, self.maps, strict=True)]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, 256))


class Transformer(nn.Module):
    """(T, B, C) and learned positions through layers of attention and perceptron"""

    def __init__(self, features: int, hidden: int, layers: int, steps: int):
        super().__init__()
        self.embedding = nn.Embedding(steps, features)
        self.layers = nn.Sequential(
            *[
                nn.Sequential(
                    Residual(Attention(features)),
                    Residual(
                        nn.LayerNorm(features), nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, features)
                    ),
                )
                for _ in range(layers)
            ]
        )

    def forward(self, x):
        return self.layers(x.transpose(0, 1) + self.embedding.weight[: len(x)]).transpose(0, 1), None


class LanguageModel(nn.Module):
    """Word ids (T, B) -> logits (T B, words)"""

    def __init__(self, kind: str, words: int, embedding: int, hidden: int, layers: int, steps: int):
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        if kind == "transformer":
            self.body: nn.Module = Transformer(embedding, hidden, layers, steps)
        else:
            self.body = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](embedding, hidden, layers)
        self.linear = nn.Linear(embedding if kind == "transformer" else hidden, words)

    def forward(self, ids):
        y, _ = self.body(self.embedding(ids))
        return self.linear(y.reshape(-1, y.shape[-1]))


def perceptron(widths: tuple[int, ...], act: type[nn.Module], last: bool) -> nn.Module:
    parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*(parts if last else parts[:-1]))


def mlp_resnet(drop: float) -> nn.Module:
    def block() -> list[nn.Module]:
        first = [nn.Linear(100, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Dropout(drop)]
        return [Residual(*first, nn.Linear(50, 100), nn.BatchNorm1d(100)), nn.ReLU()]

    blocks = [part for _ in range(3) for part in block()]
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), *blocks, nn.Linear(100, 10))


def lenet() -> nn.Module:
    first = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    maps = [nn.Linear(784, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*first, *second, *maps)


def resnet9() -> nn.Module:
    def block(a: int, b: int, k: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, k, stride, (k - 1) // 2), nn.BatchNorm2d(b), nn.ReLU())

    return nn.Sequential(
        block(3, 16, 7, 4), block(16, 32, 3, 2), Residual(block(32, 32, 3, 1), block(32, 32, 3, 1)),
        block(32, 64, 3, 2), block(64, 128, 3, 2), Residual(block(128, 128, 3, 1), block(128, 128, 3, 1)),
        nn.Flatten(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def load(model: nn.Module) -> nn.Module:
    """Give the model the weights it has in all frameworks; they are drawn as Needle keeps them, outputs last."""
    rng = np.random.default_rng(0)
    orders = {2: (1, 0), 4: (2, 3, 1, 0)}  # (out, in) -> (in, out);  (out, in, kh, kw) -> (kh, kw, in, out)
    with torch.no_grad():
        for name, p in model.named_parameters():
            kind = kind_of(name, p.ndim)
            there = p.permute(orders[p.ndim]) if kind == "matrix" else p
            there.copy_(torch.from_numpy(draw(rng, kind, tuple(there.shape))))
    return model


def build(name: str, drop: float = 0.0) -> nn.Module:
    if name == "mlp":
        return load(perceptron((2, 16, 16, 1), nn.Tanh, False))
    if name == "deep":
        return load(perceptron((512,) * 21, nn.ReLU, True))
    if name in ("mlpresnet", "lenet", "resnet9"):
        made = {"mlpresnet": lambda: mlp_resnet(drop), "lenet": lenet, "resnet9": resnet9}[name]()
        return load(made).to(memory_format=torch.channels_last)
    kind, numbers = sizes(name)
    return load(LanguageModel(kind, *numbers))


def inputs(name: str, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = (torch.from_numpy(a) for a in batch_of(name, batch))
    return (x.to(memory_format=torch.channels_last) if x.ndim == 4 else x), y


def train(name: str, batch: int, random: bool = True, compiled: bool = False) -> Callable[[], Any]:
    """A function that does a step and returns the loss."""
    model = build(name, DROP if random else 0.0)
    criterion: Any = nn.MSELoss() if name in LR else nn.CrossEntropyLoss()
    update = made_optimizer("sgd" if name in LR else "adam", list(model.parameters()), LR.get(name, 1e-3))
    x, y = inputs(name, batch)

    def forward(x, y):
        return criterion(model(x), y)

    loss_of = torch.compile(forward) if compiled else forward

    def step() -> Any:
        update.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        update.step()
        return loss

    return step


def infer(name: str, compiled: bool = False, batch: int = 1) -> Callable[[], Any]:
    """A function that computes the logits of a batch."""
    model: Any = build(name).eval()
    model = torch.compile(model) if compiled else model
    x, _ = inputs(name, batch)

    def run() -> Any:
        with torch.inference_mode():
            return model(x)

    return run


def made_optimizer(kind: str, params: list[Any], lr: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(params, lr=lr, fused=True)
    if kind == "adamw":
        return torch.optim.AdamW(params, lr=lr, weight_decay=0.01, fused=True)
    return torch.optim.SGD(params, lr=lr, momentum=0.9 if kind == "momentum" else 0.0, foreach=True)


def optimizer(kind: str, shapes: list[tuple[int, ...]]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A step of an optimizer with gradients that stay, and a function that returns the parameters."""
    rng = np.random.default_rng(0)
    params = [torch.from_numpy(draw(rng, "matrix", s)).requires_grad_() for s in shapes]
    for p in params:
        p.grad = torch.from_numpy(draw(rng, "matrix", tuple(p.shape)))
    return made_optimizer(kind, params, 1e-3).step, lambda: params
