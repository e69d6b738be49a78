"""Steps of optimizers, in place."""

from typing import Any

from needle_ndarray.backend import UNARY, Backend, Op
from needle_ndarray.ndarray import NDArray, unary_op


def penalised(p: NDArray, g: NDArray, weight_decay: float, l1: float) -> NDArray:
    """g + weight_decay p + l1 sign(p)"""
    g = g if weight_decay == 0 else g + p * weight_decay
    return g if l1 == 0 else g + unary_op(UNARY["sign"], p) * l1


def sgd_step(
    backend: Backend,
    params: list[NDArray],
    grads: list[NDArray],
    u: list[NDArray] | None,
    nesterov: bool,
    hyperparameters: tuple[float, ...],
) -> None:
    lr, momentum, dampening, weight_decay, l1, correction = hyperparameters
    for i, p in enumerate(params):
        along = penalised(p, grads[i], weight_decay, l1)
        if u is not None:
            each = along * (1 - dampening)
            backend.copy(u[i] * momentum + each, u[i])
            along = (u[i] * momentum + each if nesterov else u[i]) / correction
        backend.copy(p - along * lr, p)


def adam_step(
    backend: Backend,
    params: list[NDArray],
    grads: list[NDArray],
    m: list[NDArray],
    v: list[NDArray],
    decoupled: bool,
    hyperparameters: tuple[float, ...],
) -> None:
    lr, beta1, beta2, eps, weight_decay, correction1, correction2 = hyperparameters
    for i, p in enumerate(params):
        g = penalised(p, grads[i], 0 if decoupled else weight_decay, 0)
        if decoupled and weight_decay != 0:
            backend.copy(p - p * (lr * weight_decay), p)
        backend.copy(m[i] * beta1 + g * (1 - beta1), m[i])
        backend.copy(v[i] * beta2 + g * (1 - beta2) * g, v[i])
        backend.copy(p - (m[i] / correction1) * lr / ((v[i] / correction2).sqrt() + eps), p)


def step(
    backend: Backend,
    op: Op,
    params: list[NDArray],
    grads: list[NDArray],
    m: Any,
    v: Any,
    hyperparameters: tuple[float, ...],
) -> None:
    if op.name in ("sgd", "nesterov"):
        sgd_step(backend, params, grads, m, op.name == "nesterov", hyperparameters)
    else:
        adam_step(backend, params, grads, m, v, op.name == "adamw", hyperparameters)
