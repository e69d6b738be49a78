"""Worker threads: the same batches, errors with their traceback, and no thread left behind."""
# ruff: noqa: NPY002  (the course draws from the legacy generator)

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import numpy as np
import pytest

import needle
from needle_nn.data import (
    DataLoader,
    Dataset,
    DigitsDataset,
    NDArrayDataset,
    RandomCrop,
    RandomFlipHorizontal,
    RandomRotation,
    RandomScale,
    random_source,
)

RANDOM = [RandomCrop(2), RandomFlipHorizontal(), RandomRotation(20), RandomScale()]


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("needle-data")]


def arrays(loader, epochs=2):
    return [x.numpy() for _ in range(epochs) for x, _ in loader]


def same(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class Uneven(Dataset):
    """Batches that are loaded later are ready earlier; each draws its own numbers."""

    takes_arrays = True

    def __getitem__(self, index):
        time.sleep(0.01 if index[0] % 2 == 0 else 0)
        return index, random_source().rand(len(index))

    def __len__(self):
        return 24


def test_same_numbers_for_every_number_of_workers():
    """With a seed: order and transforms, over epochs."""
    data = DigitsDataset(train=False, transforms=RANDOM)
    runs = [arrays(DataLoader(data, 50, shuffle=True, seed=3, num_workers=n, prefetch=1 + n)) for n in (0, 1, 3)]
    assert same(runs[0], runs[1]) and same(runs[0], runs[2])
    assert not same(runs[0][:8], runs[0][8:])


def test_without_a_seed_the_order_is_numpys_for_every_number_of_workers():
    runs = []
    for n in (0, 1, 3):
        np.random.seed(4)
        runs.append(arrays(DataLoader(NDArrayDataset(np.arange(30), np.arange(30)), 7, shuffle=True, num_workers=n)))
    assert same(runs[0], runs[1]) and same(runs[0], runs[2])


def test_without_a_seed_transforms_follow_from_numpys_state():
    data = DigitsDataset(train=False, transforms=RANDOM)
    runs = []
    for n, seed in [(1, 4), (3, 4), (3, 5)]:
        np.random.seed(seed)
        runs.append(arrays(DataLoader(data, 50, num_workers=n)))
    assert same(runs[0], runs[1]) and not same(runs[0], runs[2])
    assert not same(runs[0][:8], runs[0][8:])  # another epoch, other numbers


def test_batches_come_in_order_however_long_they_take():
    for seed in (None, 1):
        got = [(x.numpy().tolist(), y.numpy().tolist()) for x, y in DataLoader(Uneven(), 3, num_workers=3, seed=seed)]
        assert [x for x, _ in got] == np.arange(24).reshape(8, 3).tolist()
        assert len({tuple(y) for _, y in got}) == 8


def test_workers_do_work_at_the_same_time():
    """Three batches wait for one another: one thread alone would never get past the barrier."""
    barrier = threading.Barrier(3, timeout=20)

    class Meets(Dataset):
        takes_arrays = True

        def __getitem__(self, index):
            barrier.wait()
            return (index,)

        def __len__(self):
            return 6

    assert len(list(DataLoader(Meets(), 1, num_workers=3))) == 6


def test_prefetch_is_bounded():
    asked = []

    class Counts(Dataset):
        takes_arrays = True

        def __getitem__(self, index):
            asked.append(index[0])
            return (index,)

        def __len__(self):
            return 100

    batches = iter(DataLoader(Counts(), 1, num_workers=2, prefetch=3))
    next(batches), next(batches)
    time.sleep(0.2)
    assert 2 <= len(asked) <= 1 + 2 * 3 + 1
    batches.close()


def test_what_was_to_be_prefetched_is_dropped_with_the_iterator():
    asked = []

    class Slow(Dataset):
        takes_arrays = True

        def __getitem__(self, index):
            asked.append(index[0])
            time.sleep(0.05)
            return (index,)

        def __len__(self):
            return 100

    batches = iter(DataLoader(Slow(), 1, num_workers=1, prefetch=20))
    next(batches)
    batches.close()
    assert len(asked) <= 3


class Fails(Dataset):
    takes_arrays = True

    def __init__(self, at, error=KeyError):
        super().__init__()
        self.at, self.error = at, error

    def __getitem__(self, index):
        if self.at in index:
            self.deep_inside()
        return (index,)

    def deep_inside(self):
        raise self.error("out of luck")

    def __len__(self):
        return 20


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError, StopAsyncIteration])
def test_an_error_arrives_in_its_place_with_its_traceback(count, error):
    got = []
    with pytest.raises(error, match="out of luck") as caught:
        for (x,) in DataLoader(Fails(13, error), 2, num_workers=count):
            got.append(x.numpy().tolist())
    assert got == np.arange(12).reshape(6, 2).tolist()
    assert "deep_inside" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert caught.value.__notes__ == ["raised while loading batch 6 of epoch 0, indices [12, 13]"]
    assert workers() == []


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_of_the_dataset_is_not_hidden_by_asking_one_by_one(count):
    """A ValueError in the first batch may mean that only ints are taken; asked so, it comes again."""

    class Always(Fails):
        def __getitem__(self, index):
            raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        list(DataLoader(Always(0), 2, num_workers=count))
    assert workers() == []


def test_threads_end_with_the_iterator():
    loader = DataLoader(Uneven(), 2, num_workers=3)
    for _ in loader:
        pass
    assert workers() == []  # exhausted
    for _ in loader:
        assert len(workers()) > 0
        break
    gc.collect()
    assert workers() == []  # left early
    batches = iter(loader)
    next(batches)
    assert len(workers()) > 0
    del batches
    assert workers() == []  # dropped
    iter(loader)
    assert workers() == []  # never begun


def test_the_modes_of_the_one_who_asks_hold():
    """Tensors are made in the thread that iterates, not in a worker."""
    data = NDArrayDataset(np.ones((4, 2)))
    before = needle.get_default_dtype()
    needle.set_default_dtype("float64")
    try:
        assert {x.dtype for (x,) in DataLoader(data, 2, num_workers=2)} == {"float64"}
    finally:
        needle.set_default_dtype(before)


SLOW = """
    import sys, time
    from needle_nn.data import DataLoader, Dataset

    class Slow(Dataset):
        takes_arrays = True

        def __getitem__(self, index):
            time.sleep(0.2)
            return (index,)
        def __len__(self):
            return 1000

    batches = iter(DataLoader(Slow(), 1, num_workers=2))
    next(batches)
    print("begun", flush=True)
"""


def run_slow(rest):
    code = textwrap.dedent(SLOW) + textwrap.dedent(rest)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    return process


def test_ctrl_c_ends_a_loop():
    process = run_slow("for _ in batches: pass")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in said


def test_a_program_may_end_in_the_middle_of_a_pass():
    process = run_slow("sys.exit(3)")
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (3, "")
