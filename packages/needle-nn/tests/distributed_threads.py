"""Ranks as threads of one process: for what only exchanges arrays, many sizes in no time."""

import threading

import numpy as np

import needle_ndarray as nd
from needle_nn.distributed import Communicator
from needle_nn.distributed.communicator import as_sent
from needle_nn.distributed.trees import tree_reduce


class Threads(Communicator):
    """One of `size` threads; everything is an all_gather on a shared board."""

    def __init__(self, rank, size, board, barrier):
        self.rank, self.size, self.board, self.barrier_ = rank, size, board, barrier

    def twin(self):
        return self.other

    def _rows(self, a):
        self.board[self.rank] = a.numpy().copy()
        self.barrier_.wait(20)
        rows = [np.array(row) for row in self.board[: self.size]]
        self.barrier_.wait(20)
        return rows

    def _all_gather(self, a):
        return nd.array(np.stack(self._rows(a)), a.dtype)

    def _all_reduce(self, a, op):
        return tree_reduce([nd.array(row, a.dtype) for row in self._rows(a)], op)

    def _broadcast(self, a, root):
        self.board[self.rank] = a.numpy().copy()
        self.barrier_.wait(20)
        found = np.array(self.board[root])
        self.barrier_.wait(20)
        return nd.array(found, a.dtype)

    def _all_to_all(self, a):
        return nd.array(np.stack([row[self.rank] for row in self._rows(a)]), a.dtype)

    def _barrier(self):
        self.barrier_.wait(20)

    def _send(self, a, axes, to, tag):
        with self.board[-1]:
            self.board[-2].setdefault((self.rank, to, tag), []).append(as_sent(a.copy(), axes))
            self.board[-1].notify_all()

    def _recv(self, out, source, tag):
        box = self.board[-2]
        with self.board[-1]:
            assert self.board[-1].wait_for(lambda: box.get((source, self.rank, tag)), 20)
            return box[source, self.rank, tag].pop(0)


def together(size, function):
    """[function(world of rank 0), ...], each in a thread; the first error of any of them is raised."""
    barriers = [threading.Barrier(size) for _ in range(2)]
    boards = [[None] * size + [{}, threading.Condition()] for _ in range(2)]
    results, errors = [None] * size, []

    def run(rank):
        try:
            world, other = (Threads(rank, size, *each) for each in zip(boards, barriers, strict=True))
            world.other = other
            results[rank] = function(world)
        except BaseException as error:
            errors.append((rank, error))
            if not isinstance(error, threading.BrokenBarrierError):
                for barrier in barriers:
                    barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = [
        error
        for _, error in sorted(errors, key=lambda pair: pair[0])
        if not isinstance(error, threading.BrokenBarrierError)
    ]
    if own or errors:
        raise own[0] if own else errors[0][1]
    return results
