"""ZeRO-1: an optimizer whose states are shared out among the ranks."""

from typing import Any, NamedTuple

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_nn.checks import described
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.flat import Flat
from needle_nn.distributed.gathering import gather_states
from needle_nn.distributed.starting import current
from needle_nn.moving import move_tensors
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.state import parts, restored


class Piece(NamedTuple):
    """Elements start to stop of the flattened parameter number `param`."""

    param: int
    start: int
    stop: int


def sharded(optimizer: Any, world: Communicator | None = None) -> Any:
    """Let each rank keep the states of a 1/size of all elements, and make the steps of these; the parameters are then exchanged.

    The steps have the bits they have without it, and so has the `state_dict`, which is that of one process: on rank 0, asked for by
    all ranks. `optimizer` must be `elementwise`, and fresh: its states are shared out before there are any. With one rank it is
    returned as it is.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, 2.0])
    >>> sharded(ndl.optim.Adam([w], lr=0.1))
    Adam(1 parameters, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.0)
    """
    world = current(world)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"sharded: expected an optimizer of needle.optim, got {described(optimizer)}")
    for method in ("update", "step"):
        owner = next(cls for cls in type(optimizer).__mro__ if method in vars(cls))
        if owner is not Optimizer and not vars(owner).get("elementwise", False):
            raise ValueError(
                f"sharded: {owner.__name__}.{method} may look at whole parameters: only optimizers whose class says"
                " elementwise = True can be cut"
            )
    if optimizer.t or any(getattr(optimizer, name) for name in optimizer.states):
        raise ValueError(
            f"sharded: the optimizer has made {optimizer.t} steps: share it out before, and load its state then"
        )
    return optimizer if world.size == 1 else Sharded(optimizer, world)


class Sharded(Optimizer):
    """An optimizer of this rank's pieces of the parameters; for what it does not have itself, it stands for that optimizer."""

    def __init__(self, optimizer: Optimizer, world: Communicator) -> None:
        own = self.__dict__  # assignment is for the numbers of the optimizer
        own["optimizer"], own["world"], own["params"] = optimizer, world, list(optimizer.params)
        own["flat"] = Flat(self.params, world.size, world)
        own["pieces"] = pieces_of(self.flat, world.rank, world.size)
        own["tensors"] = [Tensor.make_const(_elements(self.params[i], a, b)) for i, a, b in self.pieces]
        own["groups"] = [len(group["params"]) for group in optimizer.param_groups]
        first = 0
        for group, count in zip(optimizer.param_groups, self.groups, strict=True):
            pairs = zip(self.pieces, self.tensors, strict=True)
            group["params"] = [tensor for piece, tensor in pairs if first <= piece.param < first + count]
            first += count
        optimizer.params = list(self.tensors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["optimizer"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["optimizer"], name, value)

    def __repr__(self) -> str:
        return f"<rank {self.world.rank} of {self.world.size}: {self.optimizer!r}>"

    def _step(self) -> None:
        """A step for this rank's pieces, in place; then every rank gets those of the others."""
        for tensor, (i, start, stop) in zip(self.tensors, self.pieces, strict=True):
            p = self.params[i]
            tensor.cached_data = _elements(p, start, stop)
            tensor.grad = None if p.grad is None else Tensor.make_const(_flat(p.grad)[start:stop])
        self.optimizer.step()
        for tensor in self.tensors:
            tensor.grad = None
        self._exchange()

    def _exchange(self) -> None:
        rank, size = self.world.rank, self.world.size
        gathered = []
        for packed in self.flat.pack([p.realize_cached_data() for p in self.params]):
            n = packed.size // size
            gathered.append(self.world.all_gather(packed[rank * n : (rank + 1) * n].compact()).reshape(packed.size))
        for p, array in zip(self.params, self.flat.unpack(gathered), strict=True):
            p.realize_cached_data()[...] = array.to(p.device)

    def to(self, device: Any) -> "Sharded":
        move_tensors(self.params, device)
        self.optimizer.to(device)
        return self

    # ---- State -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """That of the optimizer of whole parameters on rank 0, {} on the others; all ranks call it."""
        return self.gathered_state(self.world)

    def gathered_state(self, world: Communicator) -> dict[str, Any]:
        """The same; the pieces of all ranks are put together on rank 0."""
        states = gather_states(self.optimizer.state_dict(), world)
        if states is None:
            return {}
        places = [pieces_of(self.flat, rank, world.size) for rank in range(world.size)]
        names = list(states[0]["kept"])
        whole = {name: self._whole([state[name] for state in states], places) for name in names}
        whole["kept"] = {name: [int(i) for i in whole[name]] for name in names}
        groups, first = [], 0
        for group, count in zip(states[0]["groups"], self.groups, strict=True):
            groups.append({**group, "params": list(range(first, first + count))})
            first += count
        return {**states[0], **whole, "groups": groups}

    def _whole(self, kept: list[dict[str, Any]], places: list[list[Piece]]) -> dict[str, Any]:
        """{number of the parameter: its state}, of what the ranks keep for their pieces."""
        found: dict[int, list[Any]] = {}
        for entries, pieces in zip(kept, places, strict=True):
            for j, piece in enumerate(pieces):
                if str(j) in entries:
                    found.setdefault(piece.param, []).append(entries[str(j)])
        return {str(i): self._joined(i, found[i]) for i in sorted(found)}

    def _joined(self, i: int, values: list[Any]) -> Any:
        if not hasattr(values[0], "shape"):
            return values[0]  # a number, the same for every piece
        host = np.concatenate([np.ravel(value.numpy() if hasattr(value, "numpy") else value) for value in values])
        return nd.array(host.reshape(self.params[i].shape), self.params[i].dtype)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take this rank's pieces of the state of an optimizer of whole parameters, of any number of ranks."""
        what = f"{type(self.optimizer).__name__}.load_state_dict"
        parts(what, state, "t", "groups", "kept")
        given = [len(group["params"]) for group in state["groups"]]
        if given != self.groups:
            raise ValueError(f"{what}: groups of {given} parameters, this optimizer has {self.groups}")
        names = list(parts(f"{what}: kept", state, "kept")[0])
        own: dict[str, Any] = {}
        for name in names:
            whole = restored(f"{what}: {name}", self.params, state[name])
            own[name] = {
                str(j): _cut(whole[self.params[i]], start, stop)
                for j, (i, start, stop) in enumerate(self.pieces)
                if self.params[i] in whole
            }
        kept = {
            name: [j for j, piece in enumerate(self.pieces) if piece.param in state["kept"][name]] for name in names
        }
        groups, first = [], 0
        for group, mine in zip(state["groups"], self.optimizer.param_groups, strict=True):
            groups.append({**group, "params": list(range(first, first + len(mine["params"])))})
            first += len(mine["params"])
        self.optimizer.load_state_dict({**state, **own, "kept": kept, "groups": groups})


def pieces_of(flat: Flat, rank: int, size: int) -> list[Piece]:
    """The pieces of the parameters that lie in a rank's slice of the flat arrays; rank 0 has what is empty.

    >>> import needle as ndl
    >>> flat = Flat([ndl.zeros(2, 2), ndl.zeros(3)], multiple=2)
    >>> [[tuple(piece) for piece in pieces_of(flat, rank, 2)] for rank in range(2)]
    [[(0, 0, 4)], [(1, 0, 3)]]
    """
    pieces = []
    for i, ((which, first), count) in enumerate(zip(flat.places, flat.sizes, strict=True)):
        n = flat.lengths[which] // size
        start, stop = (max(0, min(count, edge - first)) for edge in (rank * n, (rank + 1) * n))
        if start < stop or (not count and not rank):
            pieces.append(Piece(i, start, stop))
    return pieces


def _elements(p: Tensor, start: int, stop: int) -> NDArray:
    """A view of some elements of a parameter, which is made compact where it is not."""
    if not p.realize_cached_data().is_compact():
        p.cached_data = p.realize_cached_data().compact()
    return p.realize_cached_data().reshape(p.size)[start:stop]


def _flat(grad: Tensor) -> NDArray:
    return grad.realize_cached_data().compact().reshape(grad.size)


def _cut(value: Any, start: int, stop: int) -> Any:
    if isinstance(value, Tensor):
        return Tensor.make_const(_flat(value)[start:stop].copy())
    if isinstance(value, NDArray):
        return value.compact().reshape(value.size)[start:stop].copy()
    return value.reshape(-1)[start:stop].copy() if hasattr(value, "shape") else value
