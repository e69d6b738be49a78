"""DataLoader asks item by item, unless a dataset declares that it takes arrays; a batch has the form of its items."""
# ruff: noqa: NPY002  (the course draws from the legacy generator)

from collections import namedtuple

import numpy as np
import pytest

import needle as ndl
from needle_nn.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DigitsDataset,
    NDArrayDataset,
    SequentialSampler,
    collate,
    random_source,
)
from needle_nn.data.fetch import takes_arrays

N, SIZE = 8, 3
IMAGES = np.random.RandomState(0).randint(0, 100, (N, 4, 5, 3)).astype("float32")
Pair = namedtuple("Pair", "image label")


class Items(Dataset):
    """A dataset of one function of the index."""

    def __init__(self, get):
        super().__init__()
        self.get = get

    def __getitem__(self, index):
        return self.get(index)

    def __len__(self):
        return N


class Plain:
    """Not a Dataset: anything with these two methods."""

    def __init__(self, get):
        self.get = get

    __getitem__, __len__ = Items.__getitem__, Items.__len__


#: What a `__getitem__` written for one item does; for a batch each of them means something else, or fails.
SINGLE = {
    "flip": lambda i: IMAGES[i][:, ::-1].copy(),
    "normalise": lambda i: (IMAGES[i] - IMAGES[i].mean()) / IMAGES[i].std(),
    "a new axis": lambda i: IMAGES[i][None],
    "transposed": lambda i: IMAGES[i].T,
    "swapped axes": lambda i: np.swapaxes(IMAGES[i], 0, 1),
    "index ignored": lambda i: np.arange(11),
    "an int is needed": lambda i: IMAGES[i] if isinstance(i, int) else i.nothing,
    "KeyError for arrays": lambda i: {k: IMAGES[k] for k in range(N)}[i] if np.ndim(i) == 0 else {}[0],
    "AssertionError for arrays": lambda i: IMAGES[i] if np.ndim(i) == 0 else pytest.fail("asked for a batch"),
    "sum over the pixels": lambda i: IMAGES[i].sum(),
    "a first row": lambda i: IMAGES[i][0],
    "a branch": lambda i: IMAGES[i] if IMAGES[i].mean() > 50 else -IMAGES[i],
}


def expected(get, indices):
    return np.stack([get(int(i)) for i in indices])


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"batch_sampler": BatchSampler(SequentialSampler(N), SIZE)}]
)
@pytest.mark.parametrize("kind", [Items, Plain])
@pytest.mark.parametrize("case", SINGLE)
def test_items_are_asked_for_one_by_one(case, kind, options):
    get = SINGLE[case]
    sizes = {} if "batch_sampler" in options else {"batch_size": SIZE}
    got = [x.numpy() for (x,) in DataLoader(kind(get), **sizes, **options)]
    for batch, start in zip(got, range(0, N, SIZE), strict=True):
        np.testing.assert_array_equal(batch, expected(get, range(start, min(N, start + SIZE))).astype(batch.dtype))


@pytest.mark.parametrize("workers", [0, 2])
def test_every_item_draws_for_itself(workers):
    np.random.seed(3)
    got = np.concatenate(
        [x.numpy() for (x,) in DataLoader(Items(lambda i: random_source().rand()), 3, num_workers=workers)]
    )
    assert len(set(got.tolist())) == N
    if not workers:
        np.testing.assert_array_equal(got, np.random.RandomState(3).rand(N).astype("float32"))


@pytest.mark.parametrize("size", [1, 3, 8])
def test_transforms_see_single_items(size):
    class Images(Dataset):
        def __getitem__(self, index):
            return self.apply_transforms(IMAGES[index]), index

        def __len__(self):
            return N

    loader = DataLoader(Images([lambda x: np.swapaxes(x, 0, 1), lambda x: x - x.mean()]), size)
    got = np.concatenate([x.numpy() for x, _ in loader])
    np.testing.assert_array_equal(got, [np.swapaxes(x, 0, 1) - x.mean() for x in IMAGES])


def test_a_resumed_pass_asks_item_by_item_too():
    loader, again = (DataLoader(Items(SINGLE["flip"]), SIZE, shuffle=True, seed=1) for _ in range(2))
    batches = iter(loader)
    next(batches)
    again.load_state_dict(loader.state_dict())
    for (a,), (b,) in zip(again, batches, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


# ---- Who takes arrays -------------------------------------------------------------------------------------------


class Declares(Items):
    takes_arrays = True


class Inherits(Declares):
    """Nothing of its own: what was said still holds."""


class Overrides(Declares):
    """The mistake that the declaration of a parent must not cover."""

    def __getitem__(self, index):
        return super().__getitem__(index)[:, ::-1]


class SaysSo(Overrides):
    takes_arrays = True


class Flipped(NDArrayDataset):
    def __getitem__(self, index):
        return tuple(x[:, ::-1] for x in super().__getitem__(index))


def declared(dataset):
    dataset.takes_arrays = True
    return dataset


WHO = {
    "Dataset": (Items(lambda i: i), False),
    "any object": (Plain(lambda i: i), False),
    "declared": (Declares(lambda i: i), True),
    "inherited": (Inherits(lambda i: i), True),
    "__getitem__ overridden": (Overrides(lambda i: IMAGES[i]), False),
    "declared again": (SaysSo(lambda i: IMAGES[i]), True),
    "declared by the object": (declared(Items(lambda i: i)), True),
    "NDArrayDataset": (NDArrayDataset(IMAGES), True),
    "a subclass of it": (Flipped(IMAGES), False),
    "DigitsDataset": (DigitsDataset(), True),
    "an array": (IMAGES, True),
    "an array of objects": (np.array([None, 1]), False),
    "a list": ([1, 2], False),
}


@pytest.mark.parametrize("case", WHO)
def test_who_takes_arrays(case):
    dataset, answer = WHO[case]
    assert takes_arrays(dataset) is answer


def test_a_declared_dataset_is_asked_once_for_a_batch():
    asked = []
    data = Declares(lambda i: (asked.append(i.tolist()), IMAGES[i])[1])
    assert [x.shape for (x,) in DataLoader(data, SIZE)] == [(3, 4, 5, 3), (3, 4, 5, 3), (2, 4, 5, 3)]
    assert asked == [[0, 1, 2], [3, 4, 5], [6, 7]]


WRONG_LENGTHS = {
    "a scalar": (lambda i: 3.0, r"the batch has shape \(\), expected \(3, \.\.\.\)"),
    "index ignored": (lambda i: np.arange(11), r"the batch has shape \(11,\)"),
    "a field": (lambda i: (IMAGES[i], 5), r"field \[1\] has shape \(\)"),
    "the batch axis elsewhere": (lambda i: (np.swapaxes(IMAGES[i], 0, 1), i), r"field \[0\] has shape \(4, 3, 5, 3\)"),
    "nested": (lambda i: ((i, IMAGES[0]), i), r"field \[0\]\[1\] has shape \(4, 5, 3\)"),
    "a dict": (lambda i: {"x": i, "y": i[:1]}, r"field \['y'\] has shape \(1,\)"),
    "a Tensor": (lambda i: (i, ndl.ones(2, 3)), r"field \[1\] has shape \(2, 3\)"),
    "texts": (lambda i: (i, ["a", "b"]), r"field \[1\] has shape \(2,\)"),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", WRONG_LENGTHS)
def test_every_field_must_have_an_entry_for_each_index(case, workers):
    get, message = WRONG_LENGTHS[case]
    with pytest.raises(ValueError, match=rf"^Declares\[array of 3 indices\]: {message}"):
        list(DataLoader(Declares(get), SIZE, num_workers=workers))


# ---- The form of a batch ----------------------------------------------------------------------------------------


def plain(batch):
    """Tensors and arrays as lists, containers as they are."""
    if isinstance(batch, dict):
        return {key: plain(field) for key, field in batch.items()}
    if isinstance(batch, (tuple, list)):
        fields = [plain(field) for field in batch]
        return type(batch)(*fields) if hasattr(batch, "_fields") else type(batch)(fields)
    return batch.numpy().tolist() if isinstance(batch, ndl.Tensor) else batch.tolist()


FORMS = {
    "a pair": (lambda i: (np.full(2, i), i), ([[0, 0], [1, 1]], [0, 1])),
    "a list": (lambda i: [np.full(2, i), i], ([[0, 0], [1, 1]], [0, 1])),
    "a list with a list": (lambda i: [[i, -i], i], ([[0, 0], [1, -1]], [0, 1])),
    "a list of texts": (lambda i: [str(i), i], (["0", "1"], [0, 1])),
    "a list of numbers": (lambda i: [i, i + 1, i + 2], ([[0, 1, 2], [1, 2, 3]],)),
    "lists of lists": (lambda i: [[i], [i + 1]], ([[[0], [1]], [[1], [2]]],)),
    "nested": (lambda i: ((i, -i), 2 * i), (([0, 1], [0, -1]), [0, 2])),
    "nested lists": (lambda i: ([np.array(i), np.array(-i)], i), ([[0, 1], [0, -1]], [0, 1])),
    "nested deeply": (lambda i: (((i,), {"a": (i, i)}), i), ((([0, 1],), {"a": ([0, 1], [0, 1])}), [0, 1])),
    "a dict": (lambda i: {"x": i, "y": np.full(1, i)}, {"x": [0, 1], "y": [[0], [1]]}),
    "a dict of dicts": (lambda i: {"x": {"y": i}}, {"x": {"y": [0, 1]}}),
    "a namedtuple": (lambda i: Pair(np.full(1, i), i), Pair([[0], [1]], [0, 1])),
    "a namedtuple inside": (lambda i: (Pair(i, -i), i), (Pair([0, 1], [0, -1]), [0, 1])),
    "a number": (lambda i: i, ([0, 1],)),
    "a float": (lambda i: i / 2, ([0.0, 0.5],)),
    "a bool": (lambda i: i > 0, ([False, True],)),
    "a NumPy number": (lambda i: np.float32(i), ([0.0, 1.0],)),
    "a Tensor": (lambda i: ndl.Tensor([float(i)]), ([[0.0], [1.0]],)),
    "a text": (lambda i: "ab"[i] + "\0", (["a\0", "b\0"],)),
    "bytes": (lambda i: bytes([i, 0]), ([b"\0\0", b"\1\0"],)),
    "None": (lambda i: (i, None), ([0, 1], [None, None])),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", FORMS)
def test_a_batch_has_the_form_of_its_items(case, workers):
    get, form = FORMS[case]
    batch = next(iter(DataLoader(Items(get), 2, num_workers=workers)))
    found = plain(batch)
    assert found == form and type(found) is type(form)


@pytest.mark.parametrize("case", ["nested", "nested deeply", "a dict of dicts", "a namedtuple inside", "nested lists"])
def test_nested_arrays_become_tensors(case):
    def leaves(batch):
        if isinstance(batch, (tuple, list, dict)):
            return [leaf for part in (batch.values() if isinstance(batch, dict) else batch) for leaf in leaves(part)]
        return [batch]

    batch = next(iter(DataLoader(Items(FORMS[case][0]), 2, device=ndl.cpu_numpy())))
    assert all(isinstance(leaf, ndl.Tensor) and str(leaf.device) == "cpu_numpy()" for leaf in leaves(batch))
    whole = next(iter(DataLoader(Declares(lambda i: ((i, {"x": [i]}), i)), 2)))
    assert all(isinstance(leaf, ndl.Tensor) for leaf in leaves(whole))


def test_what_a_collate_fn_nests_keeps_its_numbers():
    def merged(items):
        return [np.array(items)], {"lengths": [1, 2], "array": np.ones(2)}, ["a"]

    arrays, named, texts = next(iter(DataLoader(Items(lambda i: i), 2, collate_fn=merged)))
    assert isinstance(arrays[0], ndl.Tensor) and named["lengths"] == [1, 2] and texts == ["a"]
    assert isinstance(named["array"], ndl.Tensor)


MIXED = {
    "kinds": ([(1, 2), {"a": 1}], "item 0 is a tuple, item 1 a dict; give a collate_fn"),
    "tuple and number": ([(1, 2), 3], "item 0 is a tuple, item 1 a int; give a collate_fn"),
    "keys": ([{"a": 1}, {"b": 1}], r"item 0 has the keys \['a'\], item 1 is \['b'\]; give a collate_fn"),
    "dict and number": ([{"a": 1}, 3], r"item 0 has the keys \['a'\], item 1 is a int; give a collate_fn"),
    "ragged": ([[[1, 2], [3]], [[1, 2], [3]]], "an item is a list of lists of different lengths; give a collate_fn"),
    "nothing": ([], "no items"),
}


@pytest.mark.parametrize("case", MIXED)
def test_items_that_do_not_go_together(case):
    items, message = MIXED[case]
    with pytest.raises(ValueError, match=f"^collate: {message}$"):
        collate(items)


NOT_DATASETS = {
    "a generator": (lambda: DataLoader(x for x in [1]), TypeError, "__getitem__ and __len__, got generator; list"),
    "a number": (lambda: DataLoader(3), TypeError, "__getitem__ and __len__, got int"),
    "images and labels": (
        lambda: DataLoader(IMAGES, np.arange(N)),
        ValueError,
        r"batch_size must be an int of at least 1, got a ndarray of shape \(8,\)",
    ),
}


@pytest.mark.parametrize("case", NOT_DATASETS)
def test_what_is_no_dataset(case):
    make, kind, message = NOT_DATASETS[case]
    with pytest.raises(kind, match=message):
        make()
