"""Batches of text for the recipes, each loader with a position that a checkpoint can keep."""

from collections.abc import Callable, Iterator
from typing import Any

from needle import Tensor
from needle_nn import nn
from needle_nn.data import CharCorpus, batchify, get_batch
from needle_nn.data.files import open_data
from needle_nn.training import Carried


class Passes:
    """A loader of `length` batches a pass, of which `batch` makes one; it goes on where it was when a pass was broken off."""

    def __init__(self, length: int) -> None:
        self.length, self.passes, self.at = length, 0, 0

    def batch(self, number: int) -> Any:
        """Batch `number` of the present pass."""
        raise NotImplementedError(f"{type(self).__name__}.batch")

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return self.batches_where(lambda number: True)

    def batches_where(self, wanted: Callable[[int], bool]) -> Iterator[Any]:
        """The batches that are left of a pass, None in place of those that are not wanted."""
        while self.at < self.length:
            self.at += 1  # handed out: a state that is asked for now is behind this batch
            yield self.batch(self.at - 1) if wanted(self.at - 1) else None
        self.passes, self.at = self.passes + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes, "at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes, self.at = int(state["passes"]), int(state["at"])


class Stretches(Passes):
    """Stretches of a text at random places: ids (B, T) and those that follow (B, T), functions of seed and number.

    The validation part gives the same batches in every pass.
    """

    def __init__(
        self,
        corpus: CharCorpus,
        block: int,
        batch: int,
        length: int,
        seed: int,
        *,
        split: str = "train",
        device: Any = None,
    ) -> None:
        super().__init__(length)
        ids = corpus.train if split == "train" else corpus.validation
        block = min(block, len(ids) - 1)  # a very short text
        self.draw = lambda start: corpus.batches(block, batch, seed, split=split, start=start, device=device)
        self.draw(0)  # an error comes now, not with the first batch
        self.fresh = split == "train"

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        return next(self.draw(self.passes * self.length * self.fresh + number))


class Chunks(Passes):
    """A text in columns, `block` rows at a time: ((ids (T, B), whether a pass begins), the words that follow (T B,))

    The columns of `steps_of` batches make a step: these batches are of the same rows, one beside the other.
    """

    def __init__(self, ids: Any, batch: int, block: int, device: Any = None, steps_of: int = 1) -> None:
        self.rows, self.block, self.device = batchify(ids, batch * steps_of, dtype="int32"), block, device
        self.columns, self.steps_of = batch, steps_of
        if len(self.rows) < 2:
            raise ValueError(f"a text of {len(ids)} words is too short for batches of {batch * steps_of} columns")
        super().__init__(-(-(len(self.rows) - 1) // block) * steps_of)

    def batch(self, number: int) -> tuple[tuple[Tensor, bool], Tensor]:
        row, part = divmod(number, self.steps_of)
        columns = self.rows[:, part * self.columns : (part + 1) * self.columns]
        x, y = get_batch(columns, row * self.block, self.block, self.device)
        return (x, row == 0), y


class Unrolled(nn.Module):
    """A language model over the chunks of a text: each begins with the state the one before has ended in, detached."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.carried = Carried()

    def forward(self, chunk: tuple[Tensor, bool]) -> Tensor:
        ids, begins = chunk
        logits, state = self.model(ids, None if begins else self.carried.get(self.training))
        self.carried.set(self.training, state)
        return logits


def read_text(path: str) -> str:
    """A UTF-8 file; an error names it and what is wrong."""
    with open_data(path) as (file, size):
        content = file.read(size)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: byte {content[error.start]:#04x} at {error.start}") from None
    if len(text) < 100:
        raise ValueError(f"{path}: {len(text)} characters are too few to learn from")
    return text
