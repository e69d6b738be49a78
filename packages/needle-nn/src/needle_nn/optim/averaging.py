"""Exponential moving average of parameters."""

from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_ndarray.extension import depends, repeat
from needle_nn.moving import move_tensors
from needle_nn.optim.options import number, tensors
from needle_nn.optim.state import keyed, numbered, parts


class EMA:
    """average = decay average + (1 - decay) p, for every parameter; starts as a copy of them.

    Parameters
    ----------
    params : Tensors
    decay : in [0, 1), weight of the past
    ramp : a smaller decay min(decay, (1 + t) / (10 + t)) in the first steps t = 0, 1, ..., when the start says little

    Inside `with ema:` the parameters have the averaged values; `average` is {parameter: NDArray}.

    >>> import needle as ndl
    >>> w = ndl.Tensor([0.0])
    >>> ema = EMA([w], decay=0.75)
    >>> w.data = ndl.Tensor([8.0])
    >>> ema.update()
    >>> with ema:
    ...     w.tolist()
    [2.0]
    >>> w.tolist()
    [8.0]
    """

    def __init__(self, params: Iterable[Tensor], decay: float = 0.999, ramp: bool = False) -> None:
        self.decay, self.ramp, self.t = number("EMA", "decay", decay, 0, 1), bool(ramp), 0
        self.params = [params] if isinstance(params, Tensor) else tensors("EMA", params)
        if not self.params:
            raise ValueError("EMA: no parameters")
        for i, p in enumerate(self.params):
            if not isinstance(p, Tensor):
                raise TypeError(f"EMA: parameter {i}: expected a Tensor, got {type(p).__name__}")
        if len(set(self.params)) < len(self.params):
            raise ValueError("EMA: a parameter comes twice")
        self.average: dict[Tensor, NDArray] = {p: p.realize_cached_data().copy() for p in self.params}
        self.swapped = False

    def update(self) -> None:
        """Take the present parameters into the average; after each step of the optimizer."""
        if self.swapped:
            raise RuntimeError("EMA.update: the parameters are the averages just now")
        depends(vars(self), "average", "swapped")
        depends(self.average)
        keep, take = repeat(self._advance)
        for p, average in self.average.items():
            nd.accumulate(average, p.realize_cached_data(), keep, take)

    def _advance(self) -> tuple[float, float]:
        """Count the step; the weights of the past and of the present."""
        decay = min(self.decay, (1 + self.t) / (10 + self.t)) if self.ramp else self.decay
        self.t += 1
        return decay, 1 - decay

    def to(self, device: Any) -> "EMA":
        """Move the parameters, their gradients and the averages; the parameters stay the objects they are."""
        move_tensors(self.params, device)
        self.average = {p: average.to(device) for p, average in self.average.items()}
        return self

    def swap(self) -> None:
        """Exchange parameters and averages; a second time, and everything is as before."""
        for p, average in self.average.items():
            p.cached_data, self.average[p] = average, p.realize_cached_data()
        self.swapped = not self.swapped

    def __enter__(self) -> "EMA":
        if self.swapped:
            raise RuntimeError("EMA: the parameters are the averages already")
        self.swap()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.swap()

    def copy_to_params(self) -> None:
        """p = average, for good."""
        if self.swapped:
            raise RuntimeError("EMA.copy_to_params: the parameters are the averages just now")
        for p, average in self.average.items():
            p.realize_cached_data()[...] = average

    def state_dict(self) -> dict[str, Any]:
        if self.swapped:
            raise RuntimeError("EMA.state_dict: the parameters are the averages just now")
        return {"t": self.t, "average": numbered(self.params, self.average)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        t, given = parts("EMA.load_state_dict", state, "t", "average")
        average = keyed("EMA.load_state_dict", self.params, given)
        if len(average) != len(self.params):
            raise ValueError(f"EMA.load_state_dict: {len(average)} averages for {len(self.params)} parameters")
        self.average, self.t = {p: average[p] for p in self.params}, int(t)
