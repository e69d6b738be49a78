"""Gradients that travel while backward goes on: buckets of them leave as soon as it has filled them, and one thread sends them."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any
from weakref import finalize

from needle import Tensor
from needle_ndarray import NDArray
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.parts import Node, add_gradients, push

#: Bytes of gradients that travel together: fewer are waited for by latency, more leave later.
BUCKET = 1 << 20


class Sender:
    """A thread that makes the calls it is given, one after the other, as long as its owner lives.

    No ThreadPoolExecutor: Python waits for its threads at exit, and one that waits for a rank which has failed would not end.
    """

    def __init__(self, owner: Any) -> None:
        self.calls: SimpleQueue[tuple[Callable[[], Any], Future] | None] = SimpleQueue()
        Thread(target=made, args=(self.calls,), name="needle.distributed gradients", daemon=True).start()
        finalize(owner, self.calls.put, None)

    def submit(self, call: Callable[[], Any]) -> Future:
        future: Future = Future()
        self.calls.put((call, future))
        return future


def made(calls: SimpleQueue) -> None:
    """What the thread does."""
    while (given := calls.get()) is not None:
        call, future = given
        try:
            future.set_result(call())
        except BaseException as error:  # whoever waits for the result raises it
            future.set_exception(error)
        del given, call, future  # what they hold must not live until the next call


class Buckets:
    """The sum over ranks of a step's gradients, in buckets of parameters; the last parameters come first, as in backward.

    All ranks send the buckets in the same order, whatever order backward fills them in, through `world`, on which nothing else is
    sent meanwhile. A bucket's sum has the bits that it has among all others: each element is added by itself.

    Parameters
    ----------
    params : Tensors, the same ones in the same order on all ranks
    world : ranks, with a thread of its own for their messages
    summed : (params of a bucket, its nodes, parts of the step) -> the sums over all ranks
    """

    def __init__(self, params: Sequence[Tensor], world: Communicator, summed: Callable[..., list[NDArray]]) -> None:
        self.params, self.world, self.summed = list(params), world, summed
        self.groups = grouped(self.params)
        self.where = {i: number for number, group in enumerate(self.groups) for i in group}
        self.sender = Sender(self)
        self.sums: list[Future] = []

    @contextmanager
    def filling(self, nodes: Sequence[Node], number: int, parts: int) -> Iterator[None]:
        """Around forward and backward of this rank's last part, `number`, of a step of `parts`; nodes: the parts before it."""
        if self.sums:
            raise RuntimeError("overlap: the step before was not finished: a loader gave fewer batches than its length")
        grads: dict[int, NDArray] = {}
        missing = [len(group) for group in self.groups]

        def take(i: int, grad: Tensor) -> None:
            if i in grads:
                raise RuntimeError(
                    "overlap: one part went backward twice, and gradients of the first time have been sent"
                )
            grads[i] = grad.realize_cached_data()
            missing[self.where[i]] -= 1
            while len(self.sums) < len(missing) and not missing[len(self.sums)]:
                self._send(nodes, Node(number, 0, grads), parts)

        removers = [p.register_hook(partial(take, i)) for i, p in enumerate(self.params)]
        try:
            yield
        finally:
            for remove in removers:
                remove()
        while len(self.sums) < len(missing):  # parameters that had no gradient
            self._send(nodes, Node(number, 0, grads), parts)

    def finish(self, parts: int) -> list[NDArray]:
        """The sums, when all have arrived; a rank that had no part in the step sends that it has nothing."""
        while len(self.sums) < len(self.groups):
            self._send((), None, parts)
        sums, self.sums = self.sums, []
        found: dict[int, NDArray] = {}
        for group, future in zip(self.groups, sums, strict=True):
            found.update(zip(group, future.result(), strict=True))
        return [found[i] for i in range(len(self.params))]

    def _send(self, before: Sequence[Node], last: Node | None, parts: int) -> None:
        """Add the last part's gradients of the next bucket to those of the parts before, and let the thread send them."""
        group = self.groups[len(self.sums)]
        nodes = [Node(node.first, node.level, [node.value[i] for i in group]) for node in before]
        if last is not None:
            push(nodes, Node(last.first, 0, [last.value.get(i) for i in group]), add_gradients)
        call = partial(self.summed, [self.params[i] for i in group], nodes, parts, self.world)
        self.sums.append(self.sender.submit(call))


def grouped(params: Sequence[Tensor]) -> list[list[int]]:
    """Numbers of parameters from the last to the first, in groups of up to `BUCKET` bytes, or of one that has more.

    >>> import needle as ndl
    >>> grouped([ndl.zeros(3), ndl.zeros(5), ndl.zeros(BUCKET), ndl.zeros(7)])
    [[3], [2], [1, 0]]
    """
    groups: list[list[int]] = []
    room = -1
    for i in reversed(range(len(params))):
        nbytes = params[i].size * params[i].dtype.itemsize
        if nbytes > room:
            groups.append([])
            room = BUCKET
        groups[-1].append(i)
        room -= nbytes
    return groups
