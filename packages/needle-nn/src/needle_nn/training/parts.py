"""The parts of a step: this rank's, one after the other, and what those of all ranks come to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import needle.random
import needle_ndarray as nd
from needle.statistics import deferred, follow
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.parallel import GradientTree

Figures = list[tuple[float, float]]  # of a batch: (value, weight) of the loss and of each metric
Statistics = list[tuple[int, Any, float, float]]  # (place of a buffer, new values, keep, take): what `follow` is to do


class Parts:
    """The parts of the step under way. In `part(number)` a part is computed, `add` notes what came of it, `finish` sums it all up.

    Random numbers of a part are a function of the seed, the step and the part. On several ranks running statistics are put off to
    the end of the step, where every rank applies those of all parts, in order.

    Parameters
    ----------
    params : whose gradients are summed, by the tree over the parts
    count : parts of a step
    world : the ranks that share them; None computes all of them here
    buffers : {name: Tensor} of the model, among which running statistics are looked for
    keep : objects with a number `part` are told which one begins
    figures : how many there are of each part
    seed : of random numbers, where `needle.random` has none
    apart : other messages of the ranks, by which gradients travel during backward
    """

    def __init__(
        self,
        params: Sequence[Any],
        count: int,
        world: Communicator | None,
        buffers: Mapping[str, Any],
        keep: Iterable[Any],
        figures: int = 1,
        seed: int = 0,
        apart: Communicator | None = None,
    ) -> None:
        self.tree, self.apart = GradientTree(params, count, world, apart), apart
        self.world = world if world is not None and world.size > 1 else None
        self.mine, self.count, self.seed = self.tree.mine, count, seed
        self.buffers = list(buffers.values())
        self.places = {id(buffer): i for i, buffer in enumerate(self.buffers)}
        self.keep = [each for each in keep if hasattr(each, "part")]
        for each in self.keep:
            each.mine = self.mine
        # Numbers of a part: its figures, and its statistics in the longest row so far.
        self.width, self.capacity = 2 * figures, 0
        self.figures: list[Figures] = []
        self.statistics: list[Statistics] = []

    def wants(self, batch: int) -> bool:
        """Whether a batch of the loader, by its number, is a part of this rank's."""
        return batch % self.count in self.mine

    @contextmanager
    def part(self, step: int, number: int, parts: int) -> Iterator[None]:
        """Around the computation of part `number` of a step of `parts`."""
        for each in self.keep:
            each.part = number
        if self.apart is not None:
            self.apart.step = step + 1  # for its messages
        with needle.random.stream(step, number, otherwise=self.seed), self.tree.computing(parts):
            yield

    @contextmanager
    def statistics_of(self) -> Iterator[Statistics]:
        """Around a forward pass: a list that gets what running statistics are to follow, where it is put off."""
        if self.world is None:
            yield []
            return
        found: Statistics = []
        with deferred() as kept:
            yield found
        for running, new, keep, take in kept:
            if id(running) not in self.places:
                raise ValueError(
                    f"Trainer: running statistics of shape {tuple(running.shape)} are no buffer of the model,"
                    " and cannot be kept the same on several ranks"
                )
            found.append((self.places[id(running)], new, keep, take))

    def add(self, figures: Figures, statistics: Statistics) -> None:
        """Take the gradients that there are, and these figures and statistics, as those of the part."""
        self.tree.add()
        self.figures.append(figures)
        self.statistics.append(statistics)

    def finish(self, parts: int) -> list[Figures]:
        """Make every `.grad` the sum over the step's `parts` parts, and let running statistics follow; the figures of all parts."""
        figures, statistics = self.figures, self.statistics
        self.figures, self.statistics = [], []
        present = None
        if self.world is not None:
            figures, rows, present = self._exchange(figures, statistics, self.world)
            for place, new, keep, take in (each for row in rows for each in self._decoded(row)):
                follow(self.buffers[place], new, keep, take)
        self.tree.finish(parts, present)
        return figures

    def _exchange(
        self, figures: list[Figures], statistics: list[Statistics], world: Communicator
    ) -> tuple[list[Figures], list[np.ndarray], list[bool]]:
        """Figures and statistics of all parts, in order, and which gradients there are: as float64, which holds float32 exactly.

        One message from everybody to everybody, as long as statistics take no more room than in the steps before.
        """
        rows = [self._encoded(part) for part in statistics]
        most, needed = -(-self.count // world.size), max(map(len, rows), default=0)
        numbers = np.concatenate([[len(figures), needed], self.tree.present()])
        told = _table(most, self.width, [np.ravel(part) for part in figures])
        capacity, fits = self.capacity, needed <= self.capacity
        content = np.concatenate([numbers, told.ravel(), _table(most, capacity, rows if fits else []).ravel()])
        got = world.all_gather(nd.array(content, "float64")).numpy()
        head, body = got[:, : len(numbers)], got[:, len(numbers) :]
        tables = body[:, : most * self.width].reshape(world.size, most, self.width)
        kept = body[:, most * self.width :].reshape(world.size, most, capacity)
        self.capacity = max(capacity, int(head[:, 1].max()))
        if self.capacity > capacity:
            kept = world.all_gather(nd.array(_table(most, self.capacity, rows), "float64")).numpy()
        there = [(rank, i) for rank in range(world.size) for i in range(int(head[rank, 0]))]
        present: list[bool] = np.any(head[:, 2:] > 0, axis=0).tolist()
        return [_pairs(tables[place]) for place in there], [kept[place] for place in there], present

    def _encoded(self, statistics: Statistics) -> np.ndarray:
        """count, then for each: number of the buffer, keep, take, values."""
        content: list[Any] = [[len(statistics)]]
        for place, new, keep, take in statistics:
            content += [[place, keep, take], np.ravel(new.numpy())]
        return np.concatenate(content).astype("float64")

    def _decoded(self, row: np.ndarray) -> Iterator[tuple[int, Any, float, float]]:
        at = 1
        for _ in range(int(row[0]) if len(row) else 0):
            place, keep, take = row[at : at + 3].tolist()
            running = self.buffers[int(place)]
            values = row[at + 3 : at + 3 + running.size].reshape(running.shape)
            yield int(place), nd.array(values, running.dtype, running.device), keep, take
            at += 3 + running.size


def _table(rows: int, width: int, given: list[np.ndarray]) -> np.ndarray:
    """Rows one below the other, 0 where they end."""
    table = np.zeros((rows, width))
    for i, row in enumerate(given):
        table[i, : len(row)] = row
    return table


def _pairs(row: np.ndarray) -> Figures:
    numbers = row.tolist()
    return list(zip(numbers[::2], numbers[1::2], strict=True))
