"""A Trainer among others: what its rank agrees on with the other ranks, and what it gathers from them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import needle.random
import needle_ndarray as nd
from needle_nn.checkpoint import random_state, set_random_state
from needle_nn.checks import described
from needle_nn.data import DataLoader
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.norms import SyncBatchNorm
from needle_nn.distributed.parallel import agree, replicate
from needle_nn.nn import Module
from needle_nn.packing import pack
from needle_nn.training.parts import Figures


class Ranks:
    """The ranks of a training: `world` is None where there is one only, and nothing is asked of it then."""

    def __init__(self, world: Communicator | None, parts: int, model: Any = None) -> None:
        if world is not None and not isinstance(world, Communicator):
            raise TypeError(f"Trainer: world is {described(world)}, expected what needle.distributed.init() gives")
        if world is not None and parts < world.size:
            raise ValueError(
                f"Trainer: accumulate={parts}, but there are {world.size} ranks: a step needs a part for each of them"
            )
        modules = model.named_modules() if isinstance(model, Module) else ()
        if parts > 1 and any(isinstance(module, SyncBatchNorm) for _, module in modules):
            raise ValueError(
                "Trainer: SyncBatchNorm in a step of several parts: they are computed one after the other, and none can wait for"
                " the statistics of the next; train by hand, or with batch norm of each part"
            )
        self.world = world if world is not None and world.size > 1 else None
        self.rank = world.rank if world is not None else 0
        self.parts = parts
        self.asked: str | None = None  # why this rank wants to end

    def at(self, step: int) -> None:
        """Tell the communicator which step is under way, for its messages."""
        if self.world is not None:
            self.world.step = step + 1

    def apart(self) -> Communicator | None:
        """A communicator of the same ranks, for messages during backward; None where there is none."""
        return None if self.world is None else self.world.twin()

    def join(self, model: Any, plan: list[str]) -> None:
        """Compare what the ranks are about to do; give all of them rank 0's model and the state of its generators."""
        if self.world is None:
            return
        agree(self.world, "Trainer.fit", plan)
        replicate(model, self.world)
        kind, keys, *rest = random_state()["numpy"]
        given = self.world.broadcast_object([kind, keys.tolist(), *rest, needle.random.get_state()])
        kind, keys, *rest, own = given
        set_random_state({"numpy": (kind, np.array(keys, "uint32"), *rest), "needle": own})

    def agreed_to_stop(self) -> str | None:
        """Why the ranks end now: what the first of them that has a reason says, but an interrupt before all others."""
        assert self.world is not None
        asked = self.asked
        if not self.world.all_reduce(nd.array([asked is not None], "int32"), "max").item():
            return None
        reasons = [reason for reason in self.world.gather_objects(asked) if reason is not None]
        return "interrupted" if "interrupted" in reasons else reasons[0]

    def check_model(self, model: Any, step: int) -> None:
        """A DistributedError where the ranks' models have drifted apart, which only a model's own doing can bring about."""
        if self.world is None or not hasattr(model, "state_dict"):
            return
        lines = [f"{name} of sha256 {_digest(value)}" for name, value in model.state_dict().items()]
        agree(self.world, f"Trainer: after step {step}", lines)

    def evaluated(self, figures: Callable[[Any], Figures], loader: Iterable[Any]) -> Iterator[Figures]:
        """The figures of all batches, in order. The ranks share those of a DataLoader; of others one may depend on the last."""
        if self.parts == 1 or not isinstance(loader, DataLoader):
            yield from map(figures, loader)
            return
        rank, size = (0, 1) if self.world is None else (self.world.rank, self.world.size)
        mine = [
            figures(batch) for batch in loader.batches_where(lambda number: number % size == rank) if batch is not None
        ]
        if self.world is None:
            yield from mine
            return
        most = -(-len(loader) // size)
        table = np.zeros((most, *np.shape(mine[0]))) if mine else np.zeros((most, 0, 2))
        table[: len(mine)] = mine or table[:0]
        columns = int(self.world.all_reduce(nd.array([table.shape[1]], "int64"), "max").item())
        wide = np.zeros((most, columns, 2))
        wide[:, : table.shape[1]] = table
        tables = self.world.all_gather(nd.array(wide, "float64")).numpy()
        for number in range(len(loader)):
            yield [tuple(pair) for pair in tables[number % size, number // size].tolist()]

    def state_of(self, part: Any) -> Any:
        """The state_dict of a part of the training, with what other ranks hold of it; whole on rank 0."""
        if self.world is not None and hasattr(part, "gathered_state"):
            return part.gathered_state(self.world)
        return part.state_dict() if self.rank == 0 else None


def _digest(value: Any) -> str:
    arrays, _ = pack({"value": value})
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()[:12]
