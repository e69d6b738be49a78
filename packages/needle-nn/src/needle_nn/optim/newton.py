"""Newton's method, for a few hundred parameters."""

from collections.abc import Iterable
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle_nn.optim.closures import Closure, ClosureOptimizer
from needle_nn.optim.options import Option


class Newton(ClosureOptimizer):
    """x -= lr (H + damping I)^-1 g, with the Hessian H computed row by row: one backward pass for each element

    Parameters
    ----------
    params : Tensors, one group
    lr : 1 for the step to the minimum of the quadratic model
    damping : added to the diagonal; with a large one the steps are those of gradient descent

    >>> import needle as ndl
    >>> w = ndl.Tensor([4.0, -3.0])
    >>> optimizer = Newton([w])
    >>> optimizer.step(lambda: ((w - 1) ** 2).sum() + w[0] * w[1])
    13.0
    >>> [round(value, 4) for value in w.tolist()]
    [0.6667, 0.6667]
    """

    lr, damping = Option(), Option()

    def __init__(self, params: Iterable[Any], lr: float = 1.0, damping: float = 0.0) -> None:
        super().__init__(params, lr=lr, damping=damping)

    def step(self, closure: Closure | None = None) -> float:
        """One step; the loss at the start. The closure must not forget the graph of its gradients."""
        loss = self._loss(self._closure(closure))
        g, hessian = self._gradient().numpy(), self._hessian()
        hessian[np.diag_indices_from(hessian)] += self.damping
        try:
            d = np.linalg.solve(hessian, g)
        except np.linalg.LinAlgError:
            raise ValueError("Newton.step: the Hessian is singular: try a damping") from None
        self._move(self._place() - nd.array(d, "float64", self.params[0].device) * self.lr)
        self.t += 1
        return float(loss.realize_cached_data().item())

    def _hessian(self) -> np.ndarray:
        grads, rows = [p.grad for p in self.params], []
        for p, g in zip(self.params, grads, strict=True):
            for i in range(p.size):
                self.reset_grad()
                if g is not None and g.requires_grad:
                    g.reshape((p.size,))[i].backward()
                rows.append(self._gradient().numpy())
        for p, g in zip(self.params, grads, strict=True):
            p.grad = g
        return np.stack(rows)
