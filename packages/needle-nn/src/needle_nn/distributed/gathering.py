"""Nested states of all ranks, brought to rank 0: what a checkpoint is made of."""

from typing import Any

import numpy as np

import needle_ndarray as nd
from needle_nn.distributed.communicator import Communicator
from needle_nn.packing import pack, unpack

TAG = 1017  # of the messages here


def gather_states(state: Any, world: Communicator) -> list[Any] | None:
    """[the state of rank 0, that of rank 1, ...] on rank 0, None on the others; one after the other, each freed by its sender.

    A state is what a checkpoint may hold.

    >>> from needle_nn.distributed import Alone
    >>> gather_states({"u": np.ones(2)}, Alone())
    [{'u': array([1., 1.])}]
    """
    if world.size == 1:
        return [state]
    arrays, text = ({}, "") if world.rank == 0 else pack(state)
    layout = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    lengths = world.gather_objects([len(text), layout])
    states = [state]
    for rank in range(1, world.size):
        length, layout = lengths[rank]
        if world.rank == rank:
            _send(text.encode(), world)
            for array in arrays.values():
                _send(array.tobytes(), world)
        elif world.rank == 0:
            received = _recv(length, rank, world).decode()  # the JSON is ASCII
            taken = {
                name: np.frombuffer(
                    _recv(int(np.dtype(kind).itemsize * np.prod(shape, dtype=np.int64)), rank, world), kind
                ).reshape(shape)
                for name, kind, shape in layout
            }
            states.append(unpack(taken, received))
    return states if world.rank == 0 else None


def _send(content: bytes, world: Communicator) -> None:
    if content:
        world.send(nd.array(np.frombuffer(content, "uint8"), "uint8"), 0, TAG)


def _recv(length: int, source: int, world: Communicator) -> bytes:
    return world.recv((length,), "uint8", source, TAG).numpy().tobytes() if length else b""
