"""A state that goes from one batch to the next, one for each part of a step."""

from typing import Any

from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.gathering import gather_states


class Carried:
    """What a recurrent model takes from one batch to the next: a state for evaluation, and one for each part of a training step.

    Given to `Trainer(keep={"carried": model.carried})`, `part` is set to the part that begins, and checkpoints hold the states of
    training. It is no part of the model: its shape is that of a batch. States are detached.

    >>> import needle as ndl
    >>> carried = Carried()
    >>> carried.set(True, (ndl.ones(1) * 2, ndl.ones(1)))
    >>> carried.get(True)[0].item(), carried.get(False), list(carried.state_dict())
    (2.0, None, ['train'])
    """

    def __init__(self) -> None:
        self.part = 0
        self.mine: range | None = None  # the parts of this rank; None: all there are
        self.evaluated: Any = None
        self.trained: dict[int, Any] = {}

    def get(self, training: bool) -> Any:
        """The state that the batch before has left, None if there was none; `training` as `Module.training`."""
        return self.trained.get(self.part) if training else self.evaluated

    def set(self, training: bool, state: Any) -> None:
        """Keep the state in which a batch has ended."""
        if training:
            self.trained[self.part] = _detached(state)
        else:
            self.evaluated = _detached(state)

    def state_dict(self) -> dict[str, Any]:
        """The states of training: that of the only part under `train`, those of several under `parts`."""
        if set(self.trained) <= {0}:
            return {"train": self.trained.get(0)}
        return {"parts": {str(part): self.trained[part] for part in sorted(self.trained)}}

    def gathered_state(self, world: Communicator) -> dict[str, Any]:
        """`state_dict` on rank 0, with the states of all ranks; all of them call it."""
        own = {str(part): state for part, state in self.trained.items() if self.mine is None or part in self.mine}
        states = gather_states(own, world)
        whole = Carried()
        whole.trained = {int(part): state for each in states or [] for part, state in each.items()}
        return whole.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        parts = state["parts"] if "parts" in state else {"0": state["train"]}
        self.trained = {int(part): each for part, each in parts.items()}


def _detached(state: Any) -> Any:
    if state is None:
        return None
    return tuple(map(_detached, state)) if isinstance(state, tuple) else state.detach()
