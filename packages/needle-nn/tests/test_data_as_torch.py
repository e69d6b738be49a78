"""Within compat("torch") a DataLoader makes the batches that PyTorch makes; default_collate does so everywhere."""

from collections import namedtuple

import numpy as np
import pytest

import needle as ndl
from needle_ndarray.testing import each
from needle_nn.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

Pair = namedtuple("Pair", "image label")
#: Datasets, as functions of the index and of the framework.
ITEMS = {
    "numbers": lambda i, t: i,
    "floats": lambda i, t: i / 2,
    "bools": lambda i, t: i > 2,
    "texts": lambda i, t: f"item {i}",
    "arrays": lambda i, t: np.full((2, 3), i, "float32"),
    "wide arrays": lambda i, t: np.full(2, i, "float64"),
    "scalars of NumPy": lambda i, t: np.float32(i),
    "tensors": lambda i, t: t.tensor([i, 2.0]),
    "tuples": lambda i, t: (np.float32(i), i),
    "lists": lambda i, t: [i, [i, f"{i}"]],
    "namedtuples": lambda i, t: Pair(np.zeros(2, "float32"), i),
    "dicts": lambda i, t: {"x": t.tensor([1.0]), "y": {"z": i, "name": "a"}},
}


def plain(batch, t):
    """A batch as lists of (dtype, numbers); tuples and lists are the same."""
    if isinstance(batch, t.Tensor):
        return str(batch.dtype).removeprefix("torch."), batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(part, t) for key, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [type(batch).__name__ if hasattr(batch, "_make") else "fields", *[plain(part, t) for part in batch]]
    return ("array", batch.tolist()) if isinstance(batch, np.ndarray) else batch


def dataset(get, t, base=Dataset):
    class Items(base):
        def __len__(self):
            return 5

        def __getitem__(self, i):
            return get(i, t)

        def __iter__(self):
            return iter([get(i, t) for i in range(5)])

    return Items()


@each("settings", [{}, {"batch_size": None}, {"num_workers": 2}, {"collate_fn": len}, {"collate_fn": list}])
@each("name", list(ITEMS))
@pytest.mark.parity
def test_the_batches_of_pytorch(name, settings):
    torch = pytest.importorskip("torch")
    settings = {"batch_size": 2, **settings}
    theirs = torch.utils.data.DataLoader(
        dataset(ITEMS[name], torch, torch.utils.data.Dataset), **{**settings, "num_workers": 0}
    )
    with ndl.compat("torch"):
        ours = list(DataLoader(dataset(ITEMS[name], ndl), **settings))
    assert [plain(batch, ndl) for batch in ours] == [plain(batch, torch) for batch in theirs]


@pytest.mark.parity
@each("name", list(ITEMS))
def test_streams_and_lists(name):
    torch = pytest.importorskip("torch")
    given = [(torch.utils.data, torch, torch.utils.data.IterableDataset), (ndl.data, ndl, IterableDataset)]
    with ndl.compat("torch"):
        found = [
            [
                [plain(b, t) for b in data.DataLoader(dataset(ITEMS[name], t, base), batch_size=3)],
                [plain(b, t) for b in data.DataLoader([ITEMS[name](i, t) for i in range(4)], batch_size=3)],
            ]
            for data, t, base in given
        ]
    assert found[0] == found[1]


def test_needle_s_meaning_is_outside_of_compat():
    (batch,) = DataLoader([1.0, 2.0], batch_size=2)
    assert type(batch) is tuple and batch[0].dtype == "float32"
    assert [(x.tolist(), int(y)) for x, y in DataLoader([(np.ones(2), 5)], batch_size=None)] == [([1.0, 1.0], 5)]
    with ndl.compat("torch"):
        (bare,) = DataLoader([1.0, 2.0], batch_size=2)
        (rows,) = DataLoader(np.arange(3.0), batch_size=3)
        ((x, y),) = DataLoader(TensorDataset(ndl.ones(2, 1).double(), ndl.arange(2)), batch_size=2)
        ((placed,),) = DataLoader([1.0, 2.0], batch_size=2, dtype="float32")
    assert bare.dtype == rows.dtype == "float64" and rows.tolist() == [0, 1, 2] and placed.dtype == "float32"
    assert x.dtype == "float64" and y.dtype == "int64"


def test_what_cannot_be_a_batch():
    with pytest.raises(RuntimeError, match=r"shapes \(2,\) and \(3,\) \(items 0 and 1\); give a collate_fn"):
        default_collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(TypeError, match="an item is a object; expected tensors"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match=r"items have \[1, 2\] fields"):
        default_collate([(1,), (1, 2)])
