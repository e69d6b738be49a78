"""DataLoader: orders, batches, the course's numbers, resuming."""
# ruff: noqa: NPY002  (the course draws from the legacy generator)

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needle
from needle_nn.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DigitsDataset,
    NDArrayDataset,
    RandomCrop,
    RandomFlipHorizontal,
    RandomSampler,
    SequentialSampler,
    WeightedSampler,
    collate,
)

SOME = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def flat(loader):
    """The first field of every batch, as lists."""
    return [batch[0].numpy().tolist() for batch in loader]


# ---- The course -------------------------------------------------------------------------------------------


def test_published_orders():
    """Numbers of the course's own tests."""
    np.random.seed(0)
    data = NDArrayDataset(np.arange(100))
    batches = iter(DataLoader(dataset=data, batch_size=1, shuffle=True))
    assert [next(batches)[0].numpy().item() for _ in range(10)] == [26, 86, 2, 55, 75, 93, 16, 73, 54, 95]
    batches = iter(DataLoader(dataset=data, batch_size=10, shuffle=True))
    norms = [np.linalg.norm(next(batches)[0].numpy()) for _ in range(4)]
    np.testing.assert_allclose(norms, [164.805946, 173.43875, 169.841102, 189.050258], rtol=1e-7)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("n", "size"), [(10, 3), (10, 5), (3, 10), (1, 1)])
def test_ordering_is_the_courses(n, size, shuffle):
    loader = DataLoader(NDArrayDataset(np.arange(n)), size, shuffle)
    for _ in range(3):
        state = np.random.get_state()
        order = np.random.permutation(n) if shuffle else np.arange(n)
        expected = [part.tolist() for part in np.array_split(order, range(size, n, size))]
        np.random.set_state(state)
        assert flat(loader) == expected == [part.tolist() for part in loader.ordering]


def test_ordering_without_shuffle_is_there_before_the_first_pass():
    assert [part.tolist() for part in DataLoader(NDArrayDataset(np.arange(5)), 2).ordering] == [[0, 1], [2, 3], [4]]


def test_random_transforms_interleave_as_in_the_course():
    """Permutation first, then crop and flip of each image, in the order of the images."""
    transforms = [RandomCrop(1), RandomFlipHorizontal(0.5)]
    data = DigitsDataset(transforms=transforms)
    np.random.seed(5)
    got = [x.numpy() for x, _ in DataLoader(data, 500, shuffle=True)]
    random, plain = np.random.RandomState(5), DigitsDataset().X.reshape(-1, 8, 8)
    expected = []
    for i in random.permutation(len(data)):
        down, right = random.randint(-1, 2, size=2)
        image = np.pad(plain[i], 1)[1 + down : 9 + down, 1 + right : 9 + right]
        expected.append(image[:, ::-1] if random.rand() < 0.5 else image)
    np.testing.assert_array_equal(np.concatenate(got), np.reshape(expected, (-1, 64)))


# ---- Batches ----------------------------------------------------------------------------------------------


class OneByOne(Dataset):
    """Only takes ints, and draws once for each item."""

    def __init__(self, n=10):
        super().__init__()
        self.items = list(range(n))

    def __getitem__(self, index):
        return np.full(2, self.items[index]), self.items[index] ** 2

    def __len__(self):
        return len(self.items)


class Scalars(OneByOne):
    """Answers an array of indices, but with fields that are no batch."""

    def __getitem__(self, index):
        return float(np.sum(index)), np.full(2, np.sum(index))


class Named(OneByOne):
    def __getitem__(self, index):
        return {"x": np.full(2, self.items[index]), "name": str(index)}


class Bare(OneByOne):
    def __getitem__(self, index):
        return np.arange(10)[index]


SEVERAL, PAIR = NDArrayDataset(np.arange(20).reshape(10, 2), np.arange(10.0)), [[4, 5], [6, 7]]
BATCHES = {
    "arrays": (SEVERAL, {}, (PAIR, [2.0, 3.0])),
    "ints only": (OneByOne(), {}, ([[2, 2], [3, 3]], [4, 9])),
    "scalars": (Scalars(), {}, ([2.0, 3.0], [[2, 2], [3, 3]])),
    "a bare array": (Bare(), {}, ([2, 3],)),
    "a list": ([(i, -i) for i in range(10)], {}, ([2, 3], [-2, -3])),
    "collate_fn": (SEVERAL, {"collate_fn": lambda items: np.array([x.sum() for x, _ in items])}, ([9, 13],)),
}


@pytest.mark.parametrize("case", BATCHES)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_batch_is(case, workers):
    data, options, expected = BATCHES[case]
    _, batch, *_ = DataLoader(data, 2, num_workers=workers, **options)
    assert isinstance(batch, tuple) and all(isinstance(field, needle.Tensor) for field in batch)
    assert tuple(field.numpy().tolist() for field in batch) == expected
    assert not any(field.requires_grad for field in batch)


def test_dicts_and_what_is_not_a_number():
    (batch,) = DataLoader(Named(3), 3)
    assert list(batch) == ["x", "name"] and batch["x"].shape == (3, 2)
    assert batch["name"].tolist() == ["0", "1", "2"]
    ((texts, tensor),) = DataLoader(Named(2), 2, collate_fn=lambda items: (["a"], needle.Tensor([1.0])))
    assert texts == ["a"] and isinstance(tensor, needle.Tensor)


DTYPES = [
    ("uint8", "uint8"),
    ("int16", "int32"),
    ("int32", "int32"),
    ("int64", "int64"),
    ("float32", "float32"),
    ("float64", "float32"),
    ("bool", "bool"),
]


@pytest.mark.parametrize(("given_dtype", "got"), DTYPES)
def test_dtypes(given_dtype, got):
    ((field,),) = DataLoader(NDArrayDataset(np.ones(3, dtype=given_dtype)), 3)
    assert field.dtype == got


def test_device_and_dtype():
    ((x, y),) = DataLoader(SEVERAL, 10, device=needle.cpu_numpy(), dtype="float64")
    assert (x.device, x.dtype, y.dtype) == (needle.cpu_numpy(), "int64", "float64")


def test_one_by_one_draws_once():
    """Learning that a dataset takes only ints leaves NumPy's generator where it was."""

    class Draws(OneByOne):
        def __getitem__(self, index):
            return np.random.rand(), self.items[index]

    np.random.seed(0)
    got = flat(DataLoader(Draws(4), 2))
    np.testing.assert_allclose(np.ravel(got), np.random.RandomState(0).rand(4), rtol=1e-6)


COLLATE = {
    "shapes": ([np.zeros(2), np.zeros(3)], r"shapes \(2,\) and \(3,\) \(items 0 and 1\); give a collate_fn"),
    "fields": ([(1, 2), (1,)], r"items have \[1, 2\] fields"),
}


@pytest.mark.parametrize("case", COLLATE)
def test_collate_errors(case):
    items, message = COLLATE[case]
    with pytest.raises(ValueError, match=message):
        collate(items)


# ---- Orders -----------------------------------------------------------------------------------------------


@SOME
@given(
    n=st.integers(0, 40),
    size=st.integers(1, 12),
    shuffle=st.booleans(),
    drop=st.booleans(),
    seed=st.none() | st.integers(0, 9),
)
def test_every_index_once_an_epoch(n, size, shuffle, drop, seed):
    loader = DataLoader(NDArrayDataset(np.arange(n)), size, shuffle, drop_last=drop, seed=seed)
    for _ in range(2):
        batches = flat(loader)
        seen = [i for batch in batches for i in batch]
        assert len(batches) == len(loader)
        assert all(len(batch) == size for batch in (batches if drop else batches[:-1]))
        assert len(set(seen)) == len(seen) == (n // size * size if drop else n)
        assert set(seen) <= set(range(n)) and (shuffle or seen == sorted(seen))


def test_seeded_orders_differ_by_epoch_and_seed_only():
    def make(seed):
        return DataLoader(NDArrayDataset(np.arange(50)), 50, shuffle=True, seed=seed)

    loader = make(3)
    first, second = flat(loader), flat(loader)
    np.random.seed(1)
    again = make(3)
    assert (flat(again), flat(again)) == (first, second)
    assert first != second and flat(make(4)) != first


def test_a_pass_that_was_left_is_over():
    """The next one is another epoch, as after a whole one."""
    left, whole = (DataLoader(NDArrayDataset(np.arange(50)), 10, shuffle=True, seed=3) for _ in range(2))
    next(iter(left))
    flat(whole)
    assert flat(left) == flat(whole)


def test_a_seed_leaves_numpys_generator_alone():
    np.random.seed(0)
    flat(DataLoader(DigitsDataset(transforms=[RandomCrop()]), 500, shuffle=True, seed=0))
    assert np.random.rand() == np.random.RandomState(0).rand()


TEN = NDArrayDataset(np.arange(10))
ORDERS = {
    "sequential": ({"sampler": SequentialSampler(4), "batch_size": 3}, [[0, 1, 2], [3]]),
    "a list": ({"sampler": [5, 5, 1], "batch_size": 2}, [[5, 5], [1]]),
    "a list, whole batches": ({"sampler": [5, 5, 1], "batch_size": 2, "drop_last": True}, [[5, 5]]),
    "batches": ({"batch_sampler": [[1], [2, 3], (4, 5, 6)]}, [[1], [2, 3], [4, 5, 6]]),
    "batch sampler": ({"batch_sampler": BatchSampler(range(5), 2)}, [[0, 1], [2, 3], [4]]),
    "batch sampler, whole": ({"batch_sampler": BatchSampler(range(5), 2, drop_last=True)}, [[0, 1], [2, 3]]),
    "nothing": ({"sampler": []}, []),
}


@pytest.mark.parametrize("case", ORDERS)
def test_samplers_in_a_loader(case):
    options, expected = ORDERS[case]
    loader = DataLoader(TEN, **options)
    assert len(loader) == len(expected)
    assert flat(loader) == flat(loader) == expected


def test_weighted_sampler_follows_its_weights():
    drawn = np.bincount(list(WeightedSampler([1, 0, 3], num_samples=4000, seed=0)), minlength=3)
    assert drawn[1] == 0 and drawn.sum() == 4000
    assert abs(drawn[2] / 4000 - 0.75) < 0.03  # four standard deviations
    np.random.seed(0)
    assert list(WeightedSampler([1, 2, 3])) == np.random.RandomState(0).choice(3, 3, p=[1 / 6, 1 / 3, 1 / 2]).tolist()


def test_random_sampler_with_and_without_seed():
    np.random.seed(0)
    assert list(RandomSampler(9)) == np.random.RandomState(0).permutation(9).tolist()
    sampler = RandomSampler(range(9), seed=1)
    first, second = list(sampler), list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == first != second and len(sampler) == 9


ERRORS = {
    "batch_size 0": (lambda: DataLoader(TEN, 0), "batch_size must be an int of at least 1, got 0"),
    "batch_size float": (lambda: DataLoader(TEN, 2.0), "batch_size must be an int of at least 1, got 2.0"),
    "workers": (lambda: DataLoader(TEN, num_workers=-1), "num_workers must be an int of at least 0, got -1"),
    "prefetch": (lambda: DataLoader(TEN, prefetch=0), "prefetch must be an int of at least 1, got 0"),
    "sampler and shuffle": (
        lambda: DataLoader(TEN, shuffle=True, sampler=[1]),
        "sampler and shuffle exclude each other",
    ),
    "two samplers": (lambda: DataLoader(TEN, sampler=[1], batch_sampler=[[1]]), "batch_sampler excludes"),
    "batch sampler and size": (lambda: DataLoader(TEN, 2, batch_sampler=[[1]]), "batch_sampler excludes"),
    "seed": (lambda: DataLoader(TEN, seed=-1), "seed must not be negative, got -1"),
    "index": (lambda: flat(DataLoader(TEN, sampler=[3, 10])), "indices from 3 to 10, but the dataset has 10 items"),
    "index -1": (lambda: flat(DataLoader(TEN, batch_sampler=[[-1]])), "indices from -1 to -1, but the dataset has 10"),
    "index kind": (lambda: flat(DataLoader(TEN, sampler=[0.5])), "indices must be ints, got float64"),
    "lengths": (lambda: NDArrayDataset(np.ones(2), np.ones(3)), r"must have one length, got shapes \[\(2,\), \(3,\)\]"),
    "no arrays": (lambda: NDArrayDataset(), "no arrays given"),
    "a number": (lambda: NDArrayDataset(np.array(1)), "must have one length"),
    "weights": (lambda: WeightedSampler([1, -1]), "none negative"),
    "no weight": (lambda: WeightedSampler([0, 0]), "not all 0"),
    "batch sampler size": (
        lambda: BatchSampler([1], 0),
        "BatchSampler: batch_size must be an int of at least 1, got 0",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    make, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_seed_must_be_an_int():
    with pytest.raises(TypeError, match="seed must be an int or None, got 'x'"):
        DataLoader(TEN, seed="x")


def test_bases_ask_for_the_missing_method():
    for use in (lambda d: d[0], len):
        with pytest.raises(NotImplementedError, match="Dataset has no __"):
            use(Dataset())


def test_two_passes_at_once():
    loader = DataLoader(TEN, 5)
    assert [(a[0].numpy()[0], b[0].numpy()[0]) for a, b in zip(loader, loader, strict=True)] == [(0, 0), (5, 5)]
