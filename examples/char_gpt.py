"""A small GPT writes Python documentation, character by character."""

import argparse
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
import needle.nn.functional as F
from needle.data import CharCorpus, stdlib_docstrings


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int = 64, heads: int = 4, layers: int = 2, context: int = 64) -> None:
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self.init_weights)

    def init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids: ndl.Tensor) -> Any:  # (B, T) -> (B, T, vocabulary)
        x = self.tokens(ids) + self.positions(ndl.Tensor(np.arange(ids.shape[1])))
        return self.head(self.blocks(x, is_causal=True))

    def generate(self, ids: list[int], count: int, rng: np.random.Generator) -> list[int]:
        self.eval()
        with ndl.no_grad():
            for _ in range(count):
                logits = self(ndl.Tensor(np.array([ids[-self.context :]])))[0, -1]
                p = F.softmax(logits, dim=-1).numpy().astype("float64")
                ids = [*ids, rng.choice(len(p), p=p / p.sum())]
        self.train()
        return ids


def main(steps: int = 300, batch: int = 16, context: int = 64, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights are drawn from
    rng = np.random.default_rng(seed)
    corpus = CharCorpus(stdlib_docstrings()[:500_000])
    model = GPT(len(corpus), context=context)
    optimizer = ndl.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    scheduler = ndl.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses: list[float] = []
    for step in range(steps):
        starts = rng.integers(0, len(corpus.train) - context - 1, batch)
        text = np.stack([corpus.train[i : i + context + 1] for i in starts])
        logits = model(ndl.Tensor(text[:, :-1]))
        loss = F.cross_entropy(logits.reshape((-1, len(corpus))), ndl.Tensor(text[:, 1:].reshape(-1)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step}: loss {losses[-1]:.3f}")
    print(corpus.decode(model.generate(corpus.encode("Return ").tolist(), 100, rng)))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
