"""Steps of optimizers: one launch for up to 64 parameters of one dtype."""

from typing import Any

import numpy as np

from needle_cuda.launch import SCALARS
from needle_cuda.products import tiles
from needle_cuda.views import compact
from needle_ndarray import NDArray
from needle_ndarray.backend import Op

COUNT = 64  # parameters of one launch (optim.cu)
CHUNK = 4096  # elements of one block
#: struct Parameters: addresses of p, g and the states, sizes, and the first block of each.
PARAMETERS = np.dtype(
    [("at", np.uint64, (4, COUNT)), ("size", np.int64, COUNT), ("first", np.int64, COUNT), ("count", np.int64)]
)
VELOCITY, NESTEROV, WEIGHT_DECAY, L1, DECOUPLED = 1, 2, 4, 8, 16

Arrays = list[NDArray]


class Optimizers:
    """Verbs of CUDABackend: steps of optimizers, in place. What is not dense is copied before and, where it changes, after."""

    _launch: Any
    copy: Any

    def step(
        self,
        op: Op,
        params: Arrays,
        grads: Arrays,
        m: Arrays | None,
        v: Arrays | None,
        hyperparameters: tuple[float, ...],
    ) -> None:
        lists = [each for each in (params, grads, m, v) if each is not None]
        if op.name in ("sgd", "nesterov"):
            lr, momentum, dampening, weight_decay, l1, correction = hyperparameters
            rule = VELOCITY * (m is not None) | NESTEROV * (op.name == "nesterov")
            rule |= WEIGHT_DECAY * (weight_decay != 0) | L1 * (l1 != 0)
            self._step("sgd_step", rule, (lr, momentum, 1 - dampening, weight_decay, l1, correction), lists)
        else:
            lr, beta1, beta2, eps, weight_decay, *corrections = hyperparameters
            rule = (DECOUPLED if op.name == "adamw" else WEIGHT_DECAY) * (weight_decay != 0)
            means = (beta1, 1 - beta1, beta2, 1 - beta2)
            self._step("adam_step", rule, (lr, *means, eps, weight_decay, lr * weight_decay, *corrections), lists)

    def _step(self, name: str, rule: int, numbers: tuple, lists: list[Arrays]) -> None:
        """Launch for the parameters of each dtype, COUNT of them at a time."""
        items = [item for item in zip(*lists, strict=True) if item[0].size]
        for dtype in dict.fromkeys(item[0].dtype for item in items):
            own = [item for item in items if item[0].dtype == dtype]
            given = [np.int64(rule), *[SCALARS[dtype](number) for number in numbers]]
            for start in range(0, len(own), COUNT):
                self._step_some(name, dtype, given, own[start : start + COUNT])

    def _step_some(self, name: str, dtype: Any, given: list, items: list[tuple]) -> None:
        dense_items = [[compact(a) for a in item] for item in items]
        table, blocks = np.zeros((), PARAMETERS), 0
        for i, made in enumerate(dense_items):
            table["at"][: len(made), i] = [a._handle.ptr() + a.offset * a.itemsize for a in made]
            table["size"][i], table["first"][i] = made[0].size, blocks
            blocks += tiles(made[0].size, CHUNK)
        table["count"] = len(items)
        self._launch("optim.cu", name, dtype, blocks, table, *given, grid=(blocks,))
        for item, made in zip(items, dense_items, strict=True):
            for k, (a, target) in enumerate(zip(made, item, strict=True)):
                if k != 1 and a is not target:
                    self.copy(a, target)
