"""Models, optimizers and one train step of each in Needle."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import needle as ndl
from benchmarks.workloads import DROP, LR, batch_of, draw, kind_of, sizes
from needle_nn import nn, optim
from needle_nn.models import LanguageModel, LeNet, MLPResNet, ResNet9


def build(model: str, drop: float = 0.0) -> Any:
    """The model with the weights it has in all frameworks."""
    made: Any
    if model in ("mlp", "deep"):
        widths, act = ((2, 16, 16, 1), nn.Tanh) if model == "mlp" else ((512,) * 21, nn.ReLU)
        parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), act())]
        made = nn.Sequential(*(parts[:-1] if model == "mlp" else parts))
    elif model in ("mlpresnet", "lenet", "resnet9"):
        kinds: dict[str, Any] = {"lenet": LeNet, "resnet9": ResNet9}
        made = MLPResNet(784, drop_prob=drop) if model == "mlpresnet" else kinds[model]()
    else:
        kind, (words, embedding, hidden, layers, steps) = sizes(model)
        made = LanguageModel(embedding, words, hidden, layers, kind, steps)
    rng = np.random.default_rng(0)
    state = {name: draw(rng, kind_of(name, p.ndim), p.shape) for name, p in made.named_parameters()}
    made.load_state_dict(state, strict=False)
    return made


def logits(model: Any, x: Any) -> Any:
    out = model(x)
    return out[0] if isinstance(out, tuple) else out


def train(name: str, batch: int, random: bool = True, device: Any = None) -> Callable[[], Any]:
    """A function that does a step and returns the loss."""
    device = device or ndl.cpu()
    model = build(name, DROP if random else 0.0).to(device)
    squares = name in LR
    loss_of = nn.MSELoss() if squares else nn.SoftmaxLoss()
    update = optim.SGD(model.parameters(), lr=LR[name]) if squares else optim.Adam(model.parameters(), lr=1e-3)
    x, y = (ndl.Tensor(a, device=device, requires_grad=False) for a in batch_of(name, batch))

    def step() -> Any:
        update.reset_grad()
        loss = loss_of(logits(model, x), y)
        loss.backward()
        update.step()
        return loss

    return step


def infer(name: str, batch: int = 1) -> Callable[[], Any]:
    """A function that computes the logits of a batch."""
    model = build(name).eval()
    x = ndl.Tensor(batch_of(name, batch)[0], requires_grad=False)

    def run() -> Any:
        with ndl.no_grad():
            return logits(model, x)

    return run


def optimizer(kind: str, shapes: list[tuple[int, ...]]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A step of an optimizer with gradients that stay, and a function that returns the parameters."""
    rng = np.random.default_rng(0)
    params = [ndl.Tensor(draw(rng, "matrix", s)) for s in shapes]
    for p in params:
        p.grad = ndl.Tensor(draw(rng, "matrix", p.shape), requires_grad=False)
    made: Any = {
        "sgd": lambda: optim.SGD(params, lr=1e-3),
        "momentum": lambda: optim.SGD(params, lr=1e-3, momentum=0.9, dampening=0.0),
        "adam": lambda: optim.Adam(params, lr=1e-3),
        "adamw": lambda: optim.AdamW(params, lr=1e-3, weight_decay=0.01),
    }[kind]()
    return made.step, lambda: params
