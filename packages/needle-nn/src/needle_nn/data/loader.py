"""DataLoader: a dataset in batches, in order or shuffled, loaded here or by worker threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from needle.autograd import follows_torch
from needle_ndarray.extension import backend_of
from needle_nn.checks import check_count, described
from needle_nn.data.dataset import IterableDataset
from needle_nn.data.fetch import collate, fetch_items, fetch_whole, takes_arrays, to_tensors
from needle_nn.data.rows import Rows
from needle_nn.data.samplers import RandomSampler, SequentialSampler
from needle_nn.data.sources import check_seed, drawing_from, peek, seed_of
from needle_nn.data.sources import generator as seeded
from needle_nn.data.values import default_collate, default_convert

_KEYS = ("epoch", "batch", "batches", "base", "order", "sizes")


@dataclass
class _Position:
    """Where a pass over the data stands."""

    epoch: int = 0
    batch: int = 0  # how many batches have been handed out
    base: int | None = None  # what the generators of the batches are made of; None: NumPy's global generator
    ordering: list[np.ndarray] | None = None
    read: Callable[[int], Any] | None = None  # gives the Tensors of a batch, where the dataset is plain arrays
    going_on_of: int | None = None  # set by load_state_dict until the next iter: how many batches the epoch has
    wanted: Callable[[int], bool] | None = None  # which batches this pass loads; None: all
    as_torch: bool = False  # whether batches are made as PyTorch makes them


class DataLoader:
    """Iterate over a dataset in batches, each a tuple of Tensors that need no gradient.

    Parameters
    ----------
    dataset : has `__len__` and `__getitem__`, which is asked item by item; the items are stacked by `collate`. Where it declares
        `takes_arrays = True` (`Dataset`), it is asked once for all indices of a batch
    batch_size : items in a batch; the last one may be shorter. None: items as they are, one by one
    shuffle : draw a new order at each `iter`, by `np.random.permutation` or from `seed`
    drop_last : leave a shorter last batch out
    sampler : an iterable of indices with a length, instead of `shuffle`
    batch_sampler : an iterable of lists of indices with a length, instead of batch_size, shuffle, drop_last and sampler
    collate_fn : makes a batch of the list of single items; its arrays become Tensors, anything else stays as it is
    num_workers : threads that load batches ahead; 0 loads each when it is asked for
    prefetch : batches kept ready by each worker
    seed : makes order and random transforms a function of seed and epoch, for any number of workers
    generator, prefetch_factor : PyTorch's: draws a seed; another name of `prefetch`
    pin_memory, persistent_workers, worker_init_fn : as PyTorch has them; nothing follows from them
    device, dtype : of the Tensors; dtype concerns floats only. With workers, a batch for a GPU is on its way there, from pinned
        memory and on a stream of its own, while the one before it is computed with

    Items may be tuples, lists, dicts and namedtuples of arrays, numbers and texts, nested as they like: a batch has their form.
    A pass begun within `needle.compat("torch")`, where no device and dtype are given, makes batches by `default_collate`, and what
    a collate_fn returns stays as it is.

    Without a seed and without workers, order and transforms draw from `np.random` call by call, as in the course. With workers, the
    order still comes from `np.random`; the transforms of each batch draw from a generator of its own, which follows from the state
    of `np.random` at `iter`. Transforms that are to be reproducible with workers draw from `random_source()`.

    >>> import numpy as np
    >>> loader = DataLoader(NDArrayDataset(np.arange(5), np.arange(5.0)), batch_size=2)
    >>> [x.numpy().tolist() for x, y in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        prefetch: int = 2,
        seed: int | None = None,
        device: Any = None,
        dtype: Any = None,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        generator: Any = None,
        prefetch_factor: int | None = None,
        worker_init_fn: Any = None,
    ) -> None:
        seed, prefetch = seed_of(generator) if seed is None else seed, prefetch_factor or prefetch
        if batch_size is None:
            convert = collate_fn or default_convert
            batch_size, collate_fn = 1, lambda items: convert(items[0])
        streams = isinstance(dataset, IterableDataset)
        if streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                "DataLoader: an IterableDataset has an order of its own: expected no shuffle and no sampler"
            )
        if not streams and not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(
                f"DataLoader: expected a dataset with __getitem__ and __len__, got {type(dataset).__name__};"
                " list(...) makes one of an iterable"
            )
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 0),
            ("prefetch", prefetch, 1),
        ):
            check_count("DataLoader", name, value, least)
        for name, order in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if isinstance(order, type) or not (
                order is None or (hasattr(order, "__iter__") and hasattr(order, "__len__"))
            ):
                raise TypeError(
                    f"DataLoader: {name} is {described(order)}, expected an iterable of indices with a length"
                )
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError(
                f"DataLoader: collate_fn is {described(collate_fn)}, expected a function of a list of items"
            )
        if batch_sampler is not None and (batch_size != 1 or shuffle or drop_last or sampler is not None):
            raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, drop_last and sampler")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler and shuffle exclude each other")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, int(batch_size), shuffle, drop_last
        self.collate_fn, self.num_workers, self.prefetch = collate_fn, int(num_workers), int(prefetch)
        self.seed, self.device, self.dtype = check_seed(seed, "DataLoader"), device, dtype
        self.batch_sampler = batch_sampler
        self.sampler = sampler
        if sampler is None and not streams:
            self.sampler = RandomSampler(dataset, self.seed) if shuffle else SequentialSampler(dataset)
        given = streams or sampler is not None or batch_sampler is not None
        self.ordering: list[np.ndarray] | None = None if shuffle or given else self._order(0)
        self._position = _Position()
        self._rows: Rows | None = None

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from needle_nn.notebook import loader_html

        return loader_html(self)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self.sampler is None:
            raise TypeError("DataLoader: an IterableDataset has no length")
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self._pass(None)

    def batches_where(self, wanted: Callable[[int], bool]) -> Iterator[Any]:
        """A pass in which batches whose number is not wanted are not loaded, but handed out as None.

        Each batch has a generator of its own, as with workers: its numbers do not depend on which others are loaded.

        >>> loader = DataLoader(NDArrayDataset(np.arange(5)), batch_size=2)
        >>> [batch and batch[0].tolist() for batch in loader.batches_where(lambda number: number != 1)]
        [[0, 1], None, [4]]
        """
        if isinstance(self.dataset, IterableDataset):
            raise TypeError("DataLoader.batches_where: the batches of an IterableDataset cannot be left out")
        return self._pass(wanted)

    def _pass(self, wanted: Callable[[int], bool] | None) -> Iterator[Any]:
        as_torch = follows_torch() and self.device is None and self.dtype is None
        if isinstance(self.dataset, IterableDataset):
            return self._stream(as_torch)
        at = self._position
        if at.going_on_of is None:
            at = _Position(at.epoch + (at.batch > 0), base=self.seed)
            if self.seed is None and (self.num_workers or wanted is not None):
                at.base = peek()
        if at.ordering is None:
            at.ordering = self._order(at.epoch)
        if at.going_on_of not in (None, len(at.ordering)):
            there = f"the state is of an epoch of {at.going_on_of} batches, this loader's has {len(at.ordering)}"
            raise ValueError(f"DataLoader: {there}: dataset and batch_size must be the same")
        at.going_on_of = None
        self._position, self.ordering = at, at.ordering
        at.wanted, at.as_torch = wanted, as_torch
        whole = self.collate_fn is None
        self._rows = Rows.of(self.dataset, self.device, self.dtype, self._rows) if whole else None
        at.read = None if self._rows is None else self._rows.reader(at.ordering)
        return self._threaded(at) if self.num_workers else self._inline(at)

    # ---- Position -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the latest pass stands: `epoch`, `batch` (batches handed out), `batches` (of the epoch), `base`, `order`, `sizes`.

        Numbers and None, but for `order`, the epoch's indices as an int64 array where they cannot be computed again, and `sizes`,
        the lengths of its batches if they come from a batch_sampler. Without a seed, numbers yet to be drawn depend on `np.random`,
        whose state is to be kept beside this one.
        """
        if isinstance(self.dataset, IterableDataset):
            raise TypeError("DataLoader.state_dict: an IterableDataset cannot go on from a place")
        at, order, sizes = self._position, None, None
        batches = at.going_on_of if at.ordering is None else len(at.ordering)
        again = getattr(self.sampler if self.batch_sampler is None else self.batch_sampler, "repeatable", False)
        if at.ordering is not None and not again:
            order = np.concatenate(at.ordering) if at.ordering else np.empty(0, np.int64)
            sizes = np.array([len(part) for part in at.ordering]) if self.batch_sampler is not None else None
        return {
            "epoch": at.epoch,
            "batch": at.batch,
            "batches": batches,
            "base": at.base,
            "order": order,
            "sizes": sizes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `iter` go on with the batches that were left when `state_dict` was asked.

        >>> import numpy as np
        >>> data = NDArrayDataset(np.arange(6))
        >>> loader, again = (DataLoader(data, 2, shuffle=True, seed=0) for _ in range(2))
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> again.load_state_dict(loader.state_dict())
        >>> [x.numpy().tolist() for x, in again] == [x.numpy().tolist() for x, in batches]
        True
        """
        if set(state) != set(_KEYS):
            raise ValueError(f"DataLoader: state has {sorted(state)}, expected {', '.join(_KEYS)}")
        epoch, batch = int(state["epoch"]), int(state["batch"])
        base = None if state["base"] is None else int(state["base"])
        if min(epoch, batch, base or 0) < 0 or batch > (state["batches"] or 0):
            raise ValueError(f"DataLoader: state has epoch={epoch}, batch={batch} of {state['batches']}, base={base}")
        if None not in (base, self.seed) and base != self.seed:
            raise ValueError(f"DataLoader: the state was made with seed {base}, this loader has seed {self.seed}")
        ordering = None
        if state["order"] is not None:
            order, sizes = self._indices(state["order"]), state["sizes"]
            ordering = self._split(order) if sizes is None else np.array_split(order, np.cumsum(sizes)[:-1])
        self._position = _Position(epoch, batch, base, ordering, going_on_of=state["batches"])

    # ---- One pass -----------------------------------------------------------------------------------------

    def _order(self, epoch: int) -> list[np.ndarray]:
        """The indices of each batch of this epoch."""
        chosen: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        if hasattr(chosen, "set_epoch"):
            chosen.set_epoch(epoch)
        if self.batch_sampler is not None:
            return [self._indices(list(part)) for part in chosen]
        indices = getattr(chosen, "indices", None)  # all at once, where the sampler can
        return self._split(self._indices(indices() if callable(indices) else list(chosen)))

    def _split(self, order: np.ndarray) -> list[np.ndarray]:
        """An order in batches, as the course cuts it."""
        parts = [order[at : at + self.batch_size] for at in range(0, len(order), self.batch_size)]
        return parts[:-1] if parts and self.drop_last and len(parts[-1]) < self.batch_size else parts

    def _indices(self, order: Any) -> np.ndarray:
        indices, n = np.asarray(order), len(self.dataset)
        if not indices.size:
            return np.empty(0, np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"DataLoader: indices must be ints, got {indices.dtype} of shape {indices.shape}")
        if indices.min() < 0 or indices.max() >= n:
            raise ValueError(
                f"DataLoader: indices from {indices.min()} to {indices.max()}, but the dataset has {n} items"
            )
        return indices.astype(np.int64)

    def _load(self, at: _Position, number: int) -> Any:
        """Batch `number` as arrays; runs in a worker if there are any. None if it is not wanted."""
        if at.wanted is not None and not at.wanted(number):
            return None
        if at.read is not None:
            return at.read(number)
        indices = at.ordering[number]  # type: ignore[index]
        source = np.random if at.base is None else seeded(at.base, at.epoch, number + 1)
        try:
            with drawing_from(source):
                rows = at.as_torch and isinstance(self.dataset, np.ndarray)
                if self.collate_fn is None and takes_arrays(self.dataset) and not rows:
                    return fetch_whole(self.dataset, indices)
                return fetch_items(self.dataset, indices, self._collate(at.as_torch))
        except Exception as error:
            error.add_note(f"raised while loading batch {number} of epoch {at.epoch}, indices {indices[:8].tolist()}")
            raise

    def _hand_out(self, at: _Position, tensors: Any) -> Any:
        at.batch += 1
        return tensors

    def _collate(self, as_torch: bool) -> Callable[[list[Any]], Any]:
        return self.collate_fn or (default_collate if as_torch else collate)

    def _tensors(self, batch: Any, as_torch: bool = False) -> Any:
        """Tensors of a batch, in the thread and under the modes of the one who asked."""
        if as_torch:
            return batch if self.collate_fn else default_convert(batch)
        return None if batch is None else to_tensors(batch, self.device, self.dtype)

    def _send(self, batch: Any) -> Callable[[], Any]:
        """Start to copy a batch to a device that can do so beside its other work; the function gives its Tensors."""
        ahead: Any = backend_of(self.device).ahead()
        with ahead as wait:
            tensors = self._tensors(batch)
        return lambda: (wait(), tensors)[1]

    def _stream(self, as_torch: bool) -> Iterator[Any]:
        """Batches of an IterableDataset, in the order in which it gives its items."""
        items = iter(self.dataset)
        while batch := list(islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self._tensors(self._collate(as_torch)(batch), as_torch)

    def _inline(self, at: _Position) -> Iterator[Any]:
        def load(number: int) -> Any:
            return self._tensors(self._load(at, number), at.as_torch)

        read = load if at.read is None or at.wanted is not None else at.read
        for number in range(at.batch, len(at.ordering)):  # type: ignore[arg-type]
            yield self._hand_out(at, read(number))
        self._end(at)

    def _threaded(self, at: _Position) -> Iterator[Any]:
        numbers = iter(range(at.batch, len(at.ordering)))  # type: ignore[arg-type]
        ahead: deque[Future[Any]] = deque()
        sends = backend_of(self.device).ahead() is not None
        sent: Callable[[], Any] | None = None  # the next batch, on its way
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="needle-data")
        try:
            while True:
                while len(ahead) < self.num_workers * self.prefetch and (number := next(numbers, None)) is not None:
                    ahead.append(pool.submit(self._load, at, number))
                if not ahead and sent is None:
                    break
                tensors = self._tensors(ahead.popleft().result(), at.as_torch) if sent is None else sent()
                sent = None
                if sends and ahead and ahead[0].done() and ahead[0].exception() is None:
                    sent = self._send(ahead.popleft().result())
                yield self._hand_out(at, tensors)
        finally:  # also when the iterator is dropped
            pool.shutdown(wait=True, cancel_futures=True)
        self._end(at)

    def _end(self, at: _Position) -> None:
        at.epoch, at.batch, at.base, at.ordering, at.read = at.epoch + 1, 0, None, None, None
