"""The loaders of text that recipes use: every batch once, and on from any position."""

import json

import numpy as np
import pytest

from needle import Tensor
from needle_nn.command.loaders import Chunks, Stretches
from needle_nn.data import CharCorpus
from needle_nn.training import Carried

TEXT = "".join(np.random.RandomState(0).choice(list("abcdefgh "), 400))
LOADERS = {
    "stretches": lambda: Stretches(CharCorpus(TEXT), 10, 2, 5, seed=3),
    "validation": lambda: Stretches(CharCorpus(TEXT), 10, 2, 5, seed=3, split="validation"),
    "chunks": lambda: Chunks(np.arange(101) % 7, 4, 5),
    "chunks in parts": lambda: Chunks(np.arange(101) % 7, 2, 5, steps_of=2),
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


def test_parts_of_a_step_are_columns():
    """Side by side, the batches of a step are the batch of one wide loader; all of a pass's first step begin."""
    ids = np.random.RandomState(0).randint(0, 9, 200)
    wide, parts = list(Chunks(ids, 6, 5)), list(Chunks(ids, 2, 5, steps_of=3))
    assert len(parts) == 3 * len(wide)
    for step, ((x, begins), y) in enumerate(wide):
        own = parts[3 * step : 3 * step + 3]
        np.testing.assert_array_equal(np.concatenate([x.numpy() for (x, _), _ in own], 1), x.numpy())
        joined = np.concatenate([y.numpy().reshape(-1, 2) for _, y in own], 1)
        np.testing.assert_array_equal(joined, y.numpy().reshape(-1, 6))
        assert [begin for (_, begin), _ in own] == [begins] * 3


@pytest.mark.parametrize("parts", [1, 3])
def test_each_part_carries_a_state_of_its_own(parts):
    carried = Carried()
    for part in range(parts):
        carried.part = part
        carried.set(True, (Tensor([float(part)]), Tensor([1.0]) * 2))
    carried.set(False, Tensor([9.0]))
    again = Carried()
    again.load_state_dict(carried.state_dict())
    assert list(carried.state_dict()) == (["train"] if parts == 1 else ["parts"])
    for part in range(parts):
        again.part = part
        assert again.get(True)[0].item() == part and again.get(True)[1].is_leaf()
    assert again.get(False) is None and carried.get(False).item() == 9
