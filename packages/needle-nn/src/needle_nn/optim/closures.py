"""What optimizers of whole functions share: parameters as one vector, and the loss and gradient at a place."""

import math
from collections.abc import Callable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_nn.optim.optimizer import Optimizer, writable

Closure = Callable[[], Any]


class ClosureOptimizer(Optimizer):
    """An optimizer whose `step(closure)` may ask for the loss several times; vectors are float64."""

    def step(self, closure: Closure | None = None) -> Any:
        """Change the parameters to lower the loss; `closure()` computes it, and may call backward. Returns the first loss."""
        raise NotImplementedError(f"{type(self).__name__}.step")

    def _closure(self, closure: Any) -> Closure:
        if not callable(closure):
            raise TypeError(f"{type(self).__name__}.step: expected a function that computes the loss, got {closure!r}")
        if len(self.param_groups) > 1:
            raise ValueError(f"{type(self).__name__}: one group of parameters only, got {len(self.param_groups)}")
        return closure

    def _loss(self, closure: Closure) -> Tensor:
        """The loss here, with fresh gradients of the parameters."""
        self.reset_grad()
        loss = closure()
        if not isinstance(loss, Tensor) or loss.size != 1:
            raise TypeError(
                f"{type(self).__name__}.step: the closure returned {loss!r:.60}, expected a loss of one element"
            )
        if all(p.grad is None for p in self.params):
            loss.backward()
        return loss

    def _evaluate(self, closure: Closure) -> tuple[float, NDArray]:
        loss = self._loss(closure)
        return float(loss.realize_cached_data().item()), self._gradient()

    def _gradient(self) -> NDArray:
        """All gradients as one vector, 0 where there is none."""
        return self._vector([None if p.grad is None else p.grad.realize_cached_data() for p in self.params])

    def _place(self) -> NDArray:
        return self._vector([p.realize_cached_data() for p in self.params])

    def _vector(self, arrays: list[NDArray | None]) -> NDArray:
        device = self.params[0].device
        parts = [
            nd.zeros(p.size, "float64", device) if a is None else a.reshape((p.size,)).astype("float64")
            for p, a in zip(self.params, arrays, strict=True)
        ]
        return nd.concatenate(parts)

    def _move(self, place: NDArray) -> None:
        """The parameters become the parts of a vector."""
        start = 0
        for p in self.params:
            writable(p)[...] = place[start : start + p.size].reshape(p.shape)
            start += p.size


class Counted:
    """A closure, and how often it has been called."""

    def __init__(self, closure: Closure) -> None:
        self.closure, self.calls = closure, 0

    def __call__(self) -> Any:
        self.calls += 1
        return self.closure()


class Loss(float):
    """A loss as a number, which can be asked as a tensor is: `optimizer.step(closure).item()`."""

    def item(self) -> float:
        return float(self)


def dot(a: NDArray, b: NDArray) -> float:
    return (a * b).sum().item()


def largest(a: NDArray) -> float:
    return abs(a).max().item() if a.size else 0.0


def finite(*values: float) -> bool:
    return all(map(math.isfinite, values))
