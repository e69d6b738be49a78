"""The loaders of text that recipes use: every batch once, and on from any position."""

import json

import numpy as np
import pytest

from needle_nn.command.loaders import Chunks, Stretches
from needle_nn.data import CharCorpus

TEXT = "".join(np.random.RandomState(0).choice(list("abcdefgh "), 400))
LOADERS = {
    "stretches": lambda: Stretches(CharCorpus(TEXT), 10, 2, 5, seed=3),
    "validation": lambda: Stretches(CharCorpus(TEXT), 10, 2, 5, seed=3, split="validation"),
    "chunks": lambda: Chunks(np.arange(101) % 7, 4, 5),
}


def values(batch):
    x, y = batch
    ids, begins = x if isinstance(x, tuple) else (x, None)
    return ids.numpy().tolist(), begins, y.numpy().tolist()


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_go_on_where_they_were(name):
    whole = LOADERS[name]()
    passes = [[values(batch) for batch in whole] for _ in range(3)]
    assert all(len(each) == len(whole) for each in passes)
    assert (passes[0] == passes[1]) == (name != "stretches")
    for cut in range(len(whole) + 1):
        first, second = LOADERS[name](), LOADERS[name]()
        assert [values(batch) for batch in first] == passes[0]
        batches = iter(first)
        done = [values(next(batches)) for _ in range(cut)]
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert done + [values(batch) for batch in second] == passes[1] if cut else True
        if cut:
            assert [values(batch) for batch in second] == passes[2]


def test_chunks_follow_one_another():
    """Column by column the inputs are the text, and targets the words after them; only the first begins."""
    batches = [values(batch) for batch in Chunks(np.arange(41), 2, 6)]
    rows = [row for ids, _, _ in batches for row in ids]
    assert [row[0] for row in rows] == list(range(19)) and [row[1] for row in rows] == list(range(20, 39))
    assert [word for _, _, y in batches for word in y] == [value + 1 for row in rows for value in row]
    assert [begins for _, begins, _ in batches] == [True, False, False, False]
