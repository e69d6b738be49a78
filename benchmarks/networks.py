"""Train steps of the models of needle_nn with Adam beside the same networks in PyTorch; used by models.py."""

from collections.abc import Callable
from typing import Any

import numpy as np

#: name: (words, embedding, hidden, layers, steps, batch)
LANGUAGE = {"small": (1000, 64, 128, 1, 20, 16), "ptb": (10000, 200, 200, 2, 35, 20)}


def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a step."""
    rng = np.random.default_rng(0)
    if name == "mlpresnet":
        return rng.normal(size=(100, 784)).astype(np.float32), rng.integers(0, 10, 100)
    if name == "resnet9":
        return rng.normal(size=(128, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, 128)
    words, _, _, _, steps, size = LANGUAGE[name.split("_")[1]]
    ids = rng.integers(0, words, (steps + 1, size))
    return ids[:-1], ids[1:].reshape(-1)


def needle(name: str) -> Callable[[], Any]:
    import needle as ndl
    from needle_nn.models import LanguageModel, MLPResNet, ResNet9

    if name == "mlpresnet":
        model = MLPResNet(784, 100)
    elif name == "resnet9":
        model = ResNet9()
    else:
        kind, size = name.split("_")
        words, embedding, hidden, layers, steps, _ = LANGUAGE[size]
        model = LanguageModel(embedding, words, hidden, layers, kind, steps)
    optimizer, loss_of = ndl.optim.Adam(model.parameters(), lr=1e-3), ndl.nn.SoftmaxLoss()
    x, y = (ndl.Tensor(a, requires_grad=False) for a in batch(name))

    def step():
        out = model(x)
        loss = loss_of(out[0] if isinstance(out, tuple) else out, y)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def torch_model(name: str) -> Any:
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, *parts):
            super().__init__()
            self.inner = nn.Sequential(*parts)

        def forward(self, x):
            return x + self.inner(x)

    if name == "mlpresnet":
        blocks = []
        for _ in range(3):
            parts = (
                nn.Linear(100, 50),
                nn.BatchNorm1d(50),
                nn.ReLU(),
                nn.Dropout(0.1),
                nn.Linear(50, 100),
                nn.BatchNorm1d(100),
            )
            blocks += [Residual(*parts), nn.ReLU()]
        return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), *blocks, nn.Linear(100, 10))
    if name == "resnet9":

        def block(a, b, k, s):
            return nn.Sequential(nn.Conv2d(a, b, k, s, (k - 1) // 2), nn.BatchNorm2d(b), nn.ReLU())

        return nn.Sequential(
            block(3, 16, 7, 4), block(16, 32, 3, 2), Residual(block(32, 32, 3, 1), block(32, 32, 3, 1)),
            block(32, 64, 3, 2), block(64, 128, 3, 2), Residual(block(128, 128, 3, 1), block(128, 128, 3, 1)),
            nn.Flatten(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10),
        ).to(memory_format=torch.channels_last)  # fmt: skip
    kind, size = name.split("_")
    words, embedding, hidden, layers, steps, _ = LANGUAGE[size]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(embedding) for _ in range(3)])
            self.maps = nn.ModuleList([nn.Linear(embedding, 256, bias=False) for _ in range(3)])
            self.out = nn.Linear(256, embedding, bias=False)

        def forward(self, x):  # (B, T, C)
            b, t, _ = x.shape
            heads = [m(n(x)).reshape(b, t, 8, 32).transpose(1, 2) for n, m in zip(self.norms, self.maps, strict=True)]
            y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(b, t, 256))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(words, embedding)
            if kind == "lstm":
                self.body = nn.LSTM(embedding, hidden, layers)
            else:
                self.positions = nn.Embedding(steps, embedding)
                mlp = nn.LayerNorm(embedding), nn.Linear(embedding, hidden), nn.ReLU(), nn.Linear(hidden, embedding)
                self.body = nn.Sequential(
                    *[nn.Sequential(Residual(Attention()), Residual(*mlp)) for _ in range(layers)]
                )
            self.linear = nn.Linear(hidden if kind == "lstm" else embedding, words)

        def forward(self, ids):
            x = self.embedding(ids)
            if kind == "lstm":
                y, _ = self.body(x)
            else:
                y = self.body(x.transpose(0, 1) + self.positions.weight[: len(ids)]).transpose(0, 1)
            return self.linear(y.reshape(-1, y.shape[-1]))

    return Model()


def torch(name: str) -> Callable[[], Any]:
    import torch

    model = torch_model(name)
    optimizer, loss_of = torch.optim.Adam(model.parameters(), lr=1e-3), torch.nn.CrossEntropyLoss()
    x, y = (torch.from_numpy(a) for a in batch(name))
    if name == "resnet9":
        x = x.to(memory_format=torch.channels_last)

    def step():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step
