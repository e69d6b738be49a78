"""Is a line code or prose? A bidirectional GRU over characters, of lines of different lengths."""

import argparse
import inspect
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
from needle.data import DataLoader, Dataset, random_split, stdlib_docstrings
from needle.nn.utils.rnn import pack_padded_sequence, pad_sequence


class Lines(Dataset):
    """(ids of characters, 0 for prose or 1 for code), from Python's own documentation and sources."""

    def __init__(self, count: int, rng: np.random.Generator, longest: int = 60) -> None:
        super().__init__()
        prose = [line.strip() for line in stdlib_docstrings()[:400_000].splitlines()]
        code = [
            line.strip()
            for module in (argparse, inspect, np.ma.core)
            for line in inspect.getsource(module).splitlines()
        ]
        code = [line for line in code if "=" in line or "(" in line or line.endswith(":")]
        self.items = []
        for label, lines in enumerate((prose, code)):
            lines = [line[:longest] for line in lines if len(line) > 10 and line.isascii()]
            self.items += [(line, label) for line in rng.choice(lines, count // 2)]

    def __getitem__(self, i: int) -> Any:
        line, label = self.items[i]
        return np.frombuffer(line.encode(), np.uint8).astype("int64"), label

    def __len__(self) -> int:
        return len(self.items)


def collate(items: list[tuple[np.ndarray, int]]) -> Any:
    lines, labels = zip(*items, strict=True)
    padded = pad_sequence([ndl.Tensor(line) for line in lines], batch_first=True)
    return padded, np.array([len(line) for line in lines]), np.array(labels)


class Classifier(nn.Module):
    def __init__(self, width: int = 16, hidden: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, width, padding_idx=0)
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.output = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * hidden, 2))

    def forward(self, ids: ndl.Tensor, lengths: np.ndarray) -> Any:
        packed = pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)  # (2, B, hidden)
        return self.output(ndl.concatenate([last[0], last[1]], 1))


def main(steps: int = 100, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights and the order are drawn from
    train, test = random_split(Lines(2000, np.random.default_rng(seed)), [0.8, 0.2], seed=seed)
    loader = DataLoader(train, 32, shuffle=True, collate_fn=collate)
    model, criterion = Classifier(), nn.CrossEntropyLoss()
    optimizer = ndl.optim.NAdam(model.parameters(), lr=5e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for ids, lengths, labels in loader:
            loss = criterion(model(ids, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    model.eval()
    with ndl.no_grad():
        right = [
            model(ids, n).numpy().argmax(1) == y.numpy() for ids, n, y in DataLoader(test, 100, collate_fn=collate)
        ]
    accuracy = np.concatenate(right).mean()
    print(f"loss {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}; right for {accuracy:.1%} of lines it has not seen")
    return losses, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
