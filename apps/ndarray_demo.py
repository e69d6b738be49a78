"""A two-layer network learns to tell two spirals apart, on NDArrays alone: the gradients are worked out by hand.

    python apps/ndarray_demo.py [--steps N] [--seed N] [--hidden N]

What autograd will do for you later is in `gradients`, one line per formula.
"""

import argparse
import time
from typing import Any

import numpy as np

import needle
from needle import backend_ndarray as nd

POINTS_PER_SPIRAL = 200


def spirals(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two arms of 1.5 turns with some noise: points (2N, 2) in about [-1, 1], labels (2N,) in {0, 1}."""
    t = np.sqrt(rng.uniform(0.05, 1.0, POINTS_PER_SPIRAL))
    arm = np.stack([t * np.cos(3 * np.pi * t), t * np.sin(3 * np.pi * t)], axis=1)
    x = np.concatenate([arm, -arm]) + rng.normal(0, 0.02, (2 * POINTS_PER_SPIRAL, 2))
    y = np.repeat([0, 1], POINTS_PER_SPIRAL)
    return x.astype("float32"), y


def init(rng: np.random.Generator, hidden: int) -> Any:
    """Weights and biases of 2 -> hidden -> hidden -> 2."""
    sizes = [(2, hidden), (hidden, hidden), (hidden, 2)]
    weights = [nd.array(rng.normal(0, np.sqrt(2 / m), (m, n))) for m, n in sizes]
    biases = [nd.array(rng.normal(0, 0.5, (1, n))) for _, n in sizes]
    return weights, biases


def forward(weights: list[nd.NDArray], biases: list[nd.NDArray], x: Any) -> Any:
    """The activations of every layer: x, tanh(x W1 + b1), tanh(h1 W2 + b2), h2 W3 + b3."""
    h1 = (x @ weights[0] + biases[0]).tanh()
    h2 = (h1 @ weights[1] + biases[1]).tanh()
    return x, h1, h2, h2 @ weights[2] + biases[2]


def softmax(logits: nd.NDArray) -> nd.NDArray:
    """p = exp(z - max z) / sum exp(z - max z), by row"""
    e = (logits - logits.max(axis=1, keepdims=True)).exp()
    return e / e.sum(axis=1, keepdims=True)


def gradients(weights: list[nd.NDArray], activations: Any, targets: nd.NDArray) -> Any:
    """Loss = -mean log p[label], and its gradients by every weight and bias."""
    x, h1, h2, logits = activations
    p = softmax(logits)  # (N, 2)
    loss = -(((p + 1e-12).log() * targets).sum() / x.shape[0])
    dz3 = (p - targets) / x.shape[0]
    dz2 = (dz3 @ weights[2].permute((1, 0))) * (1 - h2 * h2)
    dz1 = (dz2 @ weights[1].permute((1, 0))) * (1 - h1 * h1)
    layers = [(x, dz1), (h1, dz2), (h2, dz3)]
    dw = [a.permute((1, 0)) @ dz for a, dz in layers]
    db = [dz.sum(axis=0, keepdims=True) for _, dz in layers]
    return loss, [*dw, *db]


def adam(params: list[nd.NDArray], grads: list[nd.NDArray], state: Any, step: int, lr: float = 0.01) -> None:
    """u = 0.9 u + 0.1 g; v = 0.999 v + 0.001 g^2; param -= lr u' / (sqrt(v') + eps), u' and v' without bias"""
    for i, (param, g) in enumerate(zip(params, grads, strict=True)):
        u, v = state.get(i, (g * 0, g * 0))
        state[i] = u, v = u * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        param[...] = param - lr * (u / (1 - 0.9**step)) / ((v / (1 - 0.999**step)) ** 0.5 + 1e-8)


def predict(weights: list[nd.NDArray], biases: list[nd.NDArray], x: Any) -> Any:
    """0 or 1 for every row of x, as a NumPy array."""
    logits = forward(weights, biases, nd.array(x))[-1]
    return (logits[:, 1] > logits[:, 0]).numpy().reshape(-1).astype(int)


def picture(
    weights: list[nd.NDArray], biases: list[nd.NDArray], x: Any, y: np.ndarray, columns: int = 64, rows: int = 28
) -> str:
    """What the network answers on [-1.1, 1.1]^2 ('.' or ' '), and the training points on it ('o' or 'x')."""
    across, down = np.linspace(-1.1, 1.1, columns), np.linspace(1.1, -1.1, rows)
    grid = np.stack(np.meshgrid(across, down), axis=-1).reshape(-1, 2)
    cells = np.array([" ", "."])[predict(weights, biases, grid)].reshape(rows, columns)
    column = np.abs(across[None] - x[:, :1]).argmin(axis=1)
    row = np.abs(down[None] - x[:, 1:]).argmin(axis=1)
    cells[row, column] = np.array(["x", "o"])[y]
    return "\n".join("".join(line) for line in cells)


def train(steps: int, seed: int, hidden: int) -> Any:
    """Train on the whole set at every step; return the weights, biases, data and final accuracy."""
    rng = np.random.default_rng(seed)
    x, y = spirals(rng)
    weights, biases = init(rng, hidden)
    points, targets = nd.array(x), nd.array(np.eye(2)[y])
    state: dict[str, Any] = {}
    for step in range(1, steps + 1):
        loss, grads = gradients(weights, forward(weights, biases, points), targets)
        adam([*weights, *biases], grads, state, step)
        if step % max(steps // 8, 1) == 0:
            accuracy = (predict(weights, biases, x) == y).mean()
            print(f"step {step:5d}   loss {float(loss.numpy().reshape(-1)[0]):.4f}   accuracy {accuracy:.3f}")
    return weights, biases, x, y, (predict(weights, biases, x) == y).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=32)
    args = parser.parse_args()

    needle.show_config()
    start = time.perf_counter()
    weights, biases, x, y, accuracy = train(args.steps, args.seed, args.hidden)
    seconds = time.perf_counter() - start
    print(picture(weights, biases, x, y))
    print(f"{args.steps} steps in {seconds:.2f} s, accuracy {accuracy:.3f} on {len(y)} points")


if __name__ == "__main__":
    main()
