"""A loader's position: what is left of an epoch is the same after state_dict and load_state_dict."""
# ruff: noqa: NPY002  (the course draws from the legacy generator)

import numpy as np
import pytest

from needle_nn.data import BatchSampler, DataLoader, DigitsDataset, RandomCrop, RandomSampler, WeightedSampler

DATA = DigitsDataset(train=False, transforms=[RandomCrop(2)])
N = len(DATA)
KINDS = {
    "in order": {"batch_size": 64},
    "shuffle": {"batch_size": 64, "shuffle": True},
    "shuffle, whole batches": {"batch_size": 64, "shuffle": True, "drop_last": True},
    "seed": {"batch_size": 64, "shuffle": True, "seed": 7},
    "workers": {"batch_size": 64, "num_workers": 2},
    "shuffle, workers": {"batch_size": 64, "shuffle": True, "num_workers": 2},
    "seed, workers": {"batch_size": 64, "shuffle": True, "seed": 7, "num_workers": 2},
    "sampler": {"batch_size": 64, "sampler": lambda: RandomSampler(N)},
    "seeded sampler": {"batch_size": 64, "sampler": lambda: RandomSampler(N, seed=1)},
    "weights": {"batch_size": 64, "sampler": lambda: WeightedSampler(np.arange(N), 200)},
    "batch sampler": {"batch_sampler": lambda: BatchSampler(RandomSampler(N), 50)},
}


def make(kind):
    return DataLoader(DATA, **{name: value() if callable(value) else value for name, value in KINDS[kind].items()})


def taken(batches, count=None):
    """Up to `count` batches as arrays."""
    return [x.numpy() for x, _ in (batches if count is None else (next(batches) for _ in range(count)))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("done", [0, 1, 3, "all"])
def test_what_is_left(kind, done):
    """An unbroken run of two and a half epochs, and one that is broken off in the second and gone on with elsewhere."""
    np.random.seed(11)
    loader = make(kind)
    taken(loader)
    batches = iter(loader)
    taken(batches, len(loader) if done == "all" else done)
    state, random = loader.state_dict(), np.random.get_state()
    expected = taken(batches) + taken(iter(loader), 2)

    np.random.seed(99)
    again = make(kind)
    again.load_state_dict(state)
    np.random.set_state(random)
    assert np.array_equal(again.state_dict()["batch"], state["batch"])
    got = taken(again) + taken(iter(again), 2)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_between_epochs(kind):
    np.random.seed(11)
    loader = make(kind)
    taken(loader)
    state, random = loader.state_dict(), np.random.get_state()
    assert (state["epoch"], state["batch"], state["order"]) == (1, 0, None)
    expected = taken(loader)
    again = make(kind)
    again.load_state_dict(state)
    np.random.set_state(random)
    for mine, theirs in zip(taken(again), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (2, 1)])
def test_the_number_of_workers_may_change(before, after):
    """With a seed; without one, batches begun with workers keep their generators."""
    for seed in (None, 5) if before else (5,):
        np.random.seed(0)
        loader = DataLoader(DATA, 64, shuffle=True, seed=seed, num_workers=before)
        batches = iter(loader)
        taken(batches, 2)
        again = DataLoader(DATA, 64, shuffle=True, seed=seed, num_workers=after)
        again.load_state_dict(loader.state_dict())
        for mine, theirs in zip(taken(again), taken(batches), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_prefetched_batches_are_not_counted():
    loader = DataLoader(DATA, 16, num_workers=3, prefetch=4)
    batches = iter(loader)
    taken(batches, 2)
    assert loader.state_dict()["batch"] == 2
    batches.close()


def test_an_order_is_kept_only_where_it_must_be():
    needed = {"shuffle", "shuffle, whole batches", "shuffle, workers", "sampler", "weights", "batch sampler"}
    for kind in KINDS:
        loader = make(kind)
        batches = iter(loader)
        taken(batches, 1)
        assert (loader.state_dict()["order"] is not None) == (kind in needed), kind
        batches.close()


def test_a_state_continues_a_loop_that_was_left():
    loader = DataLoader(DATA, 64, shuffle=True, seed=1)
    whole = taken(loader)
    loader = DataLoader(DATA, 64, shuffle=True, seed=1)
    first = taken(iter(loader), 2)
    loader.load_state_dict(loader.state_dict())
    for mine, theirs in zip(first + taken(loader), whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)


GOOD = {"epoch": 0, "batch": 1, "batches": 6, "base": None, "order": None, "sizes": None}
BAD = {
    "missing": ({"epoch": 0}, "expected epoch, batch, batches, base, order, sizes"),
    "negative": (GOOD | {"batch": -1}, "batch=-1 of 6"),
    "order too large": (GOOD | {"order": np.array([0, N])}, f"but the dataset has {N} items"),
    "order of floats": (GOOD | {"order": np.array([0.5])}, "indices must be ints"),
    "past the end": (GOOD | {"batch": 7}, "batch=7 of 6"),
    "no epoch": (GOOD | {"batches": None}, "batch=1 of None"),
    "another batch_size": (
        GOOD | {"batches": 12},
        "of an epoch of 12 batches, this loader's has 6: dataset and batch_size",
    ),
    "another seed": (GOOD | {"base": 3}, "made with seed 3, this loader has seed 7"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_states(case):
    state, message = BAD[case]
    loader = DataLoader(DATA, 64, shuffle=True, seed=7)
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)
        iter(loader)
