"""Data parallel: replicas of a model, and the sum of what they learn from their parts of a step."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_nn.distributed.communicator import Communicator, DistributedError
from needle_nn.distributed.flat import Flat
from needle_nn.distributed.overlap import Buckets
from needle_nn.distributed.parts import Node, add_gradients, fold, nodes_of, push, run_of
from needle_nn.distributed.starting import current

#: Up to so many bytes on all ranks together go in one message: fewer rounds beat fewer bytes.
GATHERED_WHOLE = 1 << 16


def replicate(model: Any, world: Communicator | None = None) -> Any:
    """Give the model of every rank the parameters and buffers of rank 0's, in place; the model.

    Names, shapes and dtypes are compared first: where ranks differ, all of them get a DistributedError with both sides.

    >>> import needle.nn as nn
    >>> replicate(nn.Linear(2, 3))
    Linear(in_features=2, out_features=3)
    """
    world = current(world)
    if world.size == 1:
        return model
    named = [*model.named_parameters(), *model.named_buffers()]
    agree(world, "replicate", [f"{name} {t.dtype} {tuple(t.shape)}" for name, t in named])
    for _, tensor in named:
        array = tensor.realize_cached_data()
        array[...] = world.broadcast(array)
    return model


def agree(world: Communicator, what: str, lines: Sequence[str]) -> None:
    """A DistributedError on all ranks, unless all give the same lines; it shows the first that differs."""
    if world.size == 1:
        return
    told = world.gather_objects(list(lines))
    for rank, other in enumerate(told):
        if other != told[0]:
            at = next((i for i, (a, b) in enumerate(zip(told[0], other, strict=False)) if a != b), None)
            i = min(len(told[0]), len(other)) if at is None else at
            sides = [side[i] if i < len(side) else f"nothing ({len(side)} in all)" for side in (told[0], other)]
            raise DistributedError(f"{what}: ranks differ: rank 0 has {sides[0]}, rank {rank} has {sides[1]}")


def shared(loader: Iterable[Any], world: Communicator | None = None) -> Iterator[Any]:
    """This rank's batches of a loader, every size-th one; a last group that has not one for each rank is left out.

    All ranks go through the same loader: give it a seed, or seed `np.random` alike. One with a method `batches_where`, as
    `DataLoader` has it, loads the batches of this rank only.

    >>> list(shared(["a", "b", "c"]))
    ['a', 'b', 'c']
    """
    world = current(world)
    batches = parts_of(loader, lambda number: number % world.size == world.rank)
    while len(group := list(islice(batches, world.size))) == world.size:
        yield group[world.rank]


def parts_of(loader: Any, wanted: Any) -> Iterator[Any]:
    """A loader's batches; None stands for those whose number is not wanted, where that saves their loading."""
    return iter(loader.batches_where(wanted)) if hasattr(loader, "batches_where") else iter(loader)


def sum_gradients(params: Iterable[Tensor], weight: float = 1.0, world: Communicator | None = None) -> float:
    """Make every `.grad` the sum of those of all ranks, by the tree over ranks, divided by the sum of the weights; that sum.

    Let each rank's loss be a sum over its targets, or its mean times their number, and `weight` that number: the gradient is then
    that of the mean over the targets of all ranks.

    Parameters
    ----------
    params : Tensors, the same ones in the same order on all ranks; a `.grad` that is None counts 0 where other ranks have one
    weight : what this rank's gradients are to be divided by, together with the weights of the others

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, 2.0])
    >>> (w * w).sum().backward()
    >>> sum_gradients([w], weight=2), w.grad.tolist()
    (2.0, [1.0, 2.0])
    """
    world, params = current(world), list(params)
    tree = GradientTree(params, world.size, world)
    tree.add()
    told = world.all_gather(nd.array([weight, *tree.present().tolist()], "float64")).numpy()
    total = float(sum(told[:, 0].tolist()))
    tree.finish(world.size, np.any(told[:, 1:] > 0, axis=0).tolist())
    for p in params:
        if p.grad is not None and total:
            p.grad = Tensor.make_const(p.grad.realize_cached_data() / total)
    return total


class GradientTree:
    """The gradients of a step of `count` parts, of which each rank has a run: `add` after each backward, `finish` at the end.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0])
    >>> tree = GradientTree([w], 3)
    >>> for part in range(3):
    ...     (w * part).sum().backward()
    ...     tree.add()
    >>> tree.finish(3)
    >>> w.grad.tolist()
    [3.0]
    """

    def __init__(
        self, params: Sequence[Tensor], count: int, world: Communicator | None = None, apart: Communicator | None = None
    ) -> None:
        """apart: other messages of the ranks of `world`, by which gradients travel during backward, within `computing`."""
        self.params, self.count, self.world = list(params), count, world
        rank, size = (world.rank, world.size) if world is not None else (0, 1)
        self.mine = run_of(rank, size, count)
        self.nodes: list[Node] = []
        self.next = self.mine.start
        self._present = np.zeros(len(self.params))
        self._buckets = Buckets(self.params, apart, self._across) if apart is not None and size > 1 else None

    def computing(self, parts: int) -> AbstractContextManager:
        """Around forward and backward of this rank's next part, of a step of so many parts."""
        if self._buckets is None or self.next + 1 < min(self.mine.stop, parts):
            return nullcontext()
        return self._buckets.filling(self.nodes, self.next, parts)

    def add(self) -> None:
        """Take the gradients that there are as those of this rank's next part, and clear them."""
        grads = [None if p.grad is None else p.grad.realize_cached_data() for p in self.params]
        self._present = np.maximum(self._present, [grad is not None for grad in grads])
        if self._buckets is None or not self._buckets.sums:
            push(self.nodes, Node(self.next, 0, grads), add_gradients)
        self.next += 1
        for p in self.params:
            p.grad = None

    def present(self) -> np.ndarray:
        """For each parameter 1 where a part of this rank has a gradient of it, else 0."""
        return self._present

    def finish(self, parts: int, present: Sequence[bool] | None = None) -> None:
        """Make every `.grad` the sum over the step's first `parts` parts, which all must have been added somewhere.

        present : for each parameter whether any rank's `present` is 1; ranks tell each other unless it is given
        """
        if self.world is None or self.world.size == 1:
            # compact, as those that come from other ranks: sums over a gradient, for its norm, may follow memory
            grads = [None if g is None else g.compact() for g in fold(self.nodes, add_gradients) or []]
        else:
            if present is None:
                present = (self.world.all_reduce(nd.array(self.present(), "float64"), "max").numpy() > 0).tolist()
            if self._buckets is not None:
                sums = self._buckets.finish(parts)
            else:
                sums = self._across(self.params, self.nodes, parts, self.world)
            grads = [g.copy() if has else None for g, has in zip(sums, present, strict=True)]
        self.nodes, self.next, self._present = [], self.mine.start, np.zeros(len(self.params))
        for p, grad in zip(self.params, grads or [None] * len(self.params), strict=True):
            p.grad = None if grad is None else Tensor.make_const(grad.to(p.device))

    def _across(
        self, params: Sequence[Tensor], nodes: Sequence[Node], parts: int, world: Communicator
    ) -> list[NDArray]:
        """The sums over the nodes of all ranks, as views of one array."""
        flat = Flat(params, world.size, world)
        packed = [flat.pack(node.value) for node in nodes]
        layout = [nodes_of(_first(run_of(rank, world.size, self.count), parts)) for rank in range(world.size)]
        most, sums = max(map(len, layout)), []
        for which, length in enumerate(flat.lengths):
            held = nd.full((most, length), 0, flat.dtypes[which], flat.device)
            for i, node in enumerate(packed):
                held[i] = node[which]
            sums.append(_sum_of_nodes(held, layout, world))
        return flat.unpack(sums)


def _sum_of_nodes(held: NDArray, layout: list[list[tuple[int, int]]], world: Communicator) -> NDArray:
    """The sum over the rows of all ranks; layout says which nodes they are.

    Small ones go from everybody to everybody. Of others everybody gets a slice, and the sums of slices go to everybody: the bytes
    of a ring.
    """
    most, length = held.shape
    whole = held.nbytes * world.size <= GATHERED_WHOLE
    if whole:
        got = world.all_gather(held)
    else:
        slices = held.reshape(most, world.size, length // world.size)
        got = world.all_to_all(slices.permute((1, 0, 2)).compact())
    nodes = [
        Node(first, level, [got[rank, i]]) for rank, each in enumerate(layout) for i, (first, level) in enumerate(each)
    ]
    (total,) = fold(nodes, add_gradients)
    return total.compact() if whole else world.all_gather(total.compact()).reshape(length)


def _first(parts: range, count: int) -> range:
    """Those of a run of parts that a step of `count` has."""
    return range(parts.start, max(parts.start, min(parts.stop, count)))
