"""The contract of the steps of optimizers: the very bits of the formula in NumPy, in the parameter's dtype."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from needle_ndarray.testing.cases import FLOATS, KINDS, SHAPE, Suite, plain, values
from needle_ndarray.testing.oracle import assert_same
from needle_ndarray.testing.tables import each

SGD = {
    "lr": 0.1,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "l1": 0.0,
    "nesterov": False,
    "correction": 1.0,
}
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": False}
ADAM |= {"correction1": 1.0, "correction2": 1.0}
MEAN = {"momentum": 0.9, "dampening": 0.9}

#: (verb, number of states, what differs from the numbers above)
RULES: dict[str, tuple[str, int, dict]] = {
    "sgd": ("sgd_step", 0, {}),
    "sgd, penalties": ("sgd_step", 0, {"weight_decay": 0.3, "l1": 0.2}),
    "momentum": ("sgd_step", 1, MEAN),
    "momentum of 0": ("sgd_step", 1, {}),
    "undamped": ("sgd_step", 1, {"momentum": 0.7, "weight_decay": 0.3}),
    "l1": ("sgd_step", 1, {**MEAN, "l1": 0.2}),
    "nesterov": ("sgd_step", 1, {**MEAN, "nesterov": True}),
    "nesterov, unbiased": ("sgd_step", 1, {**MEAN, "nesterov": True, "correction": 0.271, "weight_decay": 0.3}),
    "unbiased": ("sgd_step", 1, {**MEAN, "correction": 0.19}),
    "adam": ("adam_step", 2, {"correction1": 0.19, "correction2": 0.001999}),
    "adam, uncorrected": ("adam_step", 2, {"eps": 1e-3, "beta1": 0.0}),
    "adam, weight decay": ("adam_step", 2, {"weight_decay": 0.3}),
    "adamw": ("adam_step", 2, {"weight_decay": 0.3, "decoupled": True}),
}
#: Nothing, one element, tails of vectors, several staged chunks, several blocks.
SIZES = [(0,), (), (1,), (3, 5), (31,), (1025,), (2, 3000), (5, 7, 9, 11), (40000,)]
#: Large ones, which give threads work, with a few rules only.
VIEWS = [(rule, kind) for kind in KINDS for rule in RULES if not kind.startswith("large") or rule in ("l1", "adamw")]


def penalised(p: np.ndarray, g: np.ndarray, weight_decay: float, l1: float) -> np.ndarray:
    number = p.dtype.type
    g = g + number(weight_decay) * p if weight_decay else g
    return g + number(l1) * np.sign(p) if l1 else g


def sgd_step(p, g, u=None, *, lr, momentum, dampening, weight_decay, l1, nesterov, correction) -> list[np.ndarray]:
    """What becomes of p and u."""
    number = p.dtype.type
    g = penalised(p, g, weight_decay, l1)
    if u is None:
        return [p - number(lr) * g]
    u = number(momentum) * u + number(1 - dampening) * g
    along = number(momentum) * u + number(1 - dampening) * g if nesterov else u
    return [p - number(lr) * (along / number(correction)), u]


def adam_step(
    p, g, m, v, *, lr, beta1, beta2, eps, weight_decay, decoupled, correction1, correction2
) -> list[np.ndarray]:
    """What becomes of p, m and v."""
    number = p.dtype.type
    if decoupled and weight_decay:
        p = p - number(lr * weight_decay) * p
    g = penalised(p, g, 0 if decoupled else weight_decay, 0)
    m = number(beta1) * m + number(1 - beta1) * g
    v = number(beta2) * v + number(1 - beta2) * g * g
    return [p - number(lr) * (m / number(correction1)) / (np.sqrt(v / number(correction2)) + number(eps)), m, v]


def _at(make: Any, dtype: str, salt: int, shape: tuple[int, ...]) -> np.ndarray:
    return make(dtype, shape, salt)


ORACLES: dict[str, Any] = {"sgd_step": sgd_step, "adam_step": adam_step}


class OptimizerSuite(Suite):
    dtypes = pytest.mark.parametrize("dtype", FLOATS)
    rules = each("rule", RULES)

    def step_case(self, rule, shapes, dtypes, kinds, make=plain):
        """One call for parameters of these shapes, dtypes and kinds (of the gradient, of p and of every state)."""
        verb, states, differs = RULES[rule]
        numbers = {**(SGD if verb == "sgd_step" else ADAM), **differs}
        for name, call in self.calls(verb).items():
            targets: list[list] = [[] for _ in range(1 + states)]
            grads, expected = [], []
            for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
                before = [make(dtype, shape, 10 * i + k).copy() for k in range(1 + states)]
                before[2:] = [np.abs(v) for v in before[2:]]  # a mean of squares
                grads.append(self.view(kinds[0], partial(_at, make, dtype, 10 * i + 5), shape))
                with np.errstate(all="ignore"):
                    expected.append(ORACLES[verb](before[0], grads[-1][1], *before[1:], **numbers))
                for k, initial in enumerate(before):
                    targets[k].append(self.canvas(kinds[1 + k], shape, dtype, initial))
            lists = [[canvas.out for canvas in column] for column in targets]
            call(lists[0], [g for g, _ in grads], *lists[1:], *[None] * (not states), *numbers.values())
            for i, results in enumerate(expected):
                for k, result in enumerate(results):
                    assert_same(targets[k][i].result(), result, context=f"{name}, parameter {i}, result {k}:")
                assert_same(self.backend.to_host(grads[i][0]), grads[i][1], context=f"{name}: gradient {i}")

    @rules
    @dtypes
    def test_step_shapes(self, dtype, rule):
        """All of them in one call."""
        self.step_case(rule, SIZES, [dtype] * len(SIZES), ["compact"] * 4)

    @each("rule, kind", VIEWS)
    def test_step_views(self, rule, kind):
        """Gradients of every kind; parameters and states of every kind that can be written."""
        shape, free = KINDS[kind].shape(SHAPE), KINDS[kind].writable
        self.step_case(rule, [shape] * 2, FLOATS, [kind] * 4 if free else [kind] + ["compact"] * 3)
        if free and shape == SHAPE:
            for kinds in (["compact", kind, "compact", "compact"], ["compact", "compact", kind, "sliced"]):
                self.step_case(rule, [shape], ["float32"], kinds)

    @rules
    @dtypes
    def test_step_of_special_values(self, dtype, rule):
        """NaN, infinities, signed zeros and subnormals, as the formula has them."""
        self.step_case(rule, [(3000,)], [dtype], ["compact"] * 4, values)

    def test_step_of_no_parameters(self):
        for verb, states, numbers in (("sgd_step", 1, SGD), ("adam_step", 2, ADAM)):
            for call in self.calls(verb).values():
                call([], [], *[[]] * states, *numbers.values())
