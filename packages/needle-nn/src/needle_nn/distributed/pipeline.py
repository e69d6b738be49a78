"""A model cut over ranks: each has some of its layers, and the parts of a batch go through them one behind the other."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_nn.checks import check_count
from needle_nn.distributed.communicator import MAX_TAG, Communicator
from needle_nn.distributed.ops import recv, send
from needle_nn.distributed.starting import current
from needle_nn.distributed.trees import tree_reduce
from needle_nn.nn import Sequential

FLOATS = ("float32", "float64")
DTYPES = (*FLOATS, "int32", "int64", "uint8", "bool")
LAYOUT = 10  # numbers that say what activations look like: dtype, axes, sizes


class Pipeline:
    """Stage r of a model on rank r, by GPipe's schedule: all parts of a batch forward, then all back.

    Every rank makes the whole model, with the same seed, and keeps the layers of `stage`; optimizers and checkpoints are those of
    the stage. Gradients of parts are summed by the tree over parts, so they have the same bits on any number of ranks, as
    long as layers draw no random numbers.

    Parameters
    ----------
    layers : modules, or a Sequential of them
    cuts : the first layer of every stage but the first; by default all have as many layers, or one more
    world : the communicator; that of `init()`

    >>> from needle import nn
    >>> model = Pipeline([nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)])
    >>> x, y = Tensor(nd.ones((6, 4)), requires_grad=False), Tensor(nd.zeros(6), requires_grad=False)
    >>> loss = model.step(x, y, nn.SoftmaxLoss(), parts=3)
    >>> [p.grad.shape for p in model.stage.parameters()]
    [(4, 8), (1, 8), (8, 3), (1, 3)]
    """

    def __init__(self, layers: Any, cuts: Sequence[int] | None = None, world: Communicator | None = None) -> None:
        self.world, layers = current(world), list(layers)
        rank, size = self.world.rank, self.world.size
        ends = [0, *(cuts if cuts is not None else even_cuts(len(layers), size)), len(layers)]
        if len(ends) != size + 1 or any(a >= b for a, b in pairwise(ends)):
            raise ValueError(
                f"Pipeline: cuts {ends[1:-1]} of {len(layers)} layers: expected {size - 1} that rise, a layer at least on each"
                f" of {size} ranks"
            )
        self.stage = Sequential(*layers[ends[rank] : ends[rank + 1]])
        self.first, self.last = rank == 0, rank == size - 1
        self.params = [p for p in self.stage.parameters() if p.dtype in FLOATS]
        if self.first and not self.params and size > 1:
            raise ValueError("Pipeline: the first stage has no parameters: move the first cut behind a layer that has")

    def step(self, inputs: Tensor, targets: Tensor, loss_of: Callable[[Tensor, Tensor], Tensor], parts: int) -> float:
        """The mean loss over the parts of a batch, on every rank; its gradient is in the `.grad` of this stage's parameters.

        Every rank gives the same batch, of which the first reads the inputs and the last the targets; parts: how many equal parts
        of it follow one another.
        """
        count = check_count("Pipeline.step", "parts", parts, 1)
        if inputs.shape[0] % count or count >= MAX_TAG:
            raise ValueError(f"Pipeline.step: {parts} parts of a batch of {inputs.shape[0]}: expected a divisor of it")
        n = inputs.shape[0] // count
        rows = [slice(i * n, (i + 1) * n) for i in range(count)]
        ends, likes = [], None
        for i, part in enumerate(rows):
            if self.first:
                h = inputs[part]
            else:
                device = self.params[0].device if self.params else nd.cpu()
                likes = read_layout(self.world.rank - 1, self.world, device) if likes is None else likes
                h = recv(likes, self.world.rank - 1, tag=i + 1, world=self.world)
            h = self.stage(h)
            if self.last:
                ends.append(loss_of(h, targets[part]))
            else:
                if i == 0:
                    if h.dtype not in FLOATS:
                        raise TypeError(f"Pipeline: a stage gave {h.dtype}, which has no gradient: cut somewhere else")
                    tell_layout(h, self.world.rank + 1, self.world)
                ends.append(send(h, self.world.rank + 1, tag=i + 1, world=self.world))
        losses = [end.numpy().item() for end in ends] if self.last else []
        mean_gradients(self.params, ends)
        return self.world.broadcast_object(sum(losses) / count if self.last else None, self.world.size - 1)


def mean_gradients(params: Sequence[Any], ends: list[Any]) -> None:
    """Back from the ends of all parts, in their order; each `.grad` becomes the mean of what they give, summed by the tree."""
    found: list[list[Any]] = [[] for _ in params]
    for i in range(len(ends)):
        for p in params:
            p.grad = None
        if ends[i] is not None:
            ends[i].backward()
            ends[i] = ends[i].detach()  # and the part's graph goes
        for kept, p in zip(found, params, strict=True):
            if p.grad is not None:
                kept.append(p.grad.realize_cached_data())
    for kept, p in zip(found, params, strict=True):
        p.grad = Tensor.make_const(tree_reduce(kept) / len(ends)) if kept else None


def tell_layout(h: Tensor, to: int, world: Communicator) -> None:
    """To the rank that will receive h: what it looks like."""
    numbers = [DTYPES.index(str(h.dtype)), h.ndim, *h.shape]
    if len(numbers) > LAYOUT:
        raise ValueError(f"a value of {h.ndim} axes goes to another rank, expected at most {LAYOUT - 2}")
    world.send(nd.array(numbers + [0] * (LAYOUT - len(numbers)), "int64"), to)


def read_layout(source: int, world: Communicator, device: Any) -> Tensor:
    """From the rank that will send: a tensor that looks like what comes."""
    dtype, ndim, *sizes = world.recv((LAYOUT,), "int64", source).tolist()
    return Tensor(nd.empty(tuple(sizes[:ndim]), DTYPES[dtype], device), dtype=DTYPES[dtype], device=device)


def even_cuts(layers: int, stages: int) -> list[int]:
    """The first layers of all stages but the first, where all have as many, or one more.

    >>> even_cuts(6, 4)
    [1, 3, 4]
    """
    return [layers * stage // stages for stage in range(1, stages)]
