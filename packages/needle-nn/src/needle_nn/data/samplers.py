"""Samplers: in which order a loader visits a dataset. An epoch is one `iter(sampler)`.

Any iterable of indices with a length will do. One that has `set_epoch(e)` is told which epoch begins; one whose order is a function
of the epoch alone says `repeatable = True`, and a loader's `state_dict` need not hold its order.
"""

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np

from needle_nn.checks import check_count, described
from needle_nn.data.sources import check_seed, generator, seed_of


class SequentialSampler:
    """0, 1, ..., n - 1

    >>> list(SequentialSampler(3))
    [0, 1, 2]
    """

    repeatable = True

    def __init__(self, dataset: Sized | int) -> None:
        self.dataset = dataset

    def indices(self) -> np.ndarray:
        """An epoch as an array."""
        return np.arange(len(self))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return length(self.dataset)


class Sampler:
    """The base of samplers: subclasses write `__iter__`, which gives indices, and `__len__`."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __class_getitem__(cls, kind: Any) -> type:
        return cls

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__")


class _Drawn(Sampler):
    """A sampler that draws: from NumPy's global generator, or from one made of seed and epoch."""

    seed: int | None
    epoch: int

    def _start(self, seed: int | None) -> None:
        self.seed = check_seed(seed, type(self).__name__)
        self.epoch = 0

    @property
    def repeatable(self) -> bool:
        return self.seed is not None

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter` epoch number `epoch`; matters only with a seed."""
        self.epoch = epoch

    def _source(self) -> Any:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return np.random if self.seed is None else generator(self.seed, epoch)


class RandomSampler(_Drawn):
    """A new permutation each epoch: `np.random.permutation`, or a function of seed and epoch.

    Parameters
    ----------
    dataset : what has a length, or the length
    seed, generator : makes the order a function of it and of the epoch
    replacement : draw every index anew, so that some come twice
    num_samples : how many indices; all, unless given

    >>> sampler = RandomSampler(5, seed=0)
    >>> first, second = list(sampler), list(sampler)
    >>> sorted(first) == sorted(second) == [0, 1, 2, 3, 4], first == second
    (True, False)
    """

    def __init__(
        self,
        dataset: Sized | int,
        seed: int | None = None,
        *,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        if type(seed) is bool:  # PyTorch's second argument
            seed, replacement = None, bool(seed)
        seed = seed_of(generator) if seed is None else seed
        self.dataset, self.replacement = dataset, bool(replacement)
        n = length(dataset)
        if num_samples is not None:
            check_count("RandomSampler", "num_samples", num_samples, 0)
            if num_samples > (0 if n == 0 else num_samples if replacement else n):
                raise ValueError(f"RandomSampler: num_samples = {num_samples} of {n} without replacement")
        self.num_samples = num_samples
        self._start(seed)

    def indices(self) -> np.ndarray:
        """The next epoch as an array."""
        source, n = self._source(), length(self.dataset)
        if self.replacement:
            return source.randint(0, n, len(self)) if n else np.empty(0, np.int64)
        return source.permutation(n)[: len(self)]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices().tolist())

    def __len__(self) -> int:
        return length(self.dataset) if self.num_samples is None else self.num_samples


class SubsetRandomSampler(_Drawn):
    """Some indices in a new order each epoch.

    >>> sorted(SubsetRandomSampler([4, 2, 7], seed=0))
    [2, 4, 7]
    """

    def __init__(self, indices: Any, seed: int | None = None) -> None:
        self.chosen = np.asarray(list(indices), np.int64)
        self._start(seed)

    def indices(self) -> np.ndarray:
        """The next epoch as an array."""
        return self.chosen[self._source().permutation(len(self.chosen))]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices().tolist())

    def __len__(self) -> int:
        return len(self.chosen)


class WeightedSampler(_Drawn):
    """`num_samples` indices drawn with replacement, index i with probability weights[i] / sum(weights).

    >>> set(WeightedSampler([0, 3, 1], num_samples=50, seed=0))
    {1, 2}
    """

    def __init__(self, weights: Any, num_samples: int | None = None, seed: int | None = None) -> None:
        w = np.asarray(weights, dtype=np.float64)
        if w.ndim != 1 or not w.size or not np.isfinite(w).all() or (w < 0).any() or w.sum() == 0:
            raise ValueError("WeightedSampler: weights must be a list of finite numbers, none negative, not all 0")
        self.p = w / w.sum()
        self.num_samples = (
            len(w) if num_samples is None else check_count("WeightedSampler", "num_samples", num_samples, 0)
        )
        self._start(seed)

    def __iter__(self) -> Iterator[int]:
        return iter(self._source().choice(len(self.p), size=self.num_samples, p=self.p).tolist())

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(WeightedSampler):
    """`WeightedSampler` with PyTorch's arguments.

    Parameters
    ----------
    weights : of the indices
    num_samples : how many are drawn
    replacement : whether an index may come again; without, there are at most as many as have a weight
    seed : makes the order a function of it and of the epoch

    >>> sorted(WeightedRandomSampler([1, 0, 2], 2, replacement=False, seed=0))
    [0, 2]
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, seed: int | None = None) -> None:
        super().__init__(weights, num_samples, seed)
        self.replacement = bool(replacement)
        some = int((self.p > 0).sum())
        if not replacement and num_samples > some:
            raise ValueError(f"WeightedRandomSampler: num_samples = {num_samples} of {some} without replacement")

    def __iter__(self) -> Iterator[int]:
        drawn = self._source().choice(len(self.p), size=self.num_samples, replace=self.replacement, p=self.p)
        return iter(drawn.tolist())


class BatchSampler:
    """A sampler's indices in lists of `batch_size`.

    >>> list(BatchSampler(SequentialSampler(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if isinstance(sampler, type) or not hasattr(sampler, "__iter__"):
            raise TypeError(f"BatchSampler: expected an iterable of indices, got {described(sampler)}")
        check_count("BatchSampler", "batch_size", batch_size, 1)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    @property
    def repeatable(self) -> bool:
        return getattr(self.sampler, "repeatable", False)

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def length(dataset: Sized | int) -> int:
    """n of a dataset, or n itself."""
    return dataset if isinstance(dataset, int) else len(dataset)
