"""L-BFGS: Newton's method with a Hessian guessed from the latest steps."""

import math
from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle.autograd import follows_torch
from needle_ndarray import NDArray
from needle_nn.optim.closures import Closure, ClosureOptimizer, Counted, Loss, dot, finite, largest
from needle_nn.optim.options import Option, count
from needle_nn.optim.state import as_array, parts


class LBFGS(ClosureOptimizer):
    """x += a d with d = -H g: H is built from s = x' - x and y = g' - g of the latest steps, a by a search along d

    Parameters
    ----------
    params : Tensors, one group
    lr : the first length a that is tried
    max_iter : iterations in a `step`
    history : pairs (s, y) that are kept; `history_size` is PyTorch's name
    tolerance_grad, tolerance_change : stop where no |g| is larger, or where nothing moves further
    line_search : double or halve a until the loss falls by 1e-4 a |g.d| and the slope by a tenth; else a = lr always, which is
        the default within `needle.compat("torch")`; there, line_search_fn="strong_wolfe" asks for it
    max_eval : evaluations in a `step`, after which no iteration begins

    For losses of all the data, without noise. Not for mini-batches.

    >>> import needle as ndl
    >>> w = ndl.Tensor([-1.0, 2.0], dtype="float64")
    >>> def loss():
    ...     x, y = w[0], w[1]
    ...     return (1 - x) ** 2 + 100 * (y - x * x) ** 2
    >>> optimizer = LBFGS([w], max_iter=60)
    >>> optimizer.step(loss)
    104.0
    >>> [round(value, 6) for value in w.tolist()]
    [1.0, 1.0]
    """

    lr, tolerance_grad, tolerance_change = Option(), Option(), Option()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        history: int = 10,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        line_search: bool | None = None,
        *,
        max_eval: int | None = None,
        history_size: int | None = None,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search_fn {line_search_fn!r}: expected None or 'strong_wolfe'")
        if line_search is None:
            line_search = line_search_fn is not None or not follows_torch()
        history = history if history_size is None else history_size
        super().__init__(params, lr=lr, tolerance_grad=tolerance_grad, tolerance_change=tolerance_change)
        self.max_iter, self.history = count("LBFGS", "max_iter", max_iter), count("LBFGS", "history", history)
        self.line_search, self.max_eval = bool(line_search), max_eval
        self.pairs: list[tuple[NDArray, NDArray]] = []

    def step(self, closure: Closure | None = None) -> float:
        """Up to max_iter iterations; the loss at the start."""
        closure = Counted(self._closure(closure))
        x = self._place()
        loss, g = self._evaluate(closure)
        first, most = loss, math.inf if self.max_eval is None else self.max_eval
        for _ in range(self.max_iter):
            if not finite(loss) or largest(g) <= self.tolerance_grad or closure.calls >= most:
                break
            d = self._direction(g)
            slope = dot(g, d)
            if not slope < 0:  # the pairs are of no use here
                self.pairs.clear()
                d, slope = -g, -dot(g, g)
            a = self.lr if self.pairs else self.lr * min(1.0, 1.0 / abs(g).sum().item())
            found = self._search(closure, x, d, a, loss, slope)
            if found is None:
                break
            new_x, new_loss, new_g = found
            self.t += 1
            s, y = new_x - x, new_g - g
            if dot(s, y) > 1e-10 * dot(y, y):
                self.pairs = [*self.pairs, (s, y)][-self.history :]
            moved, fell = largest(s), abs(new_loss - loss)
            x, loss, g = new_x, new_loss, new_g
            if moved <= self.tolerance_change or fell <= self.tolerance_change * 1e-3:
                break
        self._move(x)
        return Loss(first)

    def to(self, device: Any) -> "LBFGS":
        super().to(device)
        self.pairs = [(s.to(device), y.to(device)) for s, y in self.pairs]
        return self

    def _direction(self, g: NDArray) -> NDArray:
        """-H g by the two loops over the pairs, newest first and oldest first."""
        q, weights = g, []
        for s, y in reversed(self.pairs):
            weights.append(dot(s, q) / dot(s, y))
            q = q - y * weights[-1]
        if self.pairs:
            s, y = self.pairs[-1]
            q = q * (dot(s, y) / dot(y, y))
        for (s, y), weight in zip(self.pairs, reversed(weights), strict=True):
            q = q + s * (weight - dot(y, q) / dot(s, y))
        return -q

    def _search(
        self, closure: Closure, x: NDArray, d: NDArray, a: float, loss: float, slope: float
    ) -> tuple[NDArray, float, NDArray] | None:
        """(place, loss, gradient) at some a along d that is good enough; None where there is none."""
        low, high = 0.0, math.inf
        for _ in range(40):
            place = x + d * a
            self._move(place)
            new, g = self._evaluate(closure)
            if not self.line_search:
                return place, new, g
            if not new <= loss + 1e-4 * a * slope:  # too far, or not a number
                high = a
            elif dot(g, d) < 0.9 * slope and finite(new):  # it goes on falling as steeply
                low = a
            else:
                return place, new, g
            a = 2 * low if high == math.inf else (low + high) / 2
        return None

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        pairs = [[s.copy(), y.copy()] for s, y in self.pairs]
        return {**state, "pairs": pairs, "kept": {**state["kept"], "pairs": list(range(len(pairs)))}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        (given,) = parts("LBFGS.load_state_dict", state, "pairs")
        size, like = sum(p.size for p in self.params), nd.zeros(0, "float64", self.params[0].device)
        if any(len(pair) != 2 for pair in given) or len(given) != len(state.get("kept", {}).get("pairs", given)):
            raise ValueError(f"LBFGS.load_state_dict: {len(given)} pairs, or half ones: the state is incomplete")
        pairs = [(as_array(s, like), as_array(y, like)) for s, y in given]
        if any(v.shape != (size,) for pair in pairs for v in pair):
            raise ValueError(f"LBFGS.load_state_dict: pairs of {pairs[0][0].size} elements, the parameters have {size}")
        super().load_state_dict(state)
        self.pairs = pairs
