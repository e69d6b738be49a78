"""The same in JAX under jit: a model is a function that asks for its parameters one after the other."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.workloads import DROP, LR, batch_of, draw, sizes


class Parameters:
    """Hands out parameters in the order they are asked for: drawn the first time, those given later.

    Running statistics of batch norms are kept separately, since they are not trained; `new_running` are those after the pass.
    """

    def __init__(self, given: list | None = None, running: list | None = None, key: Any = None, training: bool = True):
        self.rng = np.random.default_rng(0)
        self.given, self.running, self.key, self.training = given, running, key, training
        self.made: list[Any] = []
        self.new_running: list[Any] = []

    def __call__(self, kind: str, *shape: int) -> Any:
        value = jnp.asarray(draw(self.rng, kind, shape)) if self.given is None else self.given[len(self.made)]
        self.made.append(value)
        return value

    def statistics(self, n: int) -> Any:
        start = (jnp.zeros(n), jnp.ones(n))
        return start if self.running is None else self.running[len(self.new_running)]


def linear(p: Parameters, x: Any, n: int, bias: bool = True) -> Any:
    y = x @ p("matrix", x.shape[-1], n)
    return y + p("bias", n) if bias else y


def conv(p: Parameters, x: Any, n: int, k: int, stride: int = 1) -> Any:
    """NHWC"""
    w, pad = p("matrix", k, k, x.shape[-1], n), (k - 1) // 2
    numbers = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=numbers)
    return y + p("bias", n)


def batch_norm(p: Parameters, x: Any) -> Any:
    n = x.shape[-1]
    w, b, axes = p("scale", n), p("bias", n), tuple(range(x.ndim - 1))
    old_mean, old_var = p.statistics(n)
    mean, var = (x.mean(axes), x.var(axes)) if p.training else (old_mean, old_var)
    p.new_running.append((0.9 * old_mean + 0.1 * mean, 0.9 * old_var + 0.1 * var))
    return (x - mean) * lax.rsqrt(var + 1e-5) * w + b


def layer_norm(p: Parameters, x: Any) -> Any:
    w, b = p("scale", x.shape[-1]), p("bias", x.shape[-1])
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def dropout(p: Parameters, x: Any, rate: float) -> Any:
    if p.key is None or not rate:
        return x
    p.key, key = jax.random.split(p.key)
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def lstm(p: Parameters, x: Any, n: int) -> Any:
    w_ih, w_hh = p("matrix", x.shape[-1], 4 * n), p("matrix", n, 4 * n)
    b_ih, b_hh = p("bias", 4 * n), p("bias", 4 * n)

    def step(state, projected):
        h, c = state
        i, f, g, o = jnp.split(projected + h @ w_hh, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], n))
    return lax.scan(step, (zeros, zeros), x @ w_ih + b_ih + b_hh)[1]


def gru(p: Parameters, x: Any, n: int) -> Any:
    w_ih, w_hh = p("matrix", x.shape[-1], 3 * n), p("matrix", n, 3 * n)
    b_ih, b_hh = p("bias", 3 * n), p("bias", 3 * n)

    def step(h, projected):
        (x_r, x_z, x_n), (h_r, h_z, h_n) = jnp.split(projected, 3, -1), jnp.split(h @ w_hh + b_hh, 3, -1)
        r, z = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
        new = jnp.tanh(x_n + r * h_n)
        h = new + z * (h - new)
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], n)), x @ w_ih + b_ih)[1]


def attention(p: Parameters, x: Any) -> Any:
    b, t, c = x.shape
    normed = [layer_norm(p, x) for _ in range(3)]
    heads = [linear(p, y, 256, bias=False).reshape(b, t, 8, 32) for y in normed]  # (B, T, H, D)
    y = jax.nn.dot_product_attention(*heads, is_causal=True)
    return linear(p, y.reshape(b, t, 256), c, bias=False)


def language_model(p: Parameters, ids: Any, name: str) -> Any:
    kind, (words, embedding, hidden, layers, steps) = sizes(name)
    x = jnp.take(p("table", words, embedding), ids, axis=0)
    if kind == "transformer":
        x = jnp.swapaxes(x, 0, 1) + p("table", steps, embedding)[: len(ids)]
        for _ in range(layers):
            x = x + attention(p, x)
            x = x + linear(p, jax.nn.relu(linear(p, layer_norm(p, x), hidden)), embedding)
        x = jnp.swapaxes(x, 0, 1)
    else:
        for _ in range(layers):
            x = {"lstm": lstm, "gru": gru}[kind](p, x, hidden)
    return linear(p, x.reshape(-1, x.shape[-1]), words)


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def residual(p: Parameters, x: Any, n: int) -> Any:
    return x + conv_bn(p, conv_bn(p, x, n, 3), n, 3)


def conv_bn(p: Parameters, x: Any, n: int, k: int, stride: int = 1) -> Any:
    return jax.nn.relu(batch_norm(p, conv(p, x, n, k, stride)))


def forward(p: Parameters, x: Any, name: str, drop: float) -> Any:
    relu = jax.nn.relu
    if name == "mlp":
        return linear(p, jnp.tanh(linear(p, jnp.tanh(linear(p, x, 16)), 16)), 1)
    if name == "deep":
        for _ in range(20):
            x = relu(linear(p, x, 512))
        return x
    if name == "mlpresnet":
        x = relu(linear(p, x, 100))
        for _ in range(3):
            inner = dropout(p, relu(batch_norm(p, linear(p, x, 50))), drop)
            x = relu(x + batch_norm(p, linear(p, inner, 100)))
        return linear(p, x, 10)
    if name == "lenet":
        x = pool(relu(conv(p, x, 6, 5)))
        x = pool(relu(conv(p, x, 16, 5)))
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # weights are those of NCHW
        return linear(p, relu(linear(p, relu(linear(p, x, 120)), 84)), 10)
    if name == "resnet9":
        x = residual(p, conv_bn(p, conv_bn(p, x, 16, 7, 4), 32, 3, 2), 32)
        x = residual(p, conv_bn(p, conv_bn(p, x, 64, 3, 2), 128, 3, 2), 128)
        return linear(p, relu(linear(p, x.reshape(len(x), -1), 128)), 10)
    return language_model(p, x, name)


def inputs(name: str, batch: int) -> tuple[Any, Any]:
    x, y = (jnp.asarray(a) for a in batch_of(name, batch))
    return (jnp.asarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x), y


def changed(kind: str, lr: float, t: Any, p: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
    """One parameter after step t, and its states."""
    if kind == "sgd":
        return p - lr * g, m, v
    if kind == "momentum":
        m = 0.9 * m + g
        return p - lr * m, m, v
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    if kind == "adamw":
        p = p - lr * 0.01 * p
    return p - lr * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def states(kind: str, params: list) -> tuple[list, list]:
    """Two states of each parameter, as far as this optimizer has them."""
    kept = {"sgd": 0, "momentum": 1}.get(kind, 2)
    made = [[jnp.zeros_like(p) if i < kept else jnp.zeros(()) for p in params] for i in range(2)]
    return made[0], made[1]


def train(name: str, batch: int, random: bool = True) -> Callable[[], Any]:
    """A function that does a step and returns the loss."""
    x, y = inputs(name, batch)
    drawing = Parameters()
    forward(drawing, x, name, 0.0)
    params, running, drop = drawing.made, drawing.new_running, DROP if random else 0.0
    running = [(jnp.zeros_like(mean), jnp.ones_like(var)) for mean, var in running]
    kind, lr = ("sgd", LR[name]) if name in LR else ("adam", 1e-3)

    def loss_of(params, running, key, x, y):
        p = Parameters(params, running, key if drop else None)
        out = forward(p, x, name, drop)
        if name in LR:
            return ((out - y) ** 2).mean(), p.new_running
        return -jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1).mean(), p.new_running

    def update(x, y, t, params, running, m, v, key):
        key, used = jax.random.split(key)
        (loss, running), grads = jax.value_and_grad(loss_of, has_aux=True)(params, running, used, x, y)
        new = [changed(kind, lr, t, *each) for each in zip(params, grads, m, v, strict=True)]
        params, m, v = ([each[i] for each in new] for i in range(3))
        return loss, (t + 1, params, running, m, v, key)

    jitted = jax.jit(update, donate_argnums=(3, 4, 5, 6))
    state = (jnp.float32(1), params, running, *states(kind, params), jax.random.key(0))

    def step() -> Any:
        nonlocal state
        loss, state = jitted(x, y, *state)
        return loss.block_until_ready()

    return step


def infer(name: str, batch: int = 1) -> Callable[[], Any]:
    """A function that computes the logits of a batch."""
    x, _ = inputs(name, batch)
    drawing = Parameters(training=False)
    forward(drawing, x, name, 0.0)
    made = drawing.made
    jitted = jax.jit(lambda params, x: forward(Parameters(params, training=False), x, name, 0.0))
    return lambda: jitted(made, x).block_until_ready()


def optimizer(kind: str, shapes: list[tuple[int, ...]]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A step of an optimizer with gradients that stay, and a function that returns the parameters."""
    rng = np.random.default_rng(0)
    params = [jnp.asarray(draw(rng, "matrix", s)) for s in shapes]
    grads = [jnp.asarray(draw(rng, "matrix", s)) for s in shapes]

    def update(t, params, m, v, grads):
        new = [changed(kind, 1e-3, t, *each) for each in zip(params, grads, m, v, strict=True)]
        return t + 1, *([each[i] for each in new] for i in range(3))

    jitted = jax.jit(update, donate_argnums=(1, 2, 3))
    state = (jnp.float32(1), params, *states(kind, params))

    def step() -> Any:
        nonlocal state
        state = jitted(*state, grads)
        state[1][-1].block_until_ready()

    return step, lambda: state[1]
